"""Order along a dimension: sort, topk, kthvalue, median. Values are differentiable; indices are their positions.

Indices of equal elements are PyTorch's: `ties.py`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from gradwire_engine.core import dtypes
from gradwire_engine.core.device import Array
from gradwire_engine.core.errors import EngineError, Reason
from gradwire_engine.op.composite import composite
from gradwire_engine.op.cost import by_sorting
from gradwire_engine.op.integer_bounds import positions, values_and_positions
from gradwire_engine.op.op import op
from gradwire_engine.ops.base.checks import as_sortable, needs_order, normalize_dim
from gradwire_engine.ops.index import ties
from gradwire_engine.ops.index.gather import put_along
from gradwire_engine.ops.shape.shape import at, unsqueeze


def scatter_selected(g: Any, indices: Any, shape: tuple[int, ...], dim: int, keepdim: bool) -> Any:
    """Gradient of values selected at `indices` along `dim`: g at these positions, zeros elsewhere."""
    if not keepdim and shape:
        dim = normalize_dim(dim, len(shape))
        g, indices = unsqueeze(g, dim), unsqueeze(indices, dim)
    return put_along(g, dim, indices, shape)


def _order(xp: Any, input: Array, dim: int, descending: bool, stable: bool = True) -> Array:
    """Argsort along `dim`; nan counts as the largest. Raises EngineError: RUNTIME for complex numbers."""
    if input.dtype.kind == "c":
        raise EngineError(Reason.RUNTIME, "Sort does not support complex dtypes on CPU")
    if not input.ndim:
        return xp.zeros((), dtypes.int64)
    input = as_sortable(input)
    if descending:
        backward = xp.argsort(xp.flip(input, dim), dim, kind="stable")
        order = xp.flip(input.shape[dim] - 1 - backward, dim)
    else:
        order = xp.argsort(input, dim, kind="stable")
    return order if stable else ties.sorted_order(xp, input, dim, order, descending)


def _with_indices(xp: Any, input: Array, indices: Array, dim: int) -> tuple[Array, Array]:
    return (xp.take_along_axis(input, indices, dim) if input.ndim else input.copy()), indices


@op(
    outputs=("values", "indices"),
    differentiable_outputs=(0,),
    node=lambda input, dim, descending, stable: f"SortBackward{int(stable)}",
    cost=by_sorting(6),
)
def sort(xp: Any, input: Array, dim: int = -1, descending: bool = False, stable: bool = False) -> Array:
    """Sort along `dim`; return the values and their indices (torch.sort).

    Without `stable`, equal elements have PyTorch's order on a CPU, if the lines that have some are of at most 65,536
    elements together. Others keep their order.
    """
    dim = normalize_dim(dim, input.ndim)
    order = _order(xp, input, dim, descending, stable)
    return _with_indices(xp, input, xp.ascontiguousarray(order).reshape(input.shape), dim)


sort.grad(input=lambda g, out1, input_meta, dim: scatter_selected(g, out1, input_meta.shape, dim, True))
sort.tangent("selection").bounds_results(values_and_positions(1), of_integers=False)


@op(cost=by_sorting(6))
def argsort(xp: Any, input: Array, dim: int = -1, descending: bool = False, stable: bool = False) -> Array:
    """Indices that sort along `dim` (torch.argsort); equal elements as with `sort`."""
    return _order(xp, input, normalize_dim(dim, input.ndim), descending, stable).copy()


argsort.works_in(forward=1.1).bounds_results(positions(1), of_integers=False)


@composite
def msort(input: Array) -> Array:
    """Sort along the first dimension (torch.msort)."""
    return sort(input, 0)[0]


@op(outputs=("values", "indices"), differentiable_outputs=(0,), cost=by_sorting(6))
def topk(xp: Any, input: Array, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Array:
    """The k largest (or smallest) values along `dim`, sorted, and their indices (torch.topk).

    Indices of equal elements, and with `sorted=False` the order, are PyTorch's on a CPU within the limit of `sort`.
    """
    dim = normalize_dim(dim, input.ndim)
    if k < 0 or k > (input.shape[dim] if input.ndim else 1):
        raise EngineError(Reason.RUNTIME, "selected index k out of range", k=k)
    if input.dtype == dtypes.bool_:
        raise EngineError(Reason.RUNTIME, "topk does not support bool dtypes on CPU")
    if not input.ndim:
        return _with_indices(xp, input, xp.zeros((), dtypes.int64), dim)
    if xp is np and _FEW * k <= input.shape[dim] >= _LONG and input.dtype.char in _NATIVE:
        indices = _top_indices(input, k, dim, largest)
    else:
        indices = at(_order(xp, input, dim, largest), dim, slice(0, k)).copy()
    return _with_indices(xp, input, ties.top_indices(xp, input, dim, indices, largest, sorted), dim)


topk.bounds_results(values_and_positions(2), of_integers=False)
topk.unsupported("c", message=" topk does not support complex dtypes on CPU")


# A partition is faster than a sort from _LONG elements on, if at most 1/_FEW of them are wanted; dtypes of NumPy only.
_FEW = 8
_LONG = 256
_NATIVE = "efdbhilqBHILQ"


def _top_indices(input: Array, k: int, dim: int, largest: bool) -> Array:
    """Indices of the k largest (or smallest) values along `dim`, sorted by value; equal values keep their order."""
    if not k:
        return np.zeros((*input.shape[:dim], 0, *input.shape[dim + 1 :]), dtypes.int64)
    rank = input.shape[dim] - k if largest else k - 1
    found = at(np.argpartition(input, rank, dim), dim, slice(rank, None) if largest else slice(0, k))
    found = np.sort(found, dim)
    order = _order(np, np.take_along_axis(input, found, dim), dim, largest)
    return np.take_along_axis(found, order, dim)


topk.grad(input=lambda g, out1, input_meta, dim: scatter_selected(g, out1, input_meta.shape, dim, True))
topk.tangent("selection")


def _ranked(xp: Any, input: Array, rank: int, dim: int) -> Array:
    """The index of the element of a rank along `dim`, counted from 0, in a stable order; the dimension is kept."""
    partitioned = xp is np and input.shape[dim] >= _LONG and input.dtype.char in _NATIVE
    order = np.argpartition(input, rank, dim) if partitioned else _order(xp, input, dim, False)
    index = at(order, dim, slice(rank, rank + 1)).copy()
    return ties.stable_index(input, dim, index, rank) if partitioned else index


def _squeezed(values: Array, indices: Array, dim: int, keepdim: bool) -> tuple[Array, Array]:
    return (values, indices) if keepdim or not values.ndim else (values.squeeze(dim), indices.squeeze(dim))


@op(outputs=("values", "indices"), differentiable_outputs=(0,), complex_grad=False, cost=by_sorting(3))
def kthvalue(xp: Any, input: Array, k: int, dim: int = -1, keepdim: bool = False) -> Array:
    """k-th smallest value along `dim`, and its index (torch.kthvalue)."""
    dim = normalize_dim(dim, input.ndim)
    if input.ndim and not input.shape[dim]:
        raise EngineError(
            Reason.INDEX_OUT_OF_RANGE, f"kthvalue(): Expected reduction dim {dim} to have non-zero size.", dim=dim
        )
    if input.ndim:
        _refuse_unranked("kthvalue_cpu", input.dtype)
    if not 1 <= k <= (input.shape[dim] if input.ndim else 1):
        raise EngineError(Reason.RUNTIME, f"kthvalue(): selected number k out of range for dimension {dim}", k=k)
    if not input.ndim:
        return _with_indices(xp, input, xp.zeros((), dtypes.int64), dim)
    indices = ties.ranked_index(xp, input, dim, _ranked(xp, input, k - 1, dim), k - 1)
    return _squeezed(*_with_indices(xp, input, indices, dim), dim, keepdim)


def _refuse_unranked(kernel: str, dtype: dtypes.DType) -> None:
    """Refuse complex numbers and bools, which PyTorch does not rank. Raises EngineError: NOT_SUPPORTED."""
    needs_order(kernel, dtype)
    if dtype == dtypes.bool_:
        raise EngineError(Reason.NOT_SUPPORTED, f"\"{kernel}\" not implemented for 'Bool'", op=kernel)


def empty_median(xp: Any, dtype: dtypes.DType) -> Array:
    """Median of an empty tensor: nan, or PyTorch's conversion of nan to the integer dtype."""
    if dtypes.category(dtype) >= dtypes.FLOAT:
        return xp.asarray(math.nan, dtype)
    wide = dtype.itemsize >= dtypes.int32.itemsize
    return xp.asarray(np.iinfo(dtype).min if wide else dtype == dtypes.bool_, dtype)


