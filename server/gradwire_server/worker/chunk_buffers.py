"""ChunkBuffers: pass chunks of transfers between the front and one worker through shared memory.

A socket would copy each chunk into the kernel and out again, in small parts. The buffers are few and the last one freed
is used next, so they stay in the processor's cache. The front assigns buffers.
"""

import asyncio
import mmap
import os
import tempfile
from collections import deque

import numpy as np

_BYTES = 8 << 20  # in all; larger chunks get fewer buffers, but at least two
_MOST = 8


class ChunkBuffers:
    """The buffers' memory, mapped from a descriptor made by `file`."""

    def __init__(self, chunk_bytes: int, descriptor: int) -> None:
        self.count = _count(chunk_bytes)
        self._chunk = chunk_bytes
        mapped = mmap.mmap(descriptor, self.count * chunk_bytes)
        self._bytes = memoryview(mapped)

    @staticmethod
    def file(chunk_bytes: int) -> int:
        """Create anonymous memory for buffers of `chunk_bytes` each; return its descriptor."""
        size = _count(chunk_bytes) * chunk_bytes
        if hasattr(os, "memfd_create"):
            made = os.memfd_create("gradwire-chunks", os.MFD_CLOEXEC)
            os.truncate(made, size)
            return made
        with tempfile.TemporaryFile() as file:
            file.truncate(size)
            return os.dup(file.fileno())

    def memory(self, buffer: int, size: int) -> memoryview:
        """The first `size` bytes of a buffer."""
        begin = buffer * self._chunk
        return self._bytes[begin : begin + size]

    def put(self, buffer: int, data: memoryview) -> None:
        """Copy bytes into a buffer; releases the GIL meanwhile."""
        np.frombuffer(self.memory(buffer, data.nbytes), np.uint8)[:] = np.frombuffer(data, np.uint8)

    def move(self, buffer: int, room: memoryview) -> None:
        """Copy a buffer's first bytes into `room` until it is full; releases the GIL meanwhile."""
        np.frombuffer(room, np.uint8)[:] = np.frombuffer(self.memory(buffer, room.nbytes), np.uint8)


def _count(chunk_bytes: int) -> int:
    return max(2, min(_MOST, _BYTES // chunk_bytes))


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
