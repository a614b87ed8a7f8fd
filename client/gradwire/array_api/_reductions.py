"""One number of many: sums, extremes, moments, and sums so far.

Two things differ from PyTorch's ops: an empty `axis=()` reduces nothing. Sums of small integers have the default
integer dtype of their kind.
"""

from __future__ import annotations

from builtins import bool as Bool
from typing import Any

from gradwire._base import dtypes
from gradwire._base.dtypes import dtype
from gradwire._base.errors import GradwireValueError
from gradwire._tensor.call import _call
from gradwire._tensor.tensor import Tensor
from gradwire.array_api._array import Array, as_array, axes_of, call, cast, full, one_axis
from gradwire.array_api._dtypes import result_type

Axes = int | tuple[int, ...] | None


def reduced(op: str, x: Tensor, axis: Axes, keepdims: Bool, **named: Any) -> Array:
    """An op over axes; over none of them (`()`) each element alone."""
    axes = axes_of(x, axis)
    if not axes:
        if x.ndim == 0:
            return call(op, x, **named)
        return call(op, call("unsqueeze", x, -1), (x.ndim,), **named)
    return call(op, x, axes, keepdim=keepdims, **named)


def _accumulator(x: Tensor, wanted: dtype | None) -> dtype:
    if wanted is not None:
        return wanted
    if x.is_floating_point() or x.is_complex():
        return x.dtype
    unsigned = not x.dtype.is_signed and x.dtype is not dtypes.bool_
    return dtypes.uint64 if unsigned else dtypes.int64


def sum(x: Tensor, /, *, axis: Axes = None, dtype: dtype | None = None, keepdims: Bool = False) -> Array:
    """The sum over axes; of integers in int64 or uint64 by default."""
    return reduced("sum", x, axis, keepdims, dtype=_accumulator(x, dtype))


def prod(x: Tensor, /, *, axis: Axes = None, dtype: dtype | None = None, keepdims: Bool = False) -> Array:
    """The product over axes; of integers in int64 or uint64 by default."""
    of = _accumulator(x, dtype)
    axes = axes_of(x, axis)
    if not axes:
        return as_array(cast(x, of), (x,))
    # The op takes one axis: those that are to go become one, the last.
    kept = [one for one in range(x.ndim) if one not in axes]
    moved = x if len(axes) == 1 else call("permute", x, (*kept, *axes))
    if len(axes) > 1:
        count = 1
        for one in axes:
            count *= x.shape[one]
        moved = call("reshape", moved, (*[x.shape[one] for one in kept], count))
    found = call("prod", moved, axes[0] if len(axes) == 1 else -1, dtype=of)
    if keepdims:
        return call("reshape", found, tuple(1 if one in axes else x.shape[one] for one in range(x.ndim)))
    return found


def max(x: Tensor, /, *, axis: Axes = None, keepdims: Bool = False) -> Array:
    """The greatest element over axes; NaN if one is."""
    return reduced("amax", x, axis, keepdims)


def min(x: Tensor, /, *, axis: Axes = None, keepdims: Bool = False) -> Array:
    """The least element over axes; NaN if one is."""
    return reduced("amin", x, axis, keepdims)


def _floating(x: Tensor) -> Tensor:
    return x if x.is_floating_point() or x.is_complex() else cast(x, dtypes.get_default_dtype())


def mean(x: Tensor, /, *, axis: Axes = None, keepdims: Bool = False) -> Array:
    """The mean over axes; of integers in the default floating dtype."""
    return reduced("mean", _floating(x), axis, keepdims)


def var(x: Tensor, /, *, axis: Axes = None, correction: int | float = 0.0, keepdims: Bool = False) -> Array:
    """The variance over axes: squares summed, divided by the count less `correction`."""
    return reduced("var", _floating(x), axis, keepdims, correction=correction)


def std(x: Tensor, /, *, axis: Axes = None, correction: int | float = 0.0, keepdims: Bool = False) -> Array:
    """The standard deviation over axes, the root of `var`."""
    return reduced("std", _floating(x), axis, keepdims, correction=correction)


def all(x: Tensor, /, *, axis: Axes = None, keepdims: Bool = False) -> Array:
    """Whether all elements over axes are true."""
    return reduced("all", cast(x, dtypes.bool_), axis, keepdims)


def any(x: Tensor, /, *, axis: Axes = None, keepdims: Bool = False) -> Array:
    """Whether an element over axes is true."""
    return reduced("any", cast(x, dtypes.bool_), axis, keepdims)


def cumulative_sum(
    x: Tensor, /, *, axis: int | None = None, dtype: dtype | None = None, include_initial: Bool = False
) -> Array:
    """The sums so far along an axis, which a vector need not name; with `include_initial` a zero before them."""
    return _cumulative("cumsum", 0, x, axis, dtype, include_initial)


def cumulative_prod(
    x: Tensor, /, *, axis: int | None = None, dtype: dtype | None = None, include_initial: Bool = False
) -> Array:
    """The products so far along an axis, which a vector need not name; with `include_initial` a one before them."""
    return _cumulative("cumprod", 1, x, axis, dtype, include_initial)


def _cumulative(op: str, first: int, x: Tensor, axis: int | None, of: dtype | None, include_initial: Bool) -> Array:
    if axis is None and x.ndim != 1:
        raise GradwireValueError(f"axis is needed for an array of {x.ndim} axes")
    along = one_axis(axis or 0, x.ndim)
    made = call(op, x, along, dtype=_accumulator(x, of))
    if not include_initial:
        return made
    shape = tuple(1 if one == along else size for one, size in enumerate(x.shape))
    return as_array(_call("cat", ([full(shape, first, made.dtype, x.device, x._session), made], along)))


def diff(
    x: Tensor, /, n: int = 1, *, axis: int = -1, prepend: Tensor | None = None, append: Tensor | None = None
) -> Array:
    """The n-th differences along an axis, after the array was given more at its ends.

    `n` may stand second, as in NumPy: scikit-learn calls it so.
    """
    along = one_axis(axis, x.ndim)
    joint = result_type(x, *[one for one in (prepend, append) if one is not None])
    ends = {name: None if one is None else cast(one, joint) for name, one in (("prepend", prepend), ("append", append))}
    return call("diff", cast(x, joint), n, along, **ends)
