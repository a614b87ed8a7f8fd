"""Copies of a tensor with a part replaced: select_scatter and its relatives, masked_scatter, scatter_reduce, put.

The first three replace the part of a view. Their gradients are the view, and the same op with zeros as source.
"""

from __future__ import annotations

import math
from typing import Any, Literal

from gradwire_engine.core import dtypes
from gradwire_engine.core.device import Array
from gradwire_engine.core.errors import EngineError, Reason
from gradwire_engine.graph.tensor import Tensor
from gradwire_engine.op.composite import composite
from gradwire_engine.op.cost import gathering
from gradwire_engine.op.integer_bounds import elements_of
from gradwire_engine.op.op import op
from gradwire_engine.op.saving import reads_values
from gradwire_engine.ops.base.basic import expand
from gradwire_engine.ops.base.checks import normalize_dim
from gradwire_engine.ops.base.compare import eq, logical_and
from gradwire_engine.ops.base.fill import masked_fill, where, zeros
from gradwire_engine.ops.base.index_accumulation import add_flat, combine_at
from gradwire_engine.ops.base.precision import is_half, through_float32
from gradwire_engine.ops.index.gather import (
    flat_places,
    gather,
    gather_backward,
    masked_select,
    positions_along,
    scatter,
    source_part,
)
from gradwire_engine.ops.index.index import index_put
from gradwire_engine.ops.shape.join import cat
from gradwire_engine.ops.shape.shape import contiguous, diagonal, reshape, select, slice_

# Replacing the part of a view.


def _replaced(xp: Any, input: Array, view: Any, src: Array, *args: Any) -> Array:
    result = xp.array(input)
    part = view(result, *args)
    if src.shape != part.shape:
        raise EngineError(
            Reason.RUNTIME,
            "expected src to have a size equal to the slice of self. src size = "
            f"{list(src.shape)}, slice size = {list(part.shape)}",
        )
    part[...] = src
    return result


@op(complex_grad=False, cost=8)
def select_scatter(xp: Any, input: Array, src: Array, dim: int, index: int) -> Array:
    """Copy of the input with `src` at one index of `dim` (torch.select_scatter)."""
    return _replaced(xp, input, select, src, dim, index)


