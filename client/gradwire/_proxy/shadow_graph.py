"""Shadow graph: the client's copy of the reverse graph's shape, to find the leaves that a backward reaches.

A proxy that requires grad has an edge. A leaf's edge is a `Leaf`. A non-leaf's edge is its node, a list of the edges of
the inputs that required grad. A backward empties the lists of its nodes, so an empty list means that only the server
knows. No reference leads from an input to its results, so dropped proxies free their nodes.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from gradwire._proxy.handle import Handle
    from gradwire._proxy.memo import MemoEntry
    from gradwire._proxy.protocols import SessionProtocol


class Leaf:
    """A receiver of a gradient: a leaf, or a non-leaf that retains its gradient, listed in its node's edges."""

    __slots__ = ("hooks", "owner")

    def __init__(self, owner: Handle) -> None:
        self.owner = weakref.ref(owner)
        #: The leaf's hooks, which live as long as it does, or a graph that leads to it.
        self.hooks: Any = None


class _NoOwner:
    """An empty reference to an owner. It keeps the list of a node without receivers nonempty."""

    def __call__(self) -> None:
        return None


class NodeHooks(list[Any]):
    """The edges that hold hooks of a node with several outputs. It is among the edges of each output."""

    __slots__ = ()


def unneeded_edge() -> Leaf:
    """The edge of a node whose input needs no gradient."""
    made = Leaf.__new__(Leaf)
    made.owner = _NoOwner()  # type: ignore[assignment]
    made.hooks = None
    return made


def hold_hooks(node: Node, hooks: Any) -> None:
    """Let a node hold hooks, as long as a tensor leads to it: one of its outputs, or what was computed from one.

    One of several gradients with a graph may be computed from another, so the node that they share holds them.
    """
    made = unneeded_edge()
    made.hooks = hooks
    shared = (NodeHooks, GradientNode) if type(node) is GradientNode else (NodeHooks,)
    holders = [each for each in node if type(each) in shared]
    for holder in holders or (node,):
        holder.append(made)


def held_by(node: Edge) -> list[Edge]:
    """The edges of a node that hold its hooks."""
    if not isinstance(node, list):
        return []
    return [each for each in node if type(each) is NodeHooks or (type(each) is Leaf and _only_holds(each))]


def _only_holds(edge: Leaf) -> bool:
    """Whether an edge leads to no leaf, but holds hooks."""
    return edge.hooks is not None and isinstance(edge.owner, _NoOwner)


# A Leaf or a list of edges: a recursive type without a short spelling in Python.
Edge: TypeAlias = Any
Node: TypeAlias = "list[Edge]"


class OpNode(list[Any]):
    """A node whose op the memo knows (`graph_structure`).

    values: ids and floats of the call. order: larger for a node that was made later.
    """

    __slots__ = ("entry", "order", "values")

    entry: MemoEntry
    order: int
    values: Sequence[float]


class GradientNode(OpNode):
    """The node of a gradient with a graph. Its edges are those of the differentiated graph.

    Only the server knows which of them the gradient depends on.
    """

    __slots__ = ()


class UnknownNode(list[Any]):
    """An empty node: only the server knows its edges. It holds all hooks that may be behind it."""

    __slots__ = ("keeper",)

    def __init__(self, keeper: Any) -> None:
        self.keeper = keeper


class HookKeeper:
    """All hooks of a session, while a tensor exists whose history only the server knows."""

    _FEWEST = 64

    def __init__(self, hooks: Iterable[Any]) -> None:
        self.hooks = list(hooks)
        self._most = self._FEWEST

    def add(self, hooks: Any) -> None:
        """Hold further hooks. Those that the server has dropped are left out now and then."""
        if len(self.hooks) >= self._most:
            self.hooks = [each for each in self.hooks if each.calls]
            self._most = max(self._FEWEST, 2 * len(self.hooks))
        self.hooks.append(hooks)


