"""CuPy's own wheel on a machine without a GPU: its CUDA libraries are replaced by libraries for the CPU.

`build.py` builds it, `install()` loads it, `Counts` says what a piece of code asked of the device. README.md says
what it shows and what it cannot show.
"""

from __future__ import annotations

import ctypes
import importlib
import os
import sys
from contextlib import contextmanager
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

LIBRARIES = (
    "libhostcudart.so",
    "libcuda.so.1",
    "libnvJitLink.so.12",
    "libcublasLt.so.12",
    "libcudnn.so.9",
    "libcublas.so.12",
    "libcusparse.so.12",
    "libcusolver.so.11",
    "libcufft.so.11",
    "libcurand.so.10",
)


@dataclass
class Counts:
    """What was asked of the device: kernels, waits, copies, allocations, graphs. Filled by `counted`.

    The kernels of a graph are not counted when it is launched.
    """

    launches: int = 0
    synchronizations: int = 0
    to_host: int = 0
    to_device: int = 0
    allocations: int = 0
    fills: int = 0
    on_device: int = 0
    graphs: int = 0

    @property
    def waits(self) -> int:
        """How often the host waited for the device: synchronizations, and copies to the host."""
        return self.synchronizations + self.to_host


def folder() -> Path | None:
    """The folder of the build to use, from the environment variable HOSTCUPY; None if it is unset."""
    named = os.environ.get("HOSTCUPY")
    return Path(named).resolve() if named else None


def install(built: Path) -> None:
    """Make `import cupy` find the CuPy of this folder. Call it before anything imports CuPy.

    Raises FileNotFoundError if nothing is built there.
    """
    from tests.gpu.hostcupy import kernels

    if not (built / "lib" / LIBRARIES[-1]).exists():
        raise FileNotFoundError(f"no hostcupy in {built}: build it with `make hostcupy`")
    os.environ["CUPY_ACCELERATORS"] = ""  # CUB is not there
    os.environ["CUDA_PATH"] = str(built / "site/nvidia/cuda_runtime")
    os.environ.setdefault("HOSTCUPY_DEVICES", "2")  # so that every test shows whether the device is selected
    os.environ["HOSTCUPY_LAPACK"] = str(_openblas())
    for library in LIBRARIES:
        ctypes.CDLL(str(built / "lib" / library), ctypes.RTLD_GLOBAL)
    # A library that is loaded already is found by its name, so CuPy needs no LD_LIBRARY_PATH.
    ctypes.CDLL(str(next((built / "site/nvidia/cuda_nvrtc/lib").glob("libnvrtc.so.*"))))
    sys.path.append(str(built / "site"))
    compiler: Any = importlib.import_module("cupy.cuda.compiler")
    compiler._compile_module_with_cache = kernels.Compiler(built).module
    _runtime.cache_clear()


def _openblas() -> Path:
    """SciPy's OpenBLAS, whose LAPACK stands for cuSOLVER."""
    libraries = Path(importlib.import_module("scipy").__file__).parent.parent / "scipy.libs"
    return next(libraries.glob("libscipy_openblas-*.so"))


@cache
def _runtime() -> Any:
    built = folder()
    assert built is not None, "hostcupy is not built: python tests/gpu/hostcupy/build.py"
    library = ctypes.CDLL(str(built / "lib" / "libhostcudart.so"))
    library.fake_count.restype = ctypes.c_long
    return library


@contextmanager
def broken(error: int = 700) -> Iterator[None]:
    """A device on which every call fails inside, as after an access to a wrong address (cudaErrorIllegalAddress)."""
    _runtime().fake_break(error)
    try:
        yield
    finally:
        _runtime().fake_break(0)


@contextmanager
def counted() -> Iterator[Counts]:
    """Counts of what runs inside; filled when the block ends."""
    made = Counts()
    before = [_runtime().fake_count(place) for place in range(len(fields(made)))]
    yield made
    for place, field in enumerate(fields(made)):
        setattr(made, field.name, _runtime().fake_count(place) - before[place])
