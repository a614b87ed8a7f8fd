"""Repeated backward: the pass over a graph that has the nodes and edges of an earlier one.

The first pass over such a graph is noted (noting.py) and delivers its gradients. Later passes run the list
(noted_pass.py). Where graphs seldom come again, the second pass is noted. A list that has run often, or is needed for a
step, is made again by ops. What repeated calls (op/repeated.py) were given besides tensors and floats must then be the
same. Where anything is unusual, nothing has changed, and the ordinary pass runs.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Generator
from copy import copy
from time import monotonic
from typing import Any, TypeAlias

from gradwire_engine.autograd.backward_pass import NEVER, cancelled
from gradwire_engine.autograd.noted_pass import Later, NotedPass, Ran, Stopped, begin, is_plain
from gradwire_engine.autograd.noting import MOST_ROOM, Noting, most_room
from gradwire_engine.autograd.pass_room import room_of
from gradwire_engine.core.context import CURRENT, Context
from gradwire_engine.graph.callbacks import hooks_on
from gradwire_engine.graph.graph import LAST, AccumulateGrad, Node
from gradwire_engine.graph.tensor import Tensor
from gradwire_engine.op.cost import LONG
from gradwire_engine.op.repeated import may_repeat

_MOST_NODES = 4096  # of a graph whose pass is noted
_MOST_KNOWN = 1 << 15  # nodes of all graphs that are known
_OFTEN = 32  # runs of a list until it is made again by ops, which takes as long as it then spares in 30 runs
_MOST_UNUSED = 8  # graphs that are noted at their first pass, though none of them came again
_MOST_MISSED = 8  # passes in a row that a list could not run, until it is forgotten
_Key = tuple[Any, ...]


#: A list that is made: yields in pauses.
Making: TypeAlias = "Generator[None, None, NotedPass]"


class PassMemo:
    """The passes of a session over known graphs; the longest unused are forgotten."""

    #: Whether graphs may come again, so that unknown ones are noted.
    notes = True

    def __init__(self) -> None:
        self._known: OrderedDict[_Key, NotedPass | int | None] = OrderedDict()
        self._nodes = 0
        self._kinds = _Kinds()
        self._unused = 0  # graphs that are known by one pass, less two for each run of a list

    def run(self, root: Tensor, retain: bool = False) -> Ran:
        """Add the gradients of a tensor to leaves, as `backward`; None if the ordinary pass must do it.

        Returns the tensors that received a gradient. Where a pause is due, returns the rest of the pass: a generator
        that yields in pauses and returns these. retain: whether to keep the graph. Raises EngineError: MEMORY_LIMIT,
        as `backward`.
        """
        context = CURRENT.get()
        if not may_repeat() or not (self.notes or self._known):
            return None
        interrupt = context.interrupt or NEVER
        if interrupt.node_began is not None or context.duals.active or context.tracer is not None:
            return None
        if root.view is not None or type(root.node) is not Node or root.array.size != 1 or root.index:
            return None
        found = _graph(root.node, self._kinds.of)
        if found is None or (monotonic() >= interrupt.at and interrupt.stopping()):
            return None
        key, nodes = found
        noted = self._known.get(key, 0)
        if isinstance(noted, NotedPass):
            self._known.move_to_end(key)
            self._unused = max(0, self._unused - 2)
            if not noted.starts_at(root):
                return None
            if noted.runs == _OFTEN and not noted.by_ops:
                noted = _at_once(self._by_ops(key, nodes, root, context))
            if noted.of_ops and not noted.has_values(nodes):
                if noted.before is None:
                    return None
                noted = noted.before
            received = noted.run(nodes, context, retain)
            if noted.missed >= _MOST_MISSED:
                self._known[key] = None  # what its nodes save varies too much
            return received
        return None if noted is None or not self.notes else self._note(key, nodes, root, noted, context, retain)

    @staticmethod
    def graph(root: Tensor) -> tuple[_Key, list[Any]] | None:
        """What decides the pass from a result, by parts, and the nodes in order of discovery; None if it is unusual."""
        return _graph(root.node, _part) if type(root.node) is Node else None

    def noted(
        self, by_parts: _Key, nodes: list[Any], root: Tensor, context: Context, make: bool = True
    ) -> Generator[None, None, NotedPass | None]:
        """The list of a graph, made of ops. None without one that holds for what the nodes have saved.

        A generator that yields in pauses. by_parts: what `graph` gives. make: whether to make the list now if none is
        known, which takes as long as five passes. Raises what formulas raise.
        """
        found = _graph(nodes[0], self._kinds.of)
        known = None if found is None else self._known.get(found[0], 0)
        if found is None or known is None or (isinstance(known, NotedPass) and not known.starts_at(root)):
            return None
        if not make and not (isinstance(known, NotedPass) and known.by_ops) and _shared(by_parts, root) is None:
            return None
        if isinstance(known, int):
            if not self._may_note(found[0], nodes, root, context):
                return None
            made = yield from _made_of_ops(by_parts, nodes, root, context)
            self._add(found[0], len(nodes), made)
        else:
            made = yield from self._by_ops(found[0], nodes, root, context)
            if not made.by_ops:
                return None  # that was stopped
        return made if made.has_values(nodes) else None

    def _note(self, key: _Key, nodes: list[Any], root: Tensor, seen: int, context: Context, retain: bool) -> Ran:
        """Count a graph; note and run its pass, at the second time where graphs seldom come again."""
        if not seen:
            self._unused = min(self._unused + 1, 2 * _MOST_UNUSED)
        count = seen + 1
        self._add(key, len(nodes), count)
        if (count == 1 and self._unused > _MOST_UNUSED) or key not in self._known:
            return None
        if count & (count - 1):  # memory was short; adding it up takes a fourth of a pass, so ever more seldom
            return None
        if not self._may_note(key, nodes, root, context):
            return None
        return begin(self._noting(key, Noting(nodes, root, context, False), retain))

    def _may_note(self, key: _Key, nodes: list[Any], root: Tensor, context: Context) -> bool:
        """Whether a pass may be noted now; if its gradients or formulas are too large, it never may."""
        room = room_of(nodes, root)
        if room > MOST_ROOM or any(type(node) is Node and node.work >= LONG for node in nodes):
            self._add(key, len(nodes), None)
            return False
        return room <= most_room(context.account)

    def _noting(self, key: _Key, noting: Noting, retain: bool) -> Later:
        """Note a pass and deliver its gradients; yields in pauses."""
        try:
            made = yield from noting.in_steps()
        except Stopped:
            raise cancelled() from None
        except Exception:  # noqa: BLE001 - the ordinary pass, which follows, raises its own errors
            self._known[key] = None
            return None
        self._known[key] = made
        nodes, registers = noting.nodes, noting.values
        del noting  # so that `own` can take gradients over
        return made.deliver(nodes, registers, retain)

    def _add(self, key: _Key, nodes: int, known: NotedPass | int | None) -> None:
        """Note what is known of a graph, and forget the longest unused ones if they are too many."""
        if key not in self._known:
            self._nodes += nodes
        self._known[key] = known
        while self._nodes > _MOST_KNOWN:
            oldest, _ = self._known.popitem(last=False)
            self._nodes -= _count(oldest)

    def _by_ops(self, key: _Key, nodes: list[Any], root: Tensor, context: Context) -> Making:
        """The list of a graph, made again by ops if that is possible; yields in pauses."""
        noted = self._known[key]
        assert isinstance(noted, NotedPass)
        if noted.by_ops:
            return noted
        noted.by_ops = True  # not tried again
        if any(type(node) is Node and node.part is not None for node in nodes):
            found = _graph(nodes[0], _part)
            try:
                made = yield from _made_of_ops(None if found is None else found[0], nodes, root, context)
            except Stopped:
                noted.by_ops, noted.runs = False, 0
            except Exception:  # noqa: BLE001 - such as too little memory
                return noted
            else:
                self._known[key] = made
                made.before = noted
                return made
        return noted


#: Lists that are made of ops, by graph and by the root's description. All sessions of a process share them.
_SHARED: OrderedDict[_Key, NotedPass] = OrderedDict()
_MOST_SHARED = 256  # lists, and nodes of one
_MOST_HELD = 1 << 12  # bytes of a constant of a list that is shared


def _shared(by_parts: _Key, root: Tensor) -> NotedPass | None:
    return _SHARED.get((by_parts, root.array.shape, root.array.dtype))


def _at_once(making: Making) -> NotedPass:
    """A list that is stopped where it would pause."""
    try:
        next(making)
        making.throw(Stopped())
    except StopIteration as done:
        made: NotedPass = done.value
        return made
    raise AssertionError("what is stopped pauses again")


def _made_of_ops(by_parts: _Key | None, nodes: list[Any], root: Tensor, context: Context) -> Making:
    """The list of a graph, made of ops: one of its own, of which another may have been made before.

    Yields in pauses.
    """
    if any(type(node) is Node and node.part is None for node in nodes):
        by_parts = None  # it does not tell formulas of nodes without a part
    made = None if by_parts is None else _shared(by_parts, root)
    if made is None or not made.has_values(nodes):
        made = yield from Noting(nodes, root, context, True).in_steps()
        held = [getattr(each, "nbytes", 0) for each in made.registers]
        if by_parts is not None and len(nodes) <= _MOST_SHARED and max(held, default=0) <= _MOST_HELD:
            _SHARED[by_parts, root.array.shape, root.array.dtype] = made
            if len(_SHARED) > _MOST_SHARED:
                _SHARED.popitem(last=False)
    found = copy(made)
    found.missed = found.runs = 0
    return found


def _count(key: _Key) -> int:
    return int(key[0])


class _Kinds:
    """Numbers of what decides the formulas of nodes, but for what they have saved. A part has that of its nodes."""

    def __init__(self) -> None:
        self._numbers: dict[Any, int] = {}
        self._next = 1  # 0 is a leaf's

    def of(self, node: Node) -> int:
        """The number of a node's kind."""
        part = node.part
        number = None if part is None else self._numbers.get(part)
        if number is None:
            outputs = node.outputs
            shapes = (
                None if outputs is None else tuple([None if one is None else (one.shape, one.dtype) for one in outputs])
            )
            kind = node.saving_plan, node.metas, shapes, node.work
            number = self._numbers.get(kind)
            if number is None:
                if len(self._numbers) >= _MOST_KNOWN:
                    self._numbers.clear()  # graphs with the old numbers are not found again
                number = self._numbers[kind] = self._next
                self._next += 1
            if part is not None:
                self._numbers[part] = number
        return number


