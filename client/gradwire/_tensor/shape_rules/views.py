"""Shape rules of views, and of writing to them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from gradwire._proxy.handle import Handle
from gradwire._proxy.memo import Spec
from gradwire._tensor.indexing import Index
from gradwire._tensor.shape_rules.elementwise import written
from gradwire._tensor.shape_rules.sizes import (
    Shapes,
    Sizes,
    broadcast,
    dense,
    dense_strides,
    dim_of,
    fits,
    is_contiguous,
    strided,
    strides_of,
    view_of,
)

#: Ops whose results are views where the operand's strides allow one, and copies otherwise.
MAY_COPY = frozenset({"flatten", "reshape"})


def indexed(spec: Spec, index: Any) -> tuple[list[int], list[int]] | None:
    """Sizes and strides of the view x[index], of integers, slices, None and Ellipsis; None if there may be none."""
    items = index.items
    sizes, steps = list(spec.shape), list(strides_of(spec))
    rest = len(sizes) - sum(type(item) is int or type(item) is slice for item in items)
    if rest < 0:
        return None
    dim = 0
    for item in items:
        kind = type(item)
        if kind is int:
            if not -sizes[dim] <= item < sizes[dim]:
                return None
            del sizes[dim], steps[dim]
        elif kind is slice:
            start, stop, step = item.indices(sizes[dim])
            sizes[dim] = max(0, -((start - stop) // step))
            steps[dim] *= step
            dim += 1
        elif item is None:
            if not is_contiguous(sizes, steps):
                return None
            sizes.insert(dim, 1)
            steps = list(dense_strides(tuple(sizes)))
            dim += 1
        elif item is Ellipsis and rest >= 0:
            dim += rest
            rest = -1
        else:
            return None
    return sizes, steps


def getitem(op: str, input: Any, index: Any = None, *args: Any, **named: Any) -> Shapes:
    """x[index]: a view, or rows selected by one tensor of integers."""
    if not isinstance(input, Handle) or type(index) is not Index:
        return None
    spec, items = input._spec, index.items
    if len(items) == 1 and isinstance(items[0], Handle):
        chosen = items[0]._spec
        if not spec.shape or not chosen.shape or chosen.dtype.name != "int64" or spec.strides or chosen.strides:
            return None
        if 0 in spec.shape or 0 in chosen.shape:
            return None
        return dense((*chosen.shape, *spec.shape[1:]))
    shown = indexed(spec, index)
    return None if shown is None else strided(*shown)


def setitem(op: str, input: Any, index: Any = None, value: Any = None, *args: Any, **named: Any) -> Shapes:
    """x[index] = value, for an index of a view and a value that fits it.

    The value shares no memory with x, or it is x[index] itself, as after x[index] += 1.
    """
    if not isinstance(input, Handle) or type(index) is not Index:
        return None
    shown = indexed(input._spec, index)
    if shown is None:
        return None
    if isinstance(value, Handle):
        shape = value._spec.shape
        while len(shape) > len(shown[0]) and shape[0] == 1:
            shape = shape[1:]
        if len(shape) > len(shown[0]) or broadcast((shape, shown[0])) != tuple(shown[0]):
            return None
        view = value.__dict__.get("_view")
        own = view is not None and view.item == (input._id, index.items)
        if own and (tuple(value._spec.shape), value._spec.strides) == view_of(*shown):
            return written((input,), input._spec.shape)
        return written((input, value), input._spec.shape)
    if not fits(value, input._spec.dtype):
        return None
    return written((input,), input._spec.shape)


def item_kinds(spec: Spec, index: Any) -> tuple[str, ...]:
    """Per item of an index whether it is a slice of the whole dimension, which PyTorch's node leaves out."""
    dim = 0
    kinds: list[str] = []
    for item in index.items:
        if item is Ellipsis:
            dim = len(spec.shape) - sum(type(one) in (int, slice) for one in index.items[len(kinds) + 1 :])
        whole = type(item) is slice and item.step in (None, 1) and item.start in (None, 0)
        kinds.append("whole" if whole and (item.stop is None or item.stop >= spec.shape[dim]) else "")
        dim += type(item) is int or type(item) is slice
    return tuple(kinds)


def select(op: str, input: Any, dim: Any = None, index: Any = None, *args: Any, **named: Any) -> Shapes:
    """select(dim, index): a view."""
    place = dim_of(dim, len(input._spec.shape)) if isinstance(input, Handle) else -1
    if place < 0 or type(index) is not int:
        return None
    shape, strides = input._spec.shape, strides_of(input._spec)
    if not -shape[place] <= index < shape[place]:
        return None
    return strided((*shape[:place], *shape[place + 1 :]), (*strides[:place], *strides[place + 1 :]))


