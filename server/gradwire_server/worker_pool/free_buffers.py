"""FreeBuffers: which buffers between the front and a worker are free (worker/chunk_buffers.py)."""

import asyncio
from collections import deque


class FreeBuffers:
    """Assigns buffers in the front: `acquire` waits for a free buffer, first come first served, until `end`."""

    def __init__(self, count: int) -> None:
        self._free = list(range(count))
        self._waiting: deque[asyncio.Future[int]] = deque()
        self._ended: Exception | None = None

    async def acquire(self) -> int:
        """Take a buffer, to be given back. Raises the exception passed to `end`."""
        if self._ended is not None:
            raise self._ended
        if self._free:
            return self._free.pop()
        turn: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            return await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled() and turn.exception() is None:
                self.release(turn.result())  # assigned after the cancellation
            raise

    def release(self, buffer: int) -> None:
        """Pass a buffer to the next waiting call, or free it."""
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(buffer)
                return
        self._free.append(buffer)

    def end(self, reason: Exception) -> None:
        """Refuse all present and later `acquire`s: the worker has ended."""
        self._ended = reason
        for turn in self._waiting:
            if not turn.done():
                turn.set_exception(reason)
        self._waiting.clear()
