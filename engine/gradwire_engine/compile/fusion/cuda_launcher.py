"""Launches of loops that cuda_printer.py prints as CUDA kernels, which CuPy compiles when they are first launched.

CuPy keeps what it compiled on disk (CUPY_CACHE_DIR). The arguments alone decide how a kernel's sums are divided among
threads. So a program's results do not depend on time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gradwire_engine.compile.fusion import cuda_printer
from gradwire_engine.compile.fusion.form import COLUMN, TILE, Loop, is_flat
from gradwire_engine.core.device import Array, cupy

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
        self._of_many: dict[tuple[tuple[int, ...], bool], Any] = {}

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

    def launch_many(
        self, sets: Sequence[Sequence[Any]], numbers: Sequence[Array], places: tuple[int, ...] | None = None
    ) -> None:
        """Run a flat loop on several sets of arrays by one kernel. No set may read what another one writes.

        sets: at most MOST_SETS, each of at most MOST_OF_SET arrays of one size. places: of the numbers among the loop's
        operands; None if they come last. numbers: 0-d arrays, all of them of NumPy or all on the GPU.
        """
        table = np.zeros(1, _TABLE)
        first = table["first"][0]
        for place, arrays in enumerate(sets):
            count = arrays[0].size
            table["count"][0, place] = count
            first[place + 1] = first[place] + min(_MOST_BLOCKS, -(-count // _BLOCK))
            table["address"][0, place, : len(arrays)] = [array.data.ptr for array in arrays]
        table["sets"] = len(sets)
        pointed = any(hasattr(number, "__cuda_array_interface__") for number in numbers)
        kernel = self.prepare_many(len(sets[0]), len(numbers), places, pointed)
        given = numbers if pointed else [number[()] for number in numbers]
        kernel((int(first[len(sets)]),), (_BLOCK,), (table, *given))

    def prepare_many(
        self, arrays: int, numbers: int, places: tuple[int, ...] | None = None, pointed: bool = False
    ) -> Any:
        """The kernel of `launch_many` for sets of so many arrays, compiled for the current device."""
        places = tuple(range(arrays, arrays + numbers)) if places is None else places
        kernel = self._of_many.get((places, pointed))
        if kernel is None:
            source = cuda_printer.printed_many(self.loop, numbers=places, pointed=pointed)
            module: Any = cupy()
            kernel = module.RawKernel(source, cuda_printer.ENTRY, options=cuda_printer.COMPILER_OPTIONS)
            self._of_many[places, pointed] = kernel
        kernel.compile()
        return kernel


def _shape(length: int, inner: int) -> tuple[int, int]:
    """Rows of a block and threads per row. Threads that follow one another read addresses that do."""
    if 0 < inner < _WARP:
        return _WARP, lanes_of(length, cuda_printer.MOST_THREADS // _WARP)
    lanes = lanes_of(length, _BLOCK)
    return max(1, _WARP // lanes), lanes
