"""Fused plans on a GPU: each group of a plan's instructions is a kernel, and equal groups of other arrays are one.

An optimizer's step, which changes each parameter in the same way, is therefore one kernel for up to MOST_SETS
parameters. A group is moved to the place of an earlier one only if no instruction between depends on it.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from gradwire_engine.compile.fusion.batch_norm import BatchNormCall
from gradwire_engine.compile.fusion.cuda_launcher import Launcher
from gradwire_engine.compile.fusion.cuda_printer import MOST_OF_SET, MOST_SETS
from gradwire_engine.compile.fusion.form import CYCLE, SHIFTED, STRIDED, WHOLE, is_flat
from gradwire_engine.compile.fusion.fused import FusedCall
from gradwire_engine.compile.fusion.grouping import Group, Index, groups_of, writes_of
from gradwire_engine.compile.kernels.registry import Kernel
from gradwire_engine.compile.schedule import Schedule
from gradwire_engine.compile.trace import Instr, Ref
from gradwire_engine.core.device import allocation

Array = Any
Pair = tuple[Instr, "Kernel | None"]
# How the CPU's loops alone index operands.
_UNPRINTED = (SHIFTED, CYCLE, STRIDED)
_MOST_NUMBERS = 32  # of a kernel of many sets: its arguments are at most 4 KB
_LONGEST = (1 << 31) - 2048  # elements of a row, which a kernel counts by ints


def cuda_groups(schedule: Schedule) -> list[Group]:
    """The groups of a schedule that can be kernels of a GPU."""
    return [group for group in groups_of(schedule, alone=True) if _is_printable(group, schedule.hosted)]


def _is_printable(group: Group, hosted: Container[int]) -> bool:
    registers = [one.register for one in group.operands if type(one) is Index]
    return (
        group.length <= _LONGEST
        and not any(operand.index in _UNPRINTED for operand in group.loop.operands)
        and not any(register in hosted for register in registers)
    )


def _kind(group: Group) -> Hashable:
    """What groups have in common that one kernel can compute; None if the group must have its own."""
    loop = group.loop
    arrays = [one for one in group.operands if type(one) is Index]
    numbers = tuple(one for one in group.operands if type(one) is not Index)
    if not is_flat(loop) or len(arrays) > MOST_OF_SET or len(numbers) > _MOST_NUMBERS:
        return None
    if any(one.index != WHOLE for one in arrays):
        return None
    operands = tuple((one.dtype, one.index, one.step, one.written) for one in loop.operands)
    return tuple(loop.values), operands, tuple(loop.stores), numbers


def _joined(groups: Sequence[Group]) -> Group:
    """The facts of groups that one call computes."""
    first = groups[0]
    if len(groups) == 1:
        return first
    return replace(
        first,
        members=[instr for group in groups for instr in group.members],
        places=[place for group in groups for place in group.places],
        operands=[one for group in groups for one in group.operands],
        targets=tuple(target for group in groups for target in group.targets),
        outs=tuple(out for group in groups for out in group.outs),
    )


class CudaCall:
    """A call of the kernel of one group, or of groups that have the same loop, on a GPU's arrays.

    Each run looks up the arrays: results that leave the plan, and inputs that change, are other ones each time.
    """

    nbytes = 0  # of temporary memory
    copied = 0  # bytes of copies of operands that are kept

    def __init__(self, groups: Sequence[Group], launcher: Launcher | None = None) -> None:
        self.groups, self.group = list(groups), _joined(groups)
        self.launcher = Launcher(groups[0].loop) if launcher is None else launcher
        self.kind = _kind(groups[0])
        self._written = [operand.written for operand in groups[0].loop.operands]
        self._numbers = tuple(place for place, what in enumerate(groups[0].operands) if type(what) is not Index)
        self._repeats = {
            place: what.count for place, what in enumerate(groups[0].operands) if type(what) is Index and what.count
        }
        self._values: Sequence[Array] = ()
        self._given: dict[int, Array] = {}

    def bind(self, values: Sequence[Array], static: Container[int], number: Callable[[int, Any], Array]) -> None:
        """Set the plan's arrays, which each call reads again, and its numbers."""
        self._values = values
        operands = self.groups[0].operands
        self._given = {place: number(*operands[place]) for place in self._numbers}  # type: ignore[misc]

    def bind_again(self, values: Sequence[Array], dynamic: Container[int]) -> None:
        """Do nothing: each call reads the arrays."""

    def __call__(self) -> None:
        """Launch the kernel. Raises RuntimeError for an array that is not what was traced."""
        if len(self.groups) == 1:
            group = self.groups[0]
            self.launcher.launch(group.rows, group.length, self._operands(group), self._repeats)
            return
        sets = [
            [operand for place, operand in enumerate(self._operands(group)) if place not in self._given]
            for group in self.groups
        ]
        self.launcher.launch_many(sets, list(self._given.values()), self._numbers)

    def _operands(self, group: Group) -> list[Array]:
        """The arrays and numbers of a group. What is read and shares memory with a result is copied."""
        values = self._values
        found: list[Array] = []
        for place, what in enumerate(group.operands):
            if type(what) is not Index:
                found.append(self._given[place])
                continue
            array = values[what.register]
            if array.shape != what.shape or array.dtype != what.dtype:
                raise RuntimeError(f"register {what.register} is not what was traced")
            if not array.flags.c_contiguous:
                if self._written[place]:
                    raise RuntimeError(f"register {what.register} is not row-major")
                array = array.copy(order="C")
            found.append(array)
        written = {allocation(array) for array, changes in zip(found, self._written, strict=True) if changes}
        return [
            array.copy() if not changes and type(array) is not np.ndarray and allocation(array) in written else array
            for array, changes in zip(found, self._written, strict=True)
        ]


