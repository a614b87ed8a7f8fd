"""Repeated step: repeated calls, the backward of a result, and what follows it, as one list of forwards on arrays.

The list needs neither tensors nor nodes; kept_results.py makes those of results that stay after the step. It joins
what is known already: the parts of repeated calls (op/repeated.py), and the noted pass over their graph
(repeated_backward.py). It calls the same forwards in the same order, so it computes the same bits. Where anything is
unusual, nothing has changed, and the commands run as ever.

After the backward may come calls that are not recorded, also in place, and commands that name or clear gradients.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from time import thread_time
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from gradwire_engine.autograd.buffer_reuse import own
from gradwire_engine.autograd.kept_results import Keeping, KeptResults, Symbol, left_values
from gradwire_engine.autograd.repeated_backward import NotedPass, PassMemo, is_plain, same_bits
from gradwire_engine.core.context import CURRENT, Context
from gradwire_engine.core.device import cupy
from gradwire_engine.graph.graph import LAST, Node
from gradwire_engine.graph.saved import Saved
from gradwire_engine.graph.tensor import Storage, Tensor
from gradwire_engine.op.repeated import Listing, Operand
from gradwire_engine.op.repeated_source import as_array

#: Seconds of a step that may run without a pause, by its thread's clock: about a slice of a scheduler.
_LONGEST = 0.002
#: A forward, the registers of its arguments, that of its result, and those that are not needed any more.
_Step: TypeAlias = "tuple[Callable[..., Any], tuple[int, ...], int, tuple[int, ...]]"
#: The same for a part of a call, with the result's shape, strides and dtype.
_Part: TypeAlias = "tuple[Callable[..., Any], tuple[int, ...], int, tuple[int, ...], Any]"
_Enter: TypeAlias = Callable[[Context], None]
_MOST_KEPT = 8  # sets of results that stay, for which a step has lists


class Call(NamedTuple):
    """A call of a step: where it computes, what it computes, and where its arguments are.

    arguments: for each argument the tensor's place, ~place of a number, or None for a constant. made: the result's
    place, or -1 for a call in place. number: of the command in the step. Tensors of a step have places from 0, its
    numbers have others.
    """

    context: Context
    listing: Listing
    arguments: tuple[int | None, ...]
    made: int
    number: int = 0


class Named(NamedTuple):
    """A command that names the gradient of a leaf."""

    leaf: int
    made: int


class Cleared(NamedTuple):
    """A command that drops the gradient of a leaf."""

    leaf: int


class _Unusual(Exception):
    """The commands cannot be joined."""


class _Item(NamedTuple):
    """A command after the backward: parts of a call, or what writes to a tensor, or a name or the end of a gradient.

    context: of a call. places: the arguments of what writes; a name and its leaf. cleared: the leaf.
    """

    context: Context | None
    parts: tuple[_Part, ...] = ()
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


class _Lists(NamedTuple):
    """The forwards of a step, by what stays after it. keeping: what makes its tensors; None if nothing stays."""

    calls: list[tuple[Context, list[_Part]]]
    passed: list[_Step]
    keeping: Keeping | None


class RepeatedStep:
    """A step as a list; see the module's docstring. `make` notes it.

    given: places and descriptions of the tensors that the step takes, and whether each of them is a leaf that gets a
    gradient; those whose gradient is only dropped have no description. cleared: places of leaves whose gradients are
    dropped between the calls and the backward. nodes: how many the calls would have made. room: bytes. written: places
    of tensors that are changed. loss: the place of what is differentiated. results: the tensors of the calls' results,
    of which some may stay.
    """

    __slots__ = (
        "_calls", "_described", "_items", "_keeping", "_leaves", "_listed", "_needed", "_numbers", "_pass",
        "_registers", "cleared", "expected", "given", "loss", "nodes", "operations", "results", "room", "written",
    )  # fmt: skip

    def __init__(self) -> None:
        self.given: list[tuple[int, Operand | None, bool]] = []
        self.cleared: frozenset[int] = frozenset()
        self.nodes, self.room, self.operations = 0, 0, 0.0
        self.loss = -1
        self.results = KeptResults((), {})
        self.written: set[int] = set()
        #: What `make` computed for tensors that are changed, by place; until `confirm`.
        self.expected: dict[int, Any] = {}
        self._registers: list[Any] = []
        self._numbers: list[int] = []
        self._calls: list[tuple[Context, list[_Part]]] = []
        self._pass: list[_Step] = []
        self._leaves: list[tuple[int, int]] = []
        self._items: list[_Item] = []
        #: Lists by the results that stay; None where they may not. What these are made of.
        self._keeping: dict[tuple[int, ...], _Lists | None] = {}
        self._listed: list[_Listed] = []
        self._needed: set[int] = set()
        self._described: dict[int, Any] = {}

    def confirm(self, tensors: Sequence[Tensor | None]) -> bool:
        """Whether the commands changed tensors as `make` had computed. tensors: those of all places."""
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
    ) -> Ran | None:
        """Run the step; None, with nothing changed, if the commands must run.

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
        if len({*map(_identity, tensors)}) < len(tensors):
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
        for register, number in zip(self._numbers, numbers, strict=True):
            registers[register] = number
        made: dict[int, Tensor] = {}
        try:
            gradients = self._differentiate(lists, registers, context, enter)
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
        """The gradients that leaves have, to which theirs are added. Raises _Unusual where that fails."""
        sums: dict[int, Tensor] = {}
        for place, gradient in gradients.items():
            found = None if place in self.cleared else held[place].grad
            if found is not None:
                if (found.array.shape, found.array.dtype) != (gradient.array.shape, gradient.array.dtype):
                    raise _Unusual
                sums[place] = found
        return sums

    def _lists(self, kept: tuple[int, ...]) -> _Lists | None:
        """The lists for what stays; None if it may not."""
        if not kept:
            return _Lists(self._calls, self._pass, None)
        if kept not in self._keeping:
            if len(self._keeping) >= _MOST_KEPT:
                self._keeping.clear()
            keeping = self.results.keeping(kept)
            lists = None if keeping is None else self._listed_for(keeping.registers)._replace(keeping=keeping)
            self._keeping[kept] = lists
        return self._keeping[kept]

    def _listed_for(self, kept: Collection[int]) -> _Lists:
        """The forwards before what follows the backward. kept: registers that stay until its end."""
        made = _Lists([], [], None)
        for listed, ended in zip(self._listed, _unneeded(self._listed, self._needed.union(kept)), strict=True):
            context, forward, places, out, item = listed
            if context is None:
                made.passed.append((forward, places, out, ended))
            elif item < 0:
                if not made.calls or made.calls[-1][0] is not context:
                    made.calls.append((context, []))
                made.calls[-1][1].append((forward, places, out, ended, self._described[out]))
        return made

    def _differentiate(self, lists: _Lists, registers: list[Any], context: Context, enter: _Enter) -> dict[int, Tensor]:
        """The leaves' gradients by place. Raises _Unusual, EngineError, and what the forwards raise."""
        at = registers.__getitem__
        for where, parts in lists.calls:
            enter(where)
            for part in parts:
                _compute(part, registers)
        enter(context)
        for forward, places, out, unneeded in lists.passed:
            registers[out] = forward(np, *map(at, places))
            for each in unneeded:
                registers[each] = None
        found = [(place, registers[register]) for place, register in self._leaves]
        if not all(gradient.shape == registers[place].shape for place, gradient in found):
            raise _Unusual
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
                    for part in item.parts:
                        _compute(part, registers)
                    if item.writer is not None:
                        item.writer(np, *map(at, item.places))
                except Exception:  # noqa: BLE001 - the command raises it again
                    return done, named
                if item.writer is not None:
                    held[item.places[0]].storage.changed()
        return len(self._items), named


