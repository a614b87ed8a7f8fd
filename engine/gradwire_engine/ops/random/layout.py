"""The order in which an array's elements are drawn: that of its memory, as in PyTorch."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from gradwire_engine.core.device import Array

Like: TypeAlias = "Array | tuple[int, ...]"  # an array whose shape and order of memory count, or a shape


def shape_of(like: Like) -> tuple[int, ...]:
    """The shape."""
    return like if isinstance(like, tuple) else like.shape


def count_of(like: Like) -> int:
    """The number of elements."""
    return math.prod(shape_of(like))


def is_contiguous(like: Like) -> bool:
    """Whether memory has the elements in the order of their indices, without gaps."""
    return isinstance(like, tuple) or bool(like.flags.c_contiguous)


def dense(like: Array) -> Like:
    """The shape, if a new array like this one is contiguous; else the array itself."""
    return like.shape if _axes(like.shape, like.strides) == list(range(like.ndim)) else like


def in_memory_order(like: Like, draw: Callable[[int], Any]) -> Any:
    """Shape what `draw` makes of a number of elements, so that the array's memory has the drawn order."""
    drawn = draw(count_of(like))
    if isinstance(like, tuple) or like.flags.c_contiguous:
        return drawn.reshape(shape_of(like))
    axes = _axes(like.shape, like.strides)
    return drawn.reshape([like.shape[axis] for axis in axes]).transpose(np.argsort(axes))


def _axes(shape: tuple[int, ...], strides: tuple[int, ...]) -> list[int]:
    """Axes from the largest stride to the smallest. An expanded axis, of stride 0, keeps its place among the others."""
    axes = list(range(len(shape)))
    for start in range(len(axes) - 2, -1, -1):
        place = start
        for other in range(start + 1, len(axes)):
            one, two = strides[axes[place]], strides[axes[other]]
            if shape[axes[place]] < 2 or shape[axes[other]] < 2 or not one or not two:
                continue
            if one >= two:
                break
            axes[place], axes[other] = axes[other], axes[place]
            place = other
    return axes
