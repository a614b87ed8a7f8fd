"""Large tensors: in by Upload, out by Download, both to be gone on with after a broken call."""

import numpy as np
import pytest

from gradwire.v1 import commands_pb2 as c
from gradwire.v1 import service_pb2, types_pb2
from gradwire_server.session.state import transfers
from tests.server.harness import KIB, Id, Remote, command, op, refused, running, upload_parts

BACKENDS = [0, 2]

VALUES = np.random.default_rng(0).standard_normal((500, 100)).astype(np.float32)
DATA = VALUES.tobytes()


def create_of(
    session: Remote, transfer_id: str, shape: tuple[int, ...] = VALUES.shape, tensor_id: int = 0
) -> c.CreateRequest:
    transfer = c.Transfer(transfer_id=transfer_id, dtype=types_pb2.DTYPE_FLOAT32, shape=shape)
    return c.CreateRequest(session_id=session.id, id=tensor_id, requires_grad=True, transfer=transfer)


def pinned(session: Remote, tensor_id: int) -> c.Transfer:
    return session.stub.Read(c.ReadRequest(session_id=session.id, tensor=tensor_id)).transfer


def download(session: Remote, transfer_id: str, offset: int = 0) -> service_pb2.DownloadRequest:
    return service_pb2.DownloadRequest(session_id=session.id, transfer_id=transfer_id, offset=offset)


@pytest.fixture
def large(session: Remote) -> int:
    """The id of a tensor too large for a message."""
    return session.stub.Create(create_of(session, session.upload(DATA))).tensor.id


def test_uploaded_bytes_are_downloaded_unchanged(session: Remote, large: int) -> None:
    np.testing.assert_array_equal(session.read(large), VALUES)
    spec = session.describe(large).tensors[0]
    assert (spec.requires_grad, spec.is_leaf, list(spec.shape)) == (True, True, [500, 100])


def test_an_uploaded_tensor_is_one_like_any_other(session: Remote, large: int) -> None:
    total = session.op("sum", Id(session.op("mul", Id(large), 2.0).id))
    session.backward(total.id)
    np.testing.assert_array_equal(session.grad(large), np.full(VALUES.shape, 2.0, np.float32))


def test_bytes_are_counted_once_on_the_way(session: Remote) -> None:
    transfer_id = session.upload(DATA)
    assert session.describe().bytes == len(DATA)
    made = session.stub.Create(create_of(session, transfer_id)).tensor.id
    assert session.describe().bytes == len(DATA)
    session.release(made)
    assert session.describe().bytes == 0


def test_an_upload_is_consumed_once(session: Remote) -> None:
    transfer_id = session.upload(DATA)
    session.stub.Create(create_of(session, transfer_id))
    assert refused(session.stub.Create, create_of(session, transfer_id))[1] == "TRANSFER_NOT_FOUND"


def test_a_retried_create_consumes_once(session: Remote) -> None:
    request = create_of(session, session.upload(DATA))
    request.request_id = "again"
    assert session.stub.Create(request) == session.stub.Create(request)


def test_an_unfinished_or_misfit_upload_makes_no_tensor(session: Remote) -> None:
    partial = session.upload(DATA[:1000], total=len(DATA))
    code, reason, metadata = refused(session.stub.Create, create_of(session, partial))
    assert (code, reason, metadata["given"]) == ("INVALID_ARGUMENT", "PAYLOAD_SIZE", "1000")
    whole = session.upload(DATA)
    assert refused(session.stub.Create, create_of(session, whole, (500, 99)))[1] == "PAYLOAD_SIZE"
    assert refused(session.stub.Create, create_of(session, whole, (-1,)))[1] == "SHAPE"
    np.testing.assert_array_equal(session.read(session.stub.Create(create_of(session, whole)).tensor.id), VALUES)


def test_a_broken_upload_resumes_at_its_offset(session: Remote) -> None:
    half = 1536 * 64
    transfer_id = session.upload(DATA[:half], total=len(DATA))
    _, reason, metadata = refused(session.upload, DATA, transfer_id=transfer_id)
    assert (reason, metadata["received"]) == ("ARGUMENT_VALUE", str(half))
    asked = session.stub.Upload(iter(upload_parts(session.id, b"", transfer_id=transfer_id, total=len(DATA))))
    assert asked.received_bytes == half
    assert session.upload(DATA, start=half, transfer_id=transfer_id) == transfer_id
    np.testing.assert_array_equal(session.read(session.stub.Create(create_of(session, transfer_id)).tensor.id), VALUES)


