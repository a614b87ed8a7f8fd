"""Sessions: how they open, live, expire and end, and what they may hold."""

import gc

import numpy as np
import pytest

from gradwire.v1 import commands_pb2 as c
from gradwire.v1 import errors_pb2, service_pb2
from tests.server.harness import Id, Remote, Running, command, op, payload, refused, running, with_session

BACKENDS = [0, 2]


def keep_alive(session: Remote) -> service_pb2.KeepAliveResponse:
    return session.stub.KeepAlive(service_pb2.KeepAliveRequest(session_id=session.id))


def test_ids_cannot_be_guessed(server: Running) -> None:
    sessions = [server.open() for _ in range(5)]
    assert len({session.id for session in sessions}) == 5
    assert all(len(session.id) >= 40 for session in sessions)
    for session in sessions:
        session.close()


def test_opening_tells_lease_epoch_writer_and_limits(server: Running) -> None:
    session = server.open(lease_ms=5000)
    opened = session.opened
    assert (opened.lease_ms, opened.epoch, opened.writer, opened.protocol) == (5000, 1, 1, 1)
    assert opened.limits.chunk_bytes == server.limits.chunk_bytes
    session.close()


def test_each_writer_is_told_ids_of_its_own(server: Running) -> None:
    session = server.open()
    again = server.stub.OpenSession(service_pb2.OpenSessionRequest(session_id=session.id))
    first, second = session.opened, again
    assert 0 < first.first_id < first.last_id < second.first_id < second.last_id < 1 << 52
    for tensor_id in (first.first_id, first.last_id, second.first_id, second.last_id):
        assert session.create([1.0], tensor_id=tensor_id) == tensor_id
    session.close()


@pytest.mark.parametrize(("low", "high", "spoken"), [(0, 0, True), (1, 1, True), (1, 9, True), (2, 9, False)])
def test_protocol_versions_must_meet(server: Running, low: int, high: int, spoken: bool) -> None:
    request = service_pb2.OpenSessionRequest(min_protocol=low, max_protocol=high)
    if spoken:
        opened = server.stub.OpenSession(request)
        server.stub.CloseSession(service_pb2.CloseSessionRequest(session_id=opened.session_id))
    else:
        assert refused(server.stub.OpenSession, request)[:2] == ("FAILED_PRECONDITION", "PROTOCOL_VERSION")


def test_any_traffic_renews_the_lease(server: Running) -> None:
    session = server.open(lease_ms=10_000)
    x = session.create([1.0])
    for use in (lambda: keep_alive(session), lambda: session.read(x), session.describe):
        server.clock.now += 9
        use()
        assert server.sweep() == []
    server.clock.now += 11
    assert refused(session.read, x)[1] == "SESSION_EXPIRED"
    assert server.sweep() == [4]


def test_leases_are_capped() -> None:
    with running(max_lease_seconds=20.0) as server:
        assert server.open(lease_ms=90_000).opened.lease_ms == 20_000
        assert server.open().opened.lease_ms == 20_000


def test_a_closed_session_is_unknown_and_frees_its_bytes(server: Running) -> None:
    session = server.open()
    session.create(np.zeros(100))
    assert session.close() == 400
    assert session.close() == 0
    assert refused(session.describe)[:2] == ("NOT_FOUND", "SESSION_NOT_FOUND")


def test_old_ids_are_remembered_only_so_long() -> None:
    with running(tombstones=1) as server:
        first, second = server.open(lease_ms=1000), server.open(lease_ms=1000)
        server.clock.now += 2
        server.sweep()
        assert refused(keep_alive, first)[1] == "SESSION_NOT_FOUND"
        assert refused(keep_alive, second)[1] == "SESSION_EXPIRED"


def test_as_many_sessions_as_allowed() -> None:
    with running(max_sessions=2) as server:
        first, _ = server.open(), server.open()
        assert refused(server.open)[:2] == ("RESOURCE_EXHAUSTED", "SESSION_LIMIT")
        first.close()
        server.open()


def test_as_many_writers_as_allowed() -> None:
    with running(writers=2) as server:
        session = server.open()
        request = service_pb2.OpenSessionRequest(session_id=session.id)
        assert server.stub.OpenSession(request).writer == 2
        assert refused(server.stub.OpenSession, request)[1] == "SESSION_LIMIT"


def test_as_many_tensors_as_allowed() -> None:
    with running(max_session_tensors=2) as server:
        session = server.open()
        x, _ = session.create([1.0]), session.create([1.0])
        assert refused(session.create, [1.0])[:2] == ("RESOURCE_EXHAUSTED", "TENSOR_LIMIT")
        assert refused(session.op, "exp", Id(x))[1] == "TENSOR_LIMIT"
        session.release(x)
        session.create([1.0])


def test_many_results_count_before_they_are_named() -> None:
    with running(max_session_tensors=5) as server:
        session = server.open()
        x = session.create([1.0, 2.0, 3.0, 4.0, 5.0], requires_grad=True)
        total = session.op("sum", Id(x)).id
        assert refused(session.op, "unbind", Id(x))[1] == "TENSOR_LIMIT"
        request = c.GradientsRequest(session_id=session.id, outputs=[total], inputs=[x] * 4)
        assert refused(session.stub.Gradients, request)[1] == "TENSOR_LIMIT"
        assert session.describe().tensor_count == 2
        request.inputs[:] = [x]
        session.stub.Gradients(request)


