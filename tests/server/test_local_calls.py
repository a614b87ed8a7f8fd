"""Calls at the socket beside that of gRPC: what they answer, and what a bad client there can do."""

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from google.rpc import status_pb2

from gradwire.v1 import service_pb2
from gradwire_server.auth.tokens import Tokens
from gradwire_server.rpc import local_streams
from tests.server.by_socket import LAST, LENGTH, framed
from tests.server.harness import Running, running, until
from tests.server.test_principals import House

pytestmark = pytest.mark.skipif(not hasattr(socket, "SO_PEERCRED"), reason="the system has no such sockets")


class Caller:
    """A client that makes calls in the plainest way."""

    def __init__(self, path: Path) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(60)
        self.socket.connect(f"{path}.local")

    def call(self, method: str, request: bytes) -> tuple[bytes, bool]:
        """The server's next message, and whether it is the last."""
        self.socket.sendall(framed(method.encode()) + framed(request))
        return self.message()

    def message(self) -> tuple[bytes, bool]:
        length = LENGTH.unpack(self._exactly(LENGTH.size))[0]
        return self._exactly(length & ~LAST), bool(length & LAST)

    def _exactly(self, size: int) -> bytes:
        found = b""
        while len(found) < size:
            more = self.socket.recv(size - len(found))
            if not more:
                raise EOFError
            found += more
        return found


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "socket"


@pytest.fixture
def beside(path: Path) -> Iterator[Running]:
    with running(0, address=f"unix:{path}") as started:
        yield started


@pytest.fixture
def caller(beside: Running, path: Path) -> Iterator[Caller]:
    made = Caller(path)
    yield made
    made.socket.close()


def opening(**fields: Any) -> bytes:
    return service_pb2.OpenSessionRequest(**fields).SerializeToString()


def test_one_connection_carries_call_after_call(caller: Caller, beside: Running) -> None:
    raw, last = caller.call("OpenSession", opening())
    opened = service_pb2.OpenSessionResponse.FromString(raw)
    assert not last and beside.backend.registry.find(opened.session_id).id == opened.session_id
    raw, last = caller.call("KeepAlive", service_pb2.KeepAliveRequest(session_id=opened.session_id).SerializeToString())
    assert not last and service_pb2.KeepAliveResponse.FromString(raw).lease_ms == opened.lease_ms
    raw, last = caller.call("ServerInfo", b"")
    assert not last and service_pb2.ServerInfoResponse.FromString(raw).sessions == 1
    caller.call("CloseSession", service_pb2.CloseSessionRequest(session_id=opened.session_id).SerializeToString())
    assert not beside.backend.registry.entries
    caller.socket.shutdown(socket.SHUT_WR)
    assert caller.message() == (b"", True)
    until(lambda: not beside.server.local.connections)


def test_a_refusal_is_the_status_and_the_end(caller: Caller, beside: Running) -> None:
    raw, last = caller.call("OpenSession", opening(device_type="tpu"))
    status = status_pb2.Status.FromString(raw)
    assert last and "tpu" in status.message
    assert beside.server.front.refusals["OpenSession", "DEVICE_UNAVAILABLE"] == 1
    assert caller.socket.recv(1) == b""
    until(lambda: not beside.server.front.active)


@pytest.mark.parametrize("method", ["Run", "ListSessions", "EndSession", "Stream", "", "\xff"])
def test_other_methods_are_not_answered_there(caller: Caller, beside: Running, method: str) -> None:
    """Not those that ask who the caller is: the socket does not tell it."""
    raw, last = caller.call(method, b"")
    assert last and "no method of this name" in status_pb2.Status.FromString(raw).message
    assert beside.server.front.refusals["other", "MALFORMED"] == 1


def test_requests_are_small(caller: Caller, beside: Running) -> None:
    raw, last = caller.call("OpenSession", bytes(1 << 17))
    assert last and "at most" in status_pb2.Status.FromString(raw).message
    assert not beside.backend.registry.entries


@pytest.mark.parametrize("sent", [b"", framed(b"OpenSession"), framed(b"OpenSession") + b"\x05\x00"])
def test_a_client_that_sends_no_whole_call_opens_nothing_and_is_let_go_of(
    beside: Running, path: Path, monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    monkeypatch.setattr(local_streams, "_CALL_SECONDS", 0.05)
    silent = Caller(path)
    silent.socket.sendall(sent)
    with pytest.raises((EOFError, ConnectionError)):
        silent.message()
    until(lambda: not beside.server.local.connections)
    assert not beside.backend.registry.entries
    silent.socket.close()


def test_a_server_that_ends_opens_no_session(caller: Caller, beside: Running) -> None:
    beside.server.front.draining = beside.backend.draining = True
    raw, last = caller.call("OpenSession", opening())
    beside.server.front.draining = beside.backend.draining = False
    assert last and status_pb2.Status.FromString(raw).code == 14


def test_another_users_process_gets_no_answer(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with running(0, address=f"unix:{path}") as server:
        monkeypatch.setattr(local_streams.os, "geteuid", lambda: 1 << 30)
        stranger = Caller(path)
        with pytest.raises((EOFError, ConnectionError)):
            stranger.call("OpenSession", opening())
        assert not server.backend.registry.entries
        stranger.socket.close()


def test_the_file_is_the_users_alone_and_goes_with_the_server(path: Path) -> None:
    beside = Path(f"{path}.local")
    with running(0, address=f"unix:{path}"):
        assert beside.is_socket() and beside.stat().st_mode & 0o077 == 0
    assert not beside.exists()


def test_the_socket_of_a_killed_server_is_replaced(path: Path) -> None:
    killed = socket.socket(socket.AF_UNIX)
    killed.bind(f"{path}.local")
    killed.close()
    with running(0, address=f"unix:{path}"):
        assert not Caller(path).call("ServerInfo", b"")[1]


def test_a_file_that_is_no_socket_stays_and_calls_go_by_grpc(path: Path) -> None:
    beside = Path(f"{path}.local")
    beside.write_text("mine")
    with running(0, address=f"unix:{path}") as server:
        server.open().close()
    assert beside.read_text() == "mine"


def test_a_path_that_is_too_long_for_it_leaves_grpc(tmp_path: Path) -> None:
    path = tmp_path / ("s" * (105 - len(str(tmp_path)) - 1))
    with running(0, address=f"unix:{path}") as server:
        server.open().close()
        assert not Path(f"{path}.local").exists()


def test_who_must_say_who_he_is_has_no_such_socket(tmp_path: Path, path: Path) -> None:
    with running(0, tokens=Tokens(House(tmp_path).path), address=f"unix:{path}"):
        assert not Path(f"{path}.local").exists()
