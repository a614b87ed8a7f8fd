"""Shape rules: sizes and strides of an op's results, from its arguments' sizes and the numbers given.

A rule gets the arguments of a call and returns a (sizes, strides) pair per result. Strides are () for a contiguous
result, as in a Spec. A rule answers None if it does not know the result, or if the server may refuse the call. The
caller then waits, so the server's error is raised in the call itself. Rules take any arguments, and do not raise.
The engine names each op's rule (`gradwire_engine/ops/shape_rules.py`). Dtype and flags of the results are no matter of
rules (inference.py).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from gradwire._proxy.handle import Handle
from gradwire._proxy.memo import Spec
from gradwire._tensor.indexing import Index

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
# Ops that refuse a zero, or a negative number, as the second operand of integers.
_DIVISIONS = frozenset({"floor_divide", "remainder", "fmod"})
_NONNEGATIVE = frozenset({"pow", "bitwise_left_shift", "bitwise_right_shift"})


def dense_strides(sizes: Sizes) -> Sizes:
    """Strides of a contiguous tensor."""
    strides = []
    step = 1
    for size in reversed(sizes):
        strides.append(step)
        step *= size
    return tuple(reversed(strides))


def _dense(sizes: Sequence[int]) -> Shapes:
    """One contiguous result."""
    return ((tuple(sizes), ()),) if math.prod(sizes) <= _MOST_ELEMENTS else None


def _strided(sizes: Sequence[int], strides: Sequence[int]) -> Shapes:
    """One result with these strides: a view."""
    return (_view(sizes, strides),)


def _view(sizes: Sequence[int], strides: Sequence[int]) -> tuple[Sizes, Sizes]:
    sizes, strides = tuple(sizes), tuple(strides)
    return sizes, () if 0 in sizes or strides == dense_strides(sizes) else strides


def _strides(spec: Spec) -> Sizes:
    return spec.strides or dense_strides(spec.shape)


def _dim(dim: Any, rank: int) -> int:
    """A dimension as an index from 0; -1 if it is out of range."""
    return dim % rank if type(dim) is int and -rank <= dim < rank else -1


def _is_row_major(spec: Spec) -> bool:
    """Whether no dimension has a larger stride than an earlier one, so results of elementwise ops are contiguous."""
    if not spec.strides:
        return True
    if 0 in spec.strides:
        return False
    steps = [stride for stride, size in zip(spec.strides, spec.shape, strict=True) if size != 1]
    return all(one >= other for one, other in itertools.pairwise(steps))


def _is_contiguous(sizes: Sequence[int], strides: Sequence[int]) -> bool:
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


def _fits(value: int, spec: Spec) -> bool:
    """Whether no op refuses an integer as an operand of a tensor, for lack of range in the tensor's dtype."""
    dtype = spec.dtype
    if dtype.is_floating_point or dtype.is_complex:
        return -(1 << 15) <= value <= 1 << 15  # float16 holds them
    return value in _RANGES.get(dtype.name, ())


def pointwise(op: str, *args: Any, **named: Any) -> Shapes:
    """Elementwise ops: the broadcast shape. In place, the target's shape and strides."""
    values = [*args, *named.values()] if named else args
    tensors = [value for value in values if isinstance(value, Handle)]
    if not tensors:
        return None
    specs = [tensor._spec for tensor in tensors]
    name = op.removesuffix("_")
    for value in values:
        if type(value) is int and not (
            all(_fits(value, spec) for spec in specs)
            and (value or name not in _DIVISIONS)
            and (value >= 0 or name not in _NONNEGATIVE)
        ):
            return None
    sizes = specs[0].shape if len(specs) == 1 else broadcast([spec.shape for spec in specs])
    if sizes is None:
        return None
    if op is not name:
        return _written(tensors, sizes)
    return _dense(sizes) if all(map(_is_row_major, specs)) else None


def _written(tensors: Sequence[Handle], sizes: Sizes) -> Shapes:
    """Result of an in-place op whose operands broadcast to `sizes`, unless they may share memory."""
    target = tensors[0]
    spec = target._spec
    if not isinstance(target, Handle) or sizes != spec.shape or 0 in spec.strides:
        return None
    for other in tensors[1:]:
        if other is not target and other._storage is not None and other._storage is target._storage:
            return None
    return ((tuple(spec.shape), spec.strides),)


