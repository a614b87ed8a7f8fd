"""BLAS: sets the environment that BLAS reads when NumPy loads it: threads, kernels, waiting. Imports no NumPy.

OpenBLAS detects the CPU by its model. For an unknown model it falls back to kernels without AVX-512, at half the speed
or less. So `prepare` selects AVX-512 kernels if the CPU has them, unless the user has chosen.

After a product, OpenBLAS's threads wait for the next one in a loop, before they sleep. 2**26 cycles by default, 27 ms,
take a core from the threads that compute convolutions and loops. 2**20 cycles still cover the time between two steps.
"""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gradwire_engine.backends.openblas import OpenBlas

CORE_TYPE = "OPENBLAS_CORETYPE"
WAIT = "OPENBLAS_THREAD_TIMEOUT"  # the binary logarithm of cycles
_THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
_SHARED = "_GRADWIRE_BLAS_SHARED"
_PREPARED = "_GRADWIRE_BLAS_PREPARED"


def cores() -> int:
    """CPU cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def threads() -> int:
    """The BLAS threads that the environment asks for."""
    for name in _THREADS:
        if os.environ.get(name, "").isdecimal():
            return int(os.environ[name])
    return cores()


def shared() -> bool:
    """Whether `prepare` took all cores, since neither the settings nor the environment gave a number."""
    return _SHARED in os.environ


def has_avx512(cpuinfo: str) -> bool:
    """Whether /proc/cpuinfo's text names the AVX-512 foundation."""
    return any(line.startswith("flags") and " avx512f" in line for line in cpuinfo.splitlines())


def wanted(blas_threads: int) -> dict[str, str]:
    """The variables to set; `blas_threads` of 0 leaves the number to the environment or takes all cores."""
    changes: dict[str, str] = {}
    if blas_threads:
        changes.update(dict.fromkeys(_THREADS, str(blas_threads)))
    elif not any(os.environ.get(name) for name in _THREADS):
        changes["OPENBLAS_NUM_THREADS"] = str(cores())
        changes[_SHARED] = "1"
    if WAIT not in os.environ:
        changes[WAIT] = "20"
    cpuinfo = Path("/proc/cpuinfo")
    if CORE_TYPE not in os.environ and cpuinfo.exists() and has_avx512(cpuinfo.read_text()):
        changes[CORE_TYPE] = "SkylakeX"
    return {name: value for name, value in changes.items() if os.environ.get(name) != value}


def prepare(arguments: list[str], blas_threads: int = 0) -> None:
    """Set the environment. If NumPy is already loaded, restart as `python -m gradwire_server <arguments>`."""
    changes = wanted(blas_threads)
    os.environ.update(changes)
    if changes and "numpy" in sys.modules and not os.environ.get(_PREPARED):
        os.environ[_PREPARED] = "1"
        sys.stdout.flush()
        os.execv(sys.executable, [sys.executable, "-m", "gradwire_server", *arguments])


class Follower:
    """Sets the number of threads to this process's share of the cores, as workers become busy or idle.

    These are BLAS's threads, and those of whatever `also` sets. numpys: NumPy's OpenBLAS, if products of the
    engine use it: while another thread computes one, its number must stay one.
    """

    def __init__(
        self, cores: int, also: Callable[[int], None] = lambda number: None, numpys: "OpenBlas | None" = None
    ) -> None:
        self._cores = cores
        self._also = also
        self._numpys = numpys
        self._runnable = 0
        self._libraries: list[Any] = []
        if cores:
            from threadpoolctl import ThreadpoolController  # imported late: it finds only loaded libraries

            found = ThreadpoolController().select(user_api="blas").lib_controllers
            self._libraries = [each for each in found if not (numpys and os.path.samefile(each.filepath, numpys.path))]

    def __call__(self, runnable: int) -> None:
        """Set the threads for `runnable` workers with work."""
        if self._cores and runnable != self._runnable:
            self._runnable = runnable
            number = max(1, self._cores // max(1, runnable))
            for library in self._libraries:
                library.set_num_threads(number)
            if self._numpys is not None:
                self._numpys.use_threads(number)
            self._also(number)
