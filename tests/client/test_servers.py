"""A client that knows several servers of a cluster, or that a server sends to another one."""

import contextlib
import random
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent import futures
from contextlib import contextmanager

import grpc
import pytest

import gradwire
from gradwire._transport.connection_advice import checked_all
from gradwire._transport.credentials import Credentials
from gradwire._transport.servers import Servers
from gradwire.v1 import service_pb2, snapshots_pb2
from tests.ports import free_port


@contextmanager
def serving(method: str, answer: Callable[[bytes, grpc.ServicerContext], bytes]) -> Iterator[str]:
    """A server with one RPC. Yields its address."""
    server = grpc.server(futures.ThreadPoolExecutor(1))
    handler = {method: grpc.unary_unary_rpc_method_handler(answer)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("gradwire.v1.AutogradService", handler),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        server.stop(0)


@contextmanager
def sending_to(endpoint: str) -> Iterator[tuple[str, list[service_pb2.OpenSessionRequest]]]:
    """A server that opens no session, but names the server that does. Yields its address and its requests."""
    requests: list[service_pb2.OpenSessionRequest] = []

    def open_session(raw: bytes, context: grpc.ServicerContext) -> bytes:
        requests.append(service_pb2.OpenSessionRequest.FromString(raw))
        return service_pb2.OpenSessionResponse(endpoint=endpoint).SerializeToString()

    with serving("OpenSession", open_session) as address:
        yield address, requests


def test_a_session_is_opened_at_the_server_that_is_named(server_address: str) -> None:
    with sending_to(server_address) as (address, requests), gradwire.connect(address) as session:
        assert session.address == server_address
        assert [request.follows_endpoint for request in requests] == [True]
        assert (gradwire.ones(3) * 2).sum().item() == 6
        session.close()


def test_the_next_address_is_tried_where_the_first_does_not_answer(server_address: str) -> None:
    with gradwire.connect(f"127.0.0.1:{free_port()}, {server_address}") as session:
        assert session.address == server_address
        assert gradwire.ones(2).sum().item() == 2
        session.close()


def test_addresses_are_a_list_with_commas() -> None:
    assert checked_all("a:1, b:2,a:1,") == ("a:1", "b:2")
    assert checked_all("unix:/socket") == ("unix:/socket",)
    with pytest.raises(ValueError, match="'b' has no port"):
        checked_all("a:1,b")
    with pytest.raises(ValueError, match=r"names no server|has no port"):
        checked_all(",")


def test_servers_are_used_in_turn_and_the_named_one_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    servers = Servers(("a:1", "b:2"), Credentials(), [])
    try:
        assert servers.several
        assert servers.move("a:1") and servers.address == "b:2"
        assert not servers.move("a:1"), "another thread has already left it"
        assert servers.move("b:2", "c:3") and servers.address == "c:3"
        with monkeypatch.context() as chosen:
            chosen.setattr(random, "choice", lambda addresses: addresses[0])
            assert servers.move("c:3") and servers.address == "a:1"
        assert servers.move("a:1", "no address") and servers.address == "b:2", "a bad endpoint is passed over"
        assert servers.move("b:2") and servers.address == "c:3"
    finally:
        servers.close()
    assert not servers.move("c:3")


def test_a_single_server_has_no_other() -> None:
    servers = Servers(("a:1",), Credentials(), [])
    try:
        assert not servers.several
        assert not servers.move("a:1")
        assert servers.move("a:1", "b:2")
        assert servers.several
    finally:
        servers.close()


def test_sessions_of_a_lost_server_are_spread_over_the_addresses() -> None:
    addresses = ("a:1", "b:2", "c:3")
    found = set()
    for _ in range(200):
        servers = Servers(addresses, Credentials(), [])
        servers.move("a:1", "d:4")
        servers.move("d:4")
        found.add(servers.address)
        servers.close()
    assert found == set(addresses)


def test_a_session_is_restored_at_the_server_that_is_named(server_address: str) -> None:
    """The named one is asked without follows_endpoint; here it stores nothing."""
    requests: list[snapshots_pb2.RestoreSessionRequest] = []

    def restore(raw: bytes, context: grpc.ServicerContext) -> bytes:
        requests.append(snapshots_pb2.RestoreSessionRequest.FromString(raw))
        opened = service_pb2.OpenSessionResponse(endpoint=server_address)
        return service_pb2.RestoreSessionResponse(session=opened).SerializeToString()

    with serving("RestoreSession", restore) as address, pytest.raises(gradwire.GradwireError, match="state-dir"):
        gradwire.restore("weights", address, device_type="cpu")
    assert [(each.follows_endpoint, each.device_type) for each in requests] == [(True, "cpu")]


def test_a_device_type_that_no_server_has_is_refused(server_address: str) -> None:
    with gradwire.connect(server_address, device_type="cpu") as session:
        session.close()
    with pytest.raises(RuntimeError, match="no server was found with a device of the type 'tpu'; this one has cpu"):
        gradwire.connect(server_address, device_type="tpu")


def test_a_seed_that_is_no_gradwire_server_is_left_for_the_next(server_address: str) -> None:
    """It accepts connections and speaks something else."""

    def answer(listening: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listening.accept()
                with connection:
                    connection.sendall(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")

    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        thread = threading.Thread(target=answer, args=(listening,), daemon=True)
        thread.start()
        with gradwire.connect(f"127.0.0.1:{listening.getsockname()[1]},{server_address}") as session:
            assert session.address == server_address
            session.close()
        listening.shutdown(socket.SHUT_RDWR)
