"""Kept results: the tensors that stay after a repeated step, which itself makes neither tensors nor nodes.

Their nodes are those that the calls would have made, as backward leaves them (repeated_step.py): with the same
numbers, names and edges. Nodes that lead to the loss are without the saved tensors, which backward has freed. Others
save what they would have saved. Views are made as the op makes them, from the tensors that they show.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple
from weakref import ref

from gradwire_engine.core.context import Context
from gradwire_engine.graph.graph import AccumulateGrad, Edge, Meta, Node
from gradwire_engine.graph.tensor import Tensor, ViewOf, detach_from_base, edge_of
from gradwire_engine.op.repeated_source import Part

#: Types of saved values that nothing changes.
_FIXED = (bool, int, float, str, Meta, type(None))
#: The values that a node keeps: whether each is a register of a number, and that or the value.
Values = Sequence[tuple[bool, Any]]


class Symbol:
    """A result that a step computes without its tensor and node: its part, the registers of arguments and result.

    edges: symbols, tensor places of leaves, or None; of a result that is not recorded, no sequence but None. context:
    of the call. call: its number in the step. seq: the node's number, counted from the step's first. inner: registers
    of the call's other results, if this is its last.
    """

    __slots__ = ("arguments", "call", "context", "edges", "inner", "made", "part", "seq")

    def __init__(
        self, part: Part, arguments: Sequence[int], made: int, context: Context, call: int, inner: Sequence[int]
    ) -> None:
        self.part, self.arguments, self.made, self.context, self.call = part, arguments, made, context, call
        self.inner = inner
        self.edges: Sequence[Any] | None = None
        self.seq = -1


class _Item(NamedTuple):
    """What to make of a symbol: its tensor, its node, or both. values: of a node that backward has freed."""

    symbol: Symbol
    tensor: bool
    node: bool
    values: Values | None


class UnlinkedNode(Node):
    """A node whose edges are made when they are needed, which is seldom after a backward. Then it is a plain node."""

    __slots__ = ()

    @property
    def edges(self) -> Any:
        """The edges, which makes the nodes behind this one."""
        _EDGES.__get__(self).links.make()
        return _EDGES.__get__(self)

    @edges.setter
    def edges(self, edges: Any) -> None:
        _EDGES.__set__(self, edges)


_EDGES: Any = Node.__dict__["edges"]  # the slot, which holds `_Ends` until then


class _Ends(NamedTuple):
    """What a node that stays leads to, which lives as long as this node: others that stay, and edges to leaves."""

    links: _Links
    heads: Sequence[Node]
    leaves: Mapping[int, Any]


class _Links:
    """What makes the nodes behind those of results that stay, and the edges to them.

    items: of the nodes behind, in order. numbers: those that the nodes keep, by register. first: the numbers of the
    step's first node and command. heads: the nodes that stay, by symbol. These hold the links, so the links do not
    hold them: a cycle would live until garbage is collected.
    """

    __slots__ = ("_first", "_items", "_numbers", "heads")

    def __init__(self, items: Sequence[_Item], numbers: Mapping[int, Any], first: tuple[int, int]) -> None:
        self._items, self._numbers, self._first = items, numbers, first
        self.heads: dict[Symbol, ref[Node]] = {}

    def make(self) -> None:
        """Make the nodes and all edges; the heads are plain nodes then."""
        heads = {symbol: head for symbol, known in self.heads.items() if (head := known()) is not None}
        leaves: dict[int, Any] = {}
        for head in heads.values():
            leaves |= _EDGES.__get__(head).leaves
        nodes = heads.copy()
        for symbol, _, _, values in self._items:
            edges = symbol.edges or ()
            if all(each is None or each in (leaves if type(each) is int else nodes) for each in edges):
                saved = _left(values or (), self._numbers)
                nodes[symbol] = _node(Node, symbol, saved, _edges(symbol, nodes, leaves), self._first)
            # Else it leads to a head that is gone, so no other head leads to it.
        for symbol, head in heads.items():
            head.edges = _edges(symbol, nodes, leaves)
            head.__class__ = Node


class Keeping:
    """What makes the tensors of some results. registers: those that must stay until then."""

    __slots__ = ("_behind", "_ends", "_items", "_leaves", "_numbers", "_places", "registers")

    def __init__(self, places: Sequence[int], items: Sequence[_Item]) -> None:
        self._places = places
        self.registers = {item.symbol.made for item in items if item.tensor}
        nodes = [item for item in items if item.node]
        edges = [each for item in nodes for each in item.symbol.edges or ()]
        self._leaves = {each for each in edges if type(each) is int}
        #: Nodes that are made when they are needed: those without a tensor, where no node saves one.
        is_late = all(item.values is not None for item in nodes)
        self._behind = [item for item in nodes if is_late and not item.tensor]
        self._items = [item for item in items if item.tensor or not is_late]
        self._numbers = {value for item in self._behind for varies, value in item.values or () if varies}
        #: The symbols and leaves to which each node that stays leads, but for those behind another such node.
        self._ends = {item.symbol: self._ends_of(item.symbol) for item in self._items if item.node and self._behind}

    def _ends_of(self, head: Symbol) -> tuple[list[Symbol], list[int]]:
        behind = {item.symbol for item in self._behind}
        found = dict.fromkeys(each for each in head.edges or () if each is not None)
        waiting = list(found)
        for each in waiting:  # grows while it is walked
            if each in behind:
                waiting += [one for one in each.edges if one is not None and one not in found]
                found.update(dict.fromkeys(each.edges))
        ends = [each for each in found if each is not None and each not in behind]
        return [each for each in ends if type(each) is Symbol], [each for each in ends if type(each) is int]

    def tensors(
        self, registers: Sequence[Any], held: Mapping[int, Tensor], first_node: int, first_command: int
    ) -> dict[int, Tensor]:
        """The tensors by place. held: those that the step takes. first_command: number of the step's first command.

        They are made before what follows the backward changes tensors. Raises what the ops' views raise.
        """
        made: dict[int, Tensor] = {}
        first = first_node, first_command
        nodes: dict[Symbol, Node] = {}
        leaves = {place: edge_of(held[place]) for place in self._leaves}
        links = None
        if self._behind:
            links = _Links(self._behind, {each: registers[each] for each in self._numbers}, first)
        for symbol, wants_tensor, wants_node, values in self._items:
            tensor = None
            if wants_tensor or values is None:
                args = tuple([_argument(each, made, held, registers) for each in symbol.arguments])
                tensor = _tensor(symbol, args, registers[symbol.made]) if wants_tensor else None
            if wants_node:
                plan = symbol.part.plan
                if values is not None:
                    saved = _left(values, registers)
                else:
                    assert tensor is not None
                    saved = plan.save(args, (tensor,)) if plan.names else ()
                if links is not None:
                    heads, reached = self._ends[symbol]
                    ends = _Ends(links, [nodes[each] for each in heads], {each: leaves[each] for each in reached})
                    node = _node(UnlinkedNode, symbol, saved, ends, first)
                    links.heads[symbol] = ref(node)
                else:
                    node = _node(Node, symbol, saved, _edges(symbol, nodes, leaves), first)
                node.freed = values is not None and plan.saves_tensors
                nodes[symbol] = node
                if tensor is not None:
                    tensor.node, tensor.requires_grad = node, True
            if tensor is not None:
                if tensor.view is not None and any(made.get(each) is tensor.view.base for each in symbol.inner):
                    detach_from_base(tensor)  # no client knows what a view of a call's other result shows
                made[symbol.made] = tensor
        return {place: made[place] for place in self._places}


def _node(kind: type[Node], symbol: Symbol, saved: tuple[Any, ...], edges: Any, first: tuple[int, int]) -> Node:
    part = symbol.part
    node = kind(part.op, part.name, part.plan, saved, edges, part.metas, first[0] + symbol.seq)
    node.command, node.part, node.work = first[1] + symbol.call, part, part.work
    node.freed = part.plan.saves_tensors
    return node


def _left(values: Values, registers: Any) -> tuple[Any, ...]:
    """What a node keeps that backward has freed. registers: by place, at least those of numbers."""
    return tuple([registers[value] if varies else value for varies, value in values])


def _argument(register: int, made: Mapping[int, Tensor], held: Mapping[int, Tensor], registers: Sequence[Any]) -> Any:
    """A part's argument: a tensor, or what is none."""
    tensor = made.get(register)
    if tensor is None:
        tensor = held.get(register)
    return registers[register] if tensor is None else tensor


