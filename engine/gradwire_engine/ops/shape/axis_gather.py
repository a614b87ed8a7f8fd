"""Gather along the last dimensions, and its adjoint: the ops behind nearest resizing and non-constant padding.

`take_positions` repeats and drops positions; `add_at_positions` adds elements up at the positions from which they were
taken.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gradwire_engine.core import dtypes
from gradwire_engine.core.context import CURRENT
from gradwire_engine.core.device import Array
from gradwire_engine.op.cost import counted
from gradwire_engine.op.op import op
from gradwire_engine.op.workload import offload_work
from gradwire_engine.ops.base.checks import admit
from gradwire_engine.ops.base.index_accumulation import add_rows
from gradwire_engine.ops.base.precision import through_float32

# One tuple of positions per dimension, for the last dimensions.
Ints = Any


_PYTHON_INT = 48  # bytes of an int and its pointer in a tuple
_EACH = 500.0  # operations per int


def build_positions(name: str, counts: Sequence[int], make: Callable[[], Ints]) -> Ints:
    """Call `make` for the positions, `counts` of them per dimension, after the account has admitted their cost.

    Raises EngineError: MEMORY_LIMIT, OP_LIMIT.
    """
    count = sum(max(0, each) for each in counts)
    CURRENT.get().account.admit(count * _PYTHON_INT)
    return offload_work(name, count * _EACH, make)


def _take_cost(input: Any, lines: Ints, *rest: Any) -> Any:
    lead = math.prod(input.shape[: input.ndim - len(lines)])
    return 30.0 * (input.size + lead * math.prod(map(len, lines)))


@op(name="_take_lines", node=lambda input, lines, node: node, cost=counted(_take_cost))
def take_positions(xp: Any, input: Array, lines: Ints, node: str) -> Array:
    """Take the elements at `lines` of the last dimensions. node: the graph node's name."""
    lead = input.ndim - len(lines)
    admit((*input.shape[:lead], *map(len, lines)), input.dtype)
    for axis, line in enumerate(lines):
        if line != tuple(range(input.shape[lead + axis])):
            input = input.take(xp.asarray(line, dtypes.int64), axis=lead + axis)
    return xp.array(input)


take_positions.works_in(forward=6)


@op(
    name="_add_lines",
    node=lambda g, lines, sizes, node: node,
    cost=counted(lambda g, lines, sizes, node: 60.0 * g.size + 4.0 * sum(map(len, lines)) + 4.0 * math.prod(sizes)),
)
@through_float32
def add_at_positions(xp: Any, g: Array, lines: Ints, sizes: Ints, node: str) -> Array:
    """Add g's elements into zeros of `sizes`, at the positions `lines` of the last dimensions."""
    lead = g.ndim - len(lines)
    for axis, (line, size) in enumerate(zip(lines, sizes, strict=True)):
        first = xp.moveaxis(g, lead + axis, 0)
        rest = first.shape[1:]
        if not math.prod(first.shape):
            g = xp.zeros((*g.shape[: lead + axis], size, *g.shape[lead + axis + 1 :]), g.dtype)
            continue
        rows = add_rows(xp, xp.ascontiguousarray(first).reshape(len(line), -1), xp.asarray(line, np.int64), size)
        g = xp.moveaxis(rows.reshape(size, *rest), 0, lead + axis)
    return xp.ascontiguousarray(g)


add_at_positions.sized_by(
    lambda g, lines, sizes, node: math.prod(g.shape[: -len(sizes)]) * math.prod(sizes) * g.itemsize
)
take_positions.grad(
    input=lambda g, input_meta, lines, node: add_at_positions(g, lines, input_meta.shape[-len(lines) :], node)
).tangent("linear")
add_at_positions.grad(g=lambda g, lines, node: take_positions(g, lines, node)).tangent("linear")
