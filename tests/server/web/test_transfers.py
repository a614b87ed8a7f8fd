"""Large values by PUT and GET: whole, in parts, resumed after a cut, and with flat memory."""

import hashlib
import json
import os
import socket
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import psutil
import pytest

pytest.importorskip("starlette", reason="the gateway needs the extra [web]")

from tests.server.harness import until
from tests.server.web.harness import SERVICE, Running, gateway_to

MIB = 1 << 20
SIZE = 64 * MIB


@pytest.fixture
def session(gateway: Running) -> Iterator[str]:
    opened = gateway.call("OpenSession")["sessionId"]
    yield opened
    gateway.call("CloseSession", sessionId=opened)


def pieces(size: int) -> Iterator[bytes]:
    piece = bytes(range(256)) * 256
    for _ in range(size // len(piece)):
        yield piece


def tensor_of(gateway: Running, session: str, transfer: str, size: int) -> str:
    described = {"transferId": transfer, "dtype": "DTYPE_UINT8", "shape": [str(size)]}
    return gateway.call("Create", sessionId=session, transfer=described)["tensor"]["id"]


def announced(gateway: Running, session: str, tensor: str) -> dict[str, Any]:
    return gateway.call("Read", sessionId=session, tensor=tensor)["transfer"]


def test_64_mib_there_and_back_with_flat_memory(gateway: Running, session: str) -> None:
    headers = {"gradwire-session": session, "content-length": str(SIZE)}
    process, digest = psutil.Process(), hashlib.sha256()
    with gateway.client() as client:
        client.put("/uploads/warm", content=bytes(4 * MIB), headers={"gradwire-session": session})
        before, peak = process.memory_info().rss, 0

        def watched() -> Iterator[bytes]:
            nonlocal peak
            for piece in pieces(SIZE):
                peak = max(peak, process.memory_info().rss)
                digest.update(piece)
                yield piece

        answer = client.put("/uploads/large", content=watched(), headers=headers).json()
        assert answer["receivedBytes"] == str(SIZE)
        transfer = announced(gateway, session, tensor_of(gateway, session, answer["transferId"], SIZE))
        assert transfer["totalBytes"] == str(SIZE)
        back = hashlib.sha256()
        with client.stream(
            "GET", f"/downloads/{transfer['transferId']}", headers={"gradwire-session": session}
        ) as response:
            assert response.status_code == 200
            for piece in response.iter_bytes():
                peak = max(peak, process.memory_info().rss)
                back.update(piece)
    assert back.digest() == digest.digest()
    # Client and gateway are this process: neither holds the value.
    assert peak - before < 24 * MIB


def test_an_upload_that_broke_is_continued(gateway: Running, session: str) -> None:
    data = os.urandom(5 * MIB)
    # The first call announces all and ends in the middle, without a goodbye.
    parts = urlsplit(gateway.url)
    assert parts.hostname and parts.port
    with socket.create_connection((parts.hostname, parts.port)) as raw:
        head = f"PUT /uploads/cut HTTP/1.1\r\nHost: {parts.netloc}\r\nGradwire-Session: {session}\r\n"
        raw.sendall(f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data[: 3 * MIB])
    headers = {"gradwire-session": session}

    def received() -> int:
        with gateway.client() as client:
            asked = client.put("/uploads/cut", headers={**headers, "content-range": f"bytes */{len(data)}"})
            assert asked.status_code == 200, asked.text
            return int(asked.json()["receivedBytes"])

    until(lambda: not any(user.calls for user in gateway.gateway.upstream._users.values()))
    first = received()
    assert first <= 3 * MIB
    with gateway.client() as client:
        for start in range(first, len(data), 2 * MIB):
            part = data[start : start + 2 * MIB]
            span = f"bytes {start}-{start + len(part) - 1}/{len(data)}"
            answer = client.put("/uploads/cut", content=part, headers={**headers, "content-range": span})
            assert answer.json()["receivedBytes"] == str(start + len(part))
        # A part that is sent twice is refused, and says where the upload continues.
        again = client.put("/uploads/cut", content=part, headers={**headers, "content-range": span})
        assert again.status_code == 400
        assert str(len(data)) in again.json()["message"]
    tensor = tensor_of(gateway, session, answer.json()["transferId"], len(data))
    transfer = announced(gateway, session, tensor)["transferId"]
    with gateway.client() as client:
        # A range leaves the transfer as it is; the whole ends it.
        some = client.get(f"/downloads/{transfer}", headers={**headers, "range": f"bytes={MIB - 5}-{3 * MIB}"})
        assert some.status_code == 206
        assert some.headers["content-range"] == f"bytes {MIB - 5}-{3 * MIB}/*"
        assert some.content == data[MIB - 5 : 3 * MIB + 1]
        assert client.get(f"/downloads/{transfer}", headers=headers).content == data


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 400),
        ({"gradwire-session": "unknown"}, 404),
        ({"gradwire-session": "SESSION", "content-range": "bytes 5-3/10"}, 416),
        ({"gradwire-session": "SESSION", "content-range": "bytes 0-3/2"}, 416),
        ({"gradwire-session": "SESSION", "content-range": "lines 0-3/2"}, 400),
        ({"gradwire-session": "SESSION", "content-range": "bytes 0-3/4000"}, 400),
        ({"gradwire-session": "SESSION", "content-range": "bytes 0-9/99999999999999999"}, 413),
    ],
)
def test_uploads_are_refused(gateway: Running, session: str, headers: dict[str, str], status: int) -> None:
    given = {name: value.replace("SESSION", session) for name, value in headers.items()}
    with gateway.client() as client:
        answer = client.put("/uploads/refused", content=b"x" * 10, headers=given)
    assert answer.status_code == status, answer.text
    assert json.loads(answer.text)["code"]


@pytest.mark.parametrize("span", ["bytes=5-", "bytes=-5", "bytes=5-3", "lines=1-2", "bytes=0-1,3-4"])
def test_unknown_ranges_and_downloads_are_refused(gateway: Running, session: str, span: str) -> None:
    headers = {"gradwire-session": session}
    with gateway.client() as client:
        assert client.get("/downloads/x", headers={**headers, "range": span}).status_code == 416
        assert client.get("/downloads/<b>", headers=headers).status_code == 404


def test_a_slow_upload_ends(open_server: str) -> None:
    with gateway_to(open_server, body_seconds=0.5) as gateway:
        session = gateway.call("OpenSession")["sessionId"]
        parts = urlsplit(gateway.url)
        assert parts.hostname and parts.port
        for path, more in (("PUT /uploads/slow", f"Gradwire-Session: {session}\r\n"), (f"POST {SERVICE}/Create", "")):
            with socket.create_connection((parts.hostname, parts.port), timeout=60) as raw:
                head = f"{path} HTTP/1.1\r\nHost: {parts.netloc}\r\nContent-Type: application/json\r\n{more}"
                raw.sendall(f"{head}Content-Length: 1000\r\n\r\nx".encode())
                assert raw.recv(100).startswith(b"HTTP/1.1 408")


def test_the_gateways_buffers_are_bounded(open_server: str) -> None:
    with gateway_to(open_server, most_buffered_bytes=1000) as gateway, gateway.client() as client:
        body = b'{"sessionId": "' + b"x" * 2000 + b'"}'
        answer = client.post(f"{SERVICE}/KeepAlive", content=body, headers={"content-type": "application/json"})
        assert (answer.status_code, answer.json()["code"]) == (503, "unavailable")
