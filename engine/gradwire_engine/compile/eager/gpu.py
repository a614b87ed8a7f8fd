"""The loops of eager ops as CUDA kernels: printed by cuda_printer.py, compiled by CuPy when an op first asks for them.

CuPy keeps what it compiled on disk (CUPY_CACHE_DIR). The arguments alone decide whether a kernel computes an op, and
how its sums are divided among threads. So a program's results do not depend on time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np

from gradwire_engine.compile.eager.forms import gpu_loop_of
from gradwire_engine.compile.fusion.cuda_launcher import Launcher
from gradwire_engine.compile.fusion.fused import OPTIONS, check_near
from gradwire_engine.core.device import cupy, host
from gradwire_engine.core.errors import EngineError, Reason

_CODES = {"f": "f4", "d": "f8"}


def check_results(name: str, made: Any, expected: Any) -> None:
    """Compare a loop's results with those of its op. Raises EngineError: RUNTIME if they differ beyond rounding."""
    several = type(made) in (tuple, list)
    for one, other in zip(made if several else (made,), expected if several else (expected,), strict=True):
        found, wanted = host(one), host(other)
        if found.dtype.kind == "f":
            check_near(f"the loop of {name}", found, wanted)
        elif not np.array_equal(found, wanted):
            raise EngineError(Reason.RUNTIME, f"the loop of {name}: {np.sum(found != wanted)} other positions")


@dataclass
class GpuLoops:
    """The loops of this process on GPUs; those of ops/base/loops.py for CuPy's arrays."""

    array: type
    _loaded: dict[tuple[str, str], Launcher | None] = field(default_factory=dict)

    @property
    def verifies(self) -> bool:
        """Whether results are compared with those of CuPy's own kernels."""
        return OPTIONS.mode == "verify"

    def find(self, name: str, dtype: str) -> Launcher | None:
        """A loop for a dtype's character; None if there is none."""
        key = name, dtype
        if key not in self._loaded:
            loop = gpu_loop_of(name, _CODES[dtype]) if dtype in _CODES else None
            self._loaded[key] = None if loop is None else Launcher(loop)
        return self._loaded[key]

    loaded = find

    def ask(self, name: str, dtype: str) -> None:
        """Every loop is found at once."""

    def only(self, names: Sequence[tuple[str, str]]) -> GpuLoops:
        """All loops: what computes on a GPU runs in no fork."""
        return self

    check = staticmethod(check_results)


def gpu_loops() -> GpuLoops | None:
    """The loops on GPUs; None without CuPy and a GPU."""
    module = cupy()
    return None if module is None else _loops_of(module)


@cache
def _loops_of(module: Any) -> GpuLoops | None:
    return GpuLoops(module.ndarray) if hasattr(module, "RawKernel") else None
