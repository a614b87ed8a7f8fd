"""A log that is followed leads to the session that there was, or says that it does not; nothing is applied unlogged."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest

import gradwire
from gradwire.v1 import commands_pb2, service_pb2
from gradwire_server.common.errors import Refusal
from gradwire_server.session import batch, commands, retry, tensor_commands
from gradwire_server.session.prepared import calls
from gradwire_server.storage import log_writer
from gradwire_server.storage.write_ahead_log import WriteAheadLog, beginning, read
from tests.server.failing_ops import fail_after_running
from tests.server.harness import Id, Remote, command, op, refusal, refused
from tests.server.test_durability import Storing, behind


@pytest.fixture
def crashing(tmp_path: Path) -> Iterator[Callable[..., Storing]]:
    """Starts a server with a log, and each time after that one that has what the one before had on disk just then."""
    started: list[Storing] = []

    def start(**told: Any) -> Storing:
        root = tmp_path / str(len(started))
        if started:
            shutil.copytree(started[-1].root, root)
        started.append(Storing(root, logs=True, **told))
        return started[-1]

    yield start
    for each in started:
        each.stop()


def again(session: Remote, server: Storing) -> Remote:
    """The session, on another server."""
    return Remote(server.channel, session.opened)


def log_of(server: Storing) -> Path:
    (path,) = server.root.glob("sessions/*/*.log")
    return path


def seeds(*numbers: int) -> list[service_pb2.Command]:
    return [command(commands_pb2.ManualSeedRequest(seed=number)) for number in numbers]


def test_damage_in_the_middle_of_a_log_refuses_the_session_by_name_though_nothing_proves_what_others_saw(
    crashing: Callable[..., Storing],
) -> None:
    session = crashing().open()
    x = session.create([1.0])  # a unary caller: no numbers of its own
    session.op("add_", Id(x), 1.0)
    server = crashing()
    path = log_of(server)
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2] ^= 1
    path.write_bytes(bytes(raw))
    request = commands_pb2.ReadRequest(session_id=session.id, tensor=x)
    for _ in range(2):
        with pytest.raises(grpc.RpcError) as caught:
            server.stub.Read(request)
        assert refusal(caught.value)[:2] == ("DATA_LOSS", "SNAPSHOT_DAMAGED")
        assert f"{path.name} is damaged: the record at byte" in str(caught.value.details())
    server.stub.CloseSession(service_pb2.CloseSessionRequest(session_id=session.id))  # as its client does at its end
    assert path.read_bytes() == bytes(raw)  # whoever repairs it finds it as it is


def test_a_command_that_is_refused_though_it_was_applied_then_refuses_the_session(
    crashing: Callable[..., Storing], monkeypatch: pytest.MonkeyPatch
) -> None:
    session = crashing().open()
    session.run(*seeds(1, 2))
    server = crashing()

    def fails(*_: Any) -> None:
        raise ValueError("a bug of this version")

    with monkeypatch.context() as patch:
        patch.setattr(commands.COMMANDS["manual_seed"], "handler", fails)
        request = service_pb2.KeepAliveRequest(session_id=session.id)
        server.stub.KeepAlive(request)
        with pytest.raises(grpc.RpcError) as caught:
            again(session, server).describe()
    assert "1.log leads to another session than there was" in str(caught.value.details())
    assert "command 1 was applied and is refused" in str(caught.value.details())


@pytest.mark.parametrize("unary", [False, True])
def test_a_command_that_leaves_something_else_than_then_refuses_the_session(
    crashing: Callable[..., Storing], monkeypatch: pytest.MonkeyPatch, unary: bool
) -> None:
    session = crashing().open()
    if unary:
        session.create([1.0])
    else:
        session.run(command(op("zeros", [2], outputs=[5])))
    server = crashing()
    monkeypatch.setattr(commands.COMMANDS["create" if unary else "op"], "handler", lambda *_: None)
    reason, details = refused(again(session, server).describe)[1:]
    assert (reason, details["file"]) == ("SNAPSHOT_DAMAGED", "1.log")


def test_a_command_that_is_applied_though_it_was_refused_then_refuses_the_session(
    crashing: Callable[..., Storing], monkeypatch: pytest.MonkeyPatch
) -> None:
    session = crashing().open()
    prepare = commands_pb2.Prepare(number=1, op=op("exp", Id(1), outputs=[2]))
    with monkeypatch.context() as patch:
        patch.setattr(calls, "MAX_PREPARED_BYTES", 1)
        answer = session.run(service_pb2.Command(prepare=prepare))
        assert answer.results[0].HasField("error")
    server = crashing()
    with pytest.raises(grpc.RpcError) as caught:
        again(session, server).describe()
    assert "command 1 is applied and was refused" in str(caught.value.details())


def test_a_session_refused_for_lack_of_memory_is_restored_later(
    crashing: Callable[..., Storing], monkeypatch: pytest.MonkeyPatch
) -> None:
    session = crashing().open()
    session.run(command(op("zeros", [2], outputs=[5])))
    server = crashing()

    def scarce(*_: Any) -> None:
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(commands.COMMANDS["op"], "handler", scarce)
        assert refused(again(session, server).describe)[1] == "MEMORY_LIMIT"
    assert again(session, server).describe().tensor_count == 1


def test_what_was_drawn_by_what_failed_is_drawn_after_a_crash_too(
    crashing: Callable[..., Storing], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An op drew and found no room: it was refused, or tried a second time; the numbers after it are the same."""
    session = crashing().open()
    session.run(*seeds(3))
    with monkeypatch.context() as patch:
        fail_next = fail_after_running(patch)
        fail_next()
        assert refused(session.op, "rand", [4], outputs=[1])[1] == "MEMORY_LIMIT"
        fail_next()
        assert session.run(command(op("rand", [4], outputs=[2]))).results[0].HasField("error")
        patch.setattr(retry, "_free_memory", lambda _: True)
        fail_next()
        session.op("rand", [4], outputs=[3])
        fail_next()
        assert not session.run(command(op("rand", [4], outputs=[4]))).results[0].HasField("error")
    session.op("rand", [4], outputs=[5])
    restored = again(session, crashing())
    for tensor_id in (3, 4, 5):
        np.testing.assert_array_equal(restored.read(tensor_id), session.read(tensor_id))


