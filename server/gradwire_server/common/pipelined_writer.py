"""Messages of a stream that are written while the next one is got ready: gRPC takes one at a time."""

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from types import TracebackType
from typing import Generic, TypeVar

M = TypeVar("M")

# What a call was sending when it was cancelled.
_UNSENT: "ContextVar[asyncio.Future[None] | None]" = ContextVar("unsent", default=None)


class PipelinedWriter(Generic[M]):
    """Writes in order. When the block ends all is written; when it is left by a cancel the last message may not be."""

    def __init__(self, write: Callable[[M], Awaitable[None]]) -> None:
        self._write = write
        self._writing: asyncio.Future[None] | None = None

    async def send(self, message: M) -> None:
        """Wait until the message before is written, and begin with this one. Raises what writing that one raised."""
        await self._written()
        self._writing = asyncio.ensure_future(self._write(message))
        await asyncio.sleep(0)  # it begins now, not when the next one is ready

    async def _written(self) -> None:
        if self._writing is not None:
            await asyncio.shield(self._writing)
            self._writing = None

    async def __aenter__(self) -> "PipelinedWriter[M]":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is None:
            await self._written()
        elif self._writing is not None:
            leave(self._writing)
            if not isinstance(error, asyncio.CancelledError):
                await all_sent()


def leave(writing: "asyncio.Future[None]") -> None:
    """The call is to end, whatever becomes of its last message."""
    writing.add_done_callback(_look)
    _UNSENT.set(writing)


def _look(writing: "asyncio.Future[None]") -> None:
    if not writing.cancelled():
        writing.exception()  # there is an error to tell already


async def all_sent() -> None:
    """Wait until the client has taken the message that was left, or its call ends: gRPC takes no status before that."""
    writing = _UNSENT.get()
    if writing is not None:
        await asyncio.wait((writing,))
