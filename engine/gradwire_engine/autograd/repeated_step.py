"""Repeated step: repeated calls, the backward of a result, and what follows it, as one list of forwards on arrays.

The list needs neither tensors nor nodes; kept_results.py makes those of results that stay after the step. It is
joined (step_join.py) from the parts of repeated calls (op/repeated.py) and the noted pass over their graph
(repeated_backward.py). It calls the same forwards in the same order, so it computes the same bits. Where anything is
unusual, nothing has changed, and the commands run as ever.

After the backward may come calls that are not recorded, also in place, and commands that name or clear gradients.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from time import monotonic
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from gradwire_engine.autograd.backward_pass import NEVER
from gradwire_engine.autograd.buffer_reuse import own
from gradwire_engine.autograd.kept_results import Keeping, KeptResults
from gradwire_engine.autograd.listed_sequences import Forward, ListedSequence, Registers, Sequences
from gradwire_engine.autograd.noted_pass import Step, is_computed, is_plain, pauses, same_bits
from gradwire_engine.core.context import Context, Interrupt
from gradwire_engine.graph.tensor import Storage, Tensor
from gradwire_engine.op.repeated import Operand
from gradwire_engine.op.repeated_source import as_array

#: A forward of the pass, and the registers that are not needed any more.
_Passed: TypeAlias = "tuple[Step, tuple[int, ...]]"
#: The same for a part of a call, with the result's shape, strides and dtype.
ListedPart: TypeAlias = "tuple[Callable[..., Any], tuple[int, ...], int, tuple[int, ...], Any]"
_Enter: TypeAlias = Callable[[Context], None]
_MOST_KEPT = 8  # sets of results that stay, for which a step has lists


class Unusual(Exception):
    """The commands cannot be joined, or their list cannot run."""


class Listed(NamedTuple):
    """A forward of a step. call: of a part of a call; in the pass, None. item: its number after the backward, or -1."""

    context: Context | None
    forward: Callable[..., Any]
    places: tuple[int, ...]
    out: int
    item: int = -1


class Item(NamedTuple):
    """A command after the backward: parts of a call, or what writes to a tensor, or a name or the end of a gradient.

    context: of a call. places: the arguments of what writes; a name and its leaf. cleared: the leaf.
    """

    context: Context | None
    parts: tuple[ListedPart, ...] = ()
    writer: Any = None
    places: tuple[int, ...] = ()
    cleared: int = -1


class Ran:
    """A step that has run: how many commands after the backward, and its tensors.

    kept: results of the calls before the backward that stay, by place.
    """

    __slots__ = ("_context", "_named", "_registers", "done", "kept")

    def __init__(
        self, done: int, registers: list[Any], kept: dict[int, Tensor], named: dict[int, Tensor], context: Context
    ) -> None:
        self.done, self.kept = done, kept
        self._registers, self._named, self._context = registers, named, context

    def tensor(self, place: int) -> Tensor:
        """The tensor of a result or of a named gradient. The commands that make it must have run."""
        found = self._named.get(place)
        if found is None:
            found = self._named[place] = Tensor(self._registers[place], False, None, self._context)
        return found


#: A step that runs: yields in pauses, and returns what it has made.
Running: TypeAlias = "Generator[None, None, Ran | None]"


#: Forwards that follow one another, and what computes them by machine code, if anything does.
_Parts: TypeAlias = "tuple[list[ListedPart], ListedSequence | None]"
_PassedParts: TypeAlias = "tuple[list[_Passed], ListedSequence | None]"


class _Lists(NamedTuple):
    """The forwards of a step, by what stays after it. keeping: what makes its tensors; None if nothing stays."""

    calls: list[tuple[Context, _Parts]]
    passed: list[_PassedParts]
    keeping: Keeping | None


class RepeatedStep:
    """A step as a list; see the module's docstring. step_join.py makes it.

    given: places and descriptions of the tensors that the step takes, and whether each of them is a leaf that gets a
    gradient; those whose gradient is only dropped have no description. cleared: places of leaves whose gradients are
    dropped between the calls and the backward. nodes: how many the calls would have made. room: bytes. written: places
    of tensors that are changed. loss: the place of what is differentiated. results: the tensors of the calls' results,
    of which some may stay.
    """

    __slots__ = (
        "_count", "_described", "_items", "_keeping", "_leaves", "_listed", "_needed", "_numbers", "_plain",
        "_registers", "_sequences", "cleared", "expected", "given", "loss", "nodes", "operations", "results", "room",
        "written",
    )  # fmt: skip

    def __init__(self, numbers: range) -> None:
        """numbers: the registers of those that may vary."""
        self.given: list[tuple[int, Operand | None, bool]] = []
        self.cleared: frozenset[int] = frozenset()
        self.nodes, self.room, self.operations = 0, 0, 0.0
        self.loss = -1
        self.results = KeptResults((), {})
        self.written: set[int] = set()
        #: What the joining computed for tensors that are changed, by place; until `confirm`.
        self.expected: dict[int, Any] = {}
        self._registers: list[Any] = []
        self._numbers = numbers
        self._plain: _Lists | None = None  # the lists if nothing stays, once they are needed
        self._leaves: Sequence[tuple[int, int]] = ()
        self._items: Sequence[Item] = ()
        #: Lists by the results that stay; None where they may not. What these are made of.
        self._keeping: dict[tuple[int, ...], _Lists | None] = {}
        self._listed: Sequence[Listed] = ()
        self._count = 0  # of the forwards that come before what follows the backward
        self._sequences = Sequences((), (), Registers({}, (), ()))
        self._needed: set[int] = set()
        self._described: Mapping[int, Any] = {}

    def set_forwards(
        self,
        listed: Sequence[Listed],
        described: Mapping[int, Any],
        registers: list[Any],
        leaves: Sequence[tuple[int, int]],
        items: Sequence[Item],
        needed: set[int],
    ) -> None:
        """Set what the step computes.

        listed: all forwards. described: shape, strides and dtype of all arrays, by register. registers: the
        constants at their places. leaves: place and register of gradients. items: the commands after the backward.
        needed: registers that stay.
        """
        self._listed, self._described, self._registers = listed, described, registers
        self._leaves, self._items, self._needed = leaves, items, needed
        self._count = sum(each.item < 0 for each in listed)
        before = listed[: self._count]
        self._sequences = Sequences(
            [(each.forward, each.places, each.out) for each in before],
            [each.context for each in before],
            Registers(described, self._numbers, registers),
        )

    def confirm(self, tensors: Sequence[Tensor | None]) -> bool:
        """Whether the commands changed tensors as the joining had computed. tensors: those of all places."""
        expected, self.expected = self.expected, {}
        return all(
            (tensor := tensors[place]) is not None and same_bits(array, tensor.array)
            for place, array in expected.items()
        )

    def run(
        self,
        tensors: Sequence[Tensor],
        numbers: Sequence[float],
        context: Context,
        enter: _Enter,
        kept: tuple[int, ...] = (),
        first_command: int = 0,
    ) -> Running:
        """Run the step; None, with nothing changed, if the commands must run.

        A generator that yields in pauses, in which other commands of the session wait.

        tensors: as in `given`. context: that of the backward. enter: activates a context. kept: places of results of
        calls before the backward that stay. first_command: number of the step's first command. If a command after the
        backward fails, `done` tells which: it has not changed anything, and it and the others must run.
        """
        lists = self._lists(kept)
        if lists is None:
            return None
        account, interrupt = context.account, context.interrupt
        if context.duals.active or (interrupt is not None and interrupt.node_began is not None) or account.pressed:
            return None
        if (account.limit and account.bytes + self.room > account.limit) or self.operations > account.operations:
            return None
        if len({*map(id, tensors)}) < len(tensors) or len(numbers) != len(self._numbers):
            return None
        registers = self._registers.copy()
        held: dict[int, Tensor] = {}
        for tensor, (place, expected, takes) in zip(tensors, self.given, strict=True):
            if expected is not None and not _fits(tensor, expected):
                return None
            if takes and not _takes_gradient(tensor, place in self.cleared):
                return None
            registers[place] = tensor.array
            held[place] = tensor
        if self.written and self._shares_storage(tensors):
            return None
        registers[self._numbers.start : self._numbers.stop] = numbers
        made: dict[int, Tensor] = {}
        try:
            gradients = yield from self._differentiate(lists, registers, context, enter)
            if lists.keeping is not None:
                made = lists.keeping.tensors(registers, held, context.nodes.next, first_command)
            sums = self._sums(held, gradients)
        except Exception:  # noqa: BLE001 - the calls or the backward raise it again
            return None
        context.nodes.next += self.nodes
        for place in self.cleared:
            _clear(held[place])
        for place, sum_ in sums.items():
            sum_.array += gradients[place].array
            sum_.storage.changed()
            gradients[place] = sum_
        for place, gradient in gradients.items():
            held[place].grad_state().grad = gradient
        done, named = self._follow(registers, held, gradients, enter)
        return Ran(done, registers, made, named, context)

    def _shares_storage(self, tensors: Sequence[Tensor]) -> bool:
        """Whether two of the tensors that are computed with share memory."""
        used = [id(each.storage) for each, (_, expected, _) in zip(tensors, self.given, strict=True) if expected]
        return len(set(used)) < len(used)

    def _sums(self, held: Mapping[int, Tensor], gradients: Mapping[int, Tensor]) -> dict[int, Tensor]:
        """The gradients that leaves have, to which theirs are added. Raises Unusual where that fails."""
        sums: dict[int, Tensor] = {}
        for place, gradient in gradients.items():
            found = None if place in self.cleared else held[place].grad
            if found is not None:
                if (found.array.shape, found.array.dtype) != (gradient.array.shape, gradient.array.dtype):
                    raise Unusual
                sums[place] = found
        return sums

    def _lists(self, kept: tuple[int, ...]) -> _Lists | None:
        """The lists for what stays; None if it may not."""
        if not kept:
            if self._plain is None:
                self._plain = self._listed_for(())
            return self._plain
        if kept not in self._keeping:
            if len(self._keeping) >= _MOST_KEPT:
                self._keeping.clear()
            keeping = self.results.keeping(kept)
            lists = None if keeping is None else self._listed_for(keeping.registers)._replace(keeping=keeping)
            self._keeping[kept] = lists
        return self._keeping[kept]

    def _listed_for(self, kept: Collection[int]) -> _Lists:
        """The forwards before what follows the backward. kept: registers that stay until its end."""
        listed = self._listed[: self._count]
        ended = _unneeded(self._listed, self._needed.union(kept))
        forwards = [
            Forward(each.forward, each.places, each.out, gone) for each, gone in zip(listed, ended, strict=False)
        ]
        made = _Lists([], [], None)
        for begin, end, sequence in self._sequences.divided(forwards):
            context, span = listed[begin].context, forwards[begin:end]
            if context is None:
                made.passed.append(([((each.compute, each.places, each.out), each.ended) for each in span], sequence))
            else:
                parts = [(*each, self._described[each.out]) for each in span]
                made.calls.append((context, (parts, sequence)))
        return made

    def _differentiate(
        self, lists: _Lists, registers: list[Any], context: Context, enter: _Enter
    ) -> Generator[None, None, dict[int, Tensor]]:
        """The leaves' gradients by place. Raises Unusual, Stopped, EngineError, and what the forwards raise."""
        interrupt, loops = context.interrupt or NEVER, context.loops
        for where, (parts, sequence) in lists.calls:
            enter(where)
            if sequence is not None and sequence.run(registers, loops):
                if monotonic() >= interrupt.at and pauses(interrupt):
                    yield
                continue
            waiting = iter(parts)
            while not _is_computed(waiting, registers, interrupt):
                yield
                enter(where)
        enter(context)
        for passed, sequence in lists.passed:
            if sequence is not None and sequence.run(registers, loops):
                if monotonic() >= interrupt.at and pauses(interrupt):
                    yield
                    enter(context)
                continue
            rest = iter(passed)
            while not is_computed(rest, registers, interrupt):
                yield
                enter(context)
        found = [(place, registers[register]) for place, register in self._leaves]
        if not all(gradient.shape == registers[place].shape for place, gradient in found):
            raise Unusual
        for _, register in self._leaves:
            registers[register] = None
        found.reverse()
        gradients: dict[int, Tensor] = {}
        while found:  # as `deliver` does
            place, gradient = found.pop()
            gradients[place] = own(gradient)
        return gradients

    def _follow(
        self, registers: list[Any], held: dict[int, Tensor], gradients: dict[int, Tensor], enter: _Enter
    ) -> tuple[int, dict[int, Tensor]]:
        """Run what follows the backward: how many commands ran, and named gradients."""
        at = registers.__getitem__
        named: dict[int, Tensor] = {}
        for done, item in enumerate(self._items):
            if item.cleared >= 0:
                _clear(held[item.cleared])
            elif item.context is None:
                name, leaf = item.places
                named[name] = gradients[leaf]
                registers[name] = gradients[leaf].array
            else:
                try:
                    enter(item.context)
                    _is_computed(iter(item.parts), registers, NEVER)
                    if item.writer is not None:
                        item.writer(np, *map(at, item.places))
                except Exception:  # noqa: BLE001 - the command raises it again
                    return done, named
                if item.writer is not None:
                    held[item.places[0]].storage.changed()
        return len(self._items), named


