"""The bytes that noting a pass counts (noting.py), by the shapes and dtypes in its graph alone.

Noting a pass that turns out to take too much memory computes it in vain: the ordinary pass computes all of it again.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple

from gradwire_engine.autograd.headroom import needed
from gradwire_engine.core.dtypes import DType
from gradwire_engine.graph.graph import Node
from gradwire_engine.graph.tensor import Tensor


class _Gradient(NamedTuple):
    """What is known of a gradient before it is computed."""

    nbytes: int
    dtype: DType


def room_of(nodes: Sequence[Any], root: Tensor) -> int:
    """Bytes of the gradients of a pass over these nodes, of their sums, and of what the formulas need beside."""
    array = root.array
    room = int(array.nbytes)
    arriving: dict[Any, dict[int, _Gradient]] = {node: {} for node in nodes}
    arriving[nodes[0]][0] = _Gradient(array.nbytes, array.dtype)
    for node in nodes:
        if type(node) is Node:
            for edge, meta in zip(node.edges, node.metas, strict=True):
                if edge is not None and meta is not None:
                    gradient = _Gradient(prod(meta[0]) * meta[1].itemsize, meta[1])
                    arrived, index = arriving[edge[0]], edge[1]
                    room += gradient.nbytes * (2 if index in arrived else 1)
                    arrived.setdefault(index, gradient)
    return room + sum([_beside(node, arriving[node]) for node in nodes if type(node) is Node])


def _beside(node: Node, arrived: dict[int, _Gradient]) -> int:
    """Bytes that a node's formulas need beside, and of zeros for results without a gradient."""
    room = needed(node, list(arrived.values()))
    if node.op.list_position >= 0:  # its formula gives all gradients of the list, also those of constants
        room += max(_results(node), sum([each.nbytes for each in arrived.values()]))
    for place, meta in enumerate(node.outputs or ()):
        if meta is not None and place not in arrived and place not in node.op.unfilled_outputs:
            room += prod(meta.shape) * meta.dtype.itemsize
    return room


def _results(node: Node) -> int:
    return sum([prod(meta[0]) * meta[1].itemsize for meta in node.metas if meta is not None])
