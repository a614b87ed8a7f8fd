"""Grouping: which instructions of a schedule become one loop, and that loop.

A run is a set of fusible instructions over one shape, executed at the place of its first. An instruction joins a run
if it conflicts with none of the instructions between that it would be moved over. Then a run is split into groups that
share memory with each other. A group is atomic: it reads all of an element before it writes it. So of two registers
that may share memory, a group that writes one uses only that one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gradwire_engine.compile.fusion.form import COLUMN, SCALAR, TILE, WHOLE, Loop
from gradwire_engine.compile.fusion.rules import Fusible, fusible
from gradwire_engine.compile.schedule import Schedule
from gradwire_engine.compile.trace import Instr, NumRef, Ref

# Instructions that one is moved over at most, members of a run, and operands of a loop.
_REACH, _MEMBERS, _OPERANDS = 64, 48, 20
_CODES = {"f4": np.dtype(np.float32), "f8": np.dtype(np.float64)}
_NAMES = {**{dtype: code for code, dtype in _CODES.items()}, np.dtype(np.bool_): "b1"}


@dataclass(frozen=True)
class Index:
    """How a register is indexed in a loop, with its shape and dtype.

    count: rows of a tile, or rows per value of a column.
    """

    register: int
    index: str
    count: int
    shape: tuple[int, ...]
    dtype: Any


@dataclass
class Group:
    """Instructions that become one loop over `rows` rows of `length` elements.

    operands: of each operand of the loop, its register, or for a number its place and dtype. targets: registers that
    are changed in place. outs: registers that are made and used outside.
    """

    members: list[Instr]
    places: list[int]
    loop: Loop
    rows: int
    length: int
    operands: list[Index | tuple[int, Any]]
    targets: tuple[int, ...]
    outs: tuple[int, ...]

    def reads(self) -> list[int]:
        """Registers that are read or changed."""
        made = set(self.outs) - set(self.targets)
        return list(
            dict.fromkeys(one.register for one in self.operands if type(one) is Index and one.register not in made)
        )


@dataclass
class _Run:
    """A run under construction. The other sets have the roots that the instructions between read and write."""

    first: int
    shape: tuple[int, ...]
    dtype: str
    members: list[tuple[int, Instr, Fusible]] = field(default_factory=list)
    lengths: set[int] = field(default_factory=set)
    read: set[int] = field(default_factory=set)
    written: set[int] = field(default_factory=set)
    uses: dict[int, bool] = field(default_factory=dict)  # registers of the members: whether one is changed in place
    made: set[int] = field(default_factory=set)
    may_fail: bool = False


def writes_of(instr: Instr) -> list[int]:
    """Registers that an instruction makes or changes."""
    return [*instr.changes(), *(out for out in instr.outs if out >= 0)]


def equal_places(schedule: Schedule) -> frozenset[int]:
    """Places of instructions whose values sessions that exchange values may have to compute with equal bits.

    These are all that follow the first exchange of equal values. Before it, and if there is none, they are those that
    lead to a change of an input, such as a weight's. Statistics of a batch are not among them: batches differ. Only
    correctly rounded operations are fused there: one session may use machine code, and another not yet.
    """
    instrs, roots = schedule.instrs, schedule.roots
    equals = [each.kind == "exchange" and each.what.equals for each in instrs]
    if True not in equals and not schedule.shared:
        return frozenset()
    found = set(range(equals.index(True), len(instrs)) if True in equals else ())
    inputs, needed = set(schedule.input_regs), set[int]()
    for place in reversed(range(len(instrs))):
        instr = instrs[place]
        if equals[place]:
            needed -= {number for number in instr.changes() if roots[number] == {number}}  # what was there is not
            continue
        changed = set().union(*[roots[number] for number in instr.changes()])
        is_change = instr.kind == "write" and instr.what.name != "_running" and changed & inputs
        if is_change or needed & {*changed, *instr.outs}:
            found.add(place)
            needed.update(*[roots[number] for number in instr.reads()])
    return frozenset(found)


def groups_of(schedule: Schedule, alone: bool = False) -> list[Group]:
    """The groups of a schedule, in the order of their places. alone: also of one light instruction."""
    finder = _Finder(schedule, alone)
    for place, instr in enumerate(schedule.instrs):
        finder.visit(place, instr)
    found: list[Group] = []
    for run in finder.closed + finder.open:
        for members in finder.split(run):
            group = finder.group(run, members)
            if group is not None:
                found.append(group)
    return sorted(found, key=lambda group: group.places[0])


class _Finder:
    def __init__(self, schedule: Schedule, alone: bool) -> None:
        self.alone = alone
        self.schedule, self.regs, self.roots = schedule, schedule.regs, schedule.roots
        self.equal = equal_places(schedule)
        self.open: list[_Run] = []
        self.closed: list[_Run] = []
        self.owned = {*schedule.input_regs, *schedule.entry.values()}
        kept = [output.number for output in schedule.outputs if output.kind == "array"]
        kept += [number for number in schedule.final_grads.values() if number is not None]
        self.kept = set(kept)
        self.readers: dict[int, list[int]] = {}
        for place, instr in enumerate(schedule.instrs):
            for number in {*instr.reads(), *writes_of(instr)}:
                self.readers.setdefault(number, []).append(place)

    # Runs.

    def visit(self, place: int, instr: Instr) -> None:
        """Add an instruction to a run, or note that it stands between."""
        what = fusible(instr, self.regs)
        if what is not None and place in self.equal and not what.rule.is_exact:
            what = None
        joined = None
        if what is not None:
            joined = next((run for run in reversed(self.open) if self._joins(run, instr, what)), None)
            if joined is None and self._may_write(None, instr):
                joined = _Run(place, what.shape, what.dtype)
                self.open.append(joined)
            if joined is not None:
                self._add(joined, place, instr, what)
        self._stand_between(place, instr, joined)

    def _stand_between(self, place: int, instr: Instr, joined: _Run | None) -> None:
        read, written = self._rooted(instr.reads()), self._rooted(writes_of(instr))
        kernel = self.schedule.kernels[place]
        is_view = instr.kind in ("constant", "own") or (instr.kind == "op" and getattr(instr.what, "view", False))
        for run in self.open:
            if run is not joined:
                run.read |= read
                run.written |= written
                run.may_fail = run.may_fail or (kernel is None and not is_view)
        for run in [run for run in self.open if place - run.first >= _REACH or len(run.members) >= _MEMBERS]:
            self.open.remove(run)
            self.closed.append(run)

    def _rooted(self, numbers: Iterable[int]) -> set[int]:
        return set().union(*[self.roots[number] for number in numbers])

    def _joins(self, run: _Run, instr: Instr, what: Fusible) -> bool:
        if run.shape != what.shape or run.dtype != what.dtype or not self._may_write(run, instr):
            return False
        read, written = self._rooted(instr.reads()), self._rooted(writes_of(instr))
        if read & run.written or written & (run.read | run.written):
            return False
        if instr.kind in ("write", "accumulate") and run.may_fail:
            return False  # if what stands between fails, the change must not have been made
        return self._is_apart(run, instr) and self._lengths_agree(run.lengths | self._lengths(instr, what), run.shape)

    def _is_apart(self, run: _Run, instr: Instr) -> bool:
        """Whether no two registers of the run share memory where one is changed in place."""
        changed = set(writes_of(instr)) - set(instr.outs)
        for number in {*instr.reads(), *writes_of(instr)}:
            for other, is_changed in run.uses.items():
                if other != number and (is_changed or number in changed) and self.roots[other] & self.roots[number]:
                    return False
        return True

    def _may_write(self, run: _Run | None, instr: Instr) -> bool:
        """Whether what an instruction changes in place is row-major memory: an input's, or made in the run."""
        if instr.kind not in ("write", "accumulate"):
            return True
        target = int(instr.args[0])
        others = [number for number in instr.reads() if number != target]
        if any(self.roots[target] & self.roots[other] for other in others):
            return False
        if run is not None and target in run.made:
            return True
        return target in self.owned and self.roots[target] == frozenset((target,))

    def _lengths(self, instr: Instr, what: Fusible) -> set[int]:
        """Lengths that rows must divide: those of broadcast operands; negative, the length that they must be."""
        found = {-what.length} if what.length else set()
        for place, item in enumerate(instr.args[: what.rule.arity]):
            if type(item) is Ref and place not in what.rule.columns:
                index = _indexed(self.regs[item].shape, what.shape)
                found.add(0 if index is None else index[1])
        return found

    @staticmethod
    def _lengths_agree(lengths: set[int], shape: tuple[int, ...]) -> bool:
        return 0 not in lengths and _row_length(lengths, math.prod(shape)) is not None

    def _add(self, run: _Run, place: int, instr: Instr, what: Fusible) -> None:
        run.members.append((place, instr, what))
        run.lengths |= self._lengths(instr, what)
        changed = set(writes_of(instr)) - set(instr.outs)
        for number in {*instr.reads(), *writes_of(instr)}:
            run.uses[number] = run.uses.get(number, False) or number in changed
        run.made.update(instr.outs)

    # Groups.

    def split(self, run: _Run) -> list[list[tuple[int, Instr, Fusible]]]:
        """The members of a run by what they share: memory, but for single values that the run does not make."""
        parts: list[tuple[set[int], list[tuple[int, Instr, Fusible]]]] = []
        for member in run.members:
            instr = member[1]
            numbers = [
                number
                for number in {*instr.reads(), *writes_of(instr)}
                if number in run.made or math.prod(self.regs[number].shape) > 1
            ]
            roots, members = self._rooted(numbers), [member]
            apart = []
            for other in parts:
                if other[0] & roots:
                    roots, members = roots | other[0], other[1] + members
                else:
                    apart.append(other)
            parts = [*apart, (roots, sorted(members, key=lambda one: one[0]))]
        return [members for _, members in parts]

    def group(self, run: _Run, members: list[tuple[int, Instr, Fusible]]) -> Group | None:
        """The group of these members; None if it is not worth a loop or has too many operands."""
        if len(members) < 2 and not self.alone and not self._is_worth(*members[0]):
            return None
        lengths = set().union(*[self._lengths(instr, what) for _, instr, what in members])
        size = math.prod(run.shape)
        length = _row_length(lengths, size)
        if 0 in lengths or length is None:
            return None
        lowering = _Lowering(self, members, size, length)
        return lowering.group() if len(lowering.operands) <= _OPERANDS else None

    def _is_worth(self, place: int, instr: Instr, what: Fusible) -> bool:
        """Whether one instruction is worth a loop: a heavy one, or a change in place that takes NumPy two passes."""
        kernel = self.schedule.kernels[place]
        return what.rule.heavy or (instr.kind == "write" and kernel is not None and kernel.scratch)

    def leaves_group(self, number: int, places: set[int]) -> bool:
        """Whether a register is used outside of the instructions at these places."""
        if number in self.kept:
            return True
        return any(place not in places for place in self.readers[number])