def test_an_upload_is_found_by_its_request_id_until_it_is_consumed(session: Remote) -> None:
    def begin(**fields: object) -> service_pb2.UploadResponse:
        start = service_pb2.UploadStart(session_id=session.id, request_id="mine", **fields)
        rest = [service_pb2.UploadRequest(data=DATA[place : place + 1000]) for place in range(0, 3000, 1000)]
        return session.stub.Upload(
            iter([service_pb2.UploadRequest(start=start), *(rest if "offset" in fields else [])])
        )

    begun = begin(total_bytes=6000, offset=0)
    assert begun.received_bytes == 3000
    assert begin(total_bytes=6000) == begun
    assert refused(begin, total_bytes=5000)[1] == "ARGUMENT_VALUE"
    assert session.describe().bytes == 6000
    assert begin(total_bytes=6000, offset=3000).received_bytes == 6000
    session.stub.Create(create_of(session, begun.transfer_id, (1500,)))
    assert begin(total_bytes=6000).transfer_id != begun.transfer_id


def test_the_transfers_id_comes_before_the_bytes_are_sent(session: Remote) -> None:
    call = session.stub.Upload(iter(upload_parts(session.id, DATA)))
    assert isinstance(call, service_pb2.UploadResponse)
    response, told = session.stub.Upload.with_call(iter(upload_parts(session.id, DATA)))
    assert ("gradwire-transfer-id", response.transfer_id) in told.initial_metadata()


def test_more_bytes_than_announced_and_chunks_too_large(session: Remote) -> None:
    assert refused(session.upload, DATA, total=1000)[1] == "PAYLOAD_SIZE"
    assert refused(session.upload, DATA, chunk=65 * KIB)[:2] == ("RESOURCE_EXHAUSTED", "MESSAGE_TOO_LARGE")
    assert refused(session.stub.Upload, iter(upload_parts(session.id, DATA[:100])[1:]))[1] == "MALFORMED"
    assert refused(session.stub.Upload, iter([]))[1] == "MALFORMED"
    twice = [*upload_parts(session.id, DATA)[:1]] * 2
    assert refused(session.stub.Upload, iter(twice))[1] == "MALFORMED"


def test_a_download_is_sent_in_chunks_from_any_offset(session: Remote, large: int) -> None:
    transfer = pinned(session, large)
    assert transfer.total_bytes == len(DATA)
    part = next(iter(session.stub.Download(download(session, transfer.transfer_id, 100_000))))
    assert part.offset == 100_000
    assert part.data == DATA[100_000 : 100_000 + 64 * KIB]
    call = session.stub.Download(download(session, pinned(session, large).transfer_id))
    parts = list(call)
    assert [each.offset for each in parts] == list(range(0, len(DATA), 64 * KIB))
    assert b"".join(each.data for each in parts) == DATA


def test_a_broken_download_resumes(session: Remote, large: int) -> None:
    transfer = pinned(session, large)
    call = session.stub.Download(download(session, transfer.transfer_id))
    got = next(iter(call)).data
    call.cancel()
    for part in session.stub.Download(download(session, transfer.transfer_id, len(got))):
        got += part.data
    assert got == DATA


def test_a_downloads_parts_shrink_while_its_calls_break_at_one_offset(session: Remote, large: int) -> None:
    transfer = pinned(session, large)

    def broken(offset: int) -> int:
        call = session.stub.Download(download(session, transfer.transfer_id, offset))
        first = next(iter(call))
        assert first.data == DATA[offset : offset + len(first.data)]
        call.cancel()
        return len(first.data)

    assert [broken(0) for _ in range(6)] == [64 * KIB, 32 * KIB, 16 * KIB, 8 * KIB, 4 * KIB, 4 * KIB]
    assert [broken(100), broken(200)] == [8 * KIB, 16 * KIB]  # it has progress
    parts = list(session.stub.Download(download(session, transfer.transfer_id, 200)))
    assert [each.offset for each in parts[:2]] == [200, 200 + 8 * KIB]
    assert b"".join(each.data for each in parts) == DATA[200:]
    whole = session.stub.Download(download(session, pinned(session, large).transfer_id))
    assert len(next(iter(whole)).data) == 64 * KIB


def test_a_downloads_parts_shrink_though_the_server_has_sent_all_of_them(session: Remote, large: int) -> None:
    """The client may have lost what the server has sent."""
    transfer = pinned(session, large)

    def largest() -> int:
        first, *_ = session.stub.Download(download(session, transfer.transfer_id))  # to its end
        return len(first.data)

    assert [largest() for _ in range(3)] == [64 * KIB, 32 * KIB, 16 * KIB]


