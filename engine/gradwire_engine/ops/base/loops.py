"""Ops as loops of machine code, where the context has such loops: on large arrays in host memory, and on GPUs.

A forward or formula declares by `with_loop` how a loop computes it for some arguments. The arguments alone decide,
with the session and what is installed. So the same call computes the same bits each time. compile/eager/ makes loops.
NumPy or CuPy computes all else.
"""

from __future__ import annotations

import ctypes
import functools
from array import array as packed
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from gradwire_engine.core.context import CURRENT
from gradwire_engine.core.device import Array
from gradwire_engine.core.threads import POOL, Entry

#: Elements from which a loop is used: on fewer, NumPy's passes take about as long as the call. And the same for
#: formulas of few operations, which take NumPy two or three passes.
LEAST, LEAST_OF_CHEAP = 1 << 12, 1 << 15
#: Elements that no array has: only a GPU uses the loop.
ON_GPU = 1 << 62
_MOST_ON_GPU = (1 << 31) - 2048  # elements: a kernel counts a row's by ints
# Values of all scratch rows of a thread, and threads, at most.
_SCRATCH, _MOST_THREADS = 1 << 17, 64


@dataclass(frozen=True)
class Loop:
    """A loaded loop.

    operations: per element. kept: values per element of a row that are kept in scratch memory. flat: it has no rows.
    """

    entry: Entry
    operations: int
    kept: int
    flat: bool


class Kernel(Protocol):
    """A loop as a kernel of a GPU."""

    def launch(
        self, rows: int, length: int, operands: Sequence[Array], repeats: dict[int, int] | None = None, inner: int = 0
    ) -> None:
        """Compute on the current device: see `run`.

        inner: elements of a row that follow one another, if rows lie across the operands; 0 if rows are contiguous.
        """

    def launch_many(self, sets: Sequence[Sequence[Array]], numbers: Sequence[Array]) -> None:
        """Run on several sets of arrays at once, if the loop is elementwise. No set may read what another writes."""

    def prepare_many(self, arrays: int, numbers: int) -> Any:
        """Compile what `launch_many` needs for sets of so many arrays, and numbers."""


class Loops(Protocol):
    """The loops of a context, for arrays in host memory or on a GPU."""

    @property
    def verifies(self) -> bool:
        """Whether each result is compared with that of NumPy or CuPy."""

    def for_gpu(self) -> Loops | None:
        """The loops for arrays on GPUs; None if there are none, or the context may not use them."""

    def on_gpu(self, array: Any) -> Loops | None:
        """The loops for an array on a GPU; None for other values, and if the context may not use them."""

    def find(self, name: str, dtype: str) -> Loop | Kernel | None:
        """A loop for a dtype's character, loaded; None if there is none, or the context must compute without."""

    def loaded(self, name: str, dtype: str) -> Loop | Kernel | None:
        """As `find`, but None for a loop that is not loaded yet: for ops whose bits NumPy gives as well."""

    def ask(self, name: str, dtype: str) -> None:
        """Have a loop loaded in the background, so that `loaded` finds it later."""

    def only(self, names: Sequence[tuple[str, str]]) -> Loops | None:
        """These loops, by name and dtype, loaded; None if there are none."""

    def check(self, name: str, made: Any, expected: Any) -> None:
        """Compare results. Raises EngineError: RUNTIME if they differ beyond rounding."""


Attempt = Callable[..., Any]


def with_loop(attempt: Attempt, place: int = 1, least: int = LEAST) -> Callable[[Attempt], Attempt]:
    """Decorate a forward or a formula on arrays: use what `attempt(loops, ...)` returns, unless it is None.

    attempt: gets the context's loops, then the function's arguments. It returns None if no loop fits them.
    place: of the argument that must have `least` elements or be on a GPU, or of a list whose first item must; 1 for
    forwards, 0 for formulas.
    """

    def decorate(function: Attempt) -> Attempt:
        @functools.wraps(function)
        def computed(*args: Any, **kwargs: Any) -> Any:
            given = args[place]
            if type(given) is list:
                given = given[0] if given else None
            if type(given) is not np.ndarray:
                loops = gpu_loops_of(given)
            elif given.size < least:
                return function(*args, **kwargs)
            else:
                loops = CURRENT.get().loops
            if loops is None:
                return function(*args, **kwargs)
            made = attempt(loops, *args, **kwargs)
            if made is None:
                return function(*args, **kwargs)
            if loops.verifies:
                loops.check(function.__name__, made, function(*args, **kwargs))
            return made

        return computed

    return decorate


def fits(*arrays: Array) -> bool:
    """Whether arrays are row-major, of one shape and float dtype, on a GPU or large enough for a loop."""
    first = arrays[0]
    if type(first) is not np.ndarray:
        return first.size > 0 and are_plain(*arrays) and all(each.shape == first.shape for each in arrays)
    dtype, shape = first.dtype, first.shape
    if first.size < LEAST or dtype.char not in "fd":
        return False
    for each in arrays:  # called for each op: without generators
        if type(each) is not np.ndarray or each.dtype != dtype or each.shape != shape or not each.flags.c_contiguous:
            return False
    return True


def are_plain(*arrays: Any) -> bool:
    """Whether these are row-major arrays of one float dtype, all of NumPy or all of CuPy."""
    first = arrays[0]
    return all(
        type(each) is type(first) and each.dtype.char in "fd" and each.dtype == first.dtype and each.flags.c_contiguous
        for each in arrays
    )


