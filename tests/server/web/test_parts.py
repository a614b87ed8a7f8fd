"""The gateway's parts by themselves: what each reads, refuses and writes."""

import asyncio
import base64
import os
import socket
import sys
from typing import Any

import pytest

pytest.importorskip("starlette", reason="the gateway needs the extra [web]")

import grpc
from click.testing import CliRunner
from starlette.datastructures import Headers
from starlette.routing import Route, WebSocketRoute

from gradwire.v1 import service_pb2
from gradwire_server.app.gateway_process import GatewayProcess
from gradwire_server.app.studio import studio
from gradwire_server.common.errors import Refusal
from gradwire_server.web import __main__ as child
from gradwire_server.web import connect, grpc_web
from gradwire_server.web.access import Access
from gradwire_server.web.application import application
from gradwire_server.web.bodies import Buffered, in_time
from gradwire_server.web.counters import WebCounters
from gradwire_server.web.gateway import Gateway
from gradwire_server.web.logins import Logins
from gradwire_server.web.methods import UNARY
from gradwire_server.web.options import GatewayOptions
from gradwire_server.web.protocols import protocols
from gradwire_server.web.serving import Certificate
from gradwire_server.web.status import OK, http_refusal, status_of
from gradwire_server.web.stream import PATH
from gradwire_server.web.transfers import SESSION_HEADER
from gradwire_server.web.unary import unary
from gradwire_server.web.upstream import SERVICE, metadata_of

OPTIONS = GatewayOptions("127.0.0.1:1", origins=("https://lab.example.org",))


def test_hosts_and_origins_are_this_gateways_or_configured_ones() -> None:
    access = Access(OPTIONS, Logins(10, 10))
    for host in ("localhost:80", "127.0.0.1", "[::1]:9", "lab.example.org"):
        access.check_host(Headers({"host": host}))
    for host in ("evil.example", "127.0.0.1.evil.example", "", "a b"):
        with pytest.raises(Refusal):
            access.check_host(Headers({"host": host}))
    assert access.check_origin(Headers({"host": "127.0.0.1:9", "origin": "http://127.0.0.1:9"})) == ""
    configured = Headers({"host": "127.0.0.1:9", "origin": "https://lab.example.org"})
    assert access.check_origin(configured) == "https://lab.example.org"
    for other in ({"origin": "null"}, {"origin": "http://127.0.0.1:8"}, {"sec-fetch-site": "cross-site"}):
        with pytest.raises(Refusal):
            access.check_origin(Headers({"host": "127.0.0.1:9", **other}))


def test_the_application_has_the_paths_of_calls_streams_and_transfers() -> None:
    async def paths() -> dict[str, Any]:
        gateway = Gateway(OPTIONS)
        try:
            return {each.path: each for each in application(gateway).routes if isinstance(each, Route | WebSocketRoute)}
        finally:
            await gateway.close()

    found = asyncio.run(paths())
    assert f"{SERVICE}/Stream" == PATH and isinstance(found[PATH], WebSocketRoute)
    assert {
        "/",
        "/studio/{name}",
        "/healthz",
        "/login",
        "/logout",
        "/uploads/{name}",
        "/downloads/{transfer_id}",
    } < set(found)
    assert found["/{service}/{method}"].methods == {"POST"}
    assert unary.__module__ == "gradwire_server.web.unary" and SESSION_HEADER.lower() == SESSION_HEADER


def test_bodies_together_have_a_bound_and_each_has_a_time() -> None:
    buffered = Buffered(10)
    with buffered.hold(6):
        with pytest.raises(Refusal), buffered.hold(5):
            pass
        with buffered.hold(4):
            assert buffered.held == 10
    assert buffered.held == 0
    with pytest.raises(Refusal, match=r"time|slow|body"):
        asyncio.run(in_time(asyncio.sleep(30), 0.01))