def _part(node: Node) -> Any:
    return node.part


def _graph(root: Node, kind_of: Callable[[Node], Any]) -> tuple[_Key, list[Any]] | None:
    """What decides a pass over the graph but values, and the nodes in order of discovery. None if it is unusual."""
    places: dict[Any, int] = {root: 0}
    nodes: list[Any] = [root]
    key: list[Any] = [0]
    numbers: list[int] = []
    falling, last = True, LAST
    for node in nodes:
        if len(nodes) > _MOST_NODES:
            return None
        if type(node) is Node:
            if node.freed or node.hooks is not None or node.retained is not None:
                return None
            key.append(kind_of(node))
            number = node.seq
            if number >= last:
                falling = False
            last = number
            numbers.append(number)
            for edge in node.edges:
                if edge is None:
                    key.append(None)
                else:
                    target = edge[0]
                    place = places.get(target)
                    if place is None:
                        place = places[target] = len(nodes)
                        nodes.append(target)
                    key.append((place, edge[1]) if edge[1] else place)
        else:
            if type(node) is not AccumulateGrad or hooks_on(node) is not None:
                return None
            leaf = node.variable
            state = leaf.state
            if not leaf.requires_grad or leaf.view is not None or (state is not None and not is_plain(state.grad)):
                return None
            key.append(0)
            numbers.append(LAST)
    key[0] = len(nodes)
    if not falling:
        key.append(tuple(sorted(range(len(nodes)), key=numbers.__getitem__)))
    return tuple(key), nodes
