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
from gradwire_engine.compile.fusion import cuda_printer
from gradwire_engine.compile.fusion.form import COLUMN, TILE, Loop, is_flat
from gradwire_engine.compile.fusion.fused import OPTIONS, check_near
from gradwire_engine.core.device import Array, cupy, host
from gradwire_engine.core.errors import EngineError, Reason

_CODES = {"f": "f4", "d": "f8"}
_BLOCK = 256  # threads
_MOST_BLOCKS = 1 << 16  # of a flat loop, whose threads take several elements each
_WARP = 32
_TABLE = np.dtype(
    [
        ("count", np.int64, cuda_printer.MOST_SETS),
        ("first", np.int64, cuda_printer.MOST_SETS + 1),
        ("sets", np.int64),
        ("address", np.int64, (cuda_printer.MOST_SETS, cuda_printer.MOST_OF_SET)),
    ]
)


def lanes_of(length: int, most: int) -> int:
    """Threads that share a row: a power of two."""
    return min(most, 1 << max(0, length - 1).bit_length())


class Launcher:
    """A loop and its kernels: one for each set of operands that are given as numbers, and for rows `across`."""

    def __init__(self, loop: Loop) -> None:
        self.loop, self.flat = loop, is_flat(loop)
        self._counted = [operand.index in (TILE, COLUMN) for operand in loop.operands]
        self._kernels: dict[tuple[tuple[int, ...], bool], Any] = {}
        self._of_many: dict[tuple[int, int], Any] = {}

    def kernel(self, numbers: tuple[int, ...], across: bool) -> Any:
        """CuPy's kernel, which compiles itself with its first call on a device."""
        found = self._kernels.get((numbers, across))
        if found is None:
            source = cuda_printer.printed(self.loop, numbers=numbers, across=across)
            module: Any = cupy()
            found = module.RawKernel(source, cuda_printer.ENTRY, options=cuda_printer.COMPILER_OPTIONS)
            self._kernels[numbers, across] = found
        return found

    def launch(
        self, rows: int, length: int, operands: Sequence[Any], repeats: dict[int, int] | None = None, inner: int = 0
    ) -> None:
        """Run on operands: arrays of the current device, and 0-d arrays of NumPy for numbers.

        inner: elements of a row that follow one another, if rows lie across the operands; 0 if rows are contiguous.
        """
        if not rows * length:
            return
        args: list[Any] = []
        numbers = []
        for place, (operand, counted) in enumerate(zip(operands, self._counted, strict=True)):
            if type(operand) is np.ndarray:
                numbers.append(place)
                operand = operand[()]
            args.append(operand)
            if counted:
                args.append((repeats or {}).get(place, 1))
        kernel = self.kernel(tuple(numbers), inner > 0)
        if self.flat:
            count = rows * length
            kernel((min(_MOST_BLOCKS, -(-count // _BLOCK)),), (_BLOCK,), (count, *args))
        else:
            at_once, lanes = _shape(length, inner)
            sizes = rows, np.int32(length), np.int32(inner or 1)
            kernel((-(-rows // at_once),), (at_once, lanes), (*sizes, *args))

    def launch_many(self, sets: Sequence[Sequence[Any]], numbers: Sequence[Array]) -> None:
        """Run a flat loop on several sets of arrays by one kernel. No set may read what another one writes.

        sets: at most MOST_SETS, each of at most MOST_OF_SET arrays of one size, before the numbers.
        """
        table = np.zeros(1, _TABLE)
        first = table["first"][0]
        for place, arrays in enumerate(sets):
            count = arrays[0].size
            table["count"][0, place] = count
            first[place + 1] = first[place] + min(_MOST_BLOCKS, -(-count // _BLOCK))
            table["address"][0, place, : len(arrays)] = [array.data.ptr for array in arrays]
        table["sets"] = len(sets)
        kernel = self.prepare_many(len(sets[0]), len(numbers))
        kernel((int(first[len(sets)]),), (_BLOCK,), (table, *(number[()] for number in numbers)))

    def prepare_many(self, arrays: int, numbers: int) -> Any:
        """The kernel of `launch_many` for sets of so many arrays, compiled for the current device."""
        kernel = self._of_many.get((arrays, numbers))
        if kernel is None:
            source = cuda_printer.printed_many(self.loop, numbers=range(arrays, arrays + numbers))
            module: Any = cupy()
            kernel = module.RawKernel(source, cuda_printer.ENTRY, options=cuda_printer.COMPILER_OPTIONS)
            self._of_many[arrays, numbers] = kernel
        kernel.compile()
        return kernel


def _shape(length: int, inner: int) -> tuple[int, int]:
    """Rows of a block and threads per row. Threads that follow one another read addresses that do."""
    if 0 < inner < _WARP:
        return _WARP, lanes_of(length, cuda_printer.MOST_THREADS // _WARP)
    lanes = lanes_of(length, _BLOCK)
    return max(1, _WARP // lanes), lanes


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
