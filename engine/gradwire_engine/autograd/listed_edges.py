"""Which edges of a node are listed: those of PyTorch's node.

A node has an edge for each tensor that its op may take. PyTorch's has one for each argument with a derivative: none for
an index or a mask, and none for a number where the op has a form of its own for that.
"""

from __future__ import annotations

from collections.abc import Sequence

from gradwire_engine.graph.graph import FunctionNode, Node

#: By the name of a node: the parameters that are numbers in this form of the op.
_NUMBERS: dict[str, tuple[str, ...]] = {
    "ClampBackward1": ("min", "max"),
    "ClampMaxBackward0": ("max",),
    "ClampMinBackward0": ("min",),
    "CopysignBackward1": ("other",),
    "FmodBackward0": ("other",),
    "IndexFillBackward0": ("value",),
    "LerpBackward0": ("weight",),
    "MaskedFillBackward0": ("value",),
    "PowBackward0": ("exponent",),
    "PowBackward2": ("input",),
    "RemainderBackward0": ("other",),
    "RsubBackward1": ("other",),
    "ScatterBackward1": ("src",),
    "XlogyBackward1": ("input",),
    "XlogyBackward2": ("other",),
}

#: A node that lists all, also what is overwritten.
_COPY = "CopyBackwards"


def edges_of(node: Node, slot: int) -> range:
    """Indices of a formula's edges, for an op with a list input: the list has one edge per item."""
    op = node.op
    length = len(node.edges) - len(op.tensor_positions) + 1
    if op.tensor_positions[slot] == op.list_position:
        return range(slot, slot + length)
    first = slot if op.tensor_positions[slot] < op.list_position else slot - 1 + length
    return range(first, first + 1)


def listed_edges(node: Node) -> Sequence[int]:
    """Indices of the edges that PyTorch's node has. An edge that leads somewhere is always among them."""
    op, edges = node.op, node.edges
    if not edges or type(node) is FunctionNode or not op.formulas or node.name == _COPY:  # a plan leaves no edges
        return range(len(edges))
    numbers = _NUMBERS.get(node.name, ())
    found: list[int] = []
    for slot, place in enumerate(op.tensor_positions):
        name = op.params[place].name
        listed = name in op.formulas and name not in numbers
        several = edges_of(node, slot) if op.list_position >= 0 else range(slot, slot + 1)
        found += [index for index in several if listed or edges[index] is not None]
    return found