def _tensor(symbol: Symbol, args: tuple[Any, ...], array: Any) -> Tensor:
    if symbol.part.op.view:
        return symbol.part.op.wrap(args, array, symbol.context)
    return Tensor(array, False, None, symbol.context)


def _edges(symbol: Symbol, nodes: Mapping[Symbol, Node], leaves: Mapping[int, Edge | None]) -> tuple[Edge | None, ...]:
    return tuple(
        [
            None if each is None else leaves[each] if type(each) is int else (nodes[each], 0)
            for each in symbol.edges or ()
        ]
    )


class KeptResults:
    """The results of a step's calls before the backward, and which of them may be kept."""

    __slots__ = ("_freed", "_places", "_symbols")

    def __init__(self, symbols: Sequence[Symbol], freed: Mapping[Symbol, Values | None]) -> None:
        """symbols: in the order of the calls. freed: those whose nodes backward visits, with `left_values`."""
        self._symbols = {symbol.made: (number, symbol) for number, symbol in enumerate(symbols)}
        self._freed = freed
        self._places: set[int] = set()

    def check(self, registers: Sequence[Any], tensors: Sequence[Any]) -> None:
        """Find the results that may be kept. tensors: what the calls have made, by place."""
        held = {place: each for place, each in enumerate(tensors) if each is not None and place not in self._symbols}
        known = self._known()
        places = [place for place, each in enumerate(tensors) if place in known and each is not None]
        try:
            made = self._keeping(places).tensors(registers, held, 0, 0)
            self._places = {place for place in places if _is_like(made[place], tensors[place], held)}
        except Exception:  # noqa: BLE001 - such as too little memory
            self._places.clear()

    def _known(self) -> set[int]:
        """Registers of results of which all is known that their tensors need."""
        lacking: set[int] = set()  # registers of results that lack something
        for _, symbol in self._symbols.values():
            needed: list[int] = []
            if symbol.part.op.view:
                needed += [*symbol.arguments, *symbol.inner]
            if symbol.edges is not None:
                needed += [each.made for each in symbol.edges if type(each) is Symbol]
                if symbol not in self._freed:
                    needed += symbol.arguments
                elif self._freed[symbol] is None:
                    lacking.add(symbol.made)
            if not lacking.isdisjoint(needed):
                lacking.add(symbol.made)
        return self._symbols.keys() - lacking

    def keeping(self, places: Sequence[int]) -> Keeping | None:
        """What makes the tensors of these results; None if they may not be kept."""
        return self._keeping(places) if self._places.issuperset(places) else None

    def _keeping(self, places: Sequence[int]) -> Keeping:
        tensors: set[int] = set()
        nodes: set[Symbol] = set()
        waiting: list[Any] = list(places)
        while waiting:
            one = waiting.pop()
            if type(one) is int:
                if one not in self._symbols or one in tensors:
                    continue
                tensors.add(one)
                symbol = self._symbols[one][1]
                if symbol.part.op.view:
                    waiting += [*symbol.arguments, *symbol.inner]
                if symbol.edges is not None:
                    waiting.append(symbol)
            elif one is not None and one not in nodes:
                nodes.add(one)
                if one not in self._freed:
                    waiting += [one.made, *one.arguments]
                waiting += [each for each in one.edges if type(each) is Symbol]
        order = sorted(self._symbols[each] for each in tensors | {one.made for one in nodes})
        items = [_Item(each, each.made in tensors, each in nodes, self._freed.get(each)) for _, each in order]
        return Keeping(tuple(places), items)


