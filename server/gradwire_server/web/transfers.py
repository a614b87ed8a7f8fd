"""Transfers: large values by plain HTTP, as streams of bytes that are never held whole.

PUT /uploads/NAME sends bytes for a later Create. The name is the upload's request_id, so a repeated PUT resumes the
same upload. With "Content-Range: bytes FIRST-LAST/TOTAL" it continues, and with "bytes */TOTAL" and no body it asks how
many bytes have arrived. GET /downloads/ID fetches what Read announced, or with "Range: bytes=FIRST-LAST" a part of it.
The session's id is a secret, so it travels as the header Gradwire-Session.
"""

import asyncio
import re
from dataclasses import dataclass
from typing import Any

import grpc
from starlette.responses import JSONResponse

from gradwire.v1 import service_pb2
from gradwire_server.common.errors import Refusal
from gradwire_server.web.bodies import chunks, declared_length
from gradwire_server.web.gateway import Gateway, HttpRequest
from gradwire_server.web.status import http_refusal
from gradwire_server.web.upstream import SERVICE, User

SESSION_HEADER = "gradwire-session"
_ID_HEADER = "gradwire-transfer-id"  # the server has begun the upload
_NUMBER = "([0-9]{1,18})"
_RANGE = re.compile(f"bytes={_NUMBER}-{_NUMBER}")
_CONTENT_RANGE = re.compile(rf"bytes (?:{_NUMBER}-{_NUMBER}|\*)/{_NUMBER}")
_NAME = re.compile(r"[A-Za-z0-9._~-]{1,128}")
_SESSION = re.compile(r"[!-~]{1,256}")


@dataclass(frozen=True)
class _Part:
    """The part of an upload that a request has: from `first`, `size` bytes of `total`."""

    first: int
    size: int
    total: int


async def upload(gateway: Gateway, request: HttpRequest) -> None:
    """Receive an upload's bytes, or some of them."""
    name = request.path_params["name"]
    if not _NAME.fullmatch(name):
        raise Refusal("MALFORMED", "an upload's name has 1 to 128 letters, digits and ._~-")
    part, session_id = _part(request), _session(request)
    caller = gateway.access.caller(request)
    async with gateway.upstream.user(caller.token) as user:
        if part.total > (most := user.limits.max_tensor_bytes):
            raise http_refusal(413, "PAYLOAD_SIZE", f"a tensor has at most {most} bytes, not {part.total}", limit=most)
        start = service_pb2.UploadStart(
            session_id=session_id, request_id=name, total_bytes=part.total, offset=part.first
        )
        if part.first:
            await _check_offset(user, start)
        with gateway.buffered.hold(2 * user.limits.chunk_bytes):
            response = await _send(gateway, request, user, start, part.size)
    state = {"transferId": response.transfer_id, "receivedBytes": str(response.received_bytes)}
    await request.answer(JSONResponse(state))


def _part(request: HttpRequest) -> _Part:
    """What the headers say. Raises Refusal: MALFORMED."""
    length, given = declared_length(request), request.headers.get("content-range")
    if given is None:
        if length is None:
            raise http_refusal(411, "MALFORMED", "an upload needs a Content-Length or a Content-Range")
        return _Part(0, length, length)
    found = _CONTENT_RANGE.fullmatch(given)
    if found is None:
        raise Refusal("MALFORMED", "the Content-Range is neither 'bytes FIRST-LAST/TOTAL' nor 'bytes */TOTAL'")
    total = int(found[3])
    if found[1] is None:
        first, size = 0, 0
    else:
        first = int(found[1])
        size = int(found[2]) + 1 - first
        if size < 1 or first + size > total:
            raise http_refusal(416, "MALFORMED", "the Content-Range is not within its total")
    if length not in (None, size):
        raise Refusal("MALFORMED", f"the Content-Range has {size} bytes, the Content-Length {length}")
    return _Part(first, size, total)


