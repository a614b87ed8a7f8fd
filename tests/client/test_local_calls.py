"""Calls without gRPC: made where possible, by gRPC elsewhere, and ended as gRPC's are."""

import contextlib
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import gradwire
from gradwire._base.errors import make_error
from gradwire._transport import local, local_calls
from gradwire._transport.credentials import Credentials
from gradwire._transport.local_calls import may_call
from gradwire._transport.transport import Transport
from gradwire.v1 import errors_pb2, service_pb2
from tests.client.test_processes import run
from tests.server.by_socket import LENGTH, framed

pytestmark = pytest.mark.skipif(not hasattr(socket, "SO_PEERCRED"), reason="the system has no such sockets")


def channels(session: gradwire.Session) -> int:
    return len(session._transport.servers._channels)


def test_a_session_beside_its_server_opens_works_and_ends_without_grpc(server_address: str) -> None:
    session = gradwire.connect(server_address)
    x = gradwire.tensor([1.0, 2.0], requires_grad=True)
    (x * x).sum().backward()
    assert x.grad.tolist() == [2.0, 4.0]
    session.renew_lease()
    assert session.server_info().sessions >= 1
    session.close()
    assert not channels(session)


def test_a_program_beside_its_server_never_imports_a_channel(server_address: str) -> None:
    code, out, err = run(
        """
        import sys
        import gradwire
        print(gradwire.ones(2).tolist())
        gradwire.current_session().close()
        print("grpc._channel" in sys.modules)
        """,
        GRADWIRE_ADDRESS=server_address,
        GRADWIRE_LOCAL_STREAM="1",
    )
    assert (code, out.splitlines()) == (0, ["[1.0, 1.0]", "False"]), err


@pytest.mark.parametrize(
    "why",
    ["switched off", "no file", "of another user", "no such system", "closed at once", "closed in an answer", "ended"],
)
def test_where_it_cannot_be_had_calls_go_by_grpc(
    server_address: str, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    if why == "switched off":
        monkeypatch.setenv("GRADWIRE_LOCAL_STREAM", "0")
    elif why == "no file":
        monkeypatch.setattr(local_calls, "_SUFFIX", ".of-no-one")
    elif why == "of another user":
        monkeypatch.setattr(local.os, "geteuid", lambda: 1 << 30)
    elif why == "no such system":
        monkeypatch.delattr(local.socket, "SO_PEERCRED")
    else:
        answer = {"closed at once": b"", "ended": LENGTH.pack(1 << 31)}.get(why, framed(b"whole")[:-1])
        monkeypatch.setattr(local_calls, "connected", lambda path: ended_after(answer))
    session = gradwire.connect(server_address)
    assert channels(session) == 1
    assert (gradwire.ones(2) + 1.0).tolist() == [2.0, 2.0]
    session.close()


def ended_after(answer: bytes) -> socket.socket:
    near, far = socket.socketpair()
    near.setblocking(False)
    far.sendall(answer)
    far.shutdown(socket.SHUT_WR)
    _kept.append(far)
    return near


_kept: list[socket.socket] = []


def test_credentials_never_travel_there(tmp_path: Path) -> None:
    assert may_call("unix:/socket", Credentials())
    assert not may_call("unix:/socket", Credentials(token="secret"))
    assert not may_call("unix:/socket", Credentials(tls=True))
    assert not may_call("localhost:50051", Credentials())
    assert not may_call("unix:relative", Credentials())


def test_a_refusal_is_the_same_as_by_grpc(server_address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for chosen in ("1", "0"):
        monkeypatch.setenv("GRADWIRE_LOCAL_STREAM", chosen)
        with pytest.raises(RuntimeError, match="device of the type 'tpu'") as caught:
            gradwire.connect(server_address, device_type="tpu")
        error: Any = caught.value
        found.append((type(error), str(error), error.reason, error.code))
    assert found[0] == found[1]


@pytest.fixture
def silent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Transport, socket.socket]]:
    """A transport to a server that takes calls, and the listening socket."""
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(f"{tmp_path}/socket.local")
    listening.listen(8)
    monkeypatch.setenv("GRADWIRE_LOCAL_STREAM", "1")
    transport = Transport(f"unix:{tmp_path}/socket")
    yield transport, listening
    transport.close()
    listening.close()


def info(transport: Transport, timeout: float | None = 60.0) -> service_pb2.ServerInfoResponse:
    request = service_pb2.ServerInfoRequest()
    return transport.call("ServerInfo", request, service_pb2.ServerInfoResponse, timeout, waits=())


def test_a_server_that_does_not_answer_is_waited_for_no_longer_than_said(
    silent: tuple[Transport, socket.socket],
) -> None:
    began = time.monotonic()
    with pytest.raises(gradwire.GradwireError, match="did not answer in time") as caught:
        info(silent[0], 0.2)
    assert caught.value.reason == "DEADLINE_EXCEEDED"
    assert 0.2 <= time.monotonic() - began < 30


