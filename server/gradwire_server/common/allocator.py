"""Allocator: makes the C library keep freed memory while sessions work, and return it when they are idle.

The first use of a page takes the kernel one to four microseconds, in the middle of a computation. So a worker reuses
blocks of up to 31 MiB, and the first pages of a working process are brought into memory in the background. A front
reuses its messages' blocks only: its threads have heaps of their own, whose ends `give_back` does not reach.
"""

import ctypes
import functools
import logging
import mmap
import threading
from typing import Any

log = logging.getLogger("gradwire.server")
#: Bytes of the blocks that a front reuses, and a worker: glibc's threshold is at most 32 MiB.
MESSAGES, RESULTS = 4 << 20, 31 << 20
#: Bytes of free memory that a process brings into memory: what the first step of a small model takes.
PAGES = 24 << 20
_PIECE = 4 << 20  # bytes at once: the kernel locks the process's mappings for a piece, about a millisecond
_POPULATE_WRITE = 23  # madvise(2), since Linux 5.14
_given = 0  # free bytes after the last trim
_resident = 0  # and all bytes in memory
_WORTH = 8 << 20  # newly freed bytes that justify a walk through the heap while sessions work


def keep_freed(nbytes: int) -> None:
    """Make the allocator reuse blocks of up to so many bytes, instead of returning them to the system.

    glibc raises its mmap threshold to the largest block freed so far. Other C libraries ignore this call. No page of
    the block is touched. Messages of 1 MiB arrive twice as fast with it.
    """
    bytes(nbytes)  # calloc: fresh pages from the kernel need no writes


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


def ready_pages(nbytes: int = PAGES) -> threading.Thread | None:
    """Bring so many free bytes of this thread's heap into memory, in a thread; `give_back` returns them like others.

    Returns the thread; None where the C library is another one, and where the system allows no thread.
    """
    library = _library()
    if library is None:
        return None
    address = library.malloc(nbytes)
    if not address:
        return None
    library.free(address)  # it stays the heap's: `keep_freed`
    touching = threading.Thread(target=_touch, args=(address, nbytes), name="gradwire-pages", daemon=True)
    try:
        touching.start()
    except RuntimeError as error:  # then the pages come with their first use
        log.info("no pages are brought into memory: %s", error)
        return None
    return touching


def _touch(address: int, nbytes: int) -> None:
    """Bring the pages of an address range into memory, as they are; the heap may meanwhile use it or give it back.

    An older kernel refuses that, and so does one without such memory. Then the pages come with their first use.
    """
    library, page = _library(), mmap.PAGESIZE
    begin, end = address + -address % page, (address + nbytes) // page * page
    for piece in range(begin, end, _PIECE):
        if library.madvise(piece, min(_PIECE, end - piece), _POPULATE_WRITE):
            return


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
        library.malloc.restype, library.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
        library.free.restype, library.free.argtypes = None, [ctypes.c_void_p]
        library.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    except (OSError, AttributeError):
        return None
    return library