_identity: Callable[[Any], int] = id


def _compute(part: _Part, registers: list[Any]) -> None:
    """Compute a part of a call. Raises _Unusual for a result of another description, and what the forward raises."""
    forward, places, out, unneeded, (shape, strides, dtype) = part
    made = forward(np, *map(registers.__getitem__, places))
    if type(made) is not np.ndarray:
        made = as_array(made)
    if made.shape != shape or made.strides != strides or made.dtype is not dtype:
        raise _Unusual
    registers[out] = made
    for each in unneeded:
        registers[each] = None


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


def make(
    calls: Sequence[Call],
    following: Sequence[Call | Named | Cleared],
    tensors: Sequence[Tensor | None],
    numbers: Sequence[float],
    loss: int,
    passes: PassMemo,
    cleared: Sequence[Cleared] = (),
    make_pass: bool = True,
) -> RepeatedStep | None:
    """The list of a step whose calls have just run, and whose backward is about to; None if there is none.

    following: what comes after the backward. tensors: those of all places; None for those that come after it.
    numbers: those that may vary. loss: the place of what is differentiated. cleared: gradients that are dropped between
    the calls and the backward. make_pass: whether a pass may be noted for it. The step is computed once and compared
    with what the calls have made. It changes nothing. `confirm` must compare the rest.
    """
    root = tensors[loss]
    if cupy() is not None or root is None or type(root.node) is not Node or root.index or root.view is not None:
        return None
    if root.array.size != 1:
        return None
    found = passes.graph(root)
    if found is None:
        return None
    key, nodes = found
    joined = _Join(len(tensors), len(numbers))
    try:
        joined.add_calls(calls)
        joined.add_cleared(cleared)
        if not joined.has_pass(loss, key):
            return None
        noted = passes.noted(key, nodes, root, CURRENT.get(), make_pass)
        if noted is None:
            return None
        symbols = joined.add_pass(loss, key, noted)
        joined.add_following(following)
        account = CURRENT.get().account
        if account.limit and account.bytes + joined.made.room > account.limit:
            return None
        return joined.checked(tensors, numbers, symbols, nodes, noted)
    except Exception:  # noqa: BLE001 - the commands run as ever
        return None


