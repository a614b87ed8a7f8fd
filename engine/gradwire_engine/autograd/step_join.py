"""Joins calls, a noted backward and what follows it to one list: a repeated step.

The list is computed once beside the commands, and compared with what they have made. Where it differs or takes long,
or where commands cannot be joined, there is none.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from time import thread_time
from typing import Any, NamedTuple

import numpy as np

from gradwire_engine.autograd.kept_results import KeptResults, Symbol, left_values
from gradwire_engine.autograd.noted_pass import NotedPass, same_bits
from gradwire_engine.autograd.repeated_backward import PassMemo
from gradwire_engine.autograd.repeated_step import Item, Listed, ListedPart, RepeatedStep, Unusual
from gradwire_engine.core.context import CURRENT, Context
from gradwire_engine.graph.graph import LAST, Node
from gradwire_engine.graph.saved import Saved
from gradwire_engine.graph.tensor import Tensor
from gradwire_engine.op.repeated import Listing, Operand, may_repeat
from gradwire_engine.op.repeated_source import as_array

#: Seconds of the computation that checks a step, which does not pause, by its thread's clock.
_LONGEST = 0.02


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


def make(
    calls: Sequence[Call],
    following: Sequence[Call | Named | Cleared],
    tensors: Sequence[Tensor | None],
    numbers: Sequence[float],
    loss: int,
    passes: PassMemo,
    cleared: Sequence[Cleared] = (),
    make_pass: bool = True,
) -> Generator[None, None, RepeatedStep | None]:
    """The list of a step whose calls have just run, and whose backward is about to; None if there is none.

    A generator that yields in pauses.

    following: what comes after the backward. tensors: those of all places; None for those that come after it.
    numbers: those that may vary. loss: the place of what is differentiated. cleared: gradients that are dropped between
    the calls and the backward. make_pass: whether a pass may be noted for it. The step is computed once and compared
    with what the calls have made. It changes nothing. `confirm` must compare the rest.
    """
    root = tensors[loss]
    if not may_repeat() or root is None or type(root.node) is not Node or root.index or root.view is not None:
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
        noted = yield from passes.noted(key, nodes, root, CURRENT.get(), make_pass)
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


class _Join:
    """Joins calls, a noted pass and what follows to one list."""

    def __init__(self, tensors: int, numbers: int) -> None:
        self._tensors = tensors
        self._numbers = range(tensors, tensors + numbers)
        self.made = RepeatedStep(self._numbers)
        self._registers: list[Any] = [None] * (tensors + numbers)
        self._given: dict[int, Operand] = {}
        self._expected: dict[int, Operand] = {}
        self._results: set[int] = set()
        self._symbols: list[Symbol] = []  # of the calls before the backward
        self._nodes: dict[int, Symbol] = {}  # those that are recorded, by the register of the result
        self._listed: list[Listed] = []
        self._items: list[Item] = []
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
        """Add the parts of the calls. Raises Unusual."""
        for call in calls:
            if call.listing.writer is not None:
                raise Unusual
            self._add_parts(call, -1)

    def add_cleared(self, cleared: Sequence[Cleared]) -> None:
        """Add gradients that are dropped before the backward. Raises Unusual."""
        places = {each.leaf for each in cleared}
        if places & self._results:
            raise Unusual
        self.made.cleared = frozenset(places)

    def _add_parts(self, call: Call, item: int) -> None:
        listing = call.listing
        if call.context.inference:
            raise Unusual
        given = self._arguments(call)
        made: list[int] = []
        for part, sources in listing.parts:
            if part.op.view and item >= 0:
                raise Unusual  # its result shows memory of another tensor, and may be seen
            registers = []
            for kind, which in sources:
                known = given if kind == "given" else made
                registers.append(self._constant(which) if kind == "value" else known[which])
            out = call.made if len(made) + 1 == len(listing.parts) else self._constant(None)
            self._held.discard(out)
            made.append(out)
            self._listed.append(Listed(call.context, part.forward, tuple(registers), out, item))
            if item >= 0:
                if part.plan is not None:
                    raise Unusual
                continue
            inner = made[:-1] if len(made) == len(listing.parts) else ()
            symbol = Symbol(part, registers, out, call.context, call.number, inner)
            self._symbols.append(symbol)
            if part.plan is not None:
                self._record(symbol)
        self._results.add(call.made)
        self.made.room += listing.room
        self.made.operations = max(self.made.operations, listing.work)

    def _arguments(self, call: Call) -> list[int]:
        """The registers of a call's arguments."""
        return [self._argument(*pair) for pair in zip(call.listing.operands, call.arguments, strict=True)]

    def _argument(self, operand: Operand, place: int | None) -> int:
        """The register of a call's argument."""
        if operand.kind == "value":
            if place is not None:  # the caller compares numbers that may not vary
                raise Unusual
            return self._constant(operand.value)
        if place is None:
            raise Unusual
        if operand.kind == "float":
            return self._tensors + ~place
        known = self._expected if place in self._results else self._given
        if known.setdefault(place, operand) != operand:
            raise Unusual
        if place in self._results and operand.requires_grad is not (place in self._nodes):
            raise Unusual
        return place

    def _record(self, symbol: Symbol) -> None:
        """Give a symbol the edges and the number of its node. Raises Unusual."""
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
                raise Unusual
        symbol.edges, symbol.seq = edges, self.made.nodes
        self._nodes[symbol.made] = symbol
        self.made.nodes += 1

    # The backward.

    def has_pass(self, root: int, key: tuple[Any, ...]) -> bool:
        """Whether the calls make the graph that is known by this key."""
        return root in self._nodes and _walk(self._nodes[root])[1] == key

    def add_pass(self, root: int, key: tuple[Any, ...], noted: NotedPass) -> list[Any]:
        """Add a noted pass, and return symbols and places of leaves in its order of nodes. Raises Unusual."""
        self.made.loss = root
        symbols, found = _walk(self._nodes[root])
        if found != key:
            raise Unusual
        base = len(self._registers)
        self._registers += noted.registers
        self._held |= {base + number for number, value in enumerate(noted.registers) if value is not None}
        for register, number, place, _ in noted.loads:
            self._renamed[register] = self._saved(symbols[number], place)

        def name(register: int) -> int:
            return self._renamed.get(register, base + register)

        for forward, places, out in noted.steps:
            self._listed.append(Listed(None, forward, tuple(map(name, places)), name(out)))
        self._gradients = {symbols[number]: name(register) for number, register in noted.leaves}
        if set(self._gradients.values()) & {*self._given, *self._results, *self._renamed.values()}:
            raise Unusual
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
        raise Unusual

    # What comes after the backward.

    def add_following(self, following: Sequence[Call | Named | Cleared]) -> None:
        """Add what follows the backward. Raises Unusual."""
        before, cleared = set(self._results), set()
        for each in following:
            if isinstance(each, Call):
                if any(type(place) is int and place in before for place in each.arguments):
                    raise Unusual  # a recorded result
                self._add_call(each)
                continue
            if isinstance(each, Cleared):
                if each.leaf in self._results:
                    raise Unusual
                cleared.add(each.leaf)
                self._items.append(Item(None, cleared=each.leaf))
            else:
                if each.leaf not in self._gradients or each.leaf in cleared:
                    raise Unusual
                self._results.add(each.made)
                self._items.append(Item(None, places=(each.made, each.leaf)))
        self.made.room += 2 * sum(map(self._bytes, self._gradients))

    def _bytes(self, place: int) -> int:
        operand = self._given[place]
        return int(np.prod(operand.shape, dtype=np.int64)) * int(operand.dtype.itemsize)

    def _add_call(self, call: Call) -> None:
        if call.listing.writer is None:
            self._items.append(Item(call.context))
            self._add_parts(call, len(self._items) - 1)
            return
        given = self._arguments(call)
        target = given[0]
        if target not in self._given:
            raise Unusual
        self.made.written.add(target)
        self._items.append(Item(call.context, writer=call.listing.writer, places=tuple(given)))

    # The check.

    def checked(
        self, tensors: Sequence[Any], numbers: Sequence[float], symbols: Sequence[Any], nodes: Sequence[Any],
        noted: NotedPass,
    ) -> RepeatedStep | None:  # fmt: skip
        """The step, after it was computed once beside the calls; None if it differs or takes long. Raises Unusual."""
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
        return self._finished(symbols, self._layouts(values, results))

    def _layouts(self, values: Sequence[Any], results: Mapping[int, Any]) -> dict[int, Any]:
        """Shape, strides and dtype of all arrays of a run. NumPy's numbers in the pass are none."""
        found = {place: (each.shape, each.strides, each.dtype) for place, each in self._given.items()}
        passed = {each.out: values[each.out] for each in self._listed if each.context is None}
        arrays = {out: each for out, each in passed.items() if type(each) is np.ndarray and each.ndim}
        return found | {out: (each.shape, each.strides, each.dtype) for out, each in (arrays | dict(results)).items()}

    def _freed(self, symbols: Sequence[Any], nodes: Sequence[Any]) -> dict[Symbol, Any]:
        """What the nodes that backward visits still have after it."""
        found = {}
        for symbol, node in zip(symbols, nodes, strict=True):
            if type(symbol) is Symbol:
                found[symbol] = left_values(symbol, node, self._numbers)
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
        for register in self._gradients.values():
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
        items: dict[int, list[ListedPart]] = {}
        for _, forward, places, out, item in self._listed:
            if item >= 0:
                items.setdefault(item, []).append((forward, places, out, (), described[out]))
        following = [item._replace(parts=tuple(items.get(number, ()))) for number, item in enumerate(self._items)]
        needed = {*self._gradients.values(), *self._held, *self._given, *self._numbers}
        needed.update(place for item in self._items for place in item.places)
        registers = [value if place in self._held else None for place, value in enumerate(self._registers)]
        made.set_forwards(self._listed, described, registers, list(self._gradients.items()), following, needed)
        return made


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