def test_a_session_holds_as_many_bytes_as_allowed() -> None:
    with running(max_session_bytes=100_000) as server:
        session = server.open()
        x = session.create(np.zeros(15_000))
        code, reason, metadata = refused(session.create, np.zeros(15_000))
        assert (code, reason, metadata["limit"]) == ("RESOURCE_EXHAUSTED", "MEMORY_LIMIT", "100000")
        assert refused(session.upload, bytes(50_000))[1] == "MEMORY_LIMIT"
        assert refused(session.op, "zeros", [100_000])[1] == "MEMORY_LIMIT"
        np.testing.assert_array_equal(session.read(x), np.zeros(15_000))
        session.release(x)
        session.create(np.zeros(15_000))


def test_all_sessions_together_hold_as_many_bytes_as_allowed() -> None:
    with running(max_bytes=100_000, max_session_bytes=100_000) as server:
        one, two = server.open(), server.open()
        one.create(np.zeros(15_000))
        assert refused(two.create, np.zeros(15_000))[1] == "MEMORY_LIMIT"
        one.close()
        two.create(np.zeros(15_000))


def test_memory_that_only_a_cycle_holds_is_found_before_refusing() -> None:
    with running(max_session_bytes=100_000) as server:
        session = server.open()
        for _ in range(8):
            x = session.create(np.ones(4000), requires_grad=True)
            total = session.op("sum", Id(session.op("mul", Id(x), Id(x)).id))
            session.backward(total.id, create_graph=True)
            session.release(*range(1, 1000), total.id, total.id - 1)
        assert session.describe().tensor_count == 0


def test_bytes_that_another_sessions_work_gives_back_are_the_servers_again() -> None:
    with running() as server:
        one, two = server.open(), server.open()
        gc.disable()  # or it may come too early
        try:
            x = one.create(np.ones(4000), requires_grad=True)
            total = one.op("sum", Id(one.op("mul", Id(x), Id(x)).id))
            one.backward(total.id, create_graph=True)
            one.release(x, total.id, total.id - 1)
            assert one.describe().bytes > 0  # a cycle holds them, until somebody's work has them collected
        finally:
            gc.enable()
        gc.collect()
        two.create([1.0])
        server.sweep()
        server.do(server.tidy())
        assert server.held() == one.describe().bytes + two.describe().bytes == 4


def test_bytes_are_counted_once_and_given_back(session: Remote) -> None:
    x = session.create(np.zeros(10), requires_grad=True)
    session.op("reshape", Id(x), [2, 5])
    assert session.describe().bytes == 40
    y = session.op("exp", Id(x))
    assert session.describe().bytes == 80
    session.release(y.id)
    assert session.describe().bytes == 40


def test_two_hundred_sessions_leave_nothing(server: Running) -> None:
    info = service_pb2.ServerInfoRequest()
    before = server.stub.ServerInfo(info)
    for number in range(200):
        session = server.open(lease_ms=1000)
        response = session.run(
            command(c.CreateRequest(id=1, requires_grad=True, payload=payload(np.ones(64, np.float32))), quiet=True),
            command(op("exp", Id(1), outputs=[2]), quiet=True),
            command(op("mul", Id(2), Id(1), outputs=[3]), quiet=True),
            command(op("sum", Id(3), outputs=[4]), quiet=True),
            command(c.BackwardRequest(tensors=[4], create_graph=number % 2 == 0)),
        )
        assert list(response.results[0].backward.accumulated) == [1]
        if number % 3:
            session.close()
        elif number % 20 == 0:
            server.clock.now += 2
            server.sweep()
    server.clock.now += 2
    server.sweep()
    after = server.stub.ServerInfo(info)
    assert (after.sessions, after.bytes) == (before.sessions, before.bytes) == (0, 0)
    assert server.held() == 0


def test_refusals_keep_no_tensor_alive(session: Remote) -> None:
    x = session.create(np.zeros(100), requires_grad=True)
    y = session.op("exp", Id(x)).id
    bad = [op("add_", Id(x), Id(y)), op("matmul", Id(y), Id(x), Id(y)), op("reshape", Id(y), [7]), op("exp", Id(999))]
    gc.disable()
    try:
        for request in (*bad, c.BackwardRequest(tensors=[y])):
            session.run(command(request))
            call = session.stub.Backward if isinstance(request, c.BackwardRequest) else session.stub.Op
            refused(call, with_session(request, session))
        session.release(x, y)
        assert session.describe().bytes == 0
    finally:
        gc.enable()


def test_failed_ids_are_bounded(session: Remote, monkeypatch: pytest.MonkeyPatch) -> None:
    from gradwire_server.session.state import failures

    monkeypatch.setattr(failures, "MAX_FAILED_IDS", 3)
    response = session.run(*[command(op("exp", Id(999), outputs=[100 + place])) for place in range(5)])
    assert all(result.error.reason == errors_pb2.REASON_TENSOR_NOT_FOUND for result in response.results)
    reasons = [refused(session.read, 100 + place)[1] for place in range(5)]
    assert reasons == ["TENSOR_NOT_FOUND"] * 2 + ["DEPENDENCY_FAILED"] * 3