def like(op: str, input: Any, *args: Any, **named: Any) -> Shapes:
    """Ops whose result has the first input's shape, whatever the numbers. In place, the target's strides too."""
    if not isinstance(input, Handle):
        return None
    spec = input._spec
    for value in args:
        if isinstance(value, Handle) or (type(value) is int and not _fits(value, spec)):
            return None
    if op.endswith("_"):
        return _written((input,), spec.shape)
    return _dense(spec.shape) if not spec.strides else None


def along(op: str, input: Any, dim: Any = -1, *args: Any, **named: Any) -> Shapes:
    """Ops along one dimension that keep the shape, such as softmax and cumsum."""
    if not isinstance(input, Handle) or _dim(dim, len(input._spec.shape)) < 0:
        return None
    return _dense(input._spec.shape) if _is_row_major(input._spec) else None


def reduction(op: str, input: Any, dim: Any = None, keepdim: Any = False, *args: Any, **named: Any) -> Shapes:
    """Reductions over no, one or several dimensions."""
    if not isinstance(input, Handle) or type(keepdim) is not bool:
        return None
    spec = input._spec
    sizes = _reduced(spec.shape, dim, keepdim)
    return None if sizes is None or not _is_row_major(spec) else ((sizes, ()),)


def deviation(
    op: str, input: Any, dim: Any = None, unbiased: Any = None, keepdim: Any = False, *args: Any, **named: Any
) -> Shapes:
    """std and var of more than one element each; of fewer, a warning may be due."""
    if unbiased is False or named.get("correction") not in (None, 1):
        return None
    made = reduction(op, input, dim, keepdim)
    if made is None or math.prod(input._spec.shape) < 2 * math.prod(made[0][0]):
        return None
    return made


def _reduced(shape: Sequence[int], dim: Any, keepdim: bool) -> Sizes | None:
    rank = len(shape)
    if 0 in shape:
        return None
    if dim is None or (isinstance(dim, (list, tuple)) and not dim):
        return (1,) * rank if keepdim else ()
    dims = [_dim(one, rank) for one in (dim if isinstance(dim, (list, tuple)) else (dim,))]
    if min(dims) < 0 or len(set(dims)) != len(dims):
        return None
    if keepdim:
        return tuple([1 if place in dims else size for place, size in enumerate(shape)])
    return tuple([size for place, size in enumerate(shape) if place not in dims])


def extremum(op: str, input: Any, dim: Any = None, keepdim: Any = False, *args: Any, **named: Any) -> Shapes:
    """max, min and median: one result, or values and indices along a dimension."""
    if isinstance(dim, Handle) or any(isinstance(value, Handle) for value in named.values()):
        return None
    made = reduction(op, input, dim, keepdim)
    return made if made is None or dim is None else made * 2


def creation(op: str, size: Any = None, *args: Any, **named: Any) -> Shapes:
    """zeros(size) and its relatives; full's number must fit the result."""
    if any(type(value) is int for value in args) and named.get("dtype") is not None:
        return None
    return _of_size(size)


def creation_like(op: str, input: Any, size: Any = None, *args: Any, **named: Any) -> Shapes:
    """new_zeros(size) and its relatives."""
    if not isinstance(input, Handle) or not all(_fits(value, input._spec) for value in args if type(value) is int):
        return None
    return creation(op, size, **named)


def _of_size(size: Any) -> Shapes:
    sizes = size if isinstance(size, (list, tuple)) else (size,)
    if not all(type(one) is int and one >= 0 for one in sizes):
        return None
    return _dense(sizes)


def random_integers(op: str, low: Any = None, high: Any = None, size: Any = None, *args: Any, **named: Any) -> Shapes:
    """randint(low, high, size)."""
    if type(low) is not int or type(high) is not int or not 0 <= low < high < 1 << 31 or named.get("dtype") is not None:
        return None
    return _of_size(size)


