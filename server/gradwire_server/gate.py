"""The gate: who calls is found out before anything of a call is read.

A call without a valid credential is answered by a handler that takes no message, so that a stranger has nothing
parsed or kept, whatever he sends. The only thing he learns is whether the server is well: a health check without a
credential is answered for the server as a whole.
"""

from __future__ import annotations

import inspect
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeAlias

import grpc
from grpc_health.v1 import health_pb2

from gradwire_server.errors import Refusal, abort
from gradwire_server.principals import CALLER, NAME, UNKNOWN, Principal
from gradwire_server.tokens import Tokens

_HEALTH = "/grpc.health.v1.Health/Check"
_BEARER = "bearer "
_LOG_SECONDS = 1.0  # between lines about refused calls

Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"
Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"
Check: TypeAlias = Callable[[health_pb2.HealthCheckRequest, Context], Awaitable[health_pb2.HealthCheckResponse]]

log = logging.getLogger("gradwire.server")


class Gate(grpc.aio.ServerInterceptor):
    """Lets calls of principals in: by token, or, where connections need a client's certificate, by that."""

    def __init__(self, tokens: Tokens | None, certificates: bool, health: Check) -> None:
        self.tokens = tokens
        self.certificates = certificates
        self.kept_out = 0  # calls without a valid credential, so far
        self._refused = 0
        self._told = 0.0
        self._kept_out: Handler = grpc.stream_stream_rpc_method_handler(self._keep_out)
        self._unread_health: Handler = grpc.stream_stream_rpc_method_handler(_unread(health))

    async def intercept_service(
        self, continuation: Callable[[Any], Awaitable[Handler | None]], details: Any
    ) -> Handler | None:
        """The call's handler, or one that refuses it."""
        token = _token(details.invocation_metadata)
        if token is not None:
            caller = None if self.tokens is None else self.tokens.find(token)
            if caller is None:
                return self._kept_out
            CALLER.set(caller)
            return _checked(await continuation(details))
        if self.certificates:
            return self._certified(await continuation(details))
        return self._unread_health if details.method == _HEALTH else self._kept_out

    async def _keep_out(self, requests: AsyncIterator[bytes], context: Context) -> None:
        self._refused += 1
        self.kept_out += 1
        now = time.monotonic()
        if now - self._told >= _LOG_SECONDS:
            log.warning(
                "calls refused without a valid credential", extra={"calls": self._refused, "last": context.peer()}
            )
            self._refused, self._told = 0, now
        await abort(context, Refusal("UNAUTHENTICATED", UNKNOWN))

    def _certified(self, handler: Handler | None) -> Handler | None:
        """Run a handler as the principal that the connection's certificate names."""

        def enter(context: Context) -> None:
            name = _certified_name(context)
            if not NAME.fullmatch(name):
                raise Refusal(
                    "UNAUTHENTICATED",
                    "the client's certificate names no principal: its common name, or its first other name, is to "
                    "have 1 to 128 letters, digits and ._@:/+-",
                )
            caller = Principal(name) if self.tokens is None else self.tokens.certified(name)
            caller.check()
            CALLER.set(caller)

        return _entering(handler, enter)


def _token(metadata: Any) -> str | None:
    """The token that a call brings; None if it brings nothing, and "" for what is no bearer token."""
    for key, value in metadata or ():
        if key == "authorization":
            text = value if isinstance(value, str) else ""
            return text[len(_BEARER) :].strip() if text[: len(_BEARER)].lower() == _BEARER else ""
    return None


def _certified_name(context: Context) -> str:
    known = context.auth_context()
    for kind in ("x509_common_name", "x509_subject_alternative_name"):
        for value in known.get(kind, ()):
            return bytes(value).decode("utf-8", "replace")
    return ""


def _checked(handler: Handler | None) -> Handler | None:
    """A handler whose caller's token may have expired."""
    try:
        CALLER.get().check()
    except Refusal as refusal:
        return _refusing(refusal)
    return handler


def _refusing(refusal: Refusal) -> Handler:
    async def refuse(requests: AsyncIterator[bytes], context: Context) -> None:
        await abort(context, refusal)

    return grpc.stream_stream_rpc_method_handler(refuse)


def _unread(health: Check) -> Callable[[AsyncIterator[bytes], Context], Awaitable[None]]:
    """Answer a health check for the server as a whole, whatever the request asks for."""

    async def answer(requests: AsyncIterator[bytes], context: Context) -> None:
        response = await health(health_pb2.HealthCheckRequest(), context)
        await context.write(response.SerializeToString())

    return answer


def _entering(handler: Handler | None, enter: Callable[[Context], None]) -> Handler | None:
    """The handler, after `enter` was called with the call's context; what that refuses, is refused."""
    if handler is None:
        return None
    kind = f"{'stream' if handler.request_streaming else 'unary'}_{'stream' if handler.response_streaming else 'unary'}"
    inner: Any = getattr(handler, kind)

    async def answer(request: Any, context: Context) -> Any:
        try:
            enter(context)
        except Refusal as refusal:
            await abort(context, refusal)
        return await inner(request, context)

    async def generate(request: Any, context: Context) -> AsyncIterator[Any]:
        try:
            enter(context)
        except Refusal as refusal:
            await abort(context, refusal)
        async for each in inner(request, context):
            yield each

    make: Any = getattr(grpc, f"{kind}_rpc_method_handler")
    wrapped = generate if inspect.isasyncgenfunction(inner) else answer
    made: Handler = make(wrapped, handler.request_deserializer, handler.response_serializer)
    return made
