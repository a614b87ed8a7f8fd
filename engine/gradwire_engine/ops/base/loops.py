"""Ops on large arrays as loops of machine code, where the context has such loops; else NumPy computes them.

A forward or formula declares by `with_loop` how a loop computes it for some arguments. The arguments alone decide,
with the session and what is installed. So the same call computes the same bits each time. compile/eager/ makes loops.
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
from gradwire_engine.core.threads import LARGE, POOL, Entry
from gradwire_engine.ops.base.blocked import is_plain

#: Elements from which a loop is used: on fewer, NumPy's passes take about as long as the call. And the same for
#: formulas of few operations, which take NumPy two or three passes.
LEAST, LEAST_OF_CHEAP = 1 << 12, 1 << 15
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


class Loops(Protocol):
    """The loops of a context."""

    #: Whether each result is compared with NumPy's.
    verifies: bool

    def find(self, name: str, dtype: str) -> Loop | None:
        """A loop for a dtype's character, loaded; None if the context must compute by NumPy."""

    def only(self, names: Sequence[tuple[str, str]]) -> Loops | None:
        """These loops, by name and dtype, loaded; None if there are none."""

    def check(self, name: str, made: Any, expected: Any) -> None:
        """Compare results. Raises EngineError: RUNTIME if they differ beyond rounding."""


Attempt = Callable[..., Any]


def with_loop(attempt: Attempt, place: int = 1, least: int = LEAST) -> Callable[[Attempt], Attempt]:
    """Decorate a forward or a formula on arrays: use what `attempt(loops, ...)` returns, unless it is None.

    attempt: gets the context's loops, then the function's arguments. It returns None if no loop fits them.
    place: of the argument that must have `least` elements; 1 for forwards, 0 for formulas.
    """

    def decorate(function: Attempt) -> Attempt:
        @functools.wraps(function)
        def computed(*args: Any, **kwargs: Any) -> Any:
            loops = CURRENT.get().loops
            if loops is None or getattr(args[place], "size", 0) < least:
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
    """Whether arrays are large enough for a loop, row-major, and of one shape and float dtype."""
    return type(arrays[0]) is np.ndarray and arrays[0].size >= LEAST and is_plain(*arrays)


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


def _address(operand: Array) -> int:
    """Where an array begins. For writable arrays three times as fast as NumPy's interface."""
    try:
        return ctypes.addressof(ctypes.c_char.from_buffer(operand))
    except (TypeError, ValueError):
        return int(operand.__array_interface__["data"][0])


def find(loops: Loops, name: str, dtype: str, length: int) -> Loop | None:
    """A loop whose scratch memory for rows of this length is small."""
    loop = loops.find(name, dtype)
    return None if loop is None or loop.kept * length > _SCRATCH else loop


def run(loop: Loop, rows: int, length: int, *operands: Array, repeats: dict[int, int] | None = None) -> None:
    """Run a loop over rows of `length` elements, in the pool's threads if it is large.

    operands: row-major arrays, in the loop's order, the results last. repeats: of an operand by its place, the rows
    after which it is read again from its start, or that share one of its values; else 1.
    """
    items = [length]
    for operand in operands:
        items += _address(operand), 1
    for place, count in (repeats or {}).items():
        items[2 * place + 2] = count
    table = packed("q", items)
    end, kept, lanes = rows * length if loop.flat else rows, loop.kept * length, 1
    if rows * length * loop.operations >= LARGE:
        lanes = max(1, min(POOL.threads, _MOST_THREADS, end))
    if not kept:
        if lanes == 1:
            loop.entry(0, end, None, table.buffer_info()[0])
        else:
            POOL.run(loop.entry, end, [None] * lanes, table.buffer_info()[0])
        return
    scratch = np.empty((lanes, kept), np.float64)
    start = _address(scratch)
    POOL.run(loop.entry, end, [start + 8 * kept * lane for lane in range(lanes)], table.buffer_info()[0])
