"""Downloads: a GPU's large arrays are copied to the host in chunks, through pinned memory.

The GPU copies a chunk into one slot while the host takes the last one from the other. Memory that is not pinned would
be copied at a fraction of the bus's speed, and the GPU would wait for the host.
"""

import threading
from functools import cache
from typing import Any

import numpy as np

HostArray = np.ndarray[Any, Any]
LEAST = 1 << 20  # bytes; smaller arrays are copied at once
_CHUNK = 1 << 22
_SLOTS = 2


class Ring:
    """Pinned memory for the chunks of one download at a time."""

    def __init__(self, module: Any) -> None:
        """Allocate it. Raises CUDARuntimeError."""
        self._module = module
        self._memory = module.cuda.alloc_pinned_memory(_SLOTS * _CHUNK)
        self._slots = np.frombuffer(self._memory, np.uint8, _SLOTS * _CHUNK).reshape(_SLOTS, _CHUNK)

    def copy(self, array: Any, into: HostArray) -> None:
        """Copy a row-major array of the current GPU to the bytes of `into`, after the stream's work so far."""
        stream = self._module.cuda.get_current_stream()
        last: tuple[Any, HostArray, HostArray] | None = None
        for number, begin in enumerate(range(0, array.nbytes, _CHUNK)):
            target = into[begin : begin + _CHUNK]
            slot = self._slots[number % _SLOTS, : target.size]
            source = self._module.cuda.MemoryPointer(array.data.mem, array.data.ptr - array.data.mem.ptr + begin)
            source.copy_to_host_async(slot.ctypes.data, slot.size)
            copied = stream.record()
            if last is not None:
                _take(*last)
            last = copied, slot, target
        if last is not None:
            _take(*last)


def _take(copied: Any, slot: HostArray, target: HostArray) -> None:
    copied.synchronize()
    target[:] = slot


_IN_USE = threading.Lock()


@cache
def _ring(module: Any) -> Ring | None:
    """The process's ring; None if the system gives no pinned memory for it."""
    try:
        return Ring(module)
    except module.cuda.runtime.CUDARuntimeError:
        return None


def download(module: Any, array: Any) -> HostArray:
    """The array's values in host memory, row-major. Threads that download at once do without the ring."""
    if array.nbytes < LEAST or not array.flags.c_contiguous or not _IN_USE.acquire(blocking=False):
        found: HostArray = array.get()
        return found
    try:
        ring = _ring(module)
        if ring is None:
            found = array.get()
        else:
            found = np.empty(array.shape, array.dtype)
            with module.cuda.Device(array.device.id):
                ring.copy(array, found.reshape(-1).view(np.uint8))
        return found
    finally:
        _IN_USE.release()
