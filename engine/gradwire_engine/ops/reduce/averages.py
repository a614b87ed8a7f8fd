"""nanmean, nanmedian and mode."""

from __future__ import annotations

from typing import Any

from gradwire_engine.core import dtypes
from gradwire_engine.core.device import Array
from gradwire_engine.core.dtypes import DType
from gradwire_engine.core.errors import EngineError, Reason
from gradwire_engine.graph.tensor import Tensor
from gradwire_engine.op.composite import composite
from gradwire_engine.op.cost import by_sorting
from gradwire_engine.op.op import op
from gradwire_engine.ops.base.checks import as_sortable, needs_order, normalize_dim
from gradwire_engine.ops.elementwise.unary import isnan
from gradwire_engine.ops.index.sort import empty_median, scatter_selected
from gradwire_engine.ops.index.ties import sorted_order
from gradwire_engine.ops.reduce.cumulative import accumulated, nansum
from gradwire_engine.ops.reduce.reduce import split_among_all_ties
from gradwire_engine.ops.reduce.reduce import sum as total

Ints = Any


@composite(reads_values=True)
def nanmean(
    input: Array, dim: Ints | None = None, keepdim: bool = False, *, dtype: DType | None = None
) -> Any:  # fmt: skip
    """Mean over `dim`, or over all dimensions, without nan (torch.nanmean).

    Raises EngineError: RUNTIME for integers.
    """
    if dtypes.category(input.dtype) < dtypes.FLOAT:
        raise EngineError(
            Reason.RUNTIME,
            f"nanmean(): expected input to have floating point or complex dtype but got {dtypes.TITLES[input.dtype]}",
        )
    if dtype is not None and dtypes.category(dtype) < dtypes.FLOAT:
        raise EngineError(
            Reason.RUNTIME,
            "nanmean(): could not infer output dtype. Optional dtype must be either a floating point or complex dtype. "
            f"Got: {dtypes.TITLES[dtype]}",
        )
    counted = total(_invert(isnan(input)), dim, keepdim)
    return nansum(input, dim, keepdim, dtype=dtype) / counted


def _invert(value: Any) -> Any:
    return Tensor(~value.array) if type(value) is Tensor else ~value


# nanmedian and mode.


def _median_index(xp: Any, input: Array) -> Array:
    """Index of the lower median along the last dimension, without nan; 0 if all are nan."""
    order = xp.argsort(as_sortable(input), -1, kind="stable")
    counts = xp.full((*input.shape[:-1], 1), input.shape[-1])
    if dtypes.category(input.dtype) == dtypes.FLOAT:
        counts = counts - xp.isnan(input).sum(-1, keepdims=True)
    rank = xp.maximum((counts - 1) // 2, 0)
    return xp.take_along_axis(order, rank, -1)


def _needs_median(input: Array) -> None:
    if input.dtype == dtypes.bool_:
        raise EngineError(Reason.NOT_SUPPORTED, "\"median_cpu\" not implemented for 'Bool'", op="nanmedian")
    needs_order("median_cpu", input.dtype)


@op(
    name="_nanmedian_dim",
    node="NanmedianBackward1",
    outputs=("values", "indices"),
    differentiable_outputs=(0,),
    cost=by_sorting(6),
)
def _nanmedian_dim(xp: Any, input: Array, dim: int, keepdim: bool) -> Array:
    dim = normalize_dim(dim, input.ndim)
    if input.ndim and not input.shape[dim]:
        raise EngineError(
            Reason.INDEX_OUT_OF_RANGE, f"median(): Expected reduction dim {dim} to have non-zero size.", dim=dim
        )
    _needs_median(input)
    if not input.ndim:
        return input.copy(), xp.zeros((), dtypes.int64)
    indices = xp.moveaxis(_median_index(xp, xp.moveaxis(input, dim, -1)), -1, dim)
    values = xp.take_along_axis(input, indices, dim)
    return (values, indices) if keepdim else (values.squeeze(dim), indices.squeeze(dim))


@op(name="_nanmedian", node="NanmedianBackward0", complex_grad=False, cost=by_sorting(3))
def _nanmedian_all(xp: Any, input: Array) -> Array:
    if not input.size:
        return empty_median(xp, input.dtype)
    _needs_median(input)
    flat = input.reshape(-1)
    return flat[_median_index(xp, flat)].reshape(())


_nanmedian_all.works_in(forward=0.6).grad(input=split_among_all_ties).tangent("reduction")


@composite(outputs=("values", "indices"))
def nanmedian(input: Array, dim: int | None = None, keepdim: bool = False) -> Any:
    """Lower median without nan; with a dim, values and indices along it (torch.nanmedian)."""
    return _nanmedian_all(input) if dim is None else _nanmedian_dim(input, dim, keepdim)


@nanmedian.overload("")
def _(input: Array) -> Any: ...


@nanmedian.overload("dim", outputs=("values", "indices"))
def _(input: Array, dim: int, keepdim: bool = False) -> Any: ...


@op(outputs=("values", "indices"), differentiable_outputs=(0,), cost=by_sorting(6))
def mode(xp: Any, input: Array, dim: int = -1, keepdim: bool = False) -> Array:
    """Most frequent value along `dim`, the smallest of several, and its index (torch.mode)."""
    dim = normalize_dim(dim, input.ndim)
    length = input.shape[dim] if input.ndim else 1
    if not length:
        raise EngineError(
            Reason.INDEX_OUT_OF_RANGE, f"mode(): Expected reduction dim {dim} to have non-zero size.", dim=dim
        )
    needs_order("mode_cpu", input.dtype)
    if not input.ndim:
        return input.copy(), xp.zeros((), dtypes.int64)
    lines = xp.moveaxis(input, dim, -1)
    order = xp.argsort(as_sortable(lines), -1, kind="stable")
    order = sorted_order(xp, lines, lines.ndim - 1, order, False)
    values = xp.take_along_axis(lines, order, -1)
    places = xp.arange(length)
    starts = xp.zeros(values.shape, dtypes.int64)
    starts[..., 1:] = xp.where(values[..., 1:] != values[..., :-1], places[1:], 0)
    runs = places - accumulated(xp, xp.maximum, starts, starts.ndim - 1) if starts.size else starts
    last = xp.expand_dims(runs.argmax(-1), -1) if starts.size else starts[..., :1]
    indices = xp.moveaxis(xp.take_along_axis(order, last, -1), -1, dim)
    values = xp.take_along_axis(input, indices, dim)
    return (values, indices) if keepdim else (values.squeeze(dim), indices.squeeze(dim))


mode.works_in(forward=1.3)


for _finder in (_nanmedian_dim, mode):
    _finder.grad(
        input=lambda g, out1, input_meta, dim, keepdim: scatter_selected(g, out1, input_meta.shape, dim, keepdim)
    ).tangent("selection")