def test_ids_that_a_refused_command_used_up_are_used_up_after_a_crash_too(
    crashing: Callable[..., Storing], monkeypatch: pytest.MonkeyPatch
) -> None:
    session = crashing().open()
    x = session.create(np.arange(6.0))

    def too_large(*_: Any) -> None:
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(tensor_commands, "_check_answer", too_large)
        refused(session.op, "unbind", Id(x), 0)
        assert session.run(command(op("unbind", Id(x), 0))).results[0].HasField("error")
    chosen = session.op("add", Id(x), 1.0).id
    restored = again(session, crashing())
    np.testing.assert_array_equal(restored.read(chosen), np.arange(6.0) + 1)


# No memory after a command was applied.


def short_of(monkeypatch: pytest.MonkeyPatch, module: Any, name: str, times: int = 1) -> list[int]:
    """Let a function find no memory so many times."""
    real, left = getattr(module, name), [times]

    def failing(*args: Any) -> Any:
        if left[0]:
            left[0] -= 1
            raise MemoryError
        return real(*args)

    monkeypatch.setattr(module, name, failing)
    return left


def test_an_answer_for_which_there_is_no_memory_says_that_its_commands_were_applied(
    crashing: Callable[..., Storing], monkeypatch: pytest.MonkeyPatch
) -> None:
    session = crashing().open()
    x = session.create([1.0])
    with monkeypatch.context() as patch:
        short_of(patch, batch, "serialized")
        told = session.run(command(op("add_", Id(x), 1.0)), command(commands_pb2.ReadRequest(tensor=x)))
        assert any("was applied, but there is no memory" in each.error.message for each in told.results)
        assert told.applied_seq == 2
        short_of(patch, batch, "serialized")
        assert refused(session.op, "add_", Id(x), 1.0)[1] == "MEMORY_LIMIT"
    np.testing.assert_array_equal(session.read(x), [3.0])
    np.testing.assert_array_equal(again(session, crashing()).read(x), [3.0])


@pytest.mark.parametrize(("module", "name", "times"), [(batch, "serialized", 3), (log_writer, "packed", 1)])
def test_what_can_neither_be_answered_nor_logged_is_taken_back_and_done_again(
    crashing: Callable[..., Storing], monkeypatch: pytest.MonkeyPatch, module: Any, name: str, times: int
) -> None:
    server = crashing()
    session = gradwire.connect(server.address)
    gradwire.manual_seed(4)
    x = gradwire.zeros(1)
    for _ in range(5):
        x += 1.0
        session.sync()
    with monkeypatch.context() as patch:
        left = short_of(patch, module, name, times)
        x += gradwire.rand(1) + 1.0
        found = x.item()
        assert not left[0]
    gradwire.manual_seed(4)
    assert found == (gradwire.full((1,), 5.0) + (gradwire.rand(1) + 1.0)).item()
    session.close()


