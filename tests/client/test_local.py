"""Local streams without gRPC: used where possible, replaced by gRPC elsewhere."""

import contextlib
import errno
import os
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import gradwire
from gradwire._transport import link as _link
from gradwire._transport import local
from gradwire._transport.local import LocalCall
from tests.client.test_processes import run
from tests.server.by_socket import framed
from tests.server.harness import until

RNG = np.random.default_rng(0)  # conftest.py seeds it anew for each test

pytestmark = pytest.mark.skipif(not hasattr(socket, "SO_PEERCRED"), reason="the system has no such sockets")


def call_of(session: gradwire.Session) -> Any:
    link = session._transport._link
    assert link is not None
    return link._call


def test_a_session_beside_its_server_has_its_stream_without_grpc(session: gradwire.Session) -> None:
    assert isinstance(call_of(session), LocalCall)
    x = gradwire.tensor([1.0, 2.0], requires_grad=True)
    for _ in range(50):
        (x * x).sum().backward()
    assert x.grad.tolist() == [100.0, 200.0]


@pytest.mark.parametrize(
    "why", ["switched off", "no such name", "of another user", "no such system", "no descriptor left", "not let in"]
)
def test_where_it_cannot_be_had_the_stream_goes_by_grpc(
    server_address: str, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    if why == "switched off":
        monkeypatch.setenv("GRADWIRE_LOCAL_STREAM", "0")
    elif why == "no such name":
        connected = local._connected
        monkeypatch.setattr(local, "_connected", lambda name: connected(f"{name}-of-no-one"))
    elif why == "of another user":
        monkeypatch.setattr(local.os, "geteuid", lambda: 1 << 30)
    elif why == "no descriptor left":
        monkeypatch.setattr(local.os, "eventfd", refuse)
    elif why == "not let in":
        monkeypatch.setattr(local, "_connected", closed_at_once)
    else:
        monkeypatch.delattr(local.os, "eventfd")
    session = gradwire.connect(server_address)
    assert isinstance(call_of(session), _link._CythonCall)
    assert (gradwire.ones(2) + 1.0).tolist() == [2.0, 2.0]
    session.close()


def refuse(*args: int) -> int:
    raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))


def closed_at_once(name: str) -> socket.socket:
    near, far = socket.socketpair()
    far.close()
    near.setblocking(False)
    return near


def test_a_batch_larger_than_the_socket_buffer_is_sent_without_a_waiting_thread(
    without_maintenance: None, deferring: gradwire.Session
) -> None:
    array = np.ones(240_000, np.float32)
    tensors = [gradwire.from_numpy(array)]
    gradwire.sync()
    before = deferring.server_info().bytes
    tensors += [gradwire.from_numpy(array) for _ in range(4)]  # two are as many as the socket holds, at most
    deferring.flush()
    until(lambda: deferring.server_info().bytes >= before + 4 * array.nbytes)


def test_a_stream_that_ended_is_gone_on_with(session: gradwire.Session) -> None:
    x = gradwire.zeros(2)
    for turn in range(20):
        x += 1.0
        if turn % 5 == 0:
            session._retransmission.drop()
    assert x.tolist() == [20.0, 20.0]
    assert session._retransmission._attempts > 1
    assert isinstance(call_of(session), LocalCall)


def test_an_interrupted_wait_loses_nothing(session: gradwire.Session, monkeypatch: pytest.MonkeyPatch) -> None:
    x = gradwire.tensor([1.0, 2.0], requires_grad=True)
    take = LocalCall.take_event

    def interrupted(call: LocalCall) -> None:
        monkeypatch.setattr(LocalCall, "take_event", take)
        raise KeyboardInterrupt

    session.sync()
    monkeypatch.setattr(LocalCall, "take_event", interrupted)
    with pytest.raises(KeyboardInterrupt):
        (x * 3.0).tolist()
    (x * x).sum().backward()
    assert x.grad.tolist() == [2.0, 4.0]


def test_a_refusal_is_the_same_as_by_grpc(session: gradwire.Session) -> None:
    with pytest.raises(RuntimeError, match="size"):
        gradwire.ones(3) @ gradwire.ones(4)
    taking = gradwire.connect(session.address)
    assert (gradwire.ones(2) * 2).tolist() == [2.0, 2.0]
    taking.close()


def test_more_than_the_socket_holds_arrives(session: gradwire.Session) -> None:
    rng = RNG
    arrays = [rng.standard_normal(200_000).astype(np.float32) for _ in range(12)]  # 800 KB each, inside of a batch
    tensors = [gradwire.from_numpy(each) for each in arrays]
    for tensor, array in zip(tensors, arrays, strict=True):
        assert np.array_equal((tensor * 1.0).numpy(), array)


def test_no_descriptor_stays_open(server_address: str) -> None:
    def opened() -> int:
        count = 0
        for number in os.listdir("/proc/self/fd"):
            with contextlib.suppress(OSError):  # closed meanwhile, by another thread
                count += os.readlink(f"/proc/self/fd/{number}").startswith(("socket:", "anon_inode:[eventfd"))
        return count

    gradwire.connect(server_address).close()
    before = opened()
    for _ in range(20):
        session = gradwire.connect(server_address)
        gradwire.ones(2).tolist()
        session._retransmission.drop()
        gradwire.ones(2).tolist()
        session.close()
    until(lambda: opened() <= before + 15)  # what gRPC closes in its own time: two a channel, were it ours


