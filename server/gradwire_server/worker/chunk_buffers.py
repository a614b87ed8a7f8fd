"""ChunkBuffers: pass chunks of transfers between the front and one worker through shared memory.

A socket would copy each chunk into the kernel and out again, in small parts. The buffers are few and the last one freed
is used next, so they stay in the processor's cache. The front assigns buffers.
"""

import mmap
import os
import tempfile

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


def _count(chunk_bytes: int) -> int:
    return max(2, min(_MOST, _BYTES // chunk_bytes))
