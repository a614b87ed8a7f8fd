"""What a CUDA graph of a plan needs: fixed memory for temporary arrays, fixed places for numbers, and the capture.

A graph keeps the addresses of its first run. So temporary arrays come from an `Arena` that belongs to the plan, and
numbers that differ from run to run are read from `Numbers`.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np

from gradwire_engine.core.device import Array, cupy

_ROUNDED = 512  # bytes
_SLOT = 8  # bytes of a number
_RING = 8  # runs whose numbers may be on their way
# Pinned memory of plans that are gone, with the last copy from it: CuPy would give it out before that copy is made.
_LEFT: deque[tuple[Any, Any]] = deque()


class Arena:
    """Memory of a plan's temporary arrays: what is given back is given out again, and stays at its address."""

    def __init__(self) -> None:
        self.bytes = 0
        self._sizes: dict[int, int] = {}
        self._blocks: dict[int, Any] = {}
        self._free: dict[int, list[int]] = {}
        self._grows = self._open = True

    @contextmanager
    def allocating(self, grows: bool = True) -> Iterator[None]:
        """All arrays made by this thread inside lie here. Raises MemoryError inside if it may not grow and is full."""
        module: Any = cupy()
        self._grows = grows
        allocator = module.cuda.memory.PythonFunctionAllocator(self._take, self._give_back)
        with module.cuda.using_allocator(allocator.malloc):
            yield

    def _take(self, size: int, device: int) -> int:
        rounded = -(-size // _ROUNDED) * _ROUNDED
        waiting = self._free.get(rounded)
        if waiting:
            return waiting.pop()
        if not self._grows:
            raise MemoryError(f"a plan's memory has no free block of {rounded} bytes")
        module: Any = cupy()
        block = module.get_default_memory_pool().malloc(rounded)
        self._blocks[block.ptr], self._sizes[block.ptr] = block, rounded
        self.bytes += rounded
        return int(block.ptr)

    def _give_back(self, address: int, device: int) -> None:
        if self._open:
            self._free.setdefault(self._sizes[address], []).append(address)
        else:
            del self._blocks[address]

    def close(self) -> None:
        """Release the memory; blocks that are in use follow when they are given back."""
        self._open = False
        for addresses in self._free.values():
            for address in addresses:
                del self._blocks[address]
        self._free = {}


class Numbers:
    """The numbers of a plan's runs on a GPU: one 0-d array for each number and dtype, always at the same address.

    A run's numbers are copied by one asynchronous copy from pinned memory. Its next use waits for that copy.
    """

    def __init__(self, most: int) -> None:
        module: Any = cupy()
        self._arrays: dict[tuple[int, Any], Array] = {}
        self._places: list[tuple[int, Any]] = []
        self._most = most
        self._copied: list[Any] = [None] * _RING
        self._turn = 0
        self._memory = module.zeros(max(1, most) * _SLOT, np.uint8)
        size = self._memory.nbytes
        while _LEFT and _LEFT[0][0].done:
            _LEFT.popleft()
        self._pinned = module.cuda.alloc_pinned_memory(_RING * size)
        self._ring = np.frombuffer(self._pinned, np.uint8, _RING * size).reshape(_RING, size)
        self._last = b""

    def array(self, place: int, dtype: Any) -> Array:
        """The 0-d array of a number."""
        key = place, dtype
        if key not in self._arrays:
            begin = len(self._places) * _SLOT
            assert len(self._places) < self._most
            self._places.append(key)
            self._arrays[key] = self._memory[begin : begin + dtype.itemsize].view(dtype).reshape(())
        return self._arrays[key]

    def write(self, values: Array) -> None:
        """Set the numbers of the runs that are launched from now on."""
        if not self._places:
            return
        made = np.zeros(self._memory.nbytes, np.uint8)
        for begin, (place, dtype) in enumerate(self._places):
            made[begin * _SLOT : begin * _SLOT + dtype.itemsize].view(dtype)[0] = values[place]
        if made.tobytes() == self._last:
            return
        slot, turn = self._ring[self._turn], self._turn
        if self._copied[turn] is not None:
            self._copied[turn].synchronize()
        slot[:] = made
        self._memory.data.copy_from_host_async(slot.ctypes.data, slot.nbytes)
        module: Any = cupy()
        self._copied[turn] = module.cuda.get_current_stream().record()
        self._turn, self._last = (turn + 1) % _RING, made.tobytes()

    def __del__(self) -> None:
        last = self._copied[self._turn - 1]
        if last is not None:
            _LEFT.append((last, self._pinned))


@cache
def _stream(device: int) -> Any:
    """The stream on which a device's work is captured. Nothing runs on it."""
    module: Any = cupy()
    return module.cuda.Stream(non_blocking=True)


class _Capture(threading.local):
    goes_on = False


_CAPTURE = _Capture()


@cache
def _guard_host_copies() -> None:
    """Refuse pinned memory to a thread that captures.

    CuPy copies host memory through it. CUDA would capture the copy, whose source is gone when the graph is launched.
    """
    module: Any = cupy()
    allocate = module.get_default_pinned_memory_pool().malloc

    def guarded(size: int) -> Any:
        if _CAPTURE.goes_on:
            raise RuntimeError("a copy from host memory cannot be captured")
        return allocate(size)

    module.cuda.set_pinned_memory_allocator(guarded)


def captured(run: Callable[[], None], arena: Arena) -> Any:
    """The graph of what `run` asks of the current GPU, of which nothing is computed yet.

    Raises what CuPy and CUDA raise for calls that cannot be captured: waits, copies from or to the host, allocations.
    """
    module: Any = cupy()
    runtime = module.cuda.runtime
    stream = _stream(runtime.getDevice())
    _guard_host_copies()
    with arena.allocating(grows=False), stream:
        stream.begin_capture(runtime.streamCaptureModeThreadLocal)
        _CAPTURE.goes_on = True
        try:
            run()
        except BaseException:
            _end_refused(stream)
            raise
        finally:
            _CAPTURE.goes_on = False
        return stream.end_capture()


def _end_refused(stream: Any) -> None:
    """End a capture of which nothing is used."""
    module: Any = cupy()
    try:
        stream.end_capture()
    except (RuntimeError, module.cuda.runtime.CUDARuntimeError):
        return  # the refused call ended the capture