@op(complex_grad=False, cost=8)
def slice_scatter(
    xp: Any, input: Array, src: Array, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Array:
    """Copy of the input with `src` in a slice of `dim`: start to end, by step (torch.slice_scatter)."""
    return _replaced(xp, input, slice_, src, dim, start, end, step)


@op(cost=8)
def diagonal_scatter(xp: Any, input: Array, src: Array, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Array:
    """Copy of the input with `src` on the diagonal of two dimensions (torch.diagonal_scatter)."""
    return _replaced(xp, input, diagonal, src, offset, dim1, dim2)


for _scattering in (select_scatter, slice_scatter, diagonal_scatter):
    _scattering.bounds_results(elements_of(0, 1))
select_scatter.grad(
    input=lambda g, src_meta, dim, index: select_scatter(g, zeros(g, src_meta.shape), dim, index),
    src=lambda g, dim, index: select(g, dim, index),
).tangent("linear")
slice_scatter.grad(
    input=lambda g, src_meta, dim, start, end, step: slice_scatter(g, zeros(g, src_meta.shape), dim, start, end, step),
    src=lambda g, dim, start, end, step: slice_(g, dim, start, end, step),
).tangent("linear")
diagonal_scatter.grad(
    input=lambda g, src_meta, offset, dim1, dim2: diagonal_scatter(g, zeros(g, src_meta.shape), offset, dim1, dim2),
    src=lambda g, offset, dim1, dim2: diagonal(g, offset, dim1, dim2),
).tangent("linear")


@op(in_place=True, cost=30)
def masked_scatter(xp: Any, input: Array, mask: Array, source: Array) -> Array:
    """Copy of the input with elements of `source`, in row-major order, where the mask is True (torch.masked_scatter).

    mask: bool, broadcasts with the input. Raises EngineError: RUNTIME for another dtype or too few elements.
    """
    if input.dtype != source.dtype:
        raise EngineError(
            Reason.RUNTIME,
            "masked_scatter: expected self and source to have same dtypes but got"
            f"{dtypes.TITLES[input.dtype]} and {dtypes.TITLES[source.dtype]}",
        )
    if mask.dtype != dtypes.bool_:
        raise EngineError(
            Reason.RUNTIME,
            f"masked_scatter_ only supports boolean masks, but got mask with dtype {dtypes.TITLES[mask.dtype]}",
        )
    input, mask = xp.broadcast_arrays(input, mask)
    count = int(mask.sum())
    if count > source.size:
        raise EngineError(Reason.RUNTIME, "Number of elements of source < number of ones in mask")
    result = xp.array(input, order="C")
    result[mask] = source.reshape(-1)[:count]
    return result


def _taken_by_mask(g: Any, mask: Any, source_meta: Any) -> Any:
    """Gradient of masked_scatter's source: g where the mask is True, then zeros for the unused elements."""
    taken = masked_select(g, mask if mask.shape == g.shape else expand(mask, g.shape))
    count = taken.shape[0]
    size = 1
    for length in source_meta.shape:
        size *= length
    return reshape(cat([taken, zeros(taken, (size - count,))], 0), source_meta.shape)


masked_scatter.bounds_results(elements_of(0, 2))
masked_scatter.grad(input=lambda g, mask: masked_fill(g, mask, 0), source=_taken_by_mask).tangent("linear")

# Reductions at repeated indices.

_MODES = ("sum", "prod", "mean", "amax", "amin")


@op(name="_scatter_product", cost=gathering(60))
@through_float32
def _scatter_product(xp: Any, src: Array, base: Array, dim: int, index: Array) -> Array:
    """Multiply `base` by the elements of `src` at the positions `index` along `dim`."""
    places = flat_places(xp, "scatter", base.shape, normalize_dim(dim, base.ndim), index)
    result = xp.array(base, order="C")
    combine_at(xp, "multiply", result.reshape(-1), places.reshape(-1), src.reshape(-1))
    return result


def _counts(xp: Any, input: Array, places: Array, include_self: bool) -> Array:
    counts = xp.full(input.shape, int(include_self), dtypes.int64)
    combine_at(xp, "add", counts.reshape(-1), places.reshape(-1), 1)
    return counts


def _neutral(xp: Any, dtype: Any, reduce: str) -> Any:
    """Neutral element of a reduction."""
    if reduce in ("sum", "mean"):
        return 0
    if reduce == "prod":
        return 1
    if dtype == dtypes.bool_:
        return reduce == "amin"
    if dtypes.category(dtype) == dtypes.FLOAT:
        return -xp.inf if reduce == "amax" else xp.inf
    limits = xp.iinfo(dtype)
    return limits.min if reduce == "amax" else limits.max


@op(name="_scatter_reduce", node="ScatterReduceBackward0", in_place=True, complex_grad=False, cost=gathering(60))
def _scatter_reduce(
    xp: Any, input: Array, dim: int, index: Array, src: Array, reduce: str, include_self: bool
) -> Array:
    if src.dtype != input.dtype:
        raise EngineError(Reason.RUNTIME, "scatter(): Expected self.dtype to be equal to src.dtype", op="scatter")
    places = flat_places(xp, "scatter", input.shape, normalize_dim(dim, input.ndim), index)
    wide = input.astype(dtypes.float32, order="C") if is_half(input.dtype) else xp.array(input, order="C")
    flat, where_to, values = wide.reshape(-1), places.reshape(-1), src.reshape(-1).astype(wide.dtype, copy=False)
    if not include_self:
        flat[where_to] = _neutral(xp, wide.dtype, reduce)
    if reduce in ("sum", "mean"):
        add_flat(xp, wide, where_to, values)
    else:
        combine_at(xp, {"prod": "multiply", "amax": "maximum", "amin": "minimum"}[reduce], flat, where_to, values)
    if reduce == "mean":
        counts = xp.maximum(_counts(xp, input, places, include_self), 1)
        wide = wide // counts if dtypes.category(wide.dtype) < dtypes.FLOAT else wide / counts.astype(wide.dtype)
    return wide.astype(input.dtype, copy=False)


_scatter_reduce.works_in(forward=1, backward=3.9)


@op(name="_scatter_counts", cost=gathering(60))
def _scatter_counts(xp: Any, input: Array, dim: int, index: Array, include_self: bool) -> Array:
    """Number of values reduced at each position, at least 1, in the input's dtype."""
    places = flat_places(xp, "scatter", input.shape, normalize_dim(dim, input.ndim), index)
    return xp.maximum(_counts(xp, input, places, include_self), 1).astype(input.dtype)


def _reduce_grads(g: Any, input: Any, index: Any, src: Any, out: Any, dim: int, reduce: str, own: bool) -> Any:
    """Gradients of the input and of src. If the input is not included, only untouched positions pass its gradient."""
    if reduce in ("sum", "mean"):
        shared = g if reduce == "sum" else g / _scatter_counts(out, dim, index, own)
        by_input, by_src = shared, gather(shared, dim, index)
    elif reduce == "prod":
        by_input, by_src = _product_grads(g, input, index, src, dim, own)
    else:
        wins, wins_src = eq(input, out), eq(src, gather(out, dim, index))
        counted = where(wins, zeros(g) + 1, 0)
        counted = counted if own else scatter(counted, dim, index, 0)
        ties = counted + gather_backward(where(wins_src, zeros(g, src.shape) + 1, 0), dim, index, out.shape)
        shared = g / where(eq(ties, 0), 1, ties)
        by_input, by_src = where(wins, shared, 0), where(wins_src, gather(shared, dim, index), 0)
    if not own:
        untouched = scatter(g, dim, index, 0)
        by_input = untouched
    return by_input, by_src


def _product_grads(g: Any, input: Any, index: Any, src: Any, dim: int, own: bool) -> Any:
    """Gradient of each factor: the product of the others, without division by a zero factor."""
    base = input if own else scatter(input, dim, index, 1)
    none, none_src = eq(base, 0), eq(src, 0)
    factors, factors_src = where(none, 1, base), where(none_src, 1, src)
    rest = _scatter_product(factors_src, factors, dim, index)
    ones = where(none, zeros(g) + 1, 0)
    missing = ones + gather_backward(where(none_src, zeros(g, src.shape) + 1, 0), dim, index, base.shape)
    some, some_src = eq(missing, 0), eq(gather(missing, dim, index), 0)
    only, only_src = eq(missing, 1), eq(gather(missing, dim, index), 1)
    share = g * rest
    share_src = gather(share, dim, index)
    by_input = where(some, share / factors, where(logical_and(only, none), share, 0))
    by_src = where(some_src, share_src / factors_src, where(logical_and(only_src, none_src), share_src, 0))
    if isinstance(g, Tensor) and bool((missing.array > 1).any()):
        # With two zero factors these gradients are 0, but their derivatives by those factors are not.
        by_input, by_src = _not_again(by_input), _not_again(by_src)
    return by_input, by_src


@op(name="_not_again", node="Error", cost=4)
def _not_again(xp: Any, input: Array) -> Array:
    """The input, with a node that refuses double backward."""
    return input


def _refuse_again(g: Any) -> Any:
    raise EngineError(
        Reason.RUNTIME,
        "scatter_reduce(), index_reduce(): Double backward is unsupported for src when >1 zeros in src are scattered "
        "to the same position in self",
    )


_not_again.grad(input=_refuse_again)


_scatter_product.grad(
    src=reads_values(lambda g, src, base, dim, index: _product_grads(g, base, index, src, dim, True)[1]),
    base=reads_values(lambda g, src, base, dim, index: _product_grads(g, base, index, src, dim, True)[0]),
)
_scatter_reduce.grad(
    input=reads_values(
        lambda g, input, index, src, out, dim, reduce, include_self: _reduce_grads(
            g, input, index, src, out, dim, reduce, include_self
        )[0]
    ),
    src=reads_values(
        lambda g, input, index, src, out, dim, reduce, include_self: _reduce_grads(
            g, input, index, src, out, dim, reduce, include_self
        )[1]
    ),
)


@composite(in_place=True, no_overlap=True)
def scatter_reduce(
    input: Array,
    dim: int,
    index: Array,
    src: Array,
    reduce: Literal["sum", "prod", "mean", "amax", "amin"],
    *,
    include_self: bool = True,
) -> Array:
    """Reduce the elements of `src` into the input at the positions `index` along `dim` (torch.scatter_reduce).

    reduce: "sum", "prod", "mean", "amax" or "amin". include_self: whether the input's element takes part.
    Raises EngineError: RUNTIME.
    """
    if reduce not in _MODES:
        raise EngineError(
            Reason.RUNTIME, f"reduce argument must be either sum, prod, mean, amax or amin, got {reduce}."
        )
    return _scatter_reduce(input, dim, index, source_part(src, index), reduce, include_self)


scatter_reduce.unsupported("c", "scatter_gather_tensor_cpu_reduce_amin", when=scatter_reduce.given("reduce", "amin"))
scatter_reduce.unsupported("c", "scatter_gather_tensor_cpu_reduce_amax", when=scatter_reduce.given("reduce", "amax"))
scatter_reduce.unsupported("b", "scatter_gather_tensor_cpu_reduce_mean", when=scatter_reduce.given("reduce", "mean"))


@composite(in_place=True, no_overlap=True)
def index_reduce(
    input: Array,
    dim: int,
    index: Array,
    source: Array,
    reduce: Literal["prod", "mean", "amax", "amin"],
    *,
    include_self: bool = True,
) -> Array:
    """Reduce the slices of `source` into the input at the positions `index` along `dim` (torch.index_reduce).

    reduce: "prod", "mean", "amax" or "amin". include_self: whether the input's slice takes part.
    Raises EngineError: RUNTIME, INDEX_OUT_OF_RANGE.
    """
    if reduce not in _MODES[1:]:
        raise EngineError(
            Reason.RUNTIME, f"index_reduce(): Expected reduce to be one of prod, mean, amax or amin but got {reduce}."
        )
    dim = normalize_dim(dim, input.ndim)
    places = positions_along(input, dim, index, source, "index_reduce")
    shape = source.shape or (1,)
    line = reshape(places, tuple(-1 if axis == dim else 1 for axis in range(len(shape))))
    whole = input if input.ndim else reshape(input, (1,))
    parts = source if source.ndim else reshape(source, (1,))
    made = _scatter_reduce(whole, dim, contiguous(expand(line, shape)), parts, reduce, include_self)
    return made if input.ndim else reshape(made, ())


index_reduce.unsupported("c", "minimum_cpu", when=index_reduce.given("reduce", "amin"))
index_reduce.unsupported("c", "maximum_cpu", when=index_reduce.given("reduce", "amax"))
index_reduce.unsupported("b", "div_floor_cpu", when=index_reduce.given("reduce", "mean"))
index_reduce.unsupported("b", "index_reduce_func_exclude_input_init", when=index_reduce.given("include_self", False))


@composite(in_place=True, no_overlap=True)
def put(input: Array, index: Array, source: Array, accumulate: bool = False) -> Array:
    """Copy of the input with `source` at flat positions `index`, added if `accumulate` (torch.put).

    index: int64. source: the input's dtype, as many elements as index. Raises EngineError: RUNTIME, INDEX_OUT_OF_RANGE.
    """
    if index.dtype != dtypes.int64:
        raise EngineError(
            Reason.RUNTIME, f"put_(): Expected a long tensor for index, but got {dtypes.TITLES[index.dtype]}"
        )
    if source.dtype != input.dtype:
        raise EngineError(
            Reason.RUNTIME,
            "put_(): self and source expected to have the same dtype, but got self.dtype = "
            f"{dtypes.TITLES[input.dtype]} and source.dtype = {dtypes.TITLES[source.dtype]}",
        )
    if math.prod(index.shape) != math.prod(source.shape):
        raise EngineError(
            Reason.INDEX_OUT_OF_RANGE,
            "put_(): Expected source and index to have the same number of elements, but got source.numel() = "
            f"{math.prod(source.shape)}, index.numel() = {math.prod(index.shape)}",
        )
    made = index_put(reshape(input, (-1,)), [reshape(index, (-1,))], reshape(source, (-1,)), accumulate)
    return reshape(made, input.shape)
