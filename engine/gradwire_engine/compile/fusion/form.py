"""The form of a fused loop: values of one static assignment each, over a matrix of rows. No printer's language.

A loop visits rows of equal length. A value is per element ("full"), per row ("row") or the same everywhere
("uniform"). A reduction makes a row value of full ones. `Loop.passes` splits a row's work: a pass visits the row's
elements once, and ends with the reductions that later passes need. All stores are in the last pass, so a loop may
overwrite what it reads at the same element.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

FULL, ROW, UNIFORM = "full", "row", "uniform"
_ORDER = {UNIFORM: 0, ROW: 1, FULL: 2}
#: How an operand is indexed by row and element: whole array; rows that repeat; a value per row; one value; rows at a
#: distance, read at several offsets; values per row that repeat; rows at a distance that the caller gives.
WHOLE, TILE, COLUMN, SCALAR, SHIFTED, CYCLE = "whole", "tile", "column", "scalar", "shifted", "cycle"
STRIDED = "strided"
_SCOPES = {WHOLE: FULL, TILE: FULL, COLUMN: ROW, SCALAR: UNIFORM, SHIFTED: FULL, CYCLE: ROW, STRIDED: FULL}
#: Dtypes: float, double, bool, and the integers that hold a float's bits.
F4, F8, B1, I4, I8 = "f4", "f8", "b1", "i4", "i8"
BITS = {F4: I4, F8: I8}
REDUCTIONS = ("sum", "max")
# A value that costs more than so many operations is kept between passes instead of computed again.
_CHEAP = 12
_COSTS = {"div": 8, "sqrt": 8, "load": 1, "const": 0}


@dataclass(frozen=True)
class Value:
    """One value: `op` of the values numbered `args`; `detail` is a constant, an operand or a dtype."""

    op: str
    args: tuple[int, ...]
    dtype: str
    scope: str
    detail: object = None


@dataclass
class Operand:
    """An array that a loop reads or writes, as the kernel is given it: dtype and index form.

    step: elements between the rows of a shifted operand or the values of a cycle.
    """

    dtype: str
    index: str
    step: int = 0
    written: bool = False


@dataclass
class Pass:
    """Values to compute per element, in order; kept ones to store to and load from scratch rows; then row values."""

    elements: list[int] = field(default_factory=list)
    keeps: list[int] = field(default_factory=list)
    reductions: list[int] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)


class Loop:
    """A loop under construction: values, operands and stores. Equal values are one."""

    def __init__(self) -> None:
        self.values: list[Value] = []
        self.operands: list[Operand] = []
        self.stores: list[tuple[int, int, int]] = []  # operand, offset, value
        self._known: dict[Value, int] = {}

    # Values.

    def make(self, op: str, args: Iterable[int], dtype: str, scope: str | None = None, detail: object = None) -> int:
        """The number of a value."""
        given = tuple(args)
        if scope is None:
            scope = max((self.values[arg].scope for arg in given), key=_ORDER.__getitem__, default=UNIFORM)
        value = Value(op, given, dtype, scope, detail)
        found = self._known.get(value)
        if found is None:
            found = self._known[value] = len(self.values)
            self.values.append(value)
        return found

    def dtype(self, value: int) -> str:
        """A value's dtype."""
        return self.values[value].dtype

    def const(self, number: float, dtype: str) -> int:
        """A constant, rounded to the dtype."""
        if dtype in (F4, F8):
            bits = np.asarray(number, dtype).astype(np.float64).tobytes().hex()
            return self.make("const", (), dtype, detail=bits)
        return self.make("const", (), dtype, detail=int(number))

    def operand(self, dtype: str, index: str, step: int = 0) -> int:
        """The number of a new operand."""
        self.operands.append(Operand(dtype, index, step))
        return len(self.operands) - 1

    def load(self, operand: int, offset: int = 0) -> int:
        """What the operand held before the loop. Only shifted operands and cycles are read at an offset."""
        given = self.operands[operand]
        return self.make("load", (), given.dtype, _SCOPES[given.index], (operand, offset))

    def store(self, operand: int, value: int, offset: int = 0) -> None:
        """Write a value to an operand at the end."""
        self.operands[operand].written = True
        self.stores.append((operand, offset, value))

    def binary(self, op: str, one: int, other: int) -> int:
        """add, sub, mul, div; and, or, xor, shl, ashr of integers."""
        return self.make(op, (one, other), self.dtype(one))

    def unary(self, op: str, value: int) -> int:
        """neg, abs or sqrt."""
        return self.make(op, (value,), self.dtype(value))

    def compare(self, op: str, one: int, other: int) -> int:
        """lt, gt, le, ge, eq: false with nan; ne: true with nan."""
        return self.make(op, (one, other), B1)

    def select(self, condition: int, one: int, other: int) -> int:
        """`one` where the condition is true, else `other`."""
        return self.make("select", (condition, one, other), self.dtype(one))

    def cast(self, value: int, dtype: str) -> int:
        """Round or widen between the float dtypes."""
        return value if self.dtype(value) == dtype else self.make("cast", (value,), dtype)

    def bits(self, value: int, dtype: str) -> int:
        """The same bits as another dtype."""
        return self.make("bits", (value,), dtype)

    def reduce(self, op: str, value: int) -> int:
        """Sum or maximum along the row. A sum of any order; the maximum is nan where a positive nan is."""
        if self.values[value].scope != FULL:
            value = self.make("spread", (value,), self.dtype(value), FULL)
        return self.make(op, (value,), self.dtype(value), ROW)

    # Passes.

    def passes(self, keeping: bool = True) -> list[Pass]:
        """The work of a row in order. The last pass has the stores of elements; its rows are those only stored.

        keeping: whether values that cost much are kept between passes.
        """
        levels, needed = self._levels(), self._needed()
        made = [Pass() for _ in range(max((levels[value] for value in needed), default=0) + 1)]
        for value in sorted(needed):
            if self.values[value].op in REDUCTIONS:
                made[levels[value] - 1].reductions.append(value)
            elif self.values[value].scope == ROW and levels[value]:
                made[levels[value] - 1].rows.append(value)
        ends = [[self.values[value].args[0] for value in each.reductions] for each in made]
        ends[-1] += [value for _, _, value in self.stores]
        kept: set[int] = set()
        for place, each in enumerate(made):
            # A kept value is loaded, and what only it needs is not computed again.
            each.elements = sorted(self._elements(ends[place], kept))
            later = [value for values in ends[place + 1 :] for value in values] if keeping else []
            if not later:
                continue
            here = set(each.elements) - kept
            dear = {value for value in here if self._is_dear(value)}
            each.keeps = sorted(self._elements(later, kept | dear) & dear)
            kept |= set(each.keeps)
        return made

    def kept(self) -> list[int]:
        """The values that are kept in scratch rows, in order."""
        return kept_by(self.passes())

    def has_one_pass(self) -> bool:
        """Whether no value depends on a reduction."""
        levels = self._levels()
        return not any(levels[value] for value in self._needed())

    def _needed(self) -> set[int]:
        return self.reached([value for _, _, value in self.stores])

    def _levels(self) -> list[int]:
        levels: list[int] = []
        for value in self.values:
            level = max((levels[arg] for arg in value.args), default=0)
            levels.append(level + 1 if value.op in REDUCTIONS else level)
        return levels

    def reached(self, ends: Iterable[int]) -> set[int]:
        """These values and all that they are computed from."""
        found: set[int] = set()
        waiting = list(ends)
        while waiting:
            value = waiting.pop()
            if value not in found:
                found.add(value)
                waiting += self.values[value].args
        return found

    def _elements(self, ends: Iterable[int], kept: Iterable[int] = ()) -> set[int]:
        """The full values that these need, without what lies behind reductions and kept values."""
        found: set[int] = set()
        held = set(kept)
        waiting = [value for value in ends if self.values[value].scope == FULL]
        while waiting:
            value = waiting.pop()
            if value in found:
                continue
            found.add(value)
            if value not in held:
                waiting += [arg for arg in self.values[value].args if self.values[arg].scope == FULL]
        return found

    def _is_dear(self, value: int) -> bool:
        """Whether a value costs so much that it is kept between passes."""
        cost, found, waiting = 0, {value}, [value]
        while waiting:
            given = self.values[waiting.pop()]
            cost += _COSTS.get(given.op, 1)
            if cost > _CHEAP:
                return True
            for arg in given.args:
                if arg not in found and self.values[arg].scope == FULL:
                    found.add(arg)
                    waiting.append(arg)
        return False


def kept_by(passes: Iterable[Pass]) -> list[int]:
    """The values that passes keep in scratch rows, in order."""
    return [value for each in passes for value in each.keeps]


def is_flat(loop: Loop) -> bool:
    """Whether a loop needs no rows: it only has whole arrays, single values and one pass."""
    return all(each.index in (WHOLE, SCALAR) for each in loop.operands) and loop.has_one_pass()