@dataclass
class _Row:
    """Calls that become one, at a place. The last sets have the roots that instructions behind it read and write."""

    place: int
    kind: Hashable
    groups: list[Group]
    read: set[int] = field(default_factory=set)
    written: set[int] = field(default_factory=set)
    read_behind: set[int] = field(default_factory=set)
    written_behind: set[int] = field(default_factory=set)
    may_fail: bool = False

    def takes(self, group: Group, read: set[int], written: set[int]) -> bool:
        """Whether a group can be computed at this place, beside the others."""
        return (
            len(self.groups) < MOST_SETS
            and not (read & (self.written | self.written_behind))
            and not (written & (self.read | self.written | self.read_behind | self.written_behind))
            # If what stands between fails, the change must not have been made.
            and not (group.targets and self.may_fail)
        )


def in_rows(pairs: Iterable[Pair], roots: Mapping[int, frozenset[int]]) -> list[Pair]:
    """The instructions, with calls that one kernel can compute as one, at the place of the first."""
    made: list[Pair] = []
    rows: list[_Row] = []

    def rooted(numbers: Iterable[int]) -> set[int]:
        return set().union(*[roots[number] for number in numbers])

    for instr, kernel in pairs:
        call = instr.what if instr.kind == "fused" else None
        targets = call.group.targets if isinstance(call, CudaCall) else ()
        read, written = rooted(instr.reads()), rooted((*writes_of(instr), *targets))
        if instr.kind == "call":
            written |= read  # a composite may update statistics in its arguments
        taken = None
        if isinstance(call, CudaCall) and call.kind is not None:
            group = call.group
            taken = next((row for row in rows if row.kind == call.kind and row.takes(group, read, written)), None)
            if taken is None:
                rows.append(taken := _Row(len(made), call.kind, []))
                made.append((instr, kernel))
            taken.groups.append(group)
            taken.read |= read
            taken.written |= written
        else:
            made.append((instr, kernel))
        is_view = instr.kind in ("constant", "own") or (instr.kind == "op" and getattr(instr.what, "view", False))
        for row in rows:
            if row is not taken:
                row.read_behind |= read
                row.written_behind |= written
                row.may_fail = row.may_fail or not (call is not None or kernel is not None or is_view)
    for row in rows:
        if len(row.groups) > 1:
            made[row.place] = instruction(CudaCall(row.groups))
    return made


def instruction(call: FusedCall | BatchNormCall | CudaCall) -> tuple[Instr, Kernel]:
    """The instruction of a call."""
    group = call.group
    args = tuple(map(Ref, group.reads()))
    return Instr("fused", call, args, group.outs, group.members[0].step), Kernel(call)
