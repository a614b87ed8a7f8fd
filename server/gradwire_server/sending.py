"""Messages of a stream that are written while the next one is got ready: gRPC takes one at a time."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from types import TracebackType
from typing import Generic, TypeVar

M = TypeVar("M")


class Sending(Generic[M]):
    """Writes in order. When the block ends all is written; when it is left by an error the last message may not be."""

    def __init__(self, write: Callable[[M], Awaitable[None]]) -> None:
        self._write = write
        self._writing: asyncio.Future[None] | None = None

    async def send(self, message: M) -> None:
        """Wait until the message before is written, and begin with this one. Raises what writing that one raised."""
        await self._written()
        self._writing = asyncio.ensure_future(self._write(message))
        await asyncio.sleep(0)  # it begins now, not when the next one is ready

    async def _written(self) -> None:
        writing, self._writing = self._writing, None
        if writing is not None:
            await writing

    async def __aenter__(self) -> "Sending[M]":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is None:
            await self._written()
        elif self._writing is not None:
            if isinstance(error, asyncio.CancelledError):  # the call is over
                self._writing.cancel()
            with suppress(asyncio.CancelledError, Exception):  # there is an error to tell already
                await self._writing  # gRPC takes no status before that