def narrow(
    op: str, input: Any, dim: Any = None, start: Any = None, length: Any = None, *args: Any, **named: Any
) -> Shapes:
    """narrow(dim, start, length): a view."""
    place = dim_of(dim, len(input._spec.shape)) if isinstance(input, Handle) else -1
    if place < 0 or type(start) is not int or type(length) is not int:
        return None
    size = input._spec.shape[place]
    if length < 0 or not -size <= start <= size or (start + size if start < 0 else start) + length > size:
        return None
    shape = list(input._spec.shape)
    shape[place] = length
    return strided(shape, strides_of(input._spec))


def reshape(op: str, input: Any, shape: Any = None, *args: Any, **named: Any) -> Shapes:
    """view(size) and reshape(shape): a view. Where the strides allow none, reshape copies; the copy is contiguous.

    A view of a tensor that is not contiguous is not contiguous either, so the strides tell which it is.
    """
    if not isinstance(input, Handle):
        return None
    sizes = list(shape) if isinstance(shape, (list, tuple)) else [shape]
    count = math.prod(input._spec.shape)
    if not count or not all(type(size) is int and size >= -1 for size in sizes) or sizes.count(-1) > 1:
        return None
    if -1 in sizes:
        known = -math.prod(sizes)
        if not known or count % known:
            return None
        sizes[sizes.index(-1)] = count // known
    if math.prod(sizes) != count:
        return None
    if not input._spec.strides:
        return ((tuple(sizes), ()),)
    if 1 in input._spec.shape or 1 in sizes or not sizes:
        return None  # whether the strides of such dimensions allow a view is not followed
    steps = _regrouped(input._spec, sizes)
    if steps is not None:
        return strided(sizes, steps)
    return None if op.startswith("view") else dense(sizes)


def _regrouped(spec: Spec, sizes: Sequence[int]) -> list[int] | None:
    """Strides of a view with these sizes, without such of 1; None if there is none."""
    steps: list[int] = []
    left = list(sizes)
    run, stride = 1, spec.strides[-1]
    for place in range(len(spec.shape) - 1, -1, -1):
        run *= spec.shape[place]
        if place and spec.strides[place - 1] == run * stride:
            continue
        made = 1
        while made < run and left:
            steps.insert(0, made * stride)
            made *= left.pop()
        if made != run:
            return None
        if place:
            run, stride = 1, spec.strides[place - 1]
    return None if left else steps


def viewed_as(op: str, input: Any, other: Any = None, *args: Any, **named: Any) -> Shapes:
    """view_as(other): a view."""
    return reshape(op, input, tuple(other._spec.shape)) if isinstance(other, Handle) else None


def expanded_as(op: str, input: Any, other: Any = None, *args: Any, **named: Any) -> Shapes:
    """expand_as(other): a view."""
    return expand(op, input, tuple(other._spec.shape)) if isinstance(other, Handle) else None


def contiguous(op: str, input: Any, *args: Any, **named: Any) -> Shapes:
    """contiguous() of a tensor that is not: a copy."""
    if not isinstance(input, Handle) or 0 in input._spec.shape or named or args not in ((), ("contiguous_format",)):
        return None
    spec = input._spec
    return None if is_contiguous(spec.shape, strides_of(spec)) else dense(spec.shape)


def flatten(op: str, input: Any, start_dim: Any = 0, end_dim: Any = -1, *args: Any, **named: Any) -> Shapes:
    """flatten of several dimensions of a contiguous tensor: a view."""
    if not isinstance(input, Handle):
        return None
    shape = input._spec.shape
    first, last = dim_of(start_dim, len(shape)), dim_of(end_dim, len(shape))
    if first < 0 or last <= first:
        return None
    return reshape(op, input, (*shape[:first], math.prod(shape[first : last + 1]), *shape[last + 1 :]))


def expand(op: str, input: Any, size: Any = None, *args: Any, **named: Any) -> Shapes:
    """expand and broadcast_to: a view with strides of 0."""
    if not isinstance(input, Handle):
        return None
    sizes = list(size) if isinstance(size, (list, tuple)) else [size]
    shape, strides = input._spec.shape, strides_of(input._spec)
    new = len(sizes) - len(shape)
    if new < 0 or not all(type(one) is int for one in sizes):
        return None
    steps = [0] * len(sizes)
    for place in reversed(range(len(sizes))):
        have = shape[place - new] if place >= new else 1
        if sizes[place] == -1 and place >= new:
            sizes[place] = have
        wanted = sizes[place]
        if wanted <= 0 or (wanted != have and have != 1):
            return None
        if wanted == have:
            dense = sizes[place + 1] * steps[place + 1] if place + 1 < len(sizes) else 1
            steps[place] = strides[place - new] if place >= new else dense
    return strided(sizes, steps)


def unsqueeze(op: str, input: Any, dim: Any = None, *args: Any, **named: Any) -> Shapes:
    """unsqueeze(dim) of a contiguous tensor: a view."""
    rank = len(input._spec.shape) if isinstance(input, Handle) else -1
    place = dim_of(dim, rank + 1)
    if rank < 0 or place < 0 or not is_contiguous(input._spec.shape, strides_of(input._spec)):
        return None
    shape = tuple(input._spec.shape)
    return (((*shape[:place], 1, *shape[place:]), ()),)