class HookHolders:
    """A session's hooks that tensors hold, not the session itself: they are garbage together with their graph."""

    def __init__(self) -> None:
        self._hooks: weakref.WeakSet[Any] = weakref.WeakSet()
        self._keeper: weakref.ref[HookKeeper] | None = None
        # Threads may share a session. A finalizer may come here while the thread holds the lock.
        self._lock = threading.RLock()

    def add(self, hooks: Any) -> None:
        """Note hooks that tensors hold from now on."""
        with self._lock:
            self._hooks.add(hooks)
            keeper = None if self._keeper is None else self._keeper()
            if keeper is not None:
                keeper.add(hooks)

    def keeper(self) -> HookKeeper:
        """What an unknown node holds."""
        with self._lock:
            keeper = None if self._keeper is None else self._keeper()
            if keeper is None:
                keeper = HookKeeper(self._hooks)
                self._keeper = weakref.ref(keeper)
            return keeper


def unknown_node(session: SessionProtocol) -> Node:
    """The edge of a tensor whose history only the server knows."""
    return UnknownNode(session.hook_holders.keeper())


class ReachableNodes:
    """The leaves and nodes that a backward from some edges reaches. Iterative, because chains may be long."""

    __slots__ = ("are_plain", "gradients", "held", "known", "leaves", "nodes")

    def __init__(self, roots: list[Edge]) -> None:
        self.known = True
        #: Whether all nodes are lists of the inputs' edges and nothing else.
        self.are_plain = True
        self.leaves: list[Leaf] = []
        self.held: list[Leaf] = []  # edges that only hold hooks
        self.nodes = nodes = list[Node]()
        self.gradients: list[GradientNode] = []
        seen: set[int] = set()
        waiting = list(roots)
        for edge in waiting:  # which grows meanwhile
            number = id(edge)
            if number in seen:
                continue
            seen.add(number)
            kind = type(edge)
            if (kind is OpNode or kind is list) and edge:
                nodes.append(edge)
                waiting += edge
            elif kind is Leaf:
                (self.held if _only_holds(edge) else self.leaves).append(edge)
            else:
                waiting += self._note_other(edge)

    def _note_other(self, edge: Node) -> Sequence[Edge]:
        """Note a node of another kind, or one whose edges only the server knows; return the edges to go on with."""
        kind = type(edge)
        self.are_plain = self.are_plain and (kind is OpNode or kind is list)
        if kind is NodeHooks:
            return edge
        if isinstance(edge, GradientNode):
            self.gradients.append(edge)
        elif edge:
            self.nodes.append(edge)
            return edge
        self.known = False
        return ()

    def owners(self) -> list[Handle]:
        """The proxies that receive a gradient and still exist."""
        return [owner for leaf in self.leaves if (owner := leaf.owner()) is not None]

    def hooks(self) -> list[Leaf]:
        """The edges that hold hooks."""
        return [*self.held, *[leaf for leaf in self.leaves if leaf.hooks is not None]]

    def mark_freed(self) -> None:
        """Mark the nodes as freed: the server dropped their saved values.

        Behind a gradient with a graph it may have dropped all. Hooks stay: nodes that saved nothing can be passed
        again.
        """
        hooks = self.hooks()
        if self.are_plain and not hooks:
            for node in self.nodes:
                node.clear()
            return
        for node in self.nodes:
            _forget(node, hooks)
        waiting: list[Node] = list(self.gradients)
        while waiting:
            node = waiting.pop()
            waiting.extend([edge for edge in node if type(edge) is not Leaf and type(edge) is not NodeHooks])
            _forget(node, hooks)


def _forget(node: Node, hooks: list[Leaf]) -> None:
    """Leave a node's edges to the server, but those that hold hooks. All nodes of a backward share the list `hooks`."""
    kept: list[Edge] = [hooks] if hooks else []
    kept += [edge for edge in node if type(edge) is NodeHooks or (type(edge) is UnknownNode and edge.keeper.hooks)]
    node.clear()
    if kept:
        node.extend([[], *kept])


def forget_dropped_leaves(root: Edge) -> None:
    """Leave to the server which gradients come behind nodes of dropped leaves: one has a proxy again."""
    reach = ReachableNodes([root])
    hooks = reach.hooks()
    for node in reach.nodes:
        if any(type(each) is Leaf and not isinstance(each.owner, _NoOwner) and each.owner() is None for each in node):
            _forget(node, hooks)
