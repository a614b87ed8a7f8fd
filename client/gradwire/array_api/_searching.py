"""Where something is: extremes, nonzero elements, positions in sorted arrays; and selection by position."""

from __future__ import annotations

from typing import Any, Literal

from gradwire._base import dtypes
from gradwire._base.errors import GradwireIndexError, GradwireValueError
from gradwire._tensor.call import _call
from gradwire._tensor.tensor import Tensor
from gradwire.array_api._array import Array, as_array, call, cast, filled, one_axis, operands
from gradwire.array_api._dtypes import Scalar, result_type
from gradwire.array_api._reductions import reduced


def argmax(x: Tensor, /, *, axis: int | None = None, keepdims: bool = False) -> Array:
    """Where the greatest element is (the first of them), along an axis or in the flattened array."""
    return _extreme("argmax", x, axis, keepdims)


def argmin(x: Tensor, /, *, axis: int | None = None, keepdims: bool = False) -> Array:
    """Where the least element is (the first of them), along an axis or in the flattened array."""
    return _extreme("argmin", x, axis, keepdims)


def _extreme(op: str, x: Tensor, axis: int | None, keepdims: bool) -> Array:
    if axis is None:
        found = call(op, x)
        return call("reshape", found, (1,) * x.ndim) if keepdims else found
    return call(op, x, one_axis(axis, x.ndim), keepdims)


def count_nonzero(x: Tensor, /, *, axis: int | tuple[int, ...] | None = None, keepdims: bool = False) -> Array:
    """How many elements are not zero, as int64."""
    return reduced("sum", call("ne", x, 0), axis, keepdims, dtype=dtypes.int64)


def nonzero(x: Tensor, /) -> tuple[Array, ...]:
    """Where elements are not zero: a vector of places per axis, waited for. Raises ValueError without axes."""
    if x.ndim == 0:
        raise GradwireValueError("nonzero() takes arrays of one axis or more")
    found = _call("nonzero", (x,), (("as_tuple", True),), "tuple")
    return tuple(as_array(one) for one in found)


def searchsorted(
    x1: Tensor, x2: Tensor | Scalar, /, *, side: Literal["left", "right"] = "left", sorter: Tensor | None = None
) -> Array:
    """Where in the sorted vector x1 the elements of x2 would go, before those that are equal or after them.

    `sorter`: the places that sort x1. Raises ValueError for another side.
    """
    if side not in ("left", "right"):
        raise GradwireValueError(f'searchsorted(): side must be "left" or "right", not {side!r}')
    wanted = x2 if isinstance(x2, Tensor) else filled(x2, x1)
    joint = result_type(x1, wanted)
    source = cast(x1, joint) if sorter is None else take(cast(x1, joint), sorter)
    return call("searchsorted", source, cast(wanted, joint), right=True if side == "right" else None)


def where(condition: Tensor, x1: Tensor | Scalar | None = None, x2: Tensor | Scalar | None = None, /) -> Any:
    """x1 where the condition holds, x2 elsewhere. Raises TypeError for two numbers, which determine no dtype.

    With the condition alone it returns `nonzero`, as in NumPy: scikit-learn calls it so.
    """
    if x1 is None and x2 is None:
        return nonzero(condition)
    first, second = operands(x1, x2)
    return call("where", cast(condition, dtypes.bool_), first, second)


def take(x: Tensor, indices: Tensor, /, *, axis: int | None = None) -> Array:
    """Slices of an array along an axis, by their places, which may count from the end.

    Raises ValueError for several axes and none chosen, IndexError for a place that is not there.
    """
    if axis is None:
        if x.ndim != 1:
            raise GradwireValueError(f"take(): axis is needed for an array of {x.ndim} axes")
        axis = 0
    before = (slice(None),) * one_axis(axis, x.ndim)
    return as_array(Tensor.__getitem__(x, (*before, cast(indices, dtypes.int64))), (x,))


def take_along_axis(x: Tensor, indices: Tensor, /, *, axis: int = -1) -> Array:
    """Elements by their places along an axis, which may count from the end; the other axes are broadcast.

    Raises ValueError for indices of another number of axes, IndexError for a place that is not there.
    """
    if indices.ndim != x.ndim:
        raise GradwireValueError(f"take_along_axis(): indices have {indices.ndim} axes, the array {x.ndim}")
    along = one_axis(axis, x.ndim)
    size = x.shape[along]
    if size == 0 and indices.numel():
        raise GradwireIndexError(f"take_along_axis(): axis {along} has no elements to take")
    places = cast(indices, dtypes.int64)
    positive = call("where", call("lt", places, 0), call("add", places, size), places)
    return call("take_along_dim", x, positive, along)


def isin(x1: Tensor | Scalar, x2: Tensor | Scalar, /, *, invert: bool = False) -> Array:
    """Whether each element of x1 is among those of x2, or with `invert` is not."""
    first, second = operands(x1, x2)
    if not isinstance(second, Tensor):
        second = filled(second, first)
    return call("isin", first, second, invert=True if invert else None)
