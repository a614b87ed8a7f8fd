"""Gateway: what the endpoints share, and how each of them answers an error."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeAlias

import grpc
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from gradwire_server.common.errors import Refusal
from gradwire_server.web.access import Access
from gradwire_server.web.bodies import Buffered
from gradwire_server.web.counters import WebCounters
from gradwire_server.web.logins import Logins
from gradwire_server.web.options import GatewayOptions
from gradwire_server.web.status import CallStatus, status_of
from gradwire_server.web.upstream import Upstream

_DISCARDED_BYTES = 16 << 20
_DISCARD_SECONDS = 5.0

log = logging.getLogger("gradwire.web")


class Gateway:
    """The server's channels, the logins, and the bounds of one gateway."""

    def __init__(self, options: GatewayOptions, counters: WebCounters | None = None) -> None:
        """Raises OSError for unreadable certificates."""
        self.options = options
        self.counters = counters or WebCounters()
        self.upstream = Upstream(options)
        self.logins = Logins(options.login_seconds, options.max_logins)
        self.access = Access(options, self.logins)
        self.buffered = Buffered(options.most_buffered_bytes)

    async def sweep(self) -> None:
        """End what has expired; to be called every few seconds."""
        self.logins.sweep()
        await self.upstream.sweep()

    async def close(self) -> None:
        """Close the channels."""
        await self.upstream.close()

    def status_of(self, error: Exception, doing: str) -> CallStatus:
        """The status of an error. Counts a refusal of the gateway; an unforeseen error is logged and INTERNAL."""
        if isinstance(error, grpc.aio.AioRpcError):
            return status_of(error)  # the server has counted it
        if not isinstance(error, Refusal):
            log.error("unexpected error in %r", doing, exc_info=error)
            error = Refusal("INTERNAL", "internal error in the gateway; see its log")
        self.counters.add_refusal(error.reason)
        return status_of(error)


class HttpRequest(Request):
    """A request, and how it is answered: by `answer`, or part by part by `send`."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        super().__init__(scope, self._note_end)
        self._receiving, self._answering = receive, send
        self.whole = False  # whether the body was received to its end
        self.answered = False  # whether an answer has begun

    async def _note_end(self) -> Message:
        message = await self._receiving()
        if message["type"] != "http.request" or not message.get("more_body", False):
            self.whole = True
        return message

    async def send(self, message: Message) -> None:
        """Send a part of the answer."""
        self.answered = True
        await self._answering(message)

    async def discard(self) -> None:
        """Read and forget the rest of the body, within bounds.

        So a client that is refused reads the answer, instead of a broken connection.
        """
        left = _DISCARDED_BYTES

        async def read() -> None:
            nonlocal left
            while not self.whole and left > 0:
                left -= len((await self.receive()).get("body", b""))

        with suppress(asyncio.TimeoutError):
            await asyncio.wait_for(read(), _DISCARD_SECONDS)

    async def answer(self, response: Response) -> None:
        """Send an answer."""
        await response(self.scope, self.receive, self.send)


Handler: TypeAlias = Callable[[Gateway, HttpRequest], Awaitable[None]]


class Endpoint:
    """An HTTP endpoint. Errors of its handler become answers with a status."""

    def __init__(self, gateway: Gateway, handler: Handler, kind: str) -> None:
        """`kind` is one of counters.KINDS."""
        self._gateway = gateway
        self._kind = kind
        self._handler = handler

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        request = HttpRequest(scope, receive, send)
        self._gateway.counters.add_request(self._kind)
        try:
            await self._handler(self._gateway, request)
        except ClientDisconnect:
            return
        except Exception as error:  # noqa: BLE001 - becomes a status; the unforeseen is logged
            status = self._gateway.status_of(error, scope["path"])
            if not request.answered:  # else the connection ends, and the client sees that the answer is not whole
                await request.discard()
                await request.answer(status.response())


async def while_connected(request: Request, call: "grpc.aio.UnaryUnaryCall[bytes, bytes]") -> bytes:
    """A call's answer. If the client goes first, the call is cancelled. Raises AioRpcError, ClientDisconnect."""

    async def gone() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    async def answered() -> bytes:
        return await call

    answer, leaving = asyncio.create_task(answered()), asyncio.create_task(gone())
    try:
        await asyncio.wait((answer, leaving), return_when=asyncio.FIRST_COMPLETED)
        if not answer.done():
            raise ClientDisconnect
        return answer.result()
    finally:
        call.cancel()  # does nothing to a call that has ended
        for task in (answer, leaving):
            task.cancel()
