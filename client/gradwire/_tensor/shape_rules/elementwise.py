"""Shape rules of ops whose results have the operands' broadcast sizes, or these without some dimensions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from gradwire._proxy.handle import Handle
from gradwire._proxy.memo import Spec
from gradwire._tensor.shape_rules.sizes import (
    Shapes,
    Sizes,
    broadcast,
    dense,
    dim_of,
    dtype_of,
    fits,
    is_row_major,
    strided,
)

# Ops that refuse a zero, or a negative number, as the second operand of integers.
_DIVISIONS = frozenset({"floor_divide", "remainder", "fmod"})
# Ops whose results are row-major whatever the operands are.
_ROW_MAJOR = frozenset({"masked_fill", "signbit", "standard_gamma"})
_NONNEGATIVE = frozenset({"pow", "bitwise_left_shift", "bitwise_right_shift"})


def pointwise(op: str, *args: Any, **named: Any) -> Shapes:
    """Elementwise ops: the broadcast shape. In place, the target's shape and strides."""
    values = [*args, *named.values()] if named else args
    tensors = [value for value in values if isinstance(value, Handle)]
    if not tensors:
        return None
    specs = [tensor._spec for tensor in tensors]
    name = op.removesuffix("_")
    if name == "clamp" and all(value is None for value in values[1:]):
        return None  # refused: it needs a bound
    for value in values:
        if not all(fits(value, spec.dtype) for spec in specs):
            return None
        if type(value) is int and ((not value and name in _DIVISIONS) or (value < 0 and name in _NONNEGATIVE)):
            return None
    sizes = specs[0].shape if len(specs) == 1 else broadcast([spec.shape for spec in specs])
    if sizes is None:
        return None
    if op is not name:
        return written(tensors, sizes)
    if all(map(is_row_major, specs)):
        return dense(sizes)
    if 1 not in sizes and not specs[0].strides and all(spec.shape == sizes for spec in specs):
        return dense(sizes)
    return _permuted(specs) if name not in _ROW_MAJOR else None


def _permuted(specs: Sequence[Spec]) -> Shapes:
    """The result of tensors with the same order of dimensions in memory, without gaps: that order."""
    spec = specs[0]
    if 0 in spec.shape or 1 in spec.shape or 0 in spec.strides:
        return None
    if any(other.shape != spec.shape or other.strides != spec.strides for other in specs):
        return None
    step = 1
    for stride, size in sorted(zip(spec.strides, spec.shape, strict=True)):
        if stride != step:
            return None
        step *= size
    return strided(spec.shape, spec.strides) if dense(spec.shape) is not None else None


def written(tensors: Sequence[Handle], sizes: Sizes) -> Shapes:
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
    kind = dtype_of(named, spec.dtype)
    if any(isinstance(value, Handle) or not fits(value, kind) for value in args):
        return None
    if op.endswith("_"):
        return written((input,), spec.shape)
    return dense(spec.shape) if not spec.strides else None


def triangle(op: str, input: Any, *args: Any, **named: Any) -> Shapes:
    """tril and triu of matrices, or of batches of them."""
    return like(op, input, *args, **named) if isinstance(input, Handle) and len(input._spec.shape) > 1 else None


def along(op: str, input: Any, dim: Any = -1, *args: Any, **named: Any) -> Shapes:
    """Ops along one dimension that keep the shape, such as softmax and cumsum."""
    if not isinstance(input, Handle) or dim_of(dim, len(input._spec.shape)) < 0:
        return None
    return dense(input._spec.shape) if is_row_major(input._spec) else None


def reduction(op: str, input: Any, dim: Any = None, keepdim: Any = False, *args: Any, **named: Any) -> Shapes:
    """Reductions over no, one or several dimensions."""
    if not isinstance(input, Handle) or type(keepdim) is not bool:
        return None
    spec = input._spec
    sizes = _reduced(spec.shape, dim, keepdim)
    return None if sizes is None or (sizes and not is_row_major(spec)) else ((sizes, ()),)


def log_of_sums(op: str, input: Any, dim: Any = None, keepdim: Any = False, *args: Any, **named: Any) -> Shapes:
    """logsumexp over one dimension."""
    return reduction(op, input, dim, keepdim) if type(dim) is int else None


