"""Cancel and time limits: what runs stops between two nodes, what waits is not begun, nothing changes."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from gradwire.v1 import commands_pb2 as c
from gradwire.v1 import errors_pb2, service_pb2
from gradwire_server.session import commands
from gradwire_server.worker_pool.worker import MAX_SENT_CALLS
from tests.server.harness import WAIT, Id, Remote, Running, command, op, refused, until


class AuthInterceptor:
    """Holds a command back on the compute thread until it is opened."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, which: str) -> None:
        self.reached = threading.Event()
        self.opened = threading.Event()
        self.handler = commands.COMMANDS[which].handler
        monkeypatch.setattr(commands.COMMANDS[which], "handler", self.hold)

    def hold(self, *args: Any) -> Any:
        self.reached.set()
        assert self.opened.wait(WAIT)
        return self.handler(*args)


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[AuthInterceptor]:
    """A gate before every backward."""
    made = AuthInterceptor(monkeypatch, "backward")
    yield made
    made.opened.set()


@pytest.fixture
def chain(session: Remote) -> tuple[int, int]:
    """A leaf, and a scalar at the end of a chain that comes from it."""
    x = session.create([1.0], requires_grad=True)
    last = x
    for _ in range(50):
        last = session.op("neg", Id(last)).id
    return x, last


def cancel(session: Remote, **fields: Any) -> bool:
    return session.stub.Cancel(service_pb2.CancelRequest(session_id=session.id, **fields)).cancelled


def error(result: service_pb2.Result) -> str:
    return errors_pb2.Reason.Name(result.error.reason).removeprefix("REASON_")


def test_a_running_backward_is_cancelled_and_changes_nothing(
    session: Remote, chain: tuple[int, int], gate: AuthInterceptor
) -> None:
    x, last = chain
    running = session.stub.Backward.future(c.BackwardRequest(session_id=session.id, tensors=[last]))
    assert gate.reached.wait(WAIT)
    assert cancel(session)
    gate.opened.set()
    assert refused(running.result, WAIT)[:2] == ("CANCELLED", "CANCELLED")
    assert session.grad(x) is None
    session.backward(last)
    np.testing.assert_array_equal(session.grad(x), [1.0])


def test_cancel_reaches_what_waits_and_nothing_later(
    session: Remote, chain: tuple[int, int], gate: AuthInterceptor
) -> None:
    x, last = chain
    with ThreadPoolExecutor(1):
        running = session.stub.Backward.future(c.BackwardRequest(session_id=session.id, tensors=[last]))
        assert gate.reached.wait(WAIT)
        waiting = session.stub.Run.future(session.batch(command(op("neg", Id(x), outputs=[7000]))))
        session.stub.KeepAlive(service_pb2.KeepAliveRequest(session_id=session.id))
        assert cancel(session)
        gate.opened.set()
        assert refused(running.result, WAIT)[1] == "CANCELLED"
        response = waiting.result(WAIT)
    assert response.applied_seq == 1
    if response.results[0].WhichOneof("result") == "error":  # else it arrived after the cancel
        assert error(response.results[0]) == "CANCELLED"
        assert refused(session.read, 7000)[1] == "DEPENDENCY_FAILED"
    session.op("neg", Id(x))


def test_cancel_reaches_what_the_front_keeps_back(
    server: Running, session: Remote, chain: tuple[int, int], gate: AuthInterceptor
) -> None:
    x, last = chain
    running = session.stub.Backward.future(c.BackwardRequest(session_id=session.id, tensors=[last]))
    assert gate.reached.wait(WAIT)
    count = 3 * MAX_SENT_CALLS
    behind = [session.stub.Describe.future(c.DescribeRequest(session_id=session.id, tensors=[x])) for _ in range(count)]
    entry = server.backend.registry.entries[session.id]
    until(lambda: len(entry.pending) > count)
    assert entry.queued_calls
    assert cancel(session)
    gate.opened.set()
    for each in (running, *behind):
        assert refused(each.result, WAIT)[:2] == ("CANCELLED", "CANCELLED")
    assert session.describe(x).tensors[0].id == x


def test_cancel_through_a_seq_stops_that_writers_commands_only(
    session: Remote, chain: tuple[int, int], gate: AuthInterceptor
) -> None:
    x, last = chain
    request = session.batch(
        command(c.BackwardRequest(tensors=[last])),
        command(op("neg", Id(x), outputs=[8000])),
        command(op("neg", Id(x), outputs=[8001])),
    )
    running = session.stub.Run.future(request)
    assert gate.reached.wait(WAIT)
    assert cancel(session, writer=1, through_seq=2)
    gate.opened.set()
    results = running.result(WAIT).results
    assert [error(result) for result in results[:2]] == ["CANCELLED"] * 2
    assert results[2].WhichOneof("result") == "op"
    assert session.grad(x) is None