def squeeze(op: str, input: Any, dim: Any = None, *args: Any, **named: Any) -> Shapes:
    """squeeze of all dimensions of size 1, or of some, of a contiguous tensor: a view."""
    if not isinstance(input, Handle) or not is_contiguous(input._spec.shape, strides_of(input._spec)):
        return None
    shape = input._spec.shape
    dims = range(len(shape)) if dim is None else dim if isinstance(dim, (list, tuple)) else (dim,)
    dropped = {dim_of(one, len(shape)) for one in dims}
    if -1 in dropped or len(dropped) != len(dims):
        return None
    sizes = tuple([size for place, size in enumerate(shape) if size != 1 or place not in dropped])
    return ((sizes, () if len(sizes) < len(shape) else input._spec.strides),)


def transpose(op: str, input: Any, dim0: Any = None, dim1: Any = None, *args: Any, **named: Any) -> Shapes:
    """transpose(dim0, dim1): a view."""
    rank = len(input._spec.shape) if isinstance(input, Handle) else 0
    one, other = dim_of(dim0, rank), dim_of(dim1, rank)
    if one < 0 or other < 0:
        return None
    order = list(range(rank))
    order[one], order[other] = order[other], order[one]
    return permute(op, input, order)


def last_two(op: str, input: Any, *args: Any, **named: Any) -> Shapes:
    """mT: a view."""
    return transpose(op, input, -2, -1)


def matrix_t(op: str, input: Any, *args: Any, **named: Any) -> Shapes:
    """T and t() of a matrix: a view."""
    return transpose(op, input, 0, 1) if isinstance(input, Handle) and len(input._spec.shape) == 2 else None


def permute(op: str, input: Any, dims: Any = None, *args: Any, **named: Any) -> Shapes:
    """permute(dims): a view."""
    if not isinstance(input, Handle) or not isinstance(dims, (list, tuple)):
        return None
    shape, strides = input._spec.shape, strides_of(input._spec)
    order = [dim_of(dim, len(shape)) for dim in dims]
    if len(order) != len(shape) or -1 in order or len(set(order)) != len(order):
        return None
    return strided([shape[place] for place in order], [strides[place] for place in order])


def unbind(op: str, input: Any, dim: Any = 0, *args: Any, **named: Any) -> Shapes:
    """unbind(dim): views."""
    shown = select(op, input, dim, 0)
    return None if shown is None else shown * input._spec.shape[dim_of(dim, len(input._spec.shape))]


def split(op: str, input: Any, size: Any = None, dim: Any = 0, *args: Any, **named: Any) -> Shapes:
    """split into parts of one size, the last maybe smaller: views."""
    place = dim_of(dim, len(input._spec.shape)) if isinstance(input, Handle) else -1
    if place < 0 or type(size) is not int or size <= 0:
        return None
    shape, strides = input._spec.shape, strides_of(input._spec)
    made: list[tuple[Sizes, Sizes]] = []
    for start in range(0, shape[place], size):
        part = min(size, shape[place] - start)
        made.append(view_of((*shape[:place], part, *shape[place + 1 :]), strides))
    return tuple(made) or None


def chunk(op: str, input: Any, chunks: Any = None, dim: Any = 0, *args: Any, **named: Any) -> Shapes:
    """chunk into at most so many parts: views."""
    place = dim_of(dim, len(input._spec.shape)) if isinstance(input, Handle) else -1
    if place < 0 or type(chunks) is not int or chunks <= 0:
        return None
    return split(op, input, -(-input._spec.shape[place] // chunks), dim)


def diagonal(op: str, input: Any, offset: Any = 0, dim1: Any = 0, dim2: Any = 1, *args: Any, **named: Any) -> Shapes:
    """diagonal(offset, dim1, dim2) with at least one element: a view."""
    rank = len(input._spec.shape) if isinstance(input, Handle) else 0
    one, other = dim_of(dim1, rank), dim_of(dim2, rank)
    if one < 0 or other < 0 or one == other or type(offset) is not int:
        return None
    shape, strides = input._spec.shape, strides_of(input._spec)
    length = min(shape[one], shape[other] - offset) if offset >= 0 else min(shape[one] + offset, shape[other])
    if length <= 0:
        return None
    kept = [place for place in range(rank) if place not in (one, other)]
    sizes = [shape[place] for place in kept]
    return strided([*sizes, length], [*(strides[place] for place in kept), strides[one] + strides[other]])


def detach(op: str, input: Any, *args: Any, **named: Any) -> Shapes:
    """detach(): a view of the whole tensor."""
    if not isinstance(input, Handle) or 0 in input._spec.shape:
        return None
    return ((tuple(input._spec.shape), input._spec.strides),)
