"""Slots: memory that a front and one of its workers both see, in which chunks of transfers pass from one to the other.

A socket between them would copy each chunk into the kernel and out of it again, in small parts. The slots are few and
the one that was used last is used next, so they stay in the processor's cache. The front says who has which.
"""

import asyncio
import mmap
import os
import tempfile
from collections import deque

import numpy as np

_BYTES = 8 << 20  # in all; fewer slots, but two at least, where chunks are large
_MOST = 8


class Slots:
    """The memory: `memory(slot, size)` is the first bytes of a slot. `descriptor` is a file of `file`."""

    def __init__(self, chunk_bytes: int, descriptor: int) -> None:
        self.count = _count(chunk_bytes)
        self._chunk = chunk_bytes
        mapped = mmap.mmap(descriptor, self.count * chunk_bytes)
        self._bytes = memoryview(mapped)

    @staticmethod
    def file(chunk_bytes: int) -> int:
        """Memory without a name, for slots of chunks of that size: its descriptor."""
        size = _count(chunk_bytes) * chunk_bytes
        if hasattr(os, "memfd_create"):
            made = os.memfd_create("gradwire-slots", os.MFD_CLOEXEC)
            os.truncate(made, size)
            return made
        with tempfile.TemporaryFile() as file:
            file.truncate(size)
            return os.dup(file.fileno())

    def memory(self, slot: int, size: int) -> memoryview:
        """A slot's first bytes."""
        begin = slot * self._chunk
        return self._bytes[begin : begin + size]

    def put(self, slot: int, data: memoryview) -> None:
        """Put bytes into a slot; other threads run meanwhile."""
        np.frombuffer(self.memory(slot, data.nbytes), np.uint8)[:] = np.frombuffer(data, np.uint8)

    def move(self, slot: int, room: memoryview) -> None:
        """Take as many bytes out of a slot as there is room for; other threads run meanwhile."""
        np.frombuffer(room, np.uint8)[:] = np.frombuffer(self.memory(slot, room.nbytes), np.uint8)


def _count(chunk_bytes: int) -> int:
    return max(2, min(_MOST, _BYTES // chunk_bytes))


class Keys:
    """Who has which slot, in the front: `take` waits for one, first come first served, until `end`."""

    def __init__(self, count: int) -> None:
        self._free = list(range(count))
        self._waiting: deque[asyncio.Future[int]] = deque()
        self._ended: Exception | None = None

    async def take(self) -> int:
        """A slot, which is to be given back. Raises what `end` was told."""
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
                self.give_back(turn.result())  # it came too late
            raise

    def give_back(self, slot: int) -> None:
        """Let the next one have it."""
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(slot)
                return
        self._free.append(slot)

    def end(self, reason: Exception) -> None:
        """The worker is gone: nobody gets a slot any more."""
        self._ended = reason
        for turn in self._waiting:
            if not turn.done():
                turn.set_exception(reason)
        self._waiting.clear()