class _Listed(NamedTuple):
    """A forward of a step. call: of a part of a call; in the pass, None. item: its number after the backward, or -1."""

    context: Context | None
    forward: Callable[..., Any]
    places: tuple[int, ...]
    out: int
    item: int = -1


class _Join:
    """Joins calls, a noted pass and what follows to one list."""

    def __init__(self, tensors: int, numbers: int) -> None:
        self.made = RepeatedStep()
        self._tensors = tensors
        self._registers: list[Any] = [None] * (tensors + numbers)
        self.made._numbers = list(range(tensors, tensors + numbers))
        self._given: dict[int, Operand] = {}
        self._expected: dict[int, Operand] = {}
        self._results: set[int] = set()
        self._symbols: list[Symbol] = []  # of the calls before the backward
        self._nodes: dict[int, Symbol] = {}  # those that are recorded, by the register of the result
        self._listed: list[_Listed] = []
        self._items: list[_Item] = []
        self._held: set[int] = set()  # registers of constants
        self._renamed: dict[int, int] = {}  # by register of the pass
        self._gradients: dict[int, int] = {}  # registers by place of the leaf
        self._sums: dict[int, Any] = {}  # gradients that leaves have, by place, when the step is computed

    def _constant(self, value: Any) -> int:
        self._registers.append(value)
        self._held.add(len(self._registers) - 1)
        return len(self._registers) - 1

    # What comes before the backward.

    def add_calls(self, calls: Sequence[Call]) -> None:
        """Add the parts of the calls. Raises _Unusual."""
        for call in calls:
            if call.listing.writer is not None:
                raise _Unusual
            self._add_parts(call, -1)

    def add_cleared(self, cleared: Sequence[Cleared]) -> None:
        """Add gradients that are dropped before the backward. Raises _Unusual."""
        places = {each.leaf for each in cleared}
        if places & self._results:
            raise _Unusual
        self.made.cleared = frozenset(places)

    def _add_parts(self, call: Call, item: int) -> None:
        listing = call.listing
        if call.context.inference:
            raise _Unusual
        given = [self._argument(*pair) for pair in zip(listing.operands, call.arguments, strict=True)]
        made: list[int] = []
        for part, sources in listing.parts:
            if part.op.view and item >= 0:
                raise _Unusual  # its result shows memory of another tensor, and may be seen
            registers = []
            for kind, which in sources:
                known = given if kind == "given" else made
                registers.append(self._constant(which) if kind == "value" else known[which])
            out = call.made if len(made) + 1 == len(listing.parts) else self._constant(None)
            self._held.discard(out)
            made.append(out)
            self._listed.append(_Listed(call.context, part.forward, tuple(registers), out, item))
            if item >= 0:
                if part.plan is not None:
                    raise _Unusual
                continue
            inner = made[:-1] if len(made) == len(listing.parts) else ()
            symbol = Symbol(part, registers, out, call.context, call.number, inner)
            self._symbols.append(symbol)
            if part.plan is not None:
                self._record(symbol)
        self._results.add(call.made)
        self.made.room += listing.room
        self.made.operations = max(self.made.operations, listing.work)

    def _argument(self, operand: Operand, place: int | None) -> int:
        """The register of a call's argument."""
        if operand.kind == "value":
            if place is not None:  # the caller compares numbers that may not vary
                raise _Unusual
            return self._constant(operand.value)
        if place is None:
            raise _Unusual
        if operand.kind == "float":
            return self._tensors + ~place
        known = self._expected if place in self._results else self._given
        if known.setdefault(place, operand) != operand:
            raise _Unusual
        if place in self._results and operand.requires_grad is not (place in self._nodes):
            raise _Unusual
        return place

    def _record(self, symbol: Symbol) -> None:
        """Give a symbol the edges and the number of its node. Raises _Unusual."""
        edges: list[Any] = []
        for place in symbol.part.places:
            register = symbol.arguments[place] if place >= 0 else -1
            if place < 0:
                edges.append(None)
            elif register in self._nodes:
                edges.append(self._nodes[register])
            elif register in self._given and self._given[register].requires_grad:
                edges.append(register)
            else:
                raise _Unusual
        symbol.edges, symbol.seq = edges, self.made.nodes
        self._nodes[symbol.made] = symbol
        self.made.nodes += 1

    # The backward.

    def has_pass(self, root: int, key: tuple[Any, ...]) -> bool:
        """Whether the calls make the graph that is known by this key."""
        return root in self._nodes and _walk(self._nodes[root])[1] == key

    def add_pass(self, root: int, key: tuple[Any, ...], noted: NotedPass) -> list[Any]:
        """Add a noted pass, and return symbols and places of leaves in its order of nodes. Raises _Unusual."""
        self.made.loss = root
        symbols, found = _walk(self._nodes[root])
        if found != key:
            raise _Unusual
        base = len(self._registers)
        self._registers += noted.registers
        self._held |= {base + number for number, value in enumerate(noted.registers) if value is not None}
        for register, number, place, _ in noted.loads:
            self._renamed[register] = self._saved(symbols[number], place)

        def name(register: int) -> int:
            return self._renamed.get(register, base + register)

        for forward, places, out in noted.steps:
            self._listed.append(_Listed(None, forward, tuple(map(name, places)), name(out)))
        self.made._leaves = [(symbols[number], name(register)) for number, register in noted.leaves]
        self._gradients = dict(self.made._leaves)
        if set(self._gradients.values()) & {*self._given, *self._results, *self._renamed.values()}:
            raise _Unusual
        self.made.room += int(noted.room)
        self.made.operations = max(self.made.operations, noted.operations)
        return symbols

    @staticmethod
    def _saved(symbol: Symbol, place: int) -> int:
        """The register of a value that a node would have saved."""
        kind, which = symbol.part.plan.getters[place]
        if kind in ("input", "argument"):
            return int(symbol.arguments[which])
        if kind == "output" and which == 0:
            return symbol.made
        raise _Unusual

    # What comes after the backward.

    def add_following(self, following: Sequence[Call | Named | Cleared]) -> None:
        """Add what follows the backward. Raises _Unusual."""
        before, cleared = set(self._results), set()
        for each in following:
            if isinstance(each, Call):
                if any(type(place) is int and place in before for place in each.arguments):
                    raise _Unusual  # a recorded result
                self._add_call(each)
                continue
            if isinstance(each, Cleared):
                if each.leaf in self._results:
                    raise _Unusual
                cleared.add(each.leaf)
                self._items.append(_Item(None, cleared=each.leaf))
            else:
                if each.leaf not in self._gradients or each.leaf in cleared:
                    raise _Unusual
                self._results.add(each.made)
                self._items.append(_Item(None, places=(each.made, each.leaf)))
        self.made.room += 2 * sum(map(self._bytes, self._gradients))

    def _bytes(self, place: int) -> int:
        operand = self._given[place]
        return int(np.prod(operand.shape, dtype=np.int64)) * int(operand.dtype.itemsize)

    def _add_call(self, call: Call) -> None:
        if call.listing.writer is None:
            self._items.append(_Item(call.context))
            self._add_parts(call, len(self._items) - 1)
            return
        given = [self._argument(*pair) for pair in zip(call.listing.operands, call.arguments, strict=True)]
        target = given[0]
        if target not in self._given:
            raise _Unusual
        self.made.written.add(target)
        self._items.append(_Item(call.context, writer=call.listing.writer, places=tuple(given)))

    # The check.

    def checked(
        self, tensors: Sequence[Any], numbers: Sequence[float], symbols: Sequence[Any], nodes: Sequence[Any],
        noted: NotedPass,
    ) -> RepeatedStep | None:  # fmt: skip
        """The step, after it was computed once beside the calls; None if it differs or takes long. Raises _Unusual."""
        values = self._registers.copy()
        for place in self._given:
            array = tensors[place].array
            values[place] = array.copy(order="K") if place in self.made.written else array
            if values[place].strides != array.strides:
                return None
        values[self._tensors : self._tensors + len(numbers)] = numbers
        for place in self._gradients.keys() - self.made.cleared:
            if tensors[place].grad is not None:
                self._sums[place] = tensors[place].grad.array
        # Compared before what follows changes tensors, of which some values are views.
        results = self._computed(
            values, lambda made: self._are_made(made, tensors) and self._are_saved(values, nodes, noted)
        )
        if results is None:
            return None
        for place, operand in self._expected.items():
            array = results[place]
            if (array.dtype, array.shape, array.strides) != (operand.dtype, operand.shape, operand.strides):
                return None
        self.made.results = KeptResults(self._symbols, self._freed(symbols, nodes))
        self.made.results.check(values, tensors)
        self.made.expected = {place: values[place] for place in self.made.written}
        return self._finished(symbols, {out: (each.shape, each.strides, each.dtype) for out, each in results.items()})

    def _freed(self, symbols: Sequence[Any], nodes: Sequence[Any]) -> dict[Symbol, Any]:
        """What the nodes that backward visits still have after it."""
        found = {}
        for symbol, node in zip(symbols, nodes, strict=True):
            if type(symbol) is Symbol:
                found[symbol] = left_values(symbol, node, self.made._numbers)
        return found

    def _are_made(self, made: Mapping[int, Any], tensors: Sequence[Any]) -> bool:
        """Whether the calls before the backward have made the same as their commands."""
        return all(
            same_bits(made[place], tensors[place].array) for place in self._results if tensors[place] is not None
        )

    def _are_saved(self, values: Sequence[Any], nodes: Sequence[Any], noted: NotedPass) -> bool:
        """Whether the values that the pass loads are those that the nodes have saved."""
        for register, number, place, _ in noted.loads:
            saved, mine = nodes[number].saved[place], values[self._renamed[register]]
            if type(saved) is Saved:
                if not same_bits(mine, saved.value(nodes[number], "")):
                    return False
            elif repr(mine) != repr(saved):
                return False
        return True

    def _computed(self, values: list[Any], agrees: Callable[[Mapping[int, Any]], bool]) -> dict[int, Any] | None:
        """Results of calls by register, of a run on these values; None if it takes long.

        agrees: what must hold of the results between the pass and what follows; if it does not, the result is None too.
        """
        began = thread_time()
        results: dict[int, Any] = {}
        waiting = list(self._listed)
        waiting.reverse()

        def compute(item: int) -> bool:
            while waiting and waiting[-1].item == item:
                context, forward, places, out, _ = waiting.pop()
                made = forward(np, *[values[place] for place in places])
                values[out] = as_array(made) if context is not None and type(made) is not np.ndarray else made
                if context is not None:
                    results[out] = values[out]
                if thread_time() - began > _LONGEST:
                    return False
            return True

        if not compute(-1) or not agrees(results):
            return None
        for _, register in self.made._leaves:
            values[register] = np.asarray(values[register], order="C")
        for number, item in enumerate(self._items):
            if not compute(number):
                return None
            if item.context is None and item.places:
                name, leaf = item.places
                values[name] = results[name] = self._sum(leaf, values[self._gradients[leaf]])
            elif item.writer is not None:
                item.writer(np, *[values[place] for place in item.places])
        return results

    def _sum(self, leaf: int, gradient: Any) -> Any:
        """A leaf's gradient after the backward."""
        held = self._sums.get(leaf)
        if held is None:
            return gradient
        made = held.copy(order="K")
        made += gradient
        return made

    def _finished(self, symbols: Sequence[Any], described: dict[int, Any]) -> RepeatedStep:
        made = self.made
        leaves = {symbol for symbol in symbols if type(symbol) is int}
        made.given = [(place, operand, place in leaves) for place, operand in self._given.items()]
        others = made.cleared | {item.cleared for item in self._items if item.cleared >= 0}
        made.given += [(place, None, False) for place in sorted(others - self._given.keys())]
        made._registers = [value if place in self._held else None for place, value in enumerate(self._registers)]
        made._listed, made._described = self._listed, described
        made._needed = {register for _, register in made._leaves} | self._held | set(self._given)
        made._needed |= {*made._numbers, *[place for item in self._items for place in item.places]}
        made._calls, made._pass, _ = made._listed_for(())
        items: dict[int, list[_Part]] = {}
        for _, forward, places, out, item in self._listed:
            if item >= 0:
                items.setdefault(item, []).append((forward, places, out, (), described[out]))
        made._items = [item._replace(parts=tuple(items.get(number, ()))) for number, item in enumerate(self._items)]
        return made


