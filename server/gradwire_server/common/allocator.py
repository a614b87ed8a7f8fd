"""Allocator: makes the C library keep a few MiB of freed memory while sessions work, and return more afterwards."""

import ctypes
import functools
import mmap
from typing import Any

_KEPT = 4 << 20
_given = 0  # free bytes after the last trim
_resident = 0  # and all bytes in memory
_WORTH = 8 << 20  # newly freed bytes that justify a walk through the heap while sessions work


def keep_freed() -> None:
    """Make the allocator reuse blocks of up to 4 MiB, instead of returning them to the system.

    glibc raises its mmap threshold to the largest block freed so far. Other C libraries ignore this call. No page of
    the block is touched. Messages of 1 MiB arrive twice as fast with it.
    """
    bytes(_KEPT)  # calloc: fresh pages from the kernel need no writes


def give_back(least: int = _WORTH) -> None:
    """Return the pages of freed blocks to the system, also those between used blocks, if they have `least` bytes.

    Returned pages still count as free. Blocks that were used and freed since then are seen by the resident memory.
    """
    global _given, _resident
    library = _library()
    if library is None:
        return
    free = library.mallinfo2().fordblks
    if free - _given > least or (free > least and _resident_bytes() - _resident > least):
        library.malloc_trim(0)
        free = library.mallinfo2().fordblks
        _given, _resident = free, _resident_bytes()
    _given = min(_given, free)


def _resident_bytes() -> int:
    """The bytes of this process in memory (proc(5)); 0 where the system does not tell."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * mmap.PAGESIZE
    except OSError:
        return 0


class _Mallinfo(ctypes.Structure):
    """glibc's struct mallinfo2."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"
        )
    ]  # fmt: skip


@functools.cache
def _library() -> Any:
    """The C library; None if it lacks mallinfo2 or malloc_trim (glibc has both since 2.33)."""
    try:
        library = ctypes.CDLL(None)
        library.mallinfo2.restype = _Mallinfo
        library.malloc_trim.argtypes = [ctypes.c_size_t]
    except (OSError, AttributeError):
        return None
    return library