def _indexed(shape: tuple[int, ...], space: tuple[int, ...]) -> tuple[str, int] | None:
    """How an array of `shape` is indexed over `space`, and the length that rows must divide (its size if any)."""
    size = math.prod(space)
    if math.prod(shape) == 1:
        return SCALAR, size
    padded = (1,) * (len(space) - len(shape)) + tuple(shape)
    if padded == space:
        return WHOLE, size
    first = next((place for place, length in enumerate(padded) if length != 1), 0)
    if padded[first:] == space[first:]:
        return TILE, math.prod(space[first:])
    last = max(place for place, length in enumerate(padded) if length != 1) + 1
    if padded[:last] == space[:last]:
        return COLUMN, math.prod(space[last:])
    return None


def _row_length(lengths: set[int], size: int) -> int | None:
    """The length of rows that suits all; None if there is none."""
    exact = {-length for length in lengths if length < 0}
    if len(exact) > 1:
        return None
    length = exact.pop() if exact else min((length for length in lengths if length > 0), default=size)
    if any(other % length for other in lengths if other > 0) or size % length:
        return None
    return length


class _Lowering:
    """The loop of a group, built instruction by instruction."""

    def __init__(self, finder: _Finder, members: list[tuple[int, Instr, Fusible]], size: int, length: int) -> None:
        self.finder, self.members = finder, members
        self.loop = Loop()
        self.dtype = members[0][2].dtype
        self.rows, self.length, self.size = size // length, length, size
        self.operands: list[Index | tuple[int, Any]] = []
        self._by_register: dict[int, int] = {}
        self._by_number: dict[int, int] = {}
        self._now: dict[int, int] = {}  # the value of each register that a member has made or changed
        self._changed: list[int] = []
        self._made: list[int] = []
        self._columns: set[int] = set()
        self._shape = members[0][2].shape
        for _, instr, what in members:
            self._lower(instr, what)

    def read(self, item: Any) -> int:
        """The value of a register or number."""
        if type(item) is NumRef:
            place = self._by_number.get(int(item))
            if place is None:
                place = self._by_number[int(item)] = self._operand(SCALAR, (int(item), _CODES[self.dtype]), self.dtype)
            return self.loop.load(place)
        if type(item) is not Ref:
            return self.loop.const(item, self.dtype)
        number = int(item)
        return self._now[number] if number in self._now else self.loop.load(self._of_register(number))

    def _operand(self, index: str, what: Index | tuple[int, Any], dtype: str) -> int:
        self.operands.append(what)
        return self.loop.operand(dtype, index)

    def _of_register(self, number: int) -> int:
        if number not in self._by_register:
            reg = self.finder.regs[number]
            index, count = self._index(number, reg.shape)
            self._by_register[number] = self._operand(
                index, Index(number, index, count, reg.shape, reg.dtype), _NAMES[reg.dtype]
            )
        return self._by_register[number]

    def _index(self, number: int, shape: tuple[int, ...]) -> tuple[str, int]:
        if number in self._columns:
            return COLUMN, 1
        found = _indexed(shape, self._shape)
        assert found is not None
        index, inner = found
        return index, inner // self.length if index in (TILE, COLUMN) else 0

    def _lower(self, instr: Instr, what: Fusible) -> None:
        self._columns.update(int(instr.args[place]) for place in what.rule.columns)
        self._columns.update(instr.outs[place] for place in what.rule.column_outs)
        made = what.rule.lower(self, instr.args)
        results = made if type(made) is tuple else (made,)
        if instr.kind in ("write", "accumulate"):
            target = int(instr.args[0])
            if target not in self._made and target not in self._changed:
                self._changed.append(target)
            self._now[target] = results[0]  # type: ignore[assignment]
            return
        for out, value in zip(instr.outs, results, strict=True):
            self._made.append(out)
            self._now[out] = value  # type: ignore[assignment]

    def group(self) -> Group:
        """The group, with stores of what is used outside."""
        places = {place for place, _, _ in self.members}
        outs = [number for number in self._made if self.finder.leaves_group(number, places)]
        for number in (*self._changed, *outs):
            self.loop.store(self._of_register(number), self._now[number])
        return Group(
            [instr for _, instr, _ in self.members],
            sorted(places),
            self.loop,
            self.rows,
            self.length,
            self.operands,
            tuple(self._changed),
            tuple(outs),
        )