@pytest.fixture
def pair(monkeypatch: pytest.MonkeyPatch) -> Iterator["tuple[LocalCall, socket.socket]"]:
    """A call, and the socket that it talks to."""
    near, far = socket.socketpair()
    near.setblocking(False)
    monkeypatch.setattr(local, "_connected", lambda name: near)
    call = LocalCall("")
    far.settimeout(60)
    yield call, far
    call.cancel()
    call.drain()
    far.close()


def test_a_batch_sent_while_a_thread_waits_leaves_although_the_socket_was_full(
    pair: "tuple[LocalCall, socket.socket]",
) -> None:
    call, far = pair
    waiting = threading.Thread(target=lambda: take_until(call, lambda: bool(call.messages)))
    waiting.start()
    message = os.urandom(8 << 20)
    call.send(message)
    call.send(b"after")
    assert call.sending
    wanted = framed(message) + framed(b"after")
    found = b""
    while len(found) < len(wanted):
        found += far.recv(1 << 20)
    assert found == wanted
    far.sendall(framed(b"answer"))
    waiting.join(60)
    assert call.messages.popleft() == b"answer"
    assert not call.sending


def test_a_link_dropped_during_a_send_is_freed(pair: "tuple[LocalCall, socket.socket]") -> None:
    call, _ = pair
    link = _link.Link(call, "somewhere")
    link.send(bytes(8 << 20))
    sending = threading.Thread(target=link.wait_sent)
    sending.start()
    until(link._reading.locked)
    link.drop()
    sending.join(60)
    assert call._socket.fileno() == -1


def test_a_socket_that_is_being_shut_is_not_closed_under_it(
    pair: "tuple[LocalCall, socket.socket]", monkeypatch: pytest.MonkeyPatch
) -> None:
    call, _ = pair
    shut = call._socket.shutdown

    class Shutting:
        def shutdown(self, how: int) -> None:
            call.drain()  # as another thread may at this moment
            shut(how)

    real = call._socket
    call._socket = Shutting()  # type: ignore[assignment]
    call.cancel()
    call._socket = real
    assert real.fileno() != -1
    call.drain()
    assert real.fileno() == -1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_a_forked_child_holds_no_copy_and_leaves_the_parents_alone(server_address: str) -> None:
    _, out, err = run(
        """
        import os
        import gradwire
        x = gradwire.ones(2)
        session = gradwire.current_session()
        call = session._transport._link._call
        number = call._socket.fileno()
        child = os.fork()
        if child == 0:
            try:
                os.fstat(number)
            except OSError:
                print("closed", flush=True)
            call.cancel()
            os._exit(0)
        os.waitpid(child, 0)
        print(x.tolist(), session._retransmission._attempts, type(call).__name__)
        """,
        GRADWIRE_ADDRESS=server_address,
    )
    assert out.splitlines() == ["closed", "[1.0, 1.0] 1 LocalCall"], err


def test_a_program_that_a_broken_pipe_would_end_outlives_its_server() -> None:
    code, out, err = run(
        """
        import signal
        import gradwire
        from gradwire._transport.embedded import EmbeddedServer
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        server = EmbeddedServer()
        session = gradwire.connect(server.address)
        call = session._transport._link._call
        server.stop()
        call.send(b"")
        print(type(call).__name__)
        session._retransmission.patience = 0.1
        """
    )
    assert (code, out) == (0, "LocalCall\n"), err


def take_until(call: LocalCall, condition: Any) -> None:
    while not condition() and call.status is None:
        call.take_event()


def test_messages_come_whole_in_whatever_pieces(pair: "tuple[LocalCall, socket.socket]") -> None:
    call, far = pair
    messages = [bytes([n]) * n for n in range(1, 60)]
    sent = b"".join(map(framed, messages))

    def send() -> None:
        for place in range(0, len(sent), 7):
            far.sendall(sent[place : place + 7])

    sending = threading.Thread(target=send)
    sending.start()
    take_until(call, lambda: len(call.messages) == len(messages))
    sending.join(60)
    assert list(call.messages) == messages


@pytest.mark.parametrize("last", [b"", b"\x05", framed(b"whole") + b"\x09\x00\x00\x00half"])
def test_a_socket_that_ends_without_a_status_is_a_connection_that_broke(
    pair: "tuple[LocalCall, socket.socket]", last: bytes
) -> None:
    call, far = pair
    far.sendall(last)
    far.close()
    take_until(call, lambda: False)
    assert call.status is not None
    assert call.status[0].name == "UNAVAILABLE"
    call.send(b"ignored")
    call.drain()
    call.cancel()
    call.drain()


def test_a_wait_looks_for_an_answer_for_a_moment_before_it_sleeps(session: gradwire.Session) -> None:
    call = call_of(session)
    session.sync()
    began = time.perf_counter()
    assert call._spun() == []
    assert time.perf_counter() - began < 5.0
    os.eventfd_write(call._waker, 1)
    assert [number for number, _ in call._spun()] == [call._waker]
    os.eventfd_read(call._waker)
