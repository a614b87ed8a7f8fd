"""Freed graph: the nodes of a differentiated result, as backward leaves them, for results of steps without nodes.

A repeated step (repeated_step.py) makes no nodes. If its loss stays, this module makes those that lead to it: with
the same numbers, names and edges, and without the saved tensors, which backward has freed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from gradwire_engine.graph.graph import Edge, Meta, Node
from gradwire_engine.graph.tensor import Tensor, edge_of
from gradwire_engine.op.repeated import Part

#: Types of saved values that nothing changes.
_FIXED = (bool, int, float, str, Meta, type(None))


class Symbol:
    """A node that a step does not make: its part, the registers of the part's arguments and result, its edges.

    edges: symbols, tensor places of leaves, or None. call: the number of its call in the step. seq: its own number,
    counted from the step's first node.
    """

    __slots__ = ("arguments", "call", "edges", "made", "part", "seq")

    def __init__(
        self, part: Part, arguments: Sequence[int], made: int, edges: Sequence[Any], seq: int, call: int
    ) -> None:
        self.part, self.arguments, self.made, self.edges = part, arguments, made, edges
        self.seq, self.call = seq, call


class FreedGraph:
    """The nodes that lead to a loss, in the order in which its calls make them."""

    __slots__ = ("_saved", "_symbols")

    def __init__(self, symbols: Sequence[Symbol], saved: Sequence[Sequence[tuple[bool, Any]]]) -> None:
        """saved: the values that each node keeps: whether it is a register of a number, and that or the value."""
        self._symbols, self._saved = symbols, saved

    def root(self, registers: Sequence[Any], leaves: Mapping[int, Tensor], first_node: int, first_command: int) -> Node:
        """The node of the loss. leaves: by place. first_command: number of the step's first command."""
        nodes: dict[int, Node] = {}
        for symbol, values in zip(self._symbols, self._saved, strict=True):
            part = symbol.part
            edges = tuple([self._edge(each, nodes, leaves) for each in symbol.edges])
            saved = tuple([registers[value] if varies else value for varies, value in values])
            node = Node(part.op, part.name, part.plan, saved, edges, part.metas, first_node + symbol.seq)
            node.command, node.part, node.work = first_command + symbol.call, part, part.work
            node.freed = part.plan.saves_tensors
            nodes[symbol.seq] = node
        return node

    @staticmethod
    def _edge(edge: Any, nodes: Mapping[int, Node], leaves: Mapping[int, Tensor]) -> Edge | None:
        if edge is None:
            return None
        return edge_of(leaves[edge]) if type(edge) is int else (nodes[edge.seq], 0)


def freed_graph(symbols: Sequence[Any], nodes: Sequence[Any], numbers: Collection[int]) -> FreedGraph | None:
    """The graph of a step whose calls made these nodes; None if a node keeps a value that may differ in the next step.

    symbols: those of the nodes, the root first, and places of leaves. numbers: registers of numbers that may vary.
    """
    pairs = [(symbol, node) for symbol, node in zip(symbols, nodes, strict=True) if type(symbol) is Symbol]
    if not pairs or pairs[0][0].seq != max(symbol.seq for symbol, _ in pairs):
        return None
    pairs.sort(key=lambda pair: pair[0].seq)
    saved = [_kept(symbol, node, numbers) for symbol, node in pairs]
    if any(each is None for each in saved):
        return None
    return FreedGraph([symbol for symbol, _ in pairs], [each for each in saved if each is not None])


def _kept(symbol: Symbol, node: Any, numbers: Collection[int]) -> list[tuple[bool, Any]] | None:
    """What a node still has after backward."""
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