def length(op: str, input: Any, p: Any = 2, dim: Any = None, keepdim: Any = False, *args: Any, **named: Any) -> Shapes:
    """norm and linalg.vector_norm of tensors that have elements."""
    usual = p == "fro" if type(p) is str else type(p) in (int, float) and 0 < p < math.inf
    if not usual or args or any(value is not None for value in named.values()):
        return None
    return reduction(op, input, dim, keepdim) if isinstance(input, Handle) and 0 not in input._spec.shape else None


def deviation(
    op: str, input: Any, dim: Any = None, unbiased: Any = None, keepdim: Any = False, *args: Any, **named: Any
) -> Shapes:
    """std and var of more than one element each; of fewer, a warning may be due."""
    correction = named.get("correction")
    if unbiased is False or isinstance(correction, Handle) or correction not in (None, 1):
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
    dims = [dim_of(one, rank) for one in (dim if isinstance(dim, (list, tuple)) else (dim,))]
    if min(dims) < 0 or len(set(dims)) != len(dims):
        return None
    if keepdim:
        return tuple([1 if place in dims else size for place, size in enumerate(shape)])
    return tuple([size for place, size in enumerate(shape) if place not in dims])


def extremum(op: str, input: Any, dim: Any = None, keepdim: Any = False, *args: Any, **named: Any) -> Shapes:
    """max and min: one result, values and indices along a dimension, or those of two tensors' elements."""
    if isinstance(dim, Handle) and keepdim is False and all(value is None for value in (*args, *named.values())):
        return pointwise(op, input, dim) if isinstance(input, Handle) else None
    if isinstance(dim, (Handle, list, tuple)) or any(isinstance(value, Handle) for value in named.values()):
        return None
    if dim is None and keepdim:
        return None
    made = reduction(op, input, dim, keepdim)
    return made if made is None or dim is None else made * 2


def all_close(
    op: str, input: Any, other: Any = None, rtol: Any = 1e-5, atol: Any = 1e-8, *args: Any, **named: Any
) -> Shapes:
    """allclose of tensors that broadcast."""
    if not isinstance(input, Handle) or not isinstance(other, Handle):
        return None
    if any(type(each) is not float or not 0 <= each <= 1 for each in (rtol, atol)):
        return None
    return None if broadcast([input._spec.shape, other._spec.shape]) is None else (((), ()),)


def dropout(op: str, input: Any, p: Any = 0.5, training: Any = True, *args: Any, **named: Any) -> Shapes:
    """dropout with a probability of a drop between 0 and 1."""
    if type(p) not in (int, float) or not 0 < p < 1 or training is not True:
        return None
    return like(op, input)


def copied(op: str, input: Any, source: Any = None, *args: Any, **named: Any) -> Shapes:
    """copy_(source)."""
    if not isinstance(input, Handle) or not isinstance(source, Handle):
        return None
    sizes = broadcast([input._spec.shape, source._spec.shape])
    return None if sizes is None else written((input, source), sizes)


def converted(op: str, input: Any, dtype: Any = None, device: Any = None, *args: Any, **named: Any) -> Shapes:
    """to(dtype), if that is another."""
    if not isinstance(input, Handle) or device is not None or dtype is None or dtype is input._spec.dtype:
        return None
    return dense(input._spec.shape) if not input._spec.strides else None


def drawn_integers(op: str, input: Any, first: Any = 0, end: Any = None, *args: Any, **named: Any) -> Shapes:
    """random_(from, to) of int64."""
    if not isinstance(input, Handle) or input._spec.dtype.name != "int64" or type(first) is not int:
        return None
    usual = first == 0 if end is None else type(end) is int and -(1 << 31) < first < end < 1 << 31
    return like(op, input) if usual else None


def drawn(op: str, input: Any, first: Any = None, second: Any = None, *args: Any, **named: Any) -> Shapes:
    """uniform_(from, to) and normal_(mean, std)."""
    if type(first) not in (int, float) or type(second) not in (int, float):
        return None
    most = 1 << 15  # within the range of all floating dtypes
    least = first if op == "uniform_" else 0
    return like(op, input) if -most <= first <= most and least <= second <= most else None
