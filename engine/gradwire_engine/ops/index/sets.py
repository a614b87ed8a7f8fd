"""Sets and bins: unique, isin, bincount, searchsorted, bucketize. None of them is differentiable."""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np

from gradwire_engine.core import dtypes
from gradwire_engine.core.device import Array
from gradwire_engine.core.dtypes import Number
from gradwire_engine.core.errors import EngineError, Reason
from gradwire_engine.op.composite import composite
from gradwire_engine.op.cost import CALL, counted
from gradwire_engine.op.integer_bounds import Range
from gradwire_engine.op.op import op
from gradwire_engine.ops.base.checks import admit, as_sortable, normalize_dim, refuse_derivative


def _searched_cost(values: Any, input: Any, *rest: Any) -> Any:
    found = 1 if not hasattr(input, "size") else input.size
    lines = 0 if values.ndim < 2 else values.size // max(1, values.shape[-1])
    return 10.0 * found * math.log2(2 + values.shape[-1]) + lines * CALL + 2.0 * values.size


def _distinct_cost(input: Any, dim: int | None) -> Any:
    per = 30.0 if dim is None else 60.0
    return per * input.size * math.log2(2 + input.size)


def _member_cost(elements_: Any, test: Any, *rest: Any) -> Any:
    sizes = [value.size if hasattr(value, "size") else 1 for value in (elements_, test)]
    return 40.0 * sum(sizes) * math.log2(2 + sum(sizes))


@op(
    name="_unique",
    data_dependent=True,
    outputs=("output", "inverse", "counts"),
    differentiable_outputs=(0,),
    node=lambda input, dim: "Unique2Backward0" if dim is None else "UniqueDimBackward0",
    cost=counted(_distinct_cost, cheap_size=1 << 16),
)
def _unique(xp: Any, input: Array, dim: int | None) -> Any:
    """Sorted distinct elements, or slices along `dim`; the index of each element among them; their counts."""
    if input.dtype == dtypes.bfloat16:  # NumPy does not sort nan last in bfloat16
        values, inverse, counts = _unique.forward(xp, input.astype(dtypes.float32), dim)
        return values.astype(dtypes.bfloat16), inverse, counts
    if dim is None:
        values, inverse, counts = xp.unique(input.reshape(-1), return_inverse=True, return_counts=True, equal_nan=False)
        inverse = inverse.reshape(input.shape)
    else:
        dim = normalize_dim(dim, input.ndim)
        values, inverse, counts = xp.unique(input, return_inverse=True, return_counts=True, axis=dim)
        inverse = inverse.reshape(-1)
    return values, inverse.astype(dtypes.int64, copy=False), counts.astype(dtypes.int64, copy=False)


_unique.works_in(forward=1.2)
_unique.grad(input=lambda g, dim: refuse_derivative("_unique2" if dim is None else "unique_dim"))


@composite(data_dependent=True, differentiable=False, outputs=("output", "inverse_indices", "counts"))
def unique(
    input: Array,
    sorted: bool = True,
    return_inverse: bool = False,
    return_counts: bool = False,
    dim: int | None = None,
) -> Any:
    """Distinct elements, or slices along `dim`, always sorted (torch.unique).

    return_inverse: also return each element's index among them. return_counts: also return their counts.
    Raises EngineError: NOT_SUPPORTED for complex numbers, DIM_OUT_OF_RANGE, RUNTIME.
    """
    if dtypes.category(input.dtype) == dtypes.COMPLEX:
        raise EngineError(Reason.NOT_SUPPORTED, f"\"unique\" not implemented for '{dtypes.TITLES[input.dtype]}'")
    if dim is not None:
        dim = normalize_dim(dim, input.ndim)
        if any(not size for axis, size in enumerate(input.shape) if axis != dim):
            raise EngineError(
                Reason.RUNTIME, "There are 0 sized dimensions, and they aren't selected, so unique cannot be applied"
            )
    values, inverse, counts = _unique(input, dim)
    wanted = [values, *([inverse] if return_inverse else []), *([counts] if return_counts else [])]
    return tuple(wanted) if len(wanted) > 1 else values


