"""Structure of the reverse graph: what a derivative's result depends on besides values.

A node of an op that the memo knows refers to the op's entry. Two graphs of such nodes with equal structures have equal
derivatives: their tensors' descriptions, and the leaves that receive a gradient. So a derivative that the memo knows
needs no answer, even if its result has a graph of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from gradwire._proxy.memo import MemoEntry
from gradwire._proxy.shadow_graph import Edge, GradientNode, Leaf, OpNode

if TYPE_CHECKING:
    from gradwire._proxy.handle import Handle
    from gradwire._proxy.protocols import SessionProtocol

#: Larger graphs have no structure, so their derivatives wait. The memo keeps the structures.
_MOST_NODES = 500
#: Tensors whose descriptions changed. With more, all nodes before the change have no structure.
_MOST_REDESCRIBED = 1000


class Structure:
    """The part of the graph behind some edges. Equal keys mean equal structures; `leaves` are in the key's order."""

    __slots__ = ("key", "leaves")

    def __init__(self, key: tuple[Any, ...], leaves: list[Leaf]) -> None:
        self.key = key
        self.leaves = leaves


def note_redescribed(tensor: Handle) -> None:
    """Note that a tensor's flag or data changed: a node that saved it before has derivatives as of now."""
    session = tensor._session
    now = next(session.ids)
    if tensor._storage is None and len(session.redescribed) < _MOST_REDESCRIBED:
        session.redescribed[tensor._id] = now
    else:
        session.redescribed_any = now  # its views may have been saved
        session.redescribed.clear()


def structure_of(session: SessionProtocol, edges: Sequence[Edge | None]) -> Structure | None:
    """The structure behind edges; None if the memo does not know a node's op, a non-leaf retains its gradient, the
    description of an op's input changed since, or the graph is large. An edge that is None belongs to a tensor without
    history.
    """
    redescribed = session.redescribed
    places: dict[int, int] = {}
    found: list[Edge] = []
    waiting = [edge for edge in reversed(edges) if edge is not None]
    while waiting:
        edge = waiting.pop()
        if id(edge) in places:
            continue
        places[id(edge)] = len(found)
        found.append(edge)
        if type(edge) is not Leaf:
            if not edge or not isinstance(edge, OpNode) or len(found) > _MOST_NODES:
                return None
            if edge.order < session.redescribed_any:
                return None
            if redescribed and _saved_before(edge, redescribed):
                return None
            waiting.extend(edge)
    parts: list[Any] = []
    leaves: list[Leaf] = []
    for edge in found:
        if type(edge) is Leaf:
            owner = edge.owner()
            if owner is not None and not owner._spec.is_leaf:
                return None
            leaves.append(edge)
            parts.append(None if owner is None else owner._spec)
        else:
            numbers = tuple([_bits(value) for value in edge.values if type(value) is float])
            parts.append((edge.entry, numbers, *[places[id(each)] for each in edge]))
    # Backward visits the nodes in the order in which they were made.
    nodes = [place for place, edge in enumerate(found) if type(edge) is not Leaf]
    nodes.sort(key=lambda place: found[place].order)
    roots = [None if edge is None else places[id(edge)] for edge in edges]
    return Structure((tuple(roots), tuple(nodes), tuple(parts)), leaves)


def _saved_before(node: OpNode, redescribed: dict[int, int]) -> bool:
    """Whether a description of a node's input changed after the node was made."""
    return any(type(value) is int and redescribed.get(value, 0) > node.order for value in node.values)


def _bits(value: float) -> str:
    """Text that distinguishes what == does not: 0.0 and -0.0; and that equals itself for NaN."""
    return value.hex()


def gradient_nodes(
    entry: MemoEntry, edges: Sequence[Edge | None], given: Sequence[int], ids: Sequence[int]
) -> list[GradientNode]:
    """Nodes of gradients that have a graph: it may reach whatever the edges reach. One call's results share a node.

    `given` are the ids of the tensors that the gradients were computed from.
    """
    shared = _gradient_node(entry, [edge for edge in edges if edge is not None], given, ids[0])
    return [_gradient_node(entry, [shared], (float(place),), one) for place, one in enumerate(ids)]


def _gradient_node(entry: MemoEntry, edges: list[Edge], values: Sequence[float], order: int) -> GradientNode:
    made = GradientNode(edges)
    made.entry, made.values, made.order = entry, values, order
    return made
