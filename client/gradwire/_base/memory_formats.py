"""Memory formats: the orders of an image's dimensions in memory, by their names in PyTorch, and their strides."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from gradwire._base.errors import GradwireTypeError, refuse
from gradwire.v1 import errors_pb2

#: Dimensions from the outermost in memory to the innermost.
ORDERS = {"channels_last": (0, 2, 3, 1), "channels_last_3d": (0, 2, 3, 4, 1)}
CONTIGUOUS, PRESERVE = "contiguous_format", "preserve_format"


def name_of(memory_format: Any) -> str:
    """The name of torch.channels_last or another format; preserve_format for None. Raises TypeError for others."""
    if memory_format is None:
        return PRESERVE
    name = getattr(memory_format, "_name", memory_format)
    if name not in (CONTIGUOUS, PRESERVE, *ORDERS):
        given = type(memory_format).__name__
        raise GradwireTypeError(f"argument 'memory_format' must be torch.memory_format, not {given}")
    return str(name)


def row_major(sizes: Sequence[int]) -> list[int]:
    """Strides of a dense row-major tensor."""
    return [math.prod([max(size, 1) for size in sizes[place + 1 :]]) for place in range(len(sizes))]


def strides_in(sizes: Sequence[int], name: str) -> list[int]:
    """Strides of a dense tensor of a memory format. Raises RuntimeError for one that does not fit the sizes."""
    if name == CONTIGUOUS:
        return row_major(sizes)
    if name not in ORDERS:
        raise refuse("Unsupported memory format" + name.removesuffix("_format").title())
    order = ORDERS[name]
    if len(sizes) != len(order):
        raise refuse(f"required rank {len(order)} tensor to use {name} format", errors_pb2.REASON_SHAPE)
    dense = row_major([sizes[place] for place in order])
    return [dense[order.index(place)] for place in range(len(order))]


def lies_in(sizes: Sequence[int], strides: Sequence[int], name: str) -> bool:
    """Whether a tensor of these sizes and strides lies in a memory format without gaps."""
    if name in ORDERS and len(sizes) != len(ORDERS[name]):
        return False
    wanted = strides_in(sizes, name)
    return 0 in sizes or all(
        size == 1 or stride == step for size, stride, step in zip(sizes, strides, wanted, strict=True)
    )


def suggested(sizes: Sequence[int], strides: Sequence[int]) -> str:
    """The format that PyTorch gives a result of a tensor with these strides: channels last, or row-major."""
    for name, order in ORDERS.items():
        if len(order) == len(sizes) and strides[1] and _rises(sizes, strides, order):
            return name
    return CONTIGUOUS


def _rises(sizes: Sequence[int], strides: Sequence[int], order: Sequence[int]) -> bool:
    """Whether the strides leave room for the inner dimensions of the order, and are not those of a row-major tensor."""
    least = 0
    for dim in reversed(order):
        if not sizes[dim] or strides[dim] < least or (not dim and least == strides[1]):
            return False
        least = strides[dim] * max(sizes[dim], 1)
    return True
