"""Pipelined writer: writes one message while the next one is prepared. gRPC takes one message at a time."""

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from types import TracebackType
from typing import Generic, TypeVar

M = TypeVar("M")

# The write that a call abandoned.
_UNSENT: "ContextVar[asyncio.Future[None] | None]" = ContextVar("unsent", default=None)


class PipelinedWriter(Generic[M]):
    """Writes in order. After the block all messages are written; after a cancel, the last one may not be."""

    def __init__(self, write: Callable[[M], Awaitable[None]]) -> None:
        self._write = write
        self._writing: asyncio.Future[None] | None = None

    async def send(self, message: M) -> None:
        """Wait for the previous write, then start writing a message. Raises the previous write's exception."""
        await self._written()
        self._writing = asyncio.ensure_future(self._write(message))
        await asyncio.sleep(0)  # the write starts now, not at the next await

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
            try:
                await self._written()
            except asyncio.CancelledError:
                if self._writing is not None:
                    abandon(self._writing)
                raise
        elif self._writing is not None:
            abandon(self._writing)
            if not isinstance(error, asyncio.CancelledError):
                await all_sent()


def abandon(writing: "asyncio.Future[None]") -> None:
    """Abandon a write, so its call can end; `all_sent` may still wait for the write."""
    writing.add_done_callback(_retrieve_exception)
    _UNSENT.set(writing)


def _retrieve_exception(writing: "asyncio.Future[None]") -> None:
    if not writing.cancelled():
        writing.exception()  # retrieved, so asyncio logs nothing; the call has another error


async def all_sent() -> None:
    """Wait until the abandoned write is done or its call ends: gRPC takes no status before."""
    writing = _UNSENT.get()
    if writing is not None:
        await asyncio.wait((writing,))
