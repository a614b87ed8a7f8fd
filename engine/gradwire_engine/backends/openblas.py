"""NumPy's own OpenBLAS, called by ctypes: products of float32 matrices in one thread each, which a team shares.

OpenBLAS divides a product among threads of its own. They wait for the next one in a loop, on the cores that a team's
helpers need, and the bits of a product depend on their number. So a job of products lets OpenBLAS use one thread.
The number belongs to the process, so it stays one until no thread has a job.
"""

from __future__ import annotations

import ctypes
import os
from functools import cache
from pathlib import Path
from threading import RLock, get_ident
from typing import Any

import numpy as np

from gradwire_engine.backends.product_facts import products_of, scales_of

_ROW_MAJOR = 101  # of cblas.h, as what follows
_ORDERS = {b"N": 111, b"T": 112}
#: Find a library only if it is loaded. Windows has no such flag, but finds the loaded library by its path.
_LOADED = getattr(os, "RTLD_NOLOAD", 0) | getattr(os, "RTLD_NOW", 0)
_PTHREADS = 1  # of openblas_get_parallel: threads of its own. With OpenMP, a number of threads is the caller's alone.
_INT, _LONG, _FLOAT, _POINTER = ctypes.c_int, ctypes.c_int64, ctypes.c_float, ctypes.c_void_p
_SGEMM = (
    *(_INT, _INT, _INT, _LONG, _LONG, _LONG),
    *(_FLOAT, _POINTER, _LONG, _POINTER, _LONG, _FLOAT, _POINTER, _LONG),
)


class OpenBlas:
    """The loaded library. Any thread may use it. set_threads: 0, since machine code calls `sgemm` only."""

    set_threads = 0

    def __init__(self, path: Path) -> None:
        """Raises OSError if NumPy has not loaded it, or it is another build."""
        loaded = ctypes.CDLL(str(path), mode=_LOADED)
        try:
            self._sgemm = loaded["scipy_cblas_sgemm64_"]
            self._count, self._use = (loaded[f"scipy_openblas_{name}_num_threads64_"] for name in ("get", "set"))
            parallel = loaded["scipy_openblas_get_parallel64_"]()
        except AttributeError as error:
            raise OSError(f"{path} is not NumPy's build of OpenBLAS: {error}") from error
        if parallel > _PTHREADS:
            raise OSError(f"{path} has threads of OpenMP")
        self.path = path
        self._sgemm.argtypes, self._sgemm.restype = _SGEMM, None
        #: Its address, for machine code.
        self.sgemm = ctypes.cast(self._sgemm, ctypes.c_void_p).value or 0
        self._lock, self._number = RLock(), 1
        self._busy: set[int] = set()  # threads with a job
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self.forget_jobs)

    def begin(self) -> None:
        """Let OpenBLAS use one thread until each thread that called this has called `end`."""
        with self._lock:
            number = self._count()
            if number > 1 or not self._busy:
                self._number = number
            self._busy.add(get_ident())
            if number > 1:
                self._use(1)

    def end(self) -> None:
        """This thread's job has ended. Also right without `begin`, since an interrupt may come before it."""
        with self._lock:
            me = get_ident()
            if self._number > 1 and self._busy == {me}:
                self._use(self._number)  # first: after an interrupt here, this thread's next job ends as usual
            self._busy.discard(me)

    def use_threads(self, number: int) -> None:
        """Set the number of OpenBLAS's threads. While products are computed, it is that of the time after them."""
        with self._lock:
            if self._busy:
                self._number = number
            else:
                self._use(number)

    def forget_jobs(self) -> None:
        """Begin without jobs: a fork has none of its parent's."""
        self._lock = RLock()
        busy, self._busy = self._busy, set()
        if busy and self._number > 1:
            self._use(self._number)

    def multiply(self, facts: Any, number: int) -> None:
        """One part of a job of products (core/team.py)."""
        alpha, beta = scales_of(facts)
        for part in products_of(facts, number):
            order, other, rows, columns, inner, a, a_leading, b, b_leading, c, leading = part
            self._sgemm(
                *(_ROW_MAJOR, _ORDERS[order], _ORDERS[other], rows, columns, inner),
                *(alpha, a, a_leading, b, b_leading, beta, c, leading),
            )


@cache
def openblas() -> OpenBlas | None:
    """NumPy's OpenBLAS; None if NumPy has another BLAS or another build of it."""
    folder = Path(np.__file__).parent.parent / "numpy.libs"
    for path in sorted(folder.glob("libscipy_openblas64_*")):
        try:
            return OpenBlas(path)
        except OSError:
            continue
    return None