def number_range(op: str, start: Any = None, end: Any = None, step: Any = None, *args: Any, **named: Any) -> Shapes:
    """arange of integers."""
    if not type(start) is type(end) is type(step) is int or not step or named.get("dtype") is not None:
        return None
    if max(map(abs, (start, end, step))) >= 1 << 53 or (end - start) * step < 0:
        return None
    return _dense((-((start - end) // step),))


def steps(op: str, start: Any = None, end: Any = None, steps: Any = None, *args: Any, **named: Any) -> Shapes:
    """linspace and logspace."""
    return _of_size(steps) if type(steps) is int else None


def identity(op: str, n: Any = None, m: Any = None, *args: Any, **named: Any) -> Shapes:
    """eye(n, m)."""
    return _of_size((n, n if m is None else m))


def permutation(op: str, n: Any = None, *args: Any, **named: Any) -> Shapes:
    """randperm(n)."""
    return _of_size(n) if type(n) is int and named.get("dtype") is None else None


# Views.


def indexed(spec: Spec, index: Any) -> tuple[list[int], list[int]] | None:
    """Sizes and strides of the view x[index], of integers, slices, None and Ellipsis; None if there may be none."""
    items = index.items
    sizes, steps = list(spec.shape), list(_strides(spec))
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
            if not _is_contiguous(sizes, steps):
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
        return _dense((*chosen.shape, *spec.shape[1:]))
    shown = indexed(spec, index)
    return None if shown is None else _strided(*shown)


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
        if own and (tuple(value._spec.shape), value._spec.strides) == _view(*shown):
            return _written((input,), input._spec.shape)
        return _written((input, value), input._spec.shape)
    if type(value) is int and not _fits(value, input._spec):
        return None
    return _written((input,), input._spec.shape)


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
    place = _dim(dim, len(input._spec.shape)) if isinstance(input, Handle) else -1
    if place < 0 or type(index) is not int:
        return None
    shape, strides = input._spec.shape, _strides(input._spec)
    if not -shape[place] <= index < shape[place]:
        return None
    return _strided((*shape[:place], *shape[place + 1 :]), (*strides[:place], *strides[place + 1 :]))


def narrow(
    op: str, input: Any, dim: Any = None, start: Any = None, length: Any = None, *args: Any, **named: Any
) -> Shapes:
    """narrow(dim, start, length): a view."""
    place = _dim(dim, len(input._spec.shape)) if isinstance(input, Handle) else -1
    if place < 0 or type(start) is not int or type(length) is not int:
        return None
    size = input._spec.shape[place]
    if length < 0 or not -size <= start <= size or (start + size if start < 0 else start) + length > size:
        return None
    shape = list(input._spec.shape)
    shape[place] = length
    return _strided(shape, _strides(input._spec))


def reshape(op: str, input: Any, shape: Any = None, *args: Any, **named: Any) -> Shapes:
    """view(size) and reshape(shape) of a contiguous tensor: a view."""
    if not isinstance(input, Handle) or input._spec.strides:
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
    return ((tuple(sizes), ()),) if math.prod(sizes) == count else None


def flatten(op: str, input: Any, start_dim: Any = 0, end_dim: Any = -1, *args: Any, **named: Any) -> Shapes:
    """flatten of several dimensions of a contiguous tensor: a view."""
    if not isinstance(input, Handle):
        return None
    shape = input._spec.shape
    first, last = _dim(start_dim, len(shape)), _dim(end_dim, len(shape))
    if first < 0 or last <= first:
        return None
    return reshape(op, input, (*shape[:first], math.prod(shape[first : last + 1]), *shape[last + 1 :]))


def expand(op: str, input: Any, size: Any = None, *args: Any, **named: Any) -> Shapes:
    """expand and broadcast_to: a view with strides of 0."""
    if not isinstance(input, Handle):
        return None
    sizes = list(size) if isinstance(size, (list, tuple)) else [size]
    shape, strides = input._spec.shape, _strides(input._spec)
    new = len(sizes) - len(shape)
    if new < 0:
        return None
    steps = [0] * len(sizes)
    for place in reversed(range(len(sizes))):
        have = shape[place - new] if place >= new else 1
        if sizes[place] == -1 and place >= new:
            sizes[place] = have
        wanted = sizes[place]
        if type(wanted) is not int or wanted <= 0 or (wanted != have and have != 1):
            return None
        if wanted == have:
            dense = sizes[place + 1] * steps[place + 1] if place + 1 < len(sizes) else 1
            steps[place] = strides[place - new] if place >= new else dense
    return _strided(sizes, steps)


def unsqueeze(op: str, input: Any, dim: Any = None, *args: Any, **named: Any) -> Shapes:
    """unsqueeze(dim) of a contiguous tensor: a view."""
    rank = len(input._spec.shape) if isinstance(input, Handle) else -1
    place = _dim(dim, rank + 1)
    if rank < 0 or place < 0 or not _is_contiguous(input._spec.shape, _strides(input._spec)):
        return None
    shape = tuple(input._spec.shape)
    return (((*shape[:place], 1, *shape[place:]), ()),)


def squeeze(op: str, input: Any, dim: Any = None, *args: Any, **named: Any) -> Shapes:
    """squeeze of all dimensions of size 1, or of some, of a contiguous tensor: a view."""
    if not isinstance(input, Handle) or not _is_contiguous(input._spec.shape, _strides(input._spec)):
        return None
    shape = input._spec.shape
    dims = range(len(shape)) if dim is None else dim if isinstance(dim, (list, tuple)) else (dim,)
    dropped = {_dim(one, len(shape)) for one in dims}
    if -1 in dropped or len(dropped) != len(dims):
        return None
    return ((tuple(size for place, size in enumerate(shape) if size != 1 or place not in dropped), ()),)


def transpose(op: str, input: Any, dim0: Any = None, dim1: Any = None, *args: Any, **named: Any) -> Shapes:
    """transpose(dim0, dim1): a view."""
    rank = len(input._spec.shape) if isinstance(input, Handle) else 0
    one, other = _dim(dim0, rank), _dim(dim1, rank)
    if one < 0 or other < 0:
        return None
    order = list(range(rank))
    order[one], order[other] = order[other], order[one]
    return permute(op, input, order)


def last_two(op: str, input: Any, *args: Any, **named: Any) -> Shapes:
    """mT, and t() of a matrix: a view."""
    return transpose(op, input, -2, -1)


def permute(op: str, input: Any, dims: Any = None, *args: Any, **named: Any) -> Shapes:
    """permute(dims): a view."""
    if not isinstance(input, Handle) or not isinstance(dims, (list, tuple)):
        return None
    shape, strides = input._spec.shape, _strides(input._spec)
    order = [_dim(dim, len(shape)) for dim in dims]
    if len(order) != len(shape) or -1 in order or len(set(order)) != len(order):
        return None
    return _strided([shape[place] for place in order], [strides[place] for place in order])


def unbind(op: str, input: Any, dim: Any = 0, *args: Any, **named: Any) -> Shapes:
    """unbind(dim): views."""
    shown = select(op, input, dim, 0)
    return None if shown is None else shown * input._spec.shape[_dim(dim, len(input._spec.shape))]


def split(op: str, input: Any, size: Any = None, dim: Any = 0, *args: Any, **named: Any) -> Shapes:
    """split into parts of one size, the last maybe smaller: views."""
    place = _dim(dim, len(input._spec.shape)) if isinstance(input, Handle) else -1
    if place < 0 or type(size) is not int or size <= 0:
        return None
    shape, strides = input._spec.shape, _strides(input._spec)
    made: list[tuple[Sizes, Sizes]] = []
    for start in range(0, shape[place], size):
        part = min(size, shape[place] - start)
        made.append(_view((*shape[:place], part, *shape[place + 1 :]), strides))
    return tuple(made) or None


def chunk(op: str, input: Any, chunks: Any = None, dim: Any = 0, *args: Any, **named: Any) -> Shapes:
    """chunk into at most so many parts: views."""
    place = _dim(dim, len(input._spec.shape)) if isinstance(input, Handle) else -1
    if place < 0 or type(chunks) is not int or chunks <= 0:
        return None
    return split(op, input, -(-input._spec.shape[place] // chunks), dim)


def diagonal(op: str, input: Any, offset: Any = 0, dim1: Any = 0, dim2: Any = 1, *args: Any, **named: Any) -> Shapes:
    """diagonal(offset, dim1, dim2) with at least one element: a view."""
    rank = len(input._spec.shape) if isinstance(input, Handle) else 0
    one, other = _dim(dim1, rank), _dim(dim2, rank)
    if one < 0 or other < 0 or one == other or type(offset) is not int:
        return None
    shape, strides = input._spec.shape, _strides(input._spec)
    length = min(shape[one], shape[other] - offset) if offset >= 0 else min(shape[one] + offset, shape[other])
    if length <= 0:
        return None
    kept = [place for place in range(rank) if place not in (one, other)]
    sizes = [shape[place] for place in kept]
    return _strided([*sizes, length], [*(strides[place] for place in kept), strides[one] + strides[other]])


# Products, joins and selections.


def matmul(op: str, input: Any, other: Any = None, *args: Any, **named: Any) -> Shapes:
    """Products of contiguous vectors, matrices and batches of matrices."""
    if not isinstance(input, Handle) or not isinstance(other, Handle) or args or named:
        return None
    one, two = input._spec, other._spec
    if not _is_matrix(one) or not _is_matrix(two):
        return None
    if one.shape[-1] != two.shape[max(len(two.shape) - 2, 0)] or 0 in one.shape or 0 in two.shape:
        return None
    batch = broadcast((one.shape[:-2], two.shape[:-2]))
    if batch is None or (op == "bmm" and one.shape[0] != two.shape[0]):
        return None
    return _dense((*batch, *one.shape[:-1][-1:], *(two.shape[-1:] if len(two.shape) > 1 else ())))


def _is_matrix(spec: Spec) -> bool:
    """Whether a tensor is contiguous, or is so with its last two dimensions exchanged. Scalars are no operands."""
    if not spec.strides:
        return bool(spec.shape)
    if len(spec.shape) < 2 or 1 in spec.shape:
        return False
    return _is_contiguous((*spec.shape[:-2], *spec.shape[:-3:-1]), (*spec.strides[:-2], *spec.strides[:-3:-1]))


def linear(op: str, input: Any, weight: Any = None, bias: Any = None, *args: Any, **named: Any) -> Shapes:
    """linear(input, weight, bias)."""
    if not isinstance(input, Handle) or not isinstance(weight, Handle):
        return None
    shape, rows = input._spec.shape, weight._spec.shape
    if not shape or len(rows) != 2 or shape[-1] != rows[1] or 0 in shape or 0 in rows:
        return None
    if input._spec.strides or weight._spec.strides or (bias is not None and bias._spec.shape != rows[:1]):
        return None
    return _dense((*shape[:-1], rows[0]))


def stack(op: str, tensors: Any, dim: Any = 0, *args: Any, **named: Any) -> Shapes:
    """stack of contiguous tensors of one shape."""
    specs = _contiguous(tensors)
    place = _dim(dim, len(specs[0].shape) + 1) if specs else -1
    if place < 0 or any(spec.shape != specs[0].shape for spec in specs):
        return None
    return _dense((*specs[0].shape[:place], len(specs), *specs[0].shape[place:]))


def cat(op: str, tensors: Any, dim: Any = 0, *args: Any, **named: Any) -> Shapes:
    """cat of contiguous tensors."""
    specs = _contiguous(tensors)
    place = _dim(dim, len(specs[0].shape)) if specs else -1
    if place < 0:
        return None
    first = list(specs[0].shape)
    total = 0
    for spec in specs:
        sizes = list(spec.shape)
        if len(sizes) != len(first):
            return None
        total += sizes[place]
        sizes[place] = first[place]
        if sizes != first:
            return None
    return _dense((*first[:place], total, *first[place + 1 :]))


def _contiguous(tensors: Any) -> list[Spec]:
    """Descriptions of tensors; empty unless all of them are contiguous and have elements."""
    if not isinstance(tensors, (list, tuple)) or not all(isinstance(tensor, Handle) for tensor in tensors):
        return []
    specs = [tensor._spec for tensor in tensors]
    return [] if any(spec.strides or 0 in spec.shape for spec in specs) else specs


def index_select(op: str, input: Any, dim: Any = None, index: Any = None, *args: Any, **named: Any) -> Shapes:
    """index_select(dim, index)."""
    if not isinstance(input, Handle) or not isinstance(index, Handle):
        return None
    shape, chosen = input._spec.shape, index._spec.shape
    place = _dim(dim, len(shape))
    if place < 0 or len(chosen) != 1 or input._spec.strides or 0 in shape or 0 in chosen:
        return None
    return _dense((*shape[:place], chosen[0], *shape[place + 1 :]))


def gather(op: str, input: Any, dim: Any = None, index: Any = None, *args: Any, **named: Any) -> Shapes:
    """gather(dim, index)."""
    if not isinstance(input, Handle) or not isinstance(index, Handle):
        return None
    shape, chosen = input._spec.shape, index._spec.shape
    place = _dim(dim, len(shape))
    if place < 0 or len(shape) != len(chosen) or 0 in shape or input._spec.strides or index._spec.strides:
        return None
    if any(have < want for axis, (have, want) in enumerate(zip(shape, chosen, strict=True)) if axis != place):
        return None
    return _dense(chosen)


def embedding(
    op: str, input: Any, weight: Any = None, padding_idx: Any = None, max_norm: Any = None, *args: Any, **named: Any
) -> Shapes:
    """embedding(input, weight)."""
    if not isinstance(input, Handle) or not isinstance(weight, Handle) or max_norm is not None:
        return None
    rows = weight._spec.shape
    if len(rows) != 2 or 0 in rows or 0 in input._spec.shape or weight._spec.strides or input._spec.strides:
        return None
    if padding_idx is not None and _dim(padding_idx, rows[0]) < 0:
        return None
    return _dense((*input._spec.shape, rows[1]))


def repeat(op: str, input: Any, repeats: Any = None, *args: Any, **named: Any) -> Shapes:
    """repeat(repeats) and tile."""
    if not isinstance(input, Handle) or not isinstance(repeats, (list, tuple)):
        return None
    shape = input._spec.shape
    if len(repeats) < len(shape) or 0 in shape or input._spec.strides:
        return None
    if not all(type(one) is int and one > 0 for one in repeats):
        return None
    padded = (*(1,) * (len(repeats) - len(shape)), *shape)
    return _dense([size * times for size, times in zip(padded, repeats, strict=True)])


def pad(op: str, input: Any, pad: Any = None, mode: Any = "constant", *args: Any, **named: Any) -> Shapes:
    """pad with a constant."""
    if not isinstance(input, Handle) or mode != "constant" or not isinstance(pad, (list, tuple)) or len(pad) % 2:
        return None
    spec = input._spec
    sizes = list(spec.shape)
    if len(pad) > 2 * len(sizes) or spec.strides or 0 in sizes or not all(type(n) is int and n >= 0 for n in pad):
        return None
    for place in range(len(pad) // 2):
        sizes[-1 - place] += pad[2 * place] + pad[2 * place + 1]
    return _dense(sizes)


def topk(op: str, input: Any, k: Any = None, dim: Any = -1, *args: Any, **named: Any) -> Shapes:
    """topk(k, dim): values and indices."""
    place = _dim(dim, len(input._spec.shape)) if isinstance(input, Handle) else -1
    if place < 0 or type(k) is not int or input._spec.strides or not 0 < k <= input._spec.shape[place]:
        return None
    made = _dense((*input._spec.shape[:place], k, *input._spec.shape[place + 1 :]))
    return None if made is None else made * 2


def sort(op: str, input: Any, dim: Any = -1, *args: Any, **named: Any) -> Shapes:
    """sort(dim): values and indices."""
    made = along(op, input, dim)
    return None if made is None else made * 2


def roll(op: str, input: Any, shifts: Any = None, dims: Any = (), *args: Any, **named: Any) -> Shapes:
    """roll by any number of places along the dimensions given."""
    if isinstance(shifts, (list, tuple)) != isinstance(dims, (list, tuple)):
        return None
    if isinstance(dims, (list, tuple)):
        return None
    return along(op, input, dims)


def dropout(op: str, input: Any, p: Any = 0.5, training: Any = True, *args: Any, **named: Any) -> Shapes:
    """dropout with a probability of a drop between 0 and 1."""
    if type(p) not in (int, float) or not 0 < p < 1 or training is not True:
        return None
    return like(op, input)


def layer_norm(
    op: str, input: Any, normalized_shape: Any = None, weight: Any = None, bias: Any = None, *args: Any, **named: Any
) -> Shapes:
    """layer_norm(input, normalized_shape, weight, bias)."""
    if not isinstance(input, Handle) or not isinstance(normalized_shape, (list, tuple)) or not normalized_shape:
        return None
    sizes, shape = tuple(normalized_shape), tuple(input._spec.shape)
    if 0 in shape or shape[len(shape) - len(sizes) :] != sizes or len(shape) < len(sizes) or input._spec.strides:
        return None
    for each in (weight, bias):
        if each is not None and (not isinstance(each, Handle) or tuple(each._spec.shape) != sizes):
            return None
    return _dense(shape)


def detach(op: str, input: Any, *args: Any, **named: Any) -> Shapes:
    """detach(): a view of the whole tensor."""
    if not isinstance(input, Handle) or 0 in input._spec.shape:
        return None
    return ((tuple(input._spec.shape), input._spec.strides),)


def copied(op: str, input: Any, source: Any = None, *args: Any, **named: Any) -> Shapes:
    """copy_(source)."""
    if not isinstance(input, Handle) or not isinstance(source, Handle):
        return None
    sizes = broadcast([input._spec.shape, source._spec.shape])
    return None if sizes is None else _written((input, source), sizes)


def converted(op: str, input: Any, dtype: Any = None, device: Any = None, *args: Any, **named: Any) -> Shapes:
    """to(dtype), if that is another."""
    if not isinstance(input, Handle) or device is not None or dtype is None or dtype is input._spec.dtype:
        return None
    return _dense(input._spec.shape) if not input._spec.strides else None


def _is_reduced(reduction: Any, old: tuple[Any, ...]) -> bool:
    return reduction in ("mean", "sum") and all(each is None for each in old)


def elementwise_loss(
    op: str,
    input: Any,
    target: Any = None,
    weight: Any = None,
    size_average: Any = None,
    reduce: Any = None,
    reduction: Any = "mean",
    *args: Any,
    **named: Any,
) -> Shapes:
    """Losses of two tensors of one shape, with a mean or a sum; without weights."""
    if op != "binary_cross_entropy_with_logits":
        weight, size_average, reduce, reduction = (None, weight, size_average, reduce)
    if not isinstance(input, Handle) or not isinstance(target, Handle):
        return None
    if not _is_reduced(reduction, (weight, size_average, reduce)) or any(isinstance(one, Handle) for one in args):
        return None
    same = input._spec.shape == target._spec.shape and 0 not in input._spec.shape
    return ((((), ())),) if same else None


def class_loss(
    op: str,
    input: Any,
    target: Any = None,
    weight: Any = None,
    size_average: Any = None,
    ignore_index: Any = -100,
    reduce: Any = None,
    reduction: Any = "mean",
    *args: Any,
    **named: Any,
) -> Shapes:
    """cross_entropy and nll_loss of rows, with a class for each, a mean or a sum; without weights."""
    if not isinstance(input, Handle) or not isinstance(target, Handle) or ignore_index != -100:
        return None
    shape, classes = input._spec.shape, target._spec
    if len(shape) != 2 or 0 in shape or classes.dtype.name != "int64" or tuple(classes.shape) != shape[:1]:
        return None
    return ((((), ())),) if _is_reduced(reduction, (weight, size_average, reduce)) else None


def embedding_bag(
    op: str,
    input: Any,
    weight: Any = None,
    offsets: Any = None,
    max_norm: Any = None,
    norm_type: Any = 2.0,
    scale: Any = False,
    mode: Any = "mean",
    sparse: Any = False,
    samples: Any = None,
    last: Any = False,
    padding_idx: Any = None,
    *args: Any,
    **named: Any,
) -> Shapes:
    """embedding_bag of indices in a row, with the start of each bag."""
    if not all(isinstance(each, Handle) for each in (input, weight, offsets)):
        return None
    one, rows, bags = input._spec, weight._spec, offsets._spec
    plain = max_norm is None and samples is None and padding_idx is None and not (scale or sparse or last)
    if not plain or len(one.shape) != 1 or len(rows.shape) != 2 or len(bags.shape) != 1:
        return None
    if one.strides or rows.strides or bags.strides or 0 in (*one.shape, *rows.shape, *bags.shape):
        return None
    return _dense((bags.shape[0], rows.shape[1]))


def drawn(op: str, input: Any, first: Any = None, second: Any = None, *args: Any, **named: Any) -> Shapes:
    """uniform_(from, to) and normal_(mean, std)."""
    if type(first) not in (int, float) or type(second) not in (int, float):
        return None
    most = 1 << 15  # within the range of all floating dtypes
    least = first if op == "uniform_" else 0
    return like(op, input) if -most <= first <= most and least <= second <= most else None


#: Rules by name.
RULES: dict[str, Rule] = {
    rule.__name__: rule
    for rule in (
        pointwise, like, along, reduction, extremum, creation, creation_like, random_integers, number_range, steps,
        identity, permutation, getitem, setitem, select, narrow, reshape, flatten, expand, unsqueeze, squeeze,
        transpose, last_two, permute, unbind, split, chunk, diagonal, matmul, linear, stack, cat, index_select, gather,
        embedding, repeat, pad, topk, sort, roll, dropout, drawn, layer_norm, deviation, detach, copied, converted,
        elementwise_loss, class_loss, embedding_bag,
    )
}  # fmt: skip