@op(
    name="_median_dim",
    node="MedianBackward1",
    outputs=("values", "indices"),
    differentiable_outputs=(0,),
    cost=by_sorting(3),
)
def median_dim(xp: Any, input: Array, dim: int, keepdim: bool) -> Array:
    """Lower median along `dim`, or nan if a value is nan; and its index."""
    dim = normalize_dim(dim, input.ndim)
    length = input.shape[dim] if input.ndim else 1
    if not length:
        raise EngineError(
            Reason.INDEX_OUT_OF_RANGE, f"median(): Expected reduction dim {dim} to have non-zero size.", dim=dim
        )
    _refuse_unranked("median_out", input.dtype)
    if not input.ndim:
        return _with_indices(xp, input, xp.zeros((), dtypes.int64), dim)
    values, indices = _with_indices(xp, input, _ranked(xp, input, (length - 1) // 2, dim), dim)
    if dtypes.category(input.dtype) == dtypes.FLOAT:
        missing = xp.isnan(input)
        if bool(missing.any()):
            first = xp.expand_dims(missing.argmax(dim), dim)
            indices = xp.where(missing.any(dim, keepdims=True), first, indices)
            values = xp.take_along_axis(input, indices, dim)
    return _squeezed(values, indices, dim, keepdim)


for _finder in (kthvalue, median_dim):
    _finder.grad(
        input=lambda g, out1, input_meta, dim, keepdim: scatter_selected(g, out1, input_meta.shape, dim, keepdim)
    ).tangent("selection")
