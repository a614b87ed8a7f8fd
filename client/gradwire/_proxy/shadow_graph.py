"""The shadow of the reverse graph: just enough for the client to know which leaves a backward reaches.

A proxy that requires grad has an edge. A leaf's is a `Leaf`. Any other's is a plain list, the node that made it:
the edges of the inputs that required grad. Once a backward has passed through a node its list is emptied, so an empty
list means: ask the server. Nothing points from an input to what was made of it, so dropped proxies free their nodes.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from gradwire._proxy.handle import Handle


class Leaf:
    """Where gradients land: a leaf, or, among a node's edges, a non-leaf made by it that retains its gradient."""

    __slots__ = ("owner",)

    def __init__(self, owner: Handle) -> None:
        self.owner = weakref.ref(owner)


class _Nobody:
    """Stands where a gradient is of no use to anybody, so that a node that leads nowhere is not an empty list."""

    def __call__(self) -> None:
        return None


def dead_end() -> Leaf:
    """The edge of a node whose input needs no gradient."""
    made = Leaf.__new__(Leaf)
    made.owner = _Nobody()  # type: ignore[assignment]
    return made


# Edge is Leaf or a list of edges, which Python's type system has no short word for.
Edge: TypeAlias = Any
Node: TypeAlias = "list[Edge]"


def unknown_node() -> Node:
    """The edge of a tensor whose history only the server knows."""
    return []


class Reach:
    """What a backward from some edges goes through. Iterative: a chain may be of any length."""

    __slots__ = ("known", "leaves", "nodes")

    def __init__(self, roots: list[Edge]) -> None:
        self.known = True
        self.leaves: list[Leaf] = []
        self.nodes: list[Node] = []
        seen: set[int] = set()
        waiting = list(roots)
        while waiting:
            edge = waiting.pop()
            if id(edge) in seen:
                continue
            seen.add(id(edge))
            if type(edge) is Leaf:
                self.leaves.append(edge)
            elif edge:
                self.nodes.append(edge)
                waiting.extend(edge)
            else:
                self.known = False

    def owners(self) -> list[Handle]:
        """The proxies that receive a gradient and still exist."""
        return [owner for leaf in self.leaves if (owner := leaf.owner()) is not None]

    def spend(self) -> None:
        """Mark the nodes as passed: their saved values are gone."""
        for node in self.nodes:
            node.clear()