def _is_computed(waiting: Iterator[ListedPart], registers: list[Any], interrupt: Interrupt) -> bool:
    """Compute parts of calls; False if a pause is due before the last is done.

    Raises Unusual for a result of another description, Stopped, and what the forwards raise.
    """
    at = registers.__getitem__
    for forward, places, out, unneeded, (shape, strides, dtype) in waiting:
        made = forward(np, *map(at, places))
        if type(made) is not np.ndarray:
            made = as_array(made)
        if made.shape != shape or made.strides != strides or made.dtype is not dtype:
            raise Unusual
        registers[out] = made
        for each in unneeded:
            registers[each] = None
        if monotonic() >= interrupt.at and pauses(interrupt):
            return False
    return True


def _fits(tensor: Tensor, expected: Operand) -> bool:
    """Whether a tensor is an ordinary one of this description, and no result of a recorded op.

    It may be a view without a gradient, such as a batch of a data set.
    """
    if type(tensor) is not Tensor or tensor.node is not None:
        return False
    view = tensor.view
    if view is not None and (expected.requires_grad or view.written or view.seen != tensor.storage.history):
        return False
    array = tensor.array
    return (
        type(tensor.storage) is Storage
        and tensor.requires_grad is expected.requires_grad
        and array.dtype is expected.dtype
        and array.strides == expected.strides
        and array.shape == expected.shape
    )


def _takes_gradient(leaf: Tensor, cleared: bool) -> bool:
    """Whether a leaf and its node have no hooks, and it has no gradient but one to which another can be added.

    cleared: whether its gradient is dropped before.
    """
    state = leaf.state
    if state is None:
        return True
    if state.hooks is not None or not (cleared or is_plain(state.grad)):
        return False
    node = None if state.accumulator is None else state.accumulator()
    return node is None or node.hooks is None


def _clear(leaf: Tensor) -> None:
    if leaf.state is not None:
        leaf.state.grad = None


def _unneeded(listed: Sequence[Listed], needed: set[int]) -> list[tuple[int, ...]]:
    """After each forward, the registers of results that no later one needs: their memory can be used again.

    needed: registers that stay; it grows.
    """
    found = []
    for each in reversed(listed):
        ended = {*each.places, each.out} - needed if each.item < 0 else set()
        needed |= {*each.places, each.out}
        found.append(tuple(sorted(ended)))
    return found[::-1]
