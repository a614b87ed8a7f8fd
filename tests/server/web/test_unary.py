"""Unary calls through the gateway: every method of the contract, by both protocols and all their encodings."""

import base64
import re
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import grpc
import pytest

pytest.importorskip("starlette", reason="the gateway needs the extra [web]")

import httpx

from gradwire.v1 import errors_pb2, service_pb2
from gradwire_server.web.methods import STREAMING, UNARY
from tests.server.harness import until
from tests.server.web.harness import SERVICE, Running

NO_SESSION = "no-such-session"
PATHS = sorted(UNARY)


def frames(body: bytes) -> tuple[bytes | None, dict[str, str]]:
    """The message and the trailers of a gRPC-Web answer."""
    message, trailers = None, {}
    while body:
        flags, size = body[0], int.from_bytes(body[1:5], "big")
        part, body = body[5 : 5 + size], body[5 + size :]
        if flags & 0x80:
            trailers = dict(line.split(": ", 1) for line in part.decode().splitlines())
        else:
            message = part
    return message, trailers


def request_for(path: str) -> Any:
    """A request that names an unknown session, if it names one."""
    message = UNARY[path].request()
    if "session_id" in message.DESCRIPTOR.fields_by_name and not path.endswith("/OpenSession"):
        message.session_id = NO_SESSION
    return message


def expected(server: str, path: str) -> str:
    """The status that gRPC itself answers."""
    with grpc.insecure_channel(server) as channel:
        try:
            channel.unary_unary(path)(request_for(path).SerializeToString(), timeout=60)
        except grpc.RpcError as error:
            return error.code().name
    return "OK"


def test_all_unary_methods_of_the_contract_are_served() -> None:
    service = service_pb2.DESCRIPTOR.services_by_name["AutogradService"]
    assert {*UNARY, *STREAMING} >= {f"/{service.full_name}/{each.name}" for each in service.methods}
    assert {path.rpartition("/")[2] for path in STREAMING} == {"Stream", "Share", "Upload", "Download"}


@pytest.mark.parametrize("path", PATHS)
def test_each_method_answers_as_by_grpc(gateway: Running, path: str) -> None:
    status = expected(gateway.server, path)
    name = "canceled" if status == "CANCELLED" else status.lower()
    message, method = request_for(path), UNARY[path]
    field = {"sessionId": NO_SESSION} if getattr(message, "session_id", "") else {}
    with gateway.client() as client:
        by_json = client.post(path, json=field)
        binary = client.post(path, content=message.SerializeToString(), headers={"content-type": "application/proto"})
        for answer in (by_json, binary):
            if status == "OK":
                assert answer.status_code == 200
            else:
                assert answer.json()["code"] == name
                assert answer.headers["content-type"] == "application/json"
        if status == "OK":
            method.response.FromString(binary.content)
        raw = message.SerializeToString()
        frame = b"\0" + len(raw).to_bytes(4, "big") + raw
        for kind, body in (
            ("application/grpc-web+proto", frame),
            ("application/grpc-web-text", base64.b64encode(frame[:5]) + base64.b64encode(frame[5:])),
        ):
            answer = client.post(path, content=body, headers={"content-type": kind})
            given = base64.b64decode(answer.content) if "text" in kind else answer.content
            found, trailers = frames(given)
            assert answer.status_code == 200
            assert trailers["grpc-status"] == str(getattr(grpc.StatusCode, status).value[0])
            assert (found is not None) == (status == "OK")


def test_a_refusal_has_its_reason_and_metadata(gateway: Running) -> None:
    session = gateway.call("OpenSession")["sessionId"]
    body = {"sessionId": session, "op": "no_such_op<script>alert(1)</script>"}
    with gateway.client() as client:
        answer = client.post(f"{SERVICE}/Op", json=body)
        details = {each["type"]: each for each in answer.json()["details"]}
        assert answer.json()["code"] == "unimplemented"
        assert details["google.rpc.ErrorInfo"]["debug"]["reason"] == "OP_UNKNOWN"
        error = errors_pb2.Error.FromString(base64.b64decode(details["gradwire.v1.Error"]["value"] + "=="))
        assert error.reason == errors_pb2.REASON_OP_UNKNOWN
        assert details["gradwire.v1.Error"]["debug"]["reason"] == "REASON_OP_UNKNOWN"
        # Markup in a name comes back as a text of JSON, which no browser renders.
        assert "<script>" in answer.json()["message"]
        assert answer.headers["content-type"] == "application/json"
        assert answer.headers["x-content-type-options"] == "nosniff"
        raw = UNARY[f"{SERVICE}/Op"].request(session_id=session, op=body["op"]).SerializeToString()
        frame = b"\0" + len(raw).to_bytes(4, "big") + raw
        answer = client.post(f"{SERVICE}/Op", content=frame, headers={"content-type": "application/grpc-web"})
        _, trailers = frames(answer.content)
        assert "<script>" in unquote(trailers["grpc-message"])
        error = errors_pb2.Error.FromString(base64.b64decode(trailers["gradwire-error-bin"] + "=="))
        assert error.reason == errors_pb2.REASON_OP_UNKNOWN