def test_a_download_counts_until_its_end_and_has_none_beyond(session: Remote, large: int) -> None:
    transfer = pinned(session, large)
    beyond = download(session, transfer.transfer_id, len(DATA))
    assert refused(session.stub.Download, beyond)[:2] == ("INVALID_ARGUMENT", "ARGUMENT_VALUE")
    assert session.describe().bytes == 2 * len(DATA)
    list(session.stub.Download(download(session, transfer.transfer_id)))
    assert session.describe().bytes == len(DATA)
    pinned(session, large)
    assert refused(session.stub.Download, download(session, transfer.transfer_id))[1] == "TRANSFER_NOT_FOUND"


def test_pinned_values_stay_what_they_were(session: Remote, large: int) -> None:
    transfer = pinned(session, large)
    session.stub.SetRequiresGrad(c.SetRequiresGradRequest(session_id=session.id, tensor=large, requires_grad=False))
    session.op("mul_", Id(large), 0.0)
    session.release(large)
    parts = session.stub.Download(download(session, transfer.transfer_id))
    assert b"".join(part.data for part in parts) == DATA


def test_a_command_of_the_same_batch_does_not_change_what_was_read_before_it(session: Remote, large: int) -> None:
    session.stub.SetRequiresGrad(c.SetRequiresGradRequest(session_id=session.id, tensor=large, requires_grad=False))
    read = command(c.ReadRequest(tensor=large))
    answers = session.run(read, command(op("mul_", Id(large), 0.0)), read).results
    for answer, expected in ((answers[0], VALUES), (answers[2], VALUES * 0)):
        parts = session.stub.Download(download(session, answer.read.transfer.transfer_id))
        assert b"".join(part.data for part in parts) == expected.tobytes()


def test_what_was_read_outlives_looking_and_a_change_after_it(session: Remote, large: int) -> None:
    session.stub.SetRequiresGrad(c.SetRequiresGradRequest(session_id=session.id, tensor=large, requires_grad=False))
    transfers = [pinned(session, large) for _ in range(2)]
    session.describe(large)
    session.op("mul_", Id(large), 0.0)
    for transfer in transfers:
        parts = session.stub.Download(download(session, transfer.transfer_id))
        assert b"".join(part.data for part in parts) == DATA


def test_a_large_view_is_downloaded_row_major(session: Remote, large: int) -> None:
    view = session.op("transpose", Id(large), 0, 1)
    np.testing.assert_array_equal(session.read(view.id), VALUES.T)


def test_another_sessions_transfer_is_unknown(session: Remote) -> None:
    transfer_id = session.upload(DATA)
    stranger = Remote(session.channel, session.stub.OpenSession(service_pb2.OpenSessionRequest()))
    assert refused(stranger.stub.Create, create_of(stranger, transfer_id))[1] == "TRANSFER_NOT_FOUND"
    assert refused(stranger.upload, DATA, transfer_id=transfer_id)[1] == "TRANSFER_NOT_FOUND"
    stranger.close()


def test_transfers_count_and_go_with_the_session() -> None:
    with running(max_session_bytes=300_000) as server:
        session = server.open()
        session.upload(DATA)
        assert refused(session.upload, DATA)[:2] == ("RESOURCE_EXHAUSTED", "MEMORY_LIMIT")
        assert session.close() == len(DATA)
        assert server.held() == 0


def test_an_abandoned_upload_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    with running(max_session_bytes=300_000) as server:
        session = server.open()
        partial = session.upload(DATA[:1000], total=len(DATA))
        server.do(server.tidy())
        assert session.describe().bytes == len(DATA)
        monkeypatch.setattr(transfers, "ABANDONED_SECONDS", 0.0)
        server.do(server.tidy())
        assert (session.describe().bytes, server.held()) == (0, 0)
        assert refused(session.upload, DATA, start=1000, transfer_id=partial)[1] == "TRANSFER_NOT_FOUND"


def test_chunks_and_payloads_fit_a_message_however_small() -> None:
    with running(max_message_bytes=1 << 16, chunk_bytes=1 << 20, max_inline_bytes=1 << 20) as server:
        session = server.open()
        limits = session.opened.limits
        made = session.stub.Create(create_of(session, session.upload(DATA, chunk=limits.chunk_bytes))).tensor.id
        np.testing.assert_array_equal(session.read(made), VALUES)
        values = np.arange(limits.max_inline_bytes, dtype=np.uint8)
        np.testing.assert_array_equal(session.read(session.create(values, dtype="uint8")), values)