def left_values(symbol: Symbol, node: Any, numbers: Collection[int]) -> Values | None:
    """What a node still has after backward; None if it may differ in the next step."""
    plan = symbol.part.plan
    if plan.saves_tensors:
        return []
    found: list[tuple[bool, Any]] = []
    for (kind, place), value in zip(plan.getters, node.saved, strict=True):
        register = symbol.arguments[place] if kind == "argument" else -1
        if register in numbers:
            found.append((True, register))
        elif _is_fixed(value):
            found.append((False, value))
        else:
            return None
    return found


def _is_fixed(value: Any) -> bool:
    return all(map(_is_fixed, value)) if type(value) is tuple else isinstance(value, _FIXED)


# The check of a result that may be kept.


def _is_like(made: Tensor, real: Any, held: Mapping[int, Tensor]) -> bool:
    """Whether a tensor is what a call has made, but for what backward frees. held: the tensors that both show."""
    if type(real) is not Tensor or real.state is not None or made.requires_grad is not real.requires_grad:
        return False
    one, other = made.storage, real.storage
    if type(one) is not type(other) or (one.version, one.nbytes) != (other.version, other.nbytes):
        return False
    given = {id(each.storage) for each in held.values()}
    if (id(one) in given or id(other) in given) and one is not other:
        return False
    return _same_view(made.view, real.view, held.values()) and _same_node(made.node, real.node)


def _same_view(one: ViewOf | None, other: ViewOf | None, held: Iterable[Tensor]) -> bool:
    if one is None or other is None:
        return one is other
    if type(one) is not type(other) or (one.origin, one.flagged) != (other.origin, other.flagged):
        return False
    if (one.version, one.seen, one.written) != (other.version, other.seen, other.written):
        return False
    if one.base is not other.base and any(one.base is each or other.base is each for each in held):
        return False
    steps = zip(_steps(one), _steps(other), strict=False)
    alike = all(mine[0] is its[0] and repr(mine[1:]) == repr(its[1:]) for mine, its in steps)
    return alike and len(list(_steps(one))) == len(list(_steps(other))) and _same_node(one.base.node, other.base.node)


def _steps(view: ViewOf) -> Iterator[tuple[Any, ...]]:
    step = view.last
    while step is not None:
        yield step.op, step.args, step.shape, step.dtype
        step = step.before  # type: ignore[assignment]


def _same_node(one: Node | None, other: Node | None) -> bool:
    """Whether two nodes are alike, and their edges lead to nodes of one name or to the same leaves."""
    if one is None or other is None:
        return one is other
    alike = (one.op, one.name, one.saving_plan, one.metas, one.work, one.part) == (
        other.op, other.name, other.saving_plan, other.metas, other.work, other.part,
    )  # fmt: skip
    return alike and other.hooks is None and list(map(_target, one.edges)) == list(map(_target, other.edges))


def _target(edge: Edge | None) -> Any:
    if edge is None:
        return None
    node, index = edge
    return (id(node.variable) if type(node) is AccumulateGrad else node.name), index