def elementwise_loop(name: str) -> Attempt:
    """The attempt of a forward whose arguments are arrays of one shape: a new array, by a loop of this name."""

    def attempt(loops: Loops, xp: Any, *arrays: Any) -> Array | None:
        return each(loops, name, *arrays)

    return attempt


def each(loops: Loops, name: str, *arrays: Any, numbers: tuple[float, ...] = ()) -> Array | None:
    """A new array, by an elementwise loop over arrays of one shape, and numbers. None if there is no such loop."""
    if not fits(*arrays):
        return None
    loop = loops.find(name, arrays[0].dtype.char)
    if loop is None:
        return None
    made = np.empty_like(arrays[0])
    scalars = [np.asarray(number, made.dtype) for number in numbers]
    run(loop, 1, made.size, *arrays, *scalars, made)
    return made


def gpu_loops_of(array: Any) -> Loops | None:
    """The context's loops for an array on a GPU; None for other values, and if the context may not use them."""
    loops = CURRENT.get().loops
    found: Loops | None = None if loops is None or type(array) is np.ndarray else loops.on_gpu(array)
    return found if found is not None and array.size <= _MOST_ON_GPU else None


def may_use_gpu_loops(size: int) -> bool:
    """Whether the context may use its loops for an array of so many elements on a GPU."""
    loops = CURRENT.get().loops
    return loops is not None and size <= _MOST_ON_GPU and loops.for_gpu() is not None


def along_rows(loops: Loops, name: str, dim: int, *arrays: Any) -> Array | None:
    """A new array, by a loop over the rows of arrays of one shape. None if `dim` is not the last dimension."""
    if not fits(*arrays) or dim not in (-1, arrays[0].ndim - 1):
        return None
    length = arrays[0].shape[-1]
    loop = find(loops, name, arrays[0].dtype.char, length)
    if loop is None:
        return None
    made = np.empty_like(arrays[0])
    run(loop, made.size // length, length, *arrays, made)
    return made


def address(operand: Array) -> int:
    """Where an array begins. For writable arrays three times as fast as NumPy's interface."""
    try:
        return ctypes.addressof(ctypes.c_char.from_buffer(operand))
    except (TypeError, ValueError):
        return int(operand.__array_interface__["data"][0])


def find(loops: Loops, name: str, dtype: str, length: int) -> Loop | Kernel | None:
    """A loop whose scratch memory for rows of this length is small."""
    loop = loops.find(name, dtype)
    return None if isinstance(loop, Loop) and loop.kept * length > _SCRATCH else loop


def run(
    loop: Loop | Kernel,
    rows: int,
    length: int,
    *operands: Array,
    repeats: dict[int, int] | None = None,
    work: int | None = None,
) -> None:
    """Run a loop over rows of `length` elements: on their GPU, or in the pool's threads if it is large.

    operands: row-major arrays, in the loop's order, the results last. repeats: of an operand by its place, the rows
    after which it is read again from its start, or that share one of its values; else 1. work: elements that it reads,
    if not those of the rows.
    """
    if not isinstance(loop, Loop):
        loop.launch(rows, length, operands, repeats)
        return
    items = [length]
    for operand in operands:
        items += address(operand), 1
    for place, count in (repeats or {}).items():
        items[2 * place + 2] = count
    table = packed("q", items)
    end, kept = rows * length if loop.flat else rows, loop.kept * length
    lanes = _lanes(loop, rows * length if work is None else work, end)
    if not kept:
        if lanes == 1:
            loop.entry(0, end, None, table.buffer_info()[0])
        else:
            POOL.run(loop.entry, end, [None] * lanes, table.buffer_info()[0])
        return
    scratch = np.empty((lanes, kept), np.float64)
    start = address(scratch)
    POOL.run(loop.entry, end, [start + 8 * kept * lane for lane in range(lanes)], table.buffer_info()[0])


def _lanes(loop: Loop, elements: int, end: int) -> int:
    """In how many threads a loop runs."""
    return POOL.lanes(elements * loop.operations, min(_MOST_THREADS, end))


class StepLoop:
    """A loop over strided rows that runs once per step of a sequence.

    operands: matrices of `length` columns, in the loop's order. moving: whether a step begins at its own row of an
    operand; else each step begins at the first one. The operands are kept alive.
    """

    def __init__(self, loop: Loop, length: int, operands: Sequence[tuple[Array, bool]]) -> None:
        self._loop, self._length, self._operands = loop, length, operands
        items, self._moving = [length], []
        for place, (operand, moving) in enumerate(operands):
            start, stride = address(operand), operand.strides[0]
            items += start, stride // operand.itemsize
            if moving:
                self._moving.append((2 * place + 1, start, stride))
        self._table = packed("q", items)
        self._start = self._table.buffer_info()[0]

    def run(self, first: int, count: int) -> None:
        """Compute the `count` rows of the step whose first row this is."""
        table = self._table
        for place, start, stride in self._moving:
            table[place] = start + first * stride
        lanes = _lanes(self._loop, count * self._length, count)
        if lanes == 1:
            self._loop.entry(0, count, None, self._start)
        else:
            POOL.run(self._loop.entry, count, [None] * lanes, self._start)