def test_cancel_with_nothing_to_do_says_so(session: Remote) -> None:
    assert not cancel(session)
    assert not cancel(session, writer=1, through_seq=0)
    assert refused(cancel, session, writer=9, through_seq=3)[1] == "ARGUMENT_VALUE"
    x = session.create([1.0])
    session.op("neg", Id(x))


def test_another_sessions_cancel_stops_nothing(
    server: Running, session: Remote, chain: tuple[int, int], gate: AuthInterceptor
) -> None:
    stranger = server.open()
    running = session.stub.Backward.future(c.BackwardRequest(session_id=session.id, tensors=[chain[1]]))
    assert gate.reached.wait(WAIT)
    assert not cancel(stranger)
    gate.opened.set()
    assert list(running.result(WAIT).accumulated) == [chain[0]]
    stranger.close()


def test_a_commands_own_time_limit(session: Remote, chain: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    real = commands.COMMANDS["backward"].handler

    def slow(held: Any, *rest: Any) -> Any:
        if held.cancel_token.deadline is not None:
            late = threading.Event()
            while not held.cancel_token.stopping():
                late.wait(0.001)
        return real(held, *rest)

    monkeypatch.setattr(commands.COMMANDS["backward"], "handler", slow)
    x, last = chain
    response = session.run(
        command(c.BackwardRequest(tensors=[last]), timeout_ms=5),
        command(c.GradRequest(tensor=x)),
        command(c.BackwardRequest(tensors=[last])),
    )
    assert error(response.results[0]) == "DEADLINE_EXCEEDED"
    assert "0.005 s" in response.results[0].error.message
    assert not response.results[1].grad.HasField("grad")
    assert list(response.results[2].backward.accumulated) == [x]


def test_a_calls_deadline_stops_it(server: Running, session: Remote, chain: tuple[int, int]) -> None:
    x, last = chain
    request = c.BackwardRequest(session_id=session.id, tensors=[last])

    async def late() -> bytes:
        return await server.backend.call("Backward", session.id, request.SerializeToString(), 0.0)

    with pytest.raises(Exception, match="deadline passed") as caught:
        server.do(late())
    assert caught.value.reason == "DEADLINE_EXCEEDED"
    assert session.grad(x) is None
    assert not server.backend.registry.entries[session.id].pending


def test_light_calls_do_not_wait_for_a_computation(
    server: Running, session: Remote, chain: tuple[int, int], gate: AuthInterceptor
) -> None:
    running = session.stub.Backward.future(c.BackwardRequest(session_id=session.id, tensors=[chain[1]]))
    assert gate.reached.wait(WAIT)
    session.stub.KeepAlive(service_pb2.KeepAliveRequest(session_id=session.id), timeout=WAIT)
    server.stub.ServerInfo(service_pb2.ServerInfoRequest(), timeout=WAIT)
    server.stub.ListOps(service_pb2.ListOpsRequest(), timeout=WAIT)
    server.open()
    assert not running.done()
    gate.opened.set()
    running.result(WAIT)


def test_a_computing_session_does_not_expire(
    server: Running, session: Remote, chain: tuple[int, int], gate: AuthInterceptor
) -> None:
    running = session.stub.Backward.future(c.BackwardRequest(session_id=session.id, tensors=[chain[1]]))
    assert gate.reached.wait(WAIT)
    server.clock.now += 1000
    assert session.id not in {each.id for each in server.backend.registry.sweep()}
    gate.opened.set()
    running.result(WAIT)
    assert session.describe().tensor_count == 51


def test_closing_a_session_cancels_what_it_computes(server: Running, gate: AuthInterceptor) -> None:
    session = server.open()
    x = session.create([1.0], requires_grad=True)
    y = session.op("neg", Id(x)).id
    running = session.stub.Backward.future(c.BackwardRequest(session_id=session.id, tensors=[y]))
    assert gate.reached.wait(WAIT)
    closing = session.stub.CloseSession.future(service_pb2.CloseSessionRequest(session_id=session.id))
    until(lambda: session.id not in server.backend.registry.entries)
    assert refused(session.describe)[1] == "SESSION_NOT_FOUND"
    gate.opened.set()
    assert refused(running.result, WAIT)[1] == "CANCELLED"
    assert closing.result(WAIT).freed_bytes == 8


def test_a_client_that_hangs_up_has_its_command_applied_once(session: Remote, gate: AuthInterceptor) -> None:
    x = session.create([1.0], requires_grad=True)
    y = session.op("neg", Id(x)).id
    request = session.batch(command(c.BackwardRequest(tensors=[y])))
    first = session.stub.Run.future(request)
    assert gate.reached.wait(WAIT)
    first.cancel()
    gate.opened.set()
    assert list(session.stub.Run(request).results[0].backward.accumulated) == [x]
    np.testing.assert_array_equal(session.grad(x), [-1.0])
