"""Auth interceptor: identifies the caller before the server reads any message of a call.

A handler that reads no message answers calls without a valid credential. So the server neither parses nor keeps
anything that an unauthenticated caller sends. Such a caller only learns whether the server is healthy: a health check
without a credential is answered for the server as a whole.

A timer checks the credentials of running calls. So a call ends when its token is revoked or expires, even if no
message arrives.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, suppress
from typing import Any, TypeAlias

import grpc
from grpc_health.v1 import health_pb2

from gradwire_server.auth.principals import CALLER, NAME, UNKNOWN, Principal
from gradwire_server.auth.tokens import POLL_SECONDS, Tokens
from gradwire_server.common.abort import abort
from gradwire_server.common.errors import Refusal
from gradwire_server.common.pipelined_writer import PipelinedWriter

_HEALTH = "/grpc.health.v1.Health/Check"
_BEARER = "bearer "
_LOG_SECONDS = 1.0  # between lines about refused calls

Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"
Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"
Check: TypeAlias = Callable[[health_pb2.HealthCheckRequest, Context], Awaitable[health_pb2.HealthCheckResponse]]

log = logging.getLogger("gradwire.server")


class AuthInterceptor(grpc.aio.ServerInterceptor):
    """Admits calls with a valid token, or with a client's certificate if connections require one.

    `stop_work` is called with a principal's name to cancel its computations, once it may no longer call.
    """

    def __init__(
        self, tokens: Tokens | None, certificates: bool, health: Check, stop_work: Callable[[str], object]
    ) -> None:
        self.tokens = tokens
        self.certificates = certificates
        self.rejected = 0  # calls without a valid credential, so far
        self._stop_work = stop_work
        self._refused = 0
        self._last_logged = 0.0
        self._reject_handler: Handler = grpc.stream_stream_rpc_method_handler(self._reject)
        self._health_handler: Handler = grpc.stream_stream_rpc_method_handler(_health_without_reading(health))
        self._wrapped: dict[tuple[str, bool], Handler] = {}  # by method, and whether by certificate
        self._calls: dict[Principal, set[asyncio.Task[Any]]] = {}  # running calls, by caller
        self._watching: list[asyncio.Task[None]] = []
        # A separate thread: neither a hanging disk nor a busy executor delays the poll.
        self._reader = ThreadPoolExecutor(1, "gradwire-tokens")

    def watch(self) -> None:
        """Start following the token file, and ending calls whose credential no longer holds."""
        start = asyncio.get_running_loop().create_task
        self._watching.append(start(self._watch()))
        if self.tokens is not None:
            self._watching.append(start(self._follow(self.tokens)))

    async def stop(self) -> None:
        """Stop following the token file and checking calls."""
        for task in self._watching:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        self._reader.shutdown(wait=False)

    async def intercept_service(
        self, continuation: Callable[[Any], Awaitable[Handler | None]], details: Any
    ) -> Handler | None:
        """The call's handler, or a handler that refuses the call."""
        token = _token(details.invocation_metadata)
        if token is not None:
            caller = None if self.tokens is None else self.tokens.find(token)
            if caller is None:
                return self._reject_handler
            if caller.over:  # before a message is read
                return _refuse_handler(caller)
            CALLER.set(caller)
        elif not self.certificates:
            return self._health_handler if details.method == _HEALTH else self._reject_handler
        key = details.method, token is None
        handler = self._wrapped.get(key)
        if handler is None:
            inner = await continuation(details)
            if inner is None:
                return None
            self._wrapped[key] = handler = _wrap_handler(
                inner, self._certify if token is None else _check, self._guarded
            )
        return handler

    async def _guarded(self, inner: Awaitable[Any], context: Context) -> Any:
        """Await a call's answer. The call is refused if its credential ends first."""
        caller, task = CALLER.get(), asyncio.current_task()
        assert task is not None
        calls = self._calls.setdefault(caller, set())
        calls.add(task)
        try:
            return await inner
        except asyncio.CancelledError:
            if not caller.over or context.cancelled():
                raise
        finally:
            calls.discard(task)
            if not calls:
                self._calls.pop(caller, None)
        return await abort(context, _refusal_of(caller))

    async def _follow(self, tokens: Tokens) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(POLL_SECONDS)
            try:
                table = await loop.run_in_executor(self._reader, tokens.poll)
                if table is not None:
                    self._end_calls(tokens.apply(table))
            except Exception:
                log.exception("the token file is not followed")

    async def _watch(self) -> None:
        """Check for expired tokens, independent of the file: it may be unreadable."""
        while True:
            await asyncio.sleep(POLL_SECONDS)
            try:
                self._end_calls(set())
            except Exception:
                log.exception("calls do not end with their credential")

    def _end_calls(self, revoked: set[str]) -> None:
        """End the calls whose credential no longer holds. Cancel the computations of principals without another one.

        `revoked` has the names that lost a token, with running calls or without.
        """
        ended = {caller: calls for caller, calls in self._calls.items() if caller.over}
        for caller, calls in ended.items():
            log.warning("calls end with their credential", extra={"principal": caller.name, "calls": len(calls)})
            for task in calls:
                task.cancel()
        for name in revoked.union(caller.name for caller in ended):
            if not self._may_call(name):
                self._stop_work(name)

    def _may_call(self, name: str) -> bool:
        if self.certificates and not (self.tokens is not None and self.tokens.certified(name).over):
            return True
        return self.tokens is not None and self.tokens.has(name)

    async def _reject(self, requests: AsyncIterator[bytes], context: Context) -> None:
        self._refused += 1
        self.rejected += 1
        now = time.monotonic()
        if now - self._last_logged >= _LOG_SECONDS:
            log.warning(
                "calls refused without a valid credential", extra={"calls": self._refused, "last": context.peer()}
            )
            self._refused, self._last_logged = 0, now
        await abort(context, Refusal("UNAUTHENTICATED", UNKNOWN))

    def _certify(self, context: Context) -> None:
        """Set the caller to the principal named in the connection's certificate. Raises Refusal: UNAUTHENTICATED."""
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