def test_values_and_gradients_through_json(gateway: Running) -> None:
    session = {"sessionId": gateway.call("OpenSession")["sessionId"]}
    data = base64.b64encode(bytes.fromhex("0000004000004040")).decode()  # 2.0, 3.0
    payload = {"dtype": "DTYPE_FLOAT32", "shape": ["2"], "data": data}
    x = gateway.call("Create", **session, payload=payload, requiresGrad=True)["tensor"]["id"]
    args = [{"tensor": x}, {"tensor": x}]
    y = gateway.call("Op", **session, op="mul", args=args)["outputs"][0]
    assert y["gradFn"] == "MulBackward0"
    total = gateway.call("Op", **session, op="sum", args=[{"tensor": y["id"]}])["outputs"][0]["id"]
    gateway.call("Backward", **session, tensors=[total])
    gradient = gateway.call("Grad", **session, tensor=x)["grad"]["id"]
    read = gateway.call("Read", **session, tensor=gradient)
    assert base64.b64decode(read["payload"]["data"]) == bytes.fromhex("000080400000c040")  # 4.0, 6.0


@pytest.mark.parametrize(
    ("header", "value"),
    [("connect-timeout-ms", "soon"), ("connect-protocol-version", "2"), ("content-encoding", "gzip")],
)
def test_unknown_protocol_headers_are_refused(gateway: Running, header: str, value: str) -> None:
    with gateway.client() as client:
        answer = client.post(f"{SERVICE}/ServerInfo", json={}, headers={header: value})
    assert answer.status_code in (400, 415)
    assert answer.json()["code"] in ("invalid_argument", "unimplemented")


def long_op(gateway: Running) -> dict[str, Any]:
    """A request that computes for seconds, in a session of its own."""
    session = gateway.call("OpenSession")["sessionId"]
    one = {"dtype": "DTYPE_FLOAT32", "shape": ["1"], "data": base64.b64encode(bytes(4)).decode()}
    x = gateway.call("Create", sessionId=session, payload=one)["tensor"]["id"]
    shape = {"integers": {"values": ["3400", "3400"]}}
    big = gateway.call("Op", sessionId=session, op="expand", args=[{"tensor": x}, shape])["outputs"][0]["id"]
    return {"sessionId": session, "op": "matmul", "args": [{"tensor": big}, {"tensor": big}]}


def test_a_deadline_is_passed_on(gateway: Running) -> None:
    with gateway.client() as client:
        answer = client.post(f"{SERVICE}/Op", json=long_op(gateway), headers={"connect-timeout-ms": "200"})
        assert (answer.status_code, answer.json()["code"]) == (504, "deadline_exceeded")
        answer = client.post(f"{SERVICE}/ServerInfo", json={}, headers={"connect-timeout-ms": "0"})
        assert (answer.status_code, answer.json()["code"]) == (504, "deadline_exceeded")
        headers = {"grpc-timeout": "0S", "content-type": "application/grpc-web"}
        _, trailers = frames(client.post(f"{SERVICE}/ServerInfo", content=bytes(5), headers=headers).content)
        assert trailers["grpc-status"] == "4"


def test_what_is_no_call_is_refused(gateway: Running) -> None:
    with gateway.client() as client:
        assert client.get(f"{SERVICE}/ServerInfo").status_code == 405
        assert client.post(f"{SERVICE}/Nothing", json={}).status_code == 404
        assert client.post(f"{SERVICE}/Download", json={}).json()["code"] == "unimplemented"
        assert client.get("/nothing/at/all").status_code == 404
        form = client.post(f"{SERVICE}/ServerInfo", data={"a": "b"})
        assert form.status_code == 415
        deep = b'{"a":' * 5000
        answer = client.post(f"{SERVICE}/Op", content=deep, headers={"content-type": "application/json"})
        assert (answer.status_code, answer.json()["code"]) == (400, "invalid_argument")


JUNK = 10 << 20


@pytest.mark.parametrize("kind", ["application/json", "application/proto", "application/grpc-web", "text/html"])
@pytest.mark.parametrize(
    ("verb", "path"),
    [("POST", f"{SERVICE}/Create"), ("POST", "/login"), ("POST", "/logout"), ("PUT", "/uploads/junk"), ("POST", "/x")],
)
def test_ten_megabytes_of_junk_are_refused(gateway: Running, verb: str, path: str, kind: str) -> None:
    with gateway.client() as client:
        answer = client.request(verb, path, content=b"\xff<b>" * (JUNK // 4), headers={"content-type": kind})
    trailers = frames(answer.content)[1] if answer.headers["content-type"] == kind == "application/grpc-web" else {}
    assert answer.status_code >= 400 or trailers["grpc-status"] == "8"
    assert answer.headers["content-type"] in ("application/json", "application/grpc-web")
    assert b"<b>" not in answer.content
    assert gateway.gateway.buffered.held == 0


def test_a_call_is_cancelled_when_its_client_goes(gateway: Running) -> None:
    long = long_op(gateway)
    with gateway.client() as client, pytest.raises(httpx.ReadTimeout):
        client.post(f"{SERVICE}/Op", json=long, timeout=0.2)
    users = gateway.gateway.upstream._users.values()
    until(lambda: not any(user.calls for user in users), "the call was cancelled")
    assert not gateway.gateway.buffered.held


def test_the_documentations_curl_lines_work(gateway: Running) -> None:
    page = (Path(__file__).parents[3] / "docs" / "web.md").read_text("utf-8")
    lines = re.findall(rf"^curl -s \S+?({SERVICE}/\w+) -H '([\w-]+): (\S+)' -d '(.*)'$", page, re.MULTILINE)
    assert [path.rpartition("/")[2] for path, *_ in lines] == ["OpenSession", "Create"]
    session = "SESSION"
    with gateway.client() as client:
        for path, header, value, body in lines:
            answer = client.post(path, content=body.replace("SESSION", session), headers={header: value})
            assert answer.status_code == 200, answer.text
            session = answer.json().get("sessionId", session)
    assert answer.json()["tensor"]["requiresGrad"]