def test_without_a_log_a_call_that_ended_in_its_middle_ends_the_session_clearly(
    server: Any, in_process: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    session, beside = server.open(), server.open()
    y = beside.create([2.0])
    with monkeypatch.context() as patch:
        short_of(patch, batch, "serialized", 3)
        assert refused(session.run, command(op("zeros", [2], outputs=[1])))[1] == "MEMORY_LIMIT"
    with pytest.raises(grpc.RpcError) as caught:
        session.run(command(op("zeros", [2], outputs=[2])))
    assert "cannot continue, because a call failed after it had changed the session" in str(caught.value.details())
    assert session.close() >= 0
    np.testing.assert_array_equal(beside.read(y), [2.0])


# Bytes that wait for the disk.


def test_an_upload_goes_to_the_log_no_faster_than_it_is_written_and_comes_back(
    crashing: Callable[..., Storing], monkeypatch: pytest.MonkeyPatch
) -> None:
    most, real = [0], WriteAheadLog.put

    def put(self: WriteAheadLog, *args: Any, **named: Any) -> None:
        real(self, *args, **named)
        most[0] = max(most[0], self.queued)

    monkeypatch.setattr(WriteAheadLog, "put", put)
    monkeypatch.setattr("gradwire_server.storage.write_ahead_log.MOST_QUEUED", 3 << 20)
    server = crashing()
    session = server.open()
    values = np.random.default_rng(1).integers(0, 255, 20 << 20, np.uint8)
    transfer = session.upload(values.tobytes(), chunk=1 << 20)
    assert 0 < most[0] <= (3 << 20) + 4096
    restored = again(session, crashing())
    described = commands_pb2.Transfer(dtype="DTYPE_UINT8", shape=values.shape, transfer_id=transfer)
    made = restored.stub.Create(commands_pb2.CreateRequest(session_id=session.id, id=1, transfer=described))
    np.testing.assert_array_equal(restored.read(made.tensor.id), values)


def test_an_upload_is_not_used_before_it_is_stored(
    crashing: Callable[..., Storing], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its client does not wait for the answer, and would lose what it made of it."""
    server = crashing()
    session = server.open()
    calls: list[Any] = []
    real = server.backend.keep_upload

    async def first_a_create(arrival: Any) -> None:
        described = commands_pb2.Transfer(dtype="DTYPE_UINT8", shape=[100], transfer_id=arrival.transfer_id)
        create = commands_pb2.CreateRequest(session_id=session.id, id=1, transfer=described)
        try:
            calls.append(await server.backend.call("Create", session.id, create.SerializeToString(), None))
        except Refusal as refusal:
            calls.append(refusal.reason)
        await real(arrival)

    monkeypatch.setattr(server.backend, "keep_upload", first_a_create)
    transfer = session.upload(bytes(range(100)))
    assert calls == ["UNAVAILABLE"]
    restored = again(session, crashing())
    described = commands_pb2.Transfer(dtype="DTYPE_UINT8", shape=[100], transfer_id=transfer)
    for each in (session, restored):
        each.stub.Create(commands_pb2.CreateRequest(session_id=session.id, id=1, transfer=described))
        np.testing.assert_array_equal(each.read(1), np.arange(100))


def test_an_upload_that_the_disk_refused_half_way_is_not_taken_for_whole(
    crashing: Callable[..., Storing], tmp_path: Path
) -> None:
    server = crashing()
    session = server.open()
    session.upload(bytes(3 << 20), chunk=1 << 20)
    found = [(record, end) for record, end in read(log_of(server)) if record.HasField("upload")]
    assert [record.upload.offset for record, _ in found] == [0, 1 << 20, 2 << 20]
    whole = log_of(server).read_bytes()
    first, second = found[0][1], found[1][1]
    server = crashing()
    path = log_of(server)
    holed = whole[:first] + whole[second:]  # without the part in the middle
    path.write_bytes(beginning(len(holed)) + holed[len(beginning(0)) :])
    restored = again(session, server)
    described = commands_pb2.Transfer(dtype="DTYPE_UINT8", shape=[3 << 20], transfer_id=found[0][0].upload.transfer_id)
    request = commands_pb2.CreateRequest(session_id=session.id, id=1, transfer=described)
    assert refused(restored.stub.Create, request)[1] == "PAYLOAD_SIZE"


def test_a_client_whose_session_was_taken_back_keeps_all_that_it_was_told(
    crashing: Callable[..., Storing], monkeypatch: pytest.MonkeyPatch
) -> None:
    """At each of many steps, once."""
    between = behind(crashing())
    session = gradwire.connect(between.address)
    x = gradwire.zeros(1)
    for step in range(12):
        with monkeypatch.context() as patch:
            if step % 3 == 1:
                short_of(patch, log_writer, "packed")
            x += 1.0
            assert x.item() == step + 1
    session.close()
    between.stop()
