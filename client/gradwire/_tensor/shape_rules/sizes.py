"""Sizes and strides: what shape rules are made of."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from gradwire._base.dtypes import dtype
from gradwire._proxy.handle import Handle
from gradwire._proxy.memo import Spec

Sizes: TypeAlias = tuple[int, ...]
#: (sizes, strides) of each result; None if unknown.
Shapes: TypeAlias = "tuple[tuple[Sizes, Sizes], ...] | None"
Rule: TypeAlias = Callable[..., Shapes]
# Maximum elements of a result: the server may refuse a larger one for lack of memory, which PyTorch reports at once.
_MOST_ELEMENTS = 1 << 22
_INT64 = range(-(1 << 63), 1 << 63)
_RANGES = {
    "int64": _INT64,
    "int32": range(-(1 << 31), 1 << 31),
    "int16": range(-(1 << 15), 1 << 15),
    "int8": range(-(1 << 7), 1 << 7),
    "uint8": range(1 << 8),
    "bool": _INT64,
}
# A magnitude that all floating dtypes hold, and the largest that some hold.
_MOST_HALF = 1 << 15
_LARGEST = {"float32": 3.38e38, "bfloat16": 3.38e38, "complex64": 3.38e38, "float64": math.inf, "complex128": math.inf}


def dense_strides(sizes: Sizes) -> Sizes:
    """Strides of a contiguous tensor."""
    strides = []
    step = 1
    for size in reversed(sizes):
        strides.append(step)
        step *= size
    return tuple(reversed(strides))


def dense(sizes: Sequence[int]) -> Shapes:
    """One contiguous result."""
    return ((tuple(sizes), ()),) if math.prod(sizes) <= _MOST_ELEMENTS else None


def strided(sizes: Sequence[int], strides: Sequence[int]) -> Shapes:
    """One result with these strides: a view."""
    return (view_of(sizes, strides),)


def view_of(sizes: Sequence[int], strides: Sequence[int]) -> tuple[Sizes, Sizes]:
    sizes, strides = tuple(sizes), tuple(strides)
    return sizes, () if 0 in sizes or strides == dense_strides(sizes) else strides


def strides_of(spec: Spec) -> Sizes:
    return spec.strides or dense_strides(spec.shape)


def dim_of(dim: Any, rank: int) -> int:
    """A dimension as an index from 0; -1 if it is out of range."""
    return dim % rank if type(dim) is int and -rank <= dim < rank else -1


def is_row_major(spec: Spec) -> bool:
    """Whether no dimension has a larger stride than an earlier one, so results of elementwise ops are contiguous."""
    if not spec.strides:
        return True
    if 0 in spec.strides:
        return False
    steps = [stride for stride, size in zip(spec.strides, spec.shape, strict=True) if size != 1]
    return all(one >= other for one, other in itertools.pairwise(steps))


def is_contiguous(sizes: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether the elements lie row by row without gaps; strides of dimensions of size 1 say nothing.

    A new or a dropped dimension then gives all dimensions the strides of a contiguous tensor.
    """
    shown = [(size, stride) for size, stride in zip(sizes, strides, strict=True) if size != 1]
    return [stride for _, stride in shown] == [*dense_strides(tuple([size for size, _ in shown]))]


def broadcast(shapes: Sequence[Sequence[int]]) -> Sizes | None:
    """Broadcast shape; None if there is none."""
    rank = max(map(len, shapes))
    sizes = [1] * rank
    for shape in shapes:
        for place, size in enumerate(shape, rank - len(shape)):
            if size != 1:
                if sizes[place] not in (1, size):
                    return None
                sizes[place] = size
    return tuple(sizes)


def has_parameters(given: Sequence[Any], sizes: Sequence[int]) -> bool:
    """Whether each of a layer's parameters is left out, or has these sizes."""
    return all(each is None or (isinstance(each, Handle) and each._spec.shape == sizes) for each in given)


def dtype_of(named: Mapping[str, Any], default: dtype) -> dtype:
    """The dtype that a call's named arguments give."""
    given = named.get("dtype")
    return given if isinstance(given, dtype) else default


def fits(value: Any, dtype: dtype) -> bool:
    """Whether no op refuses a value as an operand of a tensor, for lack of range in the tensor's dtype.

    It says so of values that are no numbers, too.
    """
    if type(value) is int:
        if dtype.is_floating_point or dtype.is_complex:
            return abs(value) <= _MOST_HALF
        return value in _RANGES.get(dtype.name, ())
    if type(value) is not float or dtype.name == "bool":
        return True
    if dtype.is_floating_point or dtype.is_complex:
        return not math.isfinite(value) or abs(value) <= _LARGEST.get(dtype.name, _MOST_HALF)
    held = _RANGES.get(dtype.name)
    return held is not None and held[0] <= value <= held[-1]
