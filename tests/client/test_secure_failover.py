"""Servers of a cluster with TLS, certificates of clients and tokens: sessions are placed and move as without them."""

import json
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import gradwire
from gradwire._transport.credentials import Credentials
from gradwire._transport.opening import open_session
from gradwire._transport.transport import Transport
from gradwire.v1 import service_pb2
from gradwire_server.auth.tokens import append, make
from tests.certificates import Authority
from tests.client.sharing import Node, train
from tests.server.harness import until

STEPS = 30


class Placing:
    """Stands for a node's actor: sends each new session to `endpoint`."""

    def __init__(self, path: Path) -> None:
        self.path, self.endpoint = path, ""
        self._listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listening.bind(str(path))
        self._listening.listen()
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        connection, _ = self._listening.accept()
        with connection, connection.makefile("r") as lines:
            for line in lines:
                message = json.loads(line)
                if "place" in message:
                    answer = {"place": message["place"], "endpoint": self.endpoint}
                    connection.sendall(json.dumps(answer).encode() + b"\n")


@dataclass
class Secured:
    """Three servers at addresses of their own. Only the first address is in their certificate, and clients know it."""

    nodes: list[Node]
    placing: Placing
    seed: str
    known: dict[str, Any]  # what a client shows

    def transport(self, address: str) -> Transport:
        return Transport(address, Credentials(**self.known))


@pytest.fixture
def secured(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Secured]:
    """The parameter is the name in the third server's certificate, if it is another one."""
    authority = Authority(tmp_path)
    token, line = make("alice")
    append(tmp_path / "tokens", line)
    client_cert, client_key = authority.issue("alice")
    placing = Placing(tmp_path / "place")
    with ExitStack() as stack:
        nodes = []
        for number in (1, 2, 3):
            name = getattr(request, "param", "localhost") if number == 3 else "localhost"
            cert, key = authority.issue(name, f"node{number}")
            node = Node(
                tmp_path / "state", "--durability=log", f"--tls-cert={cert}", f"--tls-key={key}",
                f"--tls-client-ca={authority.path}", f"--token-file={tmp_path}/tokens",
                *([f"--placement={placing.path}"] if number == 1 else []), host=f"127.0.0.{number}",
            )  # fmt: skip
            nodes.append(node)
            stack.callback(node.kill)
        known = {"token": token, "ca": authority.path, "cert": client_cert, "key": client_key}
        yield Secured(nodes, placing, f"localhost:{nodes[0].endpoint.rpartition(':')[2]}", known)


@pytest.fixture(scope="module")
def undisturbed(server_address: str) -> str:
    return train(server_address, STEPS)


def as_environment(monkeypatch: pytest.MonkeyPatch, known: dict[str, Any]) -> None:
    for name, value in known.items():
        monkeypatch.setenv(f"GRADWIRE_{name.upper()}", str(value))


def attach(transport: Transport, session_id: str) -> None:
    """Attach to a session as a second client does, which takes it over once its owner does not answer."""

    def attached() -> bool:
        try:
            request = service_pb2.OpenSessionRequest(session_id=session_id)
            transport.call("OpenSession", request, service_pb2.OpenSessionResponse, waits=())
        except gradwire.GradwireError as error:
            if error.reason not in ("UNAVAILABLE", "SESSION_MOVED"):
                raise
            return False
        return True

    until(attached, "the second client")


@pytest.mark.slow
def test_a_session_is_placed_and_moves_twice_with_tls_certificates_and_tokens(
    secured: Secured, undisturbed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Placed at the second server; taken over at the third while that is frozen; then at the first by a kill."""
    _, second, third = secured.nodes
    secured.placing.endpoint = second.endpoint
    as_environment(monkeypatch, secured.known)
    used: list[str] = []

    def disturb(step: int) -> None:
        session = gradwire.current_session()
        if session.address not in used[-1:]:
            used.append(session.address)
        if step == 8:
            second.signal(signal.SIGSTOP)
            there = Transport(third.endpoint, Credentials(**secured.known))
            there.close()
            named = secured.transport(secured.seed)
            assert named.servers.move(secured.seed, third.endpoint)
            attach(named, session.session_id)
            named.close()
            second.signal(signal.SIGCONT)  # it answers SESSION_MOVED from now on
        elif step == 20:
            third.kill()

    assert train(secured.seed, STEPS, disturb) == undisturbed
    assert used[:2] == [second.endpoint, third.endpoint]
    assert len(used) > 2 and used[-1] != third.endpoint


@pytest.mark.slow
@pytest.mark.parametrize("secured", ["elsewhere"], indirect=True)
def test_a_server_with_another_name_in_its_certificate_is_left_by_name(
    secured: Secured, caplog: pytest.LogCaptureFixture
) -> None:
    third = secured.nodes[2]
    secured.placing.endpoint = third.endpoint
    transport = secured.transport(secured.seed)
    try:
        assert open_session(transport).session_id
        assert transport.address == secured.seed, "no session, and no token, is sent to the wrong one"
        assert f"{third.endpoint}: continuing at {secured.seed}" in caplog.text
        assert transport.servers.move(secured.seed, third.endpoint)
        with pytest.raises(gradwire.GradwireConnectionError, match=f"{third.endpoint}.*Hostname Verification"):
            transport.call("ServerInfo", service_pb2.ServerInfoRequest(), service_pb2.ServerInfoResponse, waits=())
    finally:
        transport.close()


@pytest.mark.slow
def test_a_living_owner_that_asks_for_certificates_keeps_its_session(secured: Secured) -> None:
    """Other servers have no certificate to show when they look whether the owner answers."""
    first, second, _ = secured.nodes
    transports = [secured.transport(secured.seed) for _ in range(2)]
    try:
        session_id = open_session(transports[0]).session_id
        assert transports[1].servers.move(secured.seed, second.endpoint)
        request = service_pb2.OpenSessionRequest(session_id=session_id)
        refusals: list[gradwire.GradwireError] = []

        def looked_up() -> bool:
            with pytest.raises(gradwire.GradwireError) as caught:  # an answer would be a session that was taken over
                transports[1].call("OpenSession", request, service_pb2.OpenSessionResponse, waits=())
            refusals.append(caught.value)
            return caught.value.reason != "UNAVAILABLE"

        until(looked_up, "the end of the lookup")
        assert (refusals[-1].reason, refusals[-1].metadata["endpoint"]) == ("SESSION_MOVED", first.endpoint)
    finally:
        for each in transports:
            each.close()


@pytest.mark.slow
def test_a_wrong_token_is_refused_by_a_server_that_was_named(secured: Secured) -> None:
    for change in ({"token": make("alice")[0]}, {"cert": None, "key": None}):
        transport = Transport(secured.seed, Credentials(**{**secured.known, **change}))
        try:
            assert transport.servers.move(secured.seed, secured.nodes[1].endpoint)
            with pytest.raises(gradwire.GradwireError) as caught:
                transport.call("ServerInfo", service_pb2.ServerInfoRequest(), service_pb2.ServerInfoResponse, waits=())
            assert caught.value.reason == ("UNAUTHENTICATED" if "token" in change else "UNAVAILABLE")
        finally:
            transport.close()