def _token(metadata: Any) -> str | None:
    """The token in a call's metadata; None without authorization, "" if that is no bearer token."""
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


def _check(context: Context) -> None:
    """Check that the caller's credential still holds. Raises Refusal: UNAUTHENTICATED."""
    CALLER.get().check()


def _refusal_of(caller: Principal) -> Refusal:
    """The refusal for a caller whose credential no longer holds."""
    try:
        caller.check()
    except Refusal as refusal:
        return refusal
    return Refusal("UNAUTHENTICATED", UNKNOWN)


def _refuse_handler(caller: Principal) -> Handler:
    """A handler that refuses with the reason why a credential no longer holds."""

    async def refuse(requests: AsyncIterator[bytes], context: Context) -> None:
        await abort(context, _refusal_of(caller))

    return grpc.stream_stream_rpc_method_handler(refuse)


def _health_without_reading(health: Check) -> Callable[[AsyncIterator[bytes], Context], Awaitable[None]]:
    """A handler that answers a health check for the server as a whole, without reading the request."""

    async def answer(requests: AsyncIterator[bytes], context: Context) -> None:
        response = await health(health_pb2.HealthCheckRequest(), context)
        await context.write(response.SerializeToString())

    return answer


def _wrap_handler(
    handler: Handler, enter: Callable[[Context], None], guarded: Callable[[Awaitable[Any], Context], Awaitable[Any]]
) -> Handler:
    """Wrap a handler: call `enter` with the context, which may raise Refusal, then run the handler by `guarded`."""
    kind = f"{'stream' if handler.request_streaming else 'unary'}_{'stream' if handler.response_streaming else 'unary'}"
    inner: Any = getattr(handler, kind)
    if inspect.isasyncgenfunction(inner):
        inner = _write_answers(inner)

    async def answer(request: Any, context: Context) -> Any:
        try:
            enter(context)
        except Refusal as refusal:
            await abort(context, refusal)
        return await guarded(inner(request, context), context)

    make: Any = getattr(grpc, f"{kind}_rpc_method_handler")
    made: Handler = make(answer, handler.request_deserializer, handler.response_serializer)
    return made


def _write_answers(
    generate: Callable[[Any, Context], AsyncGenerator[Any, None]],
) -> Callable[[Any, Context], Awaitable[None]]:
    """A coroutine that writes a generator's answers. A cancel reaches it wherever it waits."""

    async def write(request: Any, context: Context) -> None:
        async with aclosing(generate(request, context)) as answers, PipelinedWriter[Any](context.write) as sending:
            async for each in answers:
                await sending.send(each)

    return write