def test_connect_reads_json_and_refuses_what_is_none() -> None:
    method = next(each for each in UNARY.values() if each.request is service_pb2.ListOpsRequest)
    assert service_pb2.ListOpsRequest.FromString(connect.to_binary(method, b'{"prefix": "zer"}')).prefix == "zer"
    answer = service_pb2.ListOpsResponse(hash="ab").SerializeToString()
    assert connect.to_json(method, answer) == b'{"hash": "ab"}'
    for wrong in (b"{", b'{"unknown": 1}', b"\xff"):
        with pytest.raises(Refusal, match="ListOpsRequest"):
            connect.to_binary(method, wrong)
    assert connect.timeout("1500") == 1.5 and connect.timeout(None) is None
    for check, wrong in ((connect.timeout, "1e3"), (connect.check_version, "2")):
        with pytest.raises(Refusal):
            check(wrong)


def test_grpc_web_reads_one_frame_and_writes_two() -> None:
    frame = b"\0\0\0\0\x02hi"
    assert grpc_web.message_of(frame, text=False) == b"hi"
    assert grpc_web.message_of(base64.b64encode(frame), text=True) == b"hi"
    for wrong in (b"", frame + b"x", b"\x01" + frame[1:], frame[:-1]):
        with pytest.raises(Refusal):
            grpc_web.message_of(wrong, text=False)
    with pytest.raises(Refusal):
        grpc_web.message_of(b"*", text=True)
    assert grpc_web.answer(b"hi", OK, text=False).startswith(frame + b"\x80")
    assert b"grpc-status: 0" in grpc_web.answer(None, OK, text=False)
    assert grpc_web.timeout("100m") == pytest.approx(0.1)
    with pytest.raises(Refusal):
        grpc_web.timeout("100")


def test_a_status_has_the_refusals_code_message_and_details() -> None:
    status = status_of(http_refusal(415, "MALFORMED", "no such <b>", argument="x"))
    assert (status.http_status, status.code) == (415, grpc.StatusCode.INVALID_ARGUMENT)
    assert status.body()["message"] == "no such <b>" and {"google.rpc.ErrorInfo", "gradwire.v1.Error"} <= {
        each["type"] for each in status.body()["details"]
    }
    assert b"grpc-message: no such %3Cb%3E" in status.trailers()


def test_an_unforeseen_error_is_internal_tells_nothing_and_is_counted() -> None:
    async def statuses() -> None:
        gateway = Gateway(OPTIONS)
        try:
            found = gateway.status_of(ValueError("secret"), "/x")
            assert found.code is grpc.StatusCode.INTERNAL and "secret" not in found.message
            assert gateway.counters.refusals() == {"INTERNAL": 1}
        finally:
            await gateway.close()

    asyncio.run(statuses())


def test_options_travel_as_json_and_tell_whether_tokens_are_in_clear() -> None:
    assert GatewayOptions.from_json(OPTIONS.to_json()) == OPTIONS
    assert not OPTIONS.metadata_in_clear and not GatewayOptions("unix:/x").metadata_in_clear
    assert GatewayOptions("10.0.0.1:5").metadata_in_clear
    assert not GatewayOptions("10.0.0.1:5", server_tls=True).metadata_in_clear
    assert metadata_of("abc") == (("authorization", "Bearer abc"),) and metadata_of(None) == ()


def test_connections_have_uvicorns_protocols_with_bounds() -> None:
    http, websocket = protocols(OPTIONS, WebCounters())
    assert issubclass(http, asyncio.Protocol) and issubclass(websocket, asyncio.Protocol)
    with pytest.raises(OSError):
        Certificate("/nonexistent/cert.pem", "/nonexistent/key.pem")


def test_the_child_process_takes_a_socket_and_ends_with_its_input(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        made = GatewayProcess(OPTIONS, listening)
        assert made.socket_path.endswith("/socket")
        os.close(made._shared)
        made._folder.cleanup()
    monkeypatch.setattr(sys, "argv", ["gradwire_server.web", "no JSON", "0"])
    monkeypatch.setattr(child.signal, "signal", lambda *given: None)
    with pytest.raises(ValueError, match=r"JSON|Expecting"):
        child.main()


def test_studio_refuses_a_certificate_without_its_key() -> None:
    found = CliRunner().invoke(studio, ["127.0.0.1:1", "--tls-cert", "x.pem"])
    assert found.exit_code != 0 and "key" in found.output.lower()
