"""Unary calls: every unary method of the contract, by Connect (JSON and binary) and by gRPC-Web (binary and text)."""

import asyncio
from collections.abc import Callable
from typing import Any

import grpc
from starlette.responses import Response

from gradwire_server.common.errors import Refusal
from gradwire_server.web import connect, grpc_web
from gradwire_server.web.bodies import read_body
from gradwire_server.web.gateway import Gateway, HttpRequest, while_connected
from gradwire_server.web.methods import STREAMING, UNARY, Method
from gradwire_server.web.status import OK, CallStatus, http_refusal
from gradwire_server.web.upstream import User

_ENVELOPE = 64  # bytes that frames may add to a message
_JSON_GROWTH = 2  # base64 and names; the message's own limit is checked after parsing
_LARGE = 64 << 10  # bytes of JSON from which a thread parses it, so other requests do not wait
_ACCEPTED = ", ".join((connect.JSON, connect.PROTO, *grpc_web.TYPES))


async def unary(gateway: Gateway, request: HttpRequest) -> None:
    """Answer a call by the protocol that its content type names."""
    method = UNARY.get(request.scope["path"])
    if method is None:
        raise _no_method(request.scope["path"])
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind in (connect.JSON, connect.PROTO):
        await _by_connect(gateway, request, method, kind)
    elif kind in grpc_web.TYPES:
        await _by_grpc_web(gateway, request, method, kind)
    else:
        raise http_refusal(415, "MALFORMED", f"the content type is none of {_ACCEPTED}")


def _no_method(path: str) -> Refusal:
    if path in STREAMING:
        return http_refusal(
            404,
            "NOT_SUPPORTED",
            "a method with streams is no unary call: use the WebSocket for Stream, PUT /uploads/NAME for Upload and "
            "GET /downloads/ID for Download",
        )
    return http_refusal(404, "NOT_SUPPORTED", "there is no such method")


async def _by_connect(gateway: Gateway, request: HttpRequest, method: Method, kind: str) -> None:
    connect.check_version(request.headers.get(connect.VERSION_HEADER))
    timeout = connect.timeout(request.headers.get(connect.TIMEOUT_HEADER))
    _check_encoding(request, "content-encoding")
    is_json = kind == connect.JSON
    caller = gateway.access.caller(request)
    async with gateway.upstream.user(caller.token) as user:
        most = user.limits.max_message_bytes
        growth = _JSON_GROWTH if is_json else 1
        body = await read_body(request, most * growth + _ENVELOPE, gateway.options.body_seconds)
        with gateway.buffered.hold(len(body)):
            message = await _converted(connect.to_binary, method, body) if is_json else body
            answer = await _call(user, request, method, message, timeout)
            given = await _converted(connect.to_json, method, answer) if is_json else answer
            await request.answer(Response(given, media_type=kind))


async def _by_grpc_web(gateway: Gateway, request: HttpRequest, method: Method, kind: str) -> None:
    text = grpc_web.TYPES[kind]
    answer, status = None, OK
    try:
        timeout = grpc_web.timeout(request.headers.get("grpc-timeout"))
        _check_encoding(request, "grpc-encoding")
        caller = gateway.access.caller(request)
        async with gateway.upstream.user(caller.token) as user:
            most = user.limits.max_message_bytes + grpc_web.HEAD
            # Text is a third longer, and may be padded in between.
            body = await read_body(request, most * 3 // 2 if text else most, gateway.options.body_seconds)
            with gateway.buffered.hold(len(body)):
                answer = await _call(user, request, method, grpc_web.message_of(body, text), timeout)
                await _answer_grpc_web(request, kind, answer, status)
        return
    except (Refusal, grpc.aio.AioRpcError) as error:
        status = gateway.status_of(error, method.path)
    await request.discard()
    await _answer_grpc_web(request, kind, None, status)


async def _answer_grpc_web(request: HttpRequest, kind: str, answer: bytes | None, status: CallStatus) -> None:
    await request.answer(Response(grpc_web.answer(answer, status, grpc_web.TYPES[kind]), media_type=kind))


async def _call(user: User, request: HttpRequest, method: Method, message: bytes, timeout: float | None) -> bytes:
    """Make the call. Its deadline is passed on; it is cancelled if the client goes."""
    if len(message) > (most := user.limits.max_message_bytes):
        raise Refusal("MESSAGE_TOO_LARGE", f"a message has at most {most} bytes, not {len(message)}", limit=most)
    if timeout is not None and timeout <= 0:
        raise Refusal("DEADLINE_EXCEEDED", "the call's deadline is over")
    metadata = user.metadata
    if (parent := request.headers.get("traceparent")) is not None:
        metadata = (*metadata, ("traceparent", parent))
    start: Any = user.channel.unary_unary(method.path)
    call = start(message, timeout=timeout, metadata=metadata)
    return await while_connected(request, call)


async def _converted(convert: Callable[[Method, bytes], bytes], method: Method, data: bytes) -> bytes:
    if len(data) < _LARGE:
        return convert(method, data)
    return await asyncio.get_running_loop().run_in_executor(None, convert, method, data)


def _check_encoding(request: HttpRequest, header: str) -> None:
    """Check that a message is not compressed: what a few bytes expand to would have no bound here."""
    if request.headers.get(header, "identity") != "identity":
        raise http_refusal(415, "NOT_SUPPORTED", f"{header} is identity, or left out: compressed messages are refused")
