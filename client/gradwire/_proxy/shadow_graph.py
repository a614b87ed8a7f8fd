"""Shadow graph: the client's copy of the reverse graph's shape, to find the leaves that a backward reaches.

A proxy that requires grad has an edge. A leaf's edge is a `Leaf`. A non-leaf's edge is its node, a list of the edges of
the inputs that required grad. A backward empties the lists of its nodes, so an empty list means that only the server
knows. No reference leads from an input to its results, so dropped proxies free their nodes.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from gradwire._proxy.handle import Handle
    from gradwire._proxy.memo import MemoEntry


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


def unneeded_edge() -> Leaf:
    """The edge of a node whose input needs no gradient."""
    made = Leaf.__new__(Leaf)
    made.owner = _NoOwner()  # type: ignore[assignment]
    return made


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


def unknown_node() -> Node:
    """The edge of a tensor whose history only the server knows."""
    return []


class ReachableNodes:
    """The leaves and nodes that a backward from some edges reaches. Iterative, because chains may be long."""

    __slots__ = ("gradients", "known", "leaves", "nodes")

    def __init__(self, roots: list[Edge]) -> None:
        self.known = True
        self.leaves: list[Leaf] = []
        self.nodes: list[Node] = []
        self.gradients: list[GradientNode] = []
        seen: set[int] = set()
        waiting = list(roots)
        while waiting:
            edge = waiting.pop()
            if id(edge) in seen:
                continue
            seen.add(id(edge))
            if type(edge) is Leaf:
                self.leaves.append(edge)
            elif type(edge) is GradientNode:
                self.gradients.append(edge)
                self.known = False
            elif edge:
                self.nodes.append(edge)
                waiting.extend(edge)
            else:
                self.known = False

    def owners(self) -> list[Handle]:
        """The proxies that receive a gradient and still exist."""
        return [owner for leaf in self.leaves if (owner := leaf.owner()) is not None]

    def mark_freed(self) -> None:
        """Mark the nodes as freed: the server dropped their saved values.

        Behind a gradient with a graph it may have dropped all.
        """
        for node in self.nodes:
            node.clear()
        waiting: list[Node] = list(self.gradients)
        while waiting:
            node = waiting.pop()
            waiting.extend([edge for edge in node if type(edge) is not Leaf])
            node.clear()


def forget_dropped_leaves(root: Edge) -> None:
    """Leave to the server which gradients come behind nodes of dropped leaves: one has a proxy again."""
    for node in ReachableNodes([root]).nodes:
        if any(type(each) is Leaf and not isinstance(each.owner, _NoOwner) and each.owner() is None for each in node):
            node.clear()