def _unneeded(listed: Sequence[_Listed], needed: set[int]) -> list[tuple[int, ...]]:
    """After each forward, the registers of results that no later one needs: their memory can be used again.

    needed: registers that stay; it grows.
    """
    found = []
    for each in reversed(listed):
        ended = {*each.places, each.out} - needed if each.item < 0 else set()
        needed |= {*each.places, each.out}
        found.append(tuple(sorted(ended)))
    return found[::-1]


def _walk(root: Symbol) -> tuple[list[Any], tuple[Any, ...]]:
    """Symbols and places of leaves in order of discovery, and what `PassMemo` knows the pass by.

    The key is that of `_graph` in repeated_backward.py, whose loop over nodes is its own: every pass runs it.
    """
    places: dict[Any, int] = {root: 0}
    nodes: list[Any] = [root]
    key: list[Any] = [0]
    numbers: list[int] = []
    falling, last = True, LAST
    for node in nodes:
        if type(node) is int:
            key.append(0)
            numbers.append(LAST)
            continue
        key.append(node.part)
        if node.seq >= last:
            falling = False
        last = node.seq
        numbers.append(last)
        for target in node.edges:
            if target is None:
                key.append(None)
                continue
            place = places.get(target)
            if place is None:
                place = places[target] = len(nodes)
                nodes.append(target)
            key.append(place)
    key[0] = len(nodes)
    if not falling:
        key.append(tuple(sorted(range(len(nodes)), key=numbers.__getitem__)))
    return nodes, tuple(key)