def test_a_close_ends_a_call_of_another_thread(silent: tuple[Transport, socket.socket]) -> None:
    transport, listening = silent
    threading.Timer(0.1, transport.close).start()
    with pytest.raises(gradwire.GradwireError, match="the session was closed"):
        info(transport)
    taken, _ = listening.accept()
    assert taken.recv(1 << 16) == framed(b"ServerInfo") + framed(b"") and taken.recv(1) == b""
    taken.close()


@contextlib.contextmanager
def alarm(handle: Callable[..., None]) -> Iterator[None]:
    """A signal in 0.1 seconds, with this handler."""
    before = signal.signal(signal.SIGALRM, handle)
    signal.setitimer(signal.ITIMER_REAL, 0.1)
    try:
        yield
    finally:
        signal.signal(signal.SIGALRM, before)


def test_a_signals_exception_ends_a_call(silent: tuple[Transport, socket.socket]) -> None:
    transport, listening = silent

    def handle(*args: object) -> None:
        raise KeyboardInterrupt

    with alarm(handle), pytest.raises(KeyboardInterrupt):
        info(transport)
    taken, _ = listening.accept()
    taken.recv(1 << 16)
    assert taken.recv(1) == b"", "the connection stays open"
    taken.close()


@pytest.mark.parametrize("answer", [b"", LENGTH.pack(1 << 31), framed(b"whole")[:-1]])
def test_a_signals_exception_is_not_lost_when_the_server_ends_the_call(
    silent: tuple[Transport, socket.socket], answer: bytes
) -> None:
    transport, listening = silent
    signalled = threading.Event()

    def handle(*args: object) -> None:
        signalled.set()
        raise KeyboardInterrupt

    def end() -> None:
        taken, _ = listening.accept()
        taken.recv(1 << 16)
        signalled.wait(60)
        taken.sendall(answer)
        taken.close()

    ending = threading.Thread(target=end)
    ending.start()
    with alarm(handle), pytest.raises(KeyboardInterrupt):
        info(transport)
    ending.join(60)
    assert not transport.servers._channels, "the call was repeated by gRPC"


def test_an_error_that_a_signals_handler_raises_does_not_repeat_the_call(
    silent: tuple[Transport, socket.socket],
) -> None:
    transport, _ = silent

    def handle(*args: object) -> None:
        raise make_error(errors_pb2.REASON_UNAVAILABLE, "the handler's", 14)

    with alarm(handle), pytest.raises(gradwire.GradwireError, match="the handler's"):
        transport.call("ServerInfo", service_pb2.ServerInfoRequest(), service_pb2.ServerInfoResponse, 5.0)


def test_an_answer_comes_whole_in_whatever_pieces(silent: tuple[Transport, socket.socket]) -> None:
    transport, listening = silent
    wanted = service_pb2.ServerInfoResponse(version="1.2.3", sessions=7)

    def answer() -> None:
        taken, _ = listening.accept()
        taken.recv(1 << 16)
        data = framed(wanted.SerializeToString())
        for place in range(len(data)):
            taken.sendall(data[place : place + 1])
            time.sleep(0.001)
        taken.close()

    answering = threading.Thread(target=answer)
    answering.start()
    assert info(transport) == wanted
    answering.join(60)


def test_an_answer_longer_than_its_message_is_no_part_of_it(silent: tuple[Transport, socket.socket]) -> None:
    transport, listening = silent

    def answer() -> None:
        taken, _ = listening.accept()
        taken.recv(1 << 16)
        taken.sendall(framed(b"") + LENGTH.pack(1 << 31))
        taken.close()

    answering = threading.Thread(target=answer)
    answering.start()
    assert info(transport) == service_pb2.ServerInfoResponse()
    answering.join(60)


def test_no_channel_is_made_after_a_close(tmp_path: Path) -> None:
    transport = Transport(f"unix:{tmp_path}/socket")
    transport.close()
    with pytest.raises(ValueError, match="closed"):
        transport.servers.channel  # noqa: B018 - the property raises
    with pytest.raises(gradwire.GradwireError, match="the session was closed"):
        transport.start_stream("stream_stream", "Share", iter(()))
    transport.notify("Cancel", service_pb2.CancelRequest())
    transport.call_in_background("KeepAlive", service_pb2.KeepAliveRequest(), 1.0, lambda: None)


def test_a_channel_is_made_once_by_all_threads(tmp_path: Path) -> None:
    transport = Transport(f"unix:{tmp_path}/socket")
    found: list[Any] = []
    threads = [threading.Thread(target=lambda: found.append(transport.servers.channel)) for _ in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(60)
    assert len(set(map(id, found))) == 1
    with contextlib.closing(transport):
        assert len(found) == 8


def test_a_signals_handler_may_call_while_the_channel_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    transport = Transport(f"unix:{tmp_path}/socket")
    made: list[Any] = []
    used: list[Any] = []
    make = Credentials.channel

    def interrupted(self: Credentials, *args: Any) -> Any:
        mine = make(self, *args)
        made.append(mine)
        if len(made) == 1:
            used.append(transport.servers.channel)
        return mine

    monkeypatch.setattr(Credentials, "channel", interrupted)
    with contextlib.closing(transport):
        used += [transport.servers.channel, transport.servers.channel]
        assert len(made) == 2 and all(each is made[1] for each in used)