async def _check_offset(user: User, start: service_pb2.UploadStart) -> None:
    """Check that an upload continues where its bytes end, before its chunks are under way.

    Raises Refusal: ARGUMENT_VALUE; AioRpcError.
    """
    call: Any = user.channel.stream_unary(f"{SERVICE}/Upload")(metadata=user.metadata)
    try:
        await call.write(service_pb2.UploadRequest(start=start).SerializeToString())
        await call.done_writing()
        received = service_pb2.UploadResponse.FromString(await call).received_bytes
    except asyncio.InvalidStateError:  # the server has ended the call, and says why
        received = service_pb2.UploadResponse.FromString(await call).received_bytes
    finally:
        call.cancel()
    if received != start.offset:
        raise Refusal(
            "ARGUMENT_VALUE",
            f"the upload continues at {received}, not at {start.offset}",
            argument="offset",
            received=received,
        )


async def _send(
    gateway: Gateway, request: HttpRequest, user: User, start: service_pb2.UploadStart, size: int
) -> service_pb2.UploadResponse:
    """Pass a body on in chunks. gRPC takes a chunk when the server has room, and only then is more read."""
    call: Any = user.channel.stream_unary(f"{SERVICE}/Upload")(metadata=user.metadata)
    sent = 0
    try:
        await call.write(service_pb2.UploadRequest(start=start).SerializeToString())
        if _ID_HEADER not in {key for key, _ in await call.initial_metadata()}:  # the start was refused
            return service_pb2.UploadResponse.FromString(await call)
        async for chunk in chunks(request, user.limits.chunk_bytes, gateway.options.body_seconds):
            sent += len(chunk)
            if sent > size:
                raise Refusal("MALFORMED", f"the body has more than the {size} bytes that its headers say")
            await call.write(service_pb2.UploadRequest(data=chunk).SerializeToString())
        await call.done_writing()
        return service_pb2.UploadResponse.FromString(await call)
    except asyncio.InvalidStateError:  # the server has ended the call, and says why
        return service_pb2.UploadResponse.FromString(await call)
    finally:
        call.cancel()


async def download(gateway: Gateway, request: HttpRequest) -> None:
    """Send a download's bytes, or a part of them."""
    transfer_id, session_id = request.path_params["transfer_id"], _session(request)
    first, left = _wanted(request)
    caller = gateway.access.caller(request)
    asked = service_pb2.DownloadRequest(session_id=session_id, transfer_id=transfer_id, offset=first)
    async with gateway.upstream.user(caller.token) as user:
        with gateway.buffered.hold(2 * user.limits.chunk_bytes):
            start: Any = user.channel.unary_stream(f"{SERVICE}/Download")
            call = start(asked.SerializeToString(), metadata=user.metadata)
            try:
                await _pass_on(request, call, first, left)
            finally:
                call.cancel()


async def _pass_on(request: HttpRequest, call: Any, first: int, left: int | None) -> None:
    """Pass a download's chunks on; at most `left` bytes, or all for None."""
    raw = await call.read()  # a refusal is raised here, before an answer begins
    headers = [(b"content-type", b"application/octet-stream")]
    if left is not None:
        headers.append((b"content-range", b"bytes %d-%d/*" % (first, first + left - 1)))
        headers.append((b"content-length", b"%d" % left))
    await request.send({"type": "http.response.start", "status": 200 if left is None else 206, "headers": headers})
    while raw is not grpc.aio.EOF and left != 0:
        data = service_pb2.DownloadResponse.FromString(raw).data
        if left is not None:
            data = data[:left]
            left -= len(data)
        await request.send({"type": "http.response.body", "body": data, "more_body": True})
        if left != 0:
            raw = await call.read()
    if not left:
        await request.send({"type": "http.response.body", "body": b"", "more_body": False})


def _wanted(request: HttpRequest) -> tuple[int, int | None]:
    """The first byte and the number of bytes; None for all. Raises Refusal: MALFORMED."""
    given = request.headers.get("range")
    if given is None:
        return 0, None
    found = _RANGE.fullmatch(given)
    if found is None or int(found[2]) < int(found[1]):
        raise http_refusal(416, "MALFORMED", "the Range is not 'bytes=FIRST-LAST'; Read's answer has the total")
    return int(found[1]), int(found[2]) + 1 - int(found[1])


def _session(request: HttpRequest) -> str:
    session_id = request.headers.get(SESSION_HEADER, "")
    if not _SESSION.fullmatch(session_id):
        raise Refusal("MALFORMED", f"the header {SESSION_HEADER} has the session's id")
    return session_id