@op(
    name="_unique_consecutive",
    data_dependent=True,
    outputs=("output", "inverse", "counts"),
    differentiable_outputs=(0,),
    node="UniqueConsecutiveBackward0",
    cost=30,
)
def _unique_consecutive(xp: Any, input: Array, dim: int | None) -> Any:
    """First element, or slice along `dim`, of each run of equal ones; the run of each element; the runs' lengths."""
    lines = input.reshape(-1) if dim is None else xp.moveaxis(input, dim, 0)
    length = lines.shape[0]
    starts = xp.ones(length, bool)
    if length:
        starts[1:] = (lines[1:] != lines[:-1]).any(tuple(range(1, lines.ndim)))
    first = xp.flatnonzero(starts)
    inverse = (xp.cumsum(starts) - 1).astype(dtypes.int64)
    counts = xp.diff(xp.append(first, length)).astype(dtypes.int64)
    kept = lines[first]
    if dim is None:
        return kept, inverse.reshape(input.shape), counts
    return xp.moveaxis(kept, 0, dim), inverse, counts


_unique_consecutive.grad(input=lambda g: refuse_derivative("unique_consecutive"))


@composite(data_dependent=True, differentiable=False, outputs=("output", "inverse_indices", "counts"))
def unique_consecutive(
    input: Array, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> Any:
    """First element, or slice along `dim`, of each run of equal ones (torch.unique_consecutive).

    return_inverse: also return the run of each element. return_counts: also return the runs' lengths.
    Raises EngineError: NOT_SUPPORTED for complex numbers, DIM_OUT_OF_RANGE, RUNTIME.
    """
    if dtypes.category(input.dtype) == dtypes.COMPLEX:
        raise EngineError(Reason.NOT_SUPPORTED, f"\"unique\" not implemented for '{dtypes.TITLES[input.dtype]}'")
    if dim is not None:
        dim = normalize_dim(dim, input.ndim)
        if any(not size for axis, size in enumerate(input.shape) if axis != dim):
            raise EngineError(
                Reason.RUNTIME, "There are 0 sized dimensions, and they aren't selected, so unique cannot be applied"
            )
    values, inverse, counts = _unique_consecutive(input, dim)
    wanted = [values, *([inverse] if return_inverse else []), *([counts] if return_counts else [])]
    return tuple(wanted) if len(wanted) > 1 else values


for _unique_op in (unique, unique_consecutive):
    _unique_op.variant("", return_inverse=False, return_counts=False)
    _unique_op.variant("inverse", ("output", "inverse_indices"), return_inverse=True, return_counts=False)
    _unique_op.variant("counts", ("output", "counts"), return_inverse=False, return_counts=True)
    _unique_op.variant("inverse_counts", _unique_op.outputs, return_inverse=True, return_counts=True)


@op(cost=counted(_member_cost, cheap_size=1 << 16))
def isin(
    xp: Any,
    elements: Array | Number,
    test_elements: Array | Number,
    *,
    assume_unique: bool = False,
    invert: bool = False,
) -> Array:
    """Whether each element is in `test_elements` (torch.isin)."""
    dtype = dtypes.result_type(elements, test_elements)
    for value in (elements, test_elements):
        given = getattr(value, "dtype", dtypes.int64)
        if dtypes.category(given) in (dtypes.BOOL, dtypes.COMPLEX):
            raise EngineError(
                Reason.RUNTIME, f"Unsupported input type encountered for isin(): {dtypes.TITLES[given]}", op="isin"
            )
    elements, test_elements = (xp.asarray(value).astype(dtype, copy=False) for value in (elements, test_elements))
    return xp.isin(elements, test_elements, assume_unique=assume_unique, invert=invert)


isin.works_in(forward=5.6)


@op(
    data_dependent=True,
    drops_grad=True,
    cost=counted(lambda input, weights, minlength: 30.0 * input.size + 2.0 * minlength),
)
def bincount(xp: Any, input: Array, weights: Array | None = None, minlength: int = 0) -> Array:
    """Count each integer from 0 on, or sum its weights (torch.bincount).

    input: (n,), non-negative; weights: (n,). Raises EngineError: RUNTIME, NOT_SUPPORTED.
    """
    if dtypes.category(input.dtype) != dtypes.INT:
        raise EngineError(Reason.NOT_SUPPORTED, f"\"bincount_cpu\" not implemented for '{dtypes.TITLES[input.dtype]}'")
    if minlength < 0:
        raise EngineError(Reason.RUNTIME, "minlength should be >= 0")
    if input.ndim != 1 or (input.size and int(input.min()) < 0):
        raise EngineError(Reason.RUNTIME, "bincount only supports 1-d non-negative integral inputs.")
    if weights is not None and weights.shape != input.shape:
        raise EngineError(Reason.RUNTIME, "weights should be 1-d and have the same length as input")
    length = max(minlength, int(input.max()) + 1 if input.size else 0)
    admit((length,), dtypes.int64)
    if weights is None or not input.size:
        return xp.bincount(input, minlength=length).astype(dtypes.int64, copy=False)[:length]
    added = xp.bincount(input, weights.astype(dtypes.float64), minlength=length)[:length]
    return added.astype(dtypes.float32 if weights.dtype == dtypes.float32 else dtypes.float64, copy=False)


bincount.grad(weights=lambda g: refuse_derivative("bincount")).tangent("linear")


def _check_side(right: bool, side: str | None) -> bool:
    """Whether `side` or `right` asks for the position after equal values. Raises EngineError: RUNTIME."""
    if side not in (None, "left", "right"):
        raise EngineError(Reason.RUNTIME, f"torch.searchsorted(): side can only be 'left' or 'right' but got {side}")
    if side == "left" and right:
        raise EngineError(
            Reason.RUNTIME,
            "torch.searchsorted(): side and right can't be set to opposites, got side of left while right was True",
        )
    return right or side == "right"


@op(cost=counted(_searched_cost, cheap_size=1 << 16))
def searchsorted(
    xp: Any,
    sorted_sequence: Array,
    input: Array | Number,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: Literal["left", "right"] | None = None,
    sorter: Array | None = None,
) -> Array:
    """Insertion index of each value in the sorted last dimension (torch.searchsorted).

    sorted_sequence: (n,), or (..., n) with input (..., m). right, side: insert after equal values. sorter: indices that
    sort the sequence. Raises EngineError: RUNTIME.
    """
    behind = "right" if _check_side(right, side) else "left"
    if not sorted_sequence.ndim:
        raise EngineError(
            Reason.RUNTIME,
            "torch.searchsorted(): boundaries tensor should have positive dimension, but got 0 dimension",
        )
    values = as_sortable(xp.asarray(input))
    sorted_sequence = as_sortable(sorted_sequence)
    dtype = dtypes.int32 if out_int32 else dtypes.int64
    if sorted_sequence.ndim > 1 and (sorted_sequence.shape[:-1] != values.shape[:-1] or not values.ndim):
        raise EngineError(
            Reason.RUNTIME,
            "torch.searchsorted(): boundaries tensor should be 1 dimension or the first N-1 dimensions of boundaries "
            f"tensor and input value tensor must match, but we got boundaries tensor {list(sorted_sequence.shape)} and "
            f"input value tensor {list(values.shape)}",
        )
    if sorter is not None:
        if sorter.shape != sorted_sequence.shape:
            raise EngineError(
                Reason.RUNTIME,
                "torch.searchsorted(): boundary and sorter must have the same size, but got boundary tensor "
                f"{list(sorted_sequence.shape)} and got sorter tensor {list(sorter.shape)}",
            )
        sorted_sequence = xp.take_along_axis(sorted_sequence, sorter, -1)
    if sorted_sequence.ndim <= 1:
        return xp.asarray(xp.searchsorted(sorted_sequence.reshape(-1), values, side=behind)).astype(dtype)
    result = xp.empty(values.shape, dtype)
    for place in np.ndindex(values.shape[:-1]):
        result[place] = xp.searchsorted(sorted_sequence[place], values[place], side=behind)
    return result


searchsorted.works_in(forward=1)
searchsorted.bounds_results(lambda args, operands: [Range(0, args[0].shape[-1])], of_integers=False)
searchsorted.unsupported("c", "searchsorted_out_cpu")
searchsorted.unsupported(
    "b", "searchsorted_out_cpu", when=lambda bounds, input, *rest: bounds.dtype == getattr(input, "dtype", None)
)


@composite(differentiable=False)
def bucketize(input: Array | Number, boundaries: Array, *, out_int32: bool = False, right: bool = False) -> Array:
    """Index of the interval between `boundaries` that contains each value (torch.bucketize)."""
    if boundaries.ndim != 1:
        raise EngineError(
            Reason.RUNTIME, f"bucketize(): boundaries tensor must be 1 dimension, but got dim({boundaries.ndim})"
        )
    return searchsorted(boundaries, input, out_int32=out_int32, right=right)


bucketize.unsupported("c", "searchsorted_out_cpu")
bucketize.unsupported(
    "b", "searchsorted_out_cpu", when=lambda input, bounds, *rest: bounds.dtype == getattr(input, "dtype", None)
)
