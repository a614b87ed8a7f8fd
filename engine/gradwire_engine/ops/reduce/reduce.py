"""Reductions over some or all dimensions: sums, products, variances, extremes, counts and norms.

`expand_gradient` expands the gradient of a reduction's result to the input's shape. Half types are summed in float32.
"""

from __future__ import annotations

import builtins
import math
from typing import Any

import numpy as np

from gradwire_engine.core import dtypes
from gradwire_engine.core.device import Array
from gradwire_engine.core.dtypes import DType, Number
from gradwire_engine.core.errors import EngineError, Reason
from gradwire_engine.graph.tensor import Tensor
from gradwire_engine.op.composite import composite
from gradwire_engine.op.cost import by_sorting
from gradwire_engine.op.integer_bounds import positions, summed, values_and_positions
from gradwire_engine.op.op import op
from gradwire_engine.op.saving import reads_values
from gradwire_engine.ops.base.basic import conj, expand, sum_axes
from gradwire_engine.ops.base.checks import needs_norm_dtype, needs_order, normalize_dim, normalize_dims
from gradwire_engine.ops.base.compare import eq, logical_and, logical_or
from gradwire_engine.ops.base.fill import where, zeros
from gradwire_engine.ops.base.memory_format import row_major
from gradwire_engine.ops.base.precision import is_half, through_float32
from gradwire_engine.ops.elementwise import unary
from gradwire_engine.ops.elementwise.binary import maximum, minimum
from gradwire_engine.ops.elementwise.unary import isnan
from gradwire_engine.ops.index.sort import empty_median, median_dim, scatter_selected
from gradwire_engine.ops.reduce.scan import product_backward
from gradwire_engine.ops.shape.shape import reshape

Ints = Any


def kept_shape(shape: tuple[int, ...], dims: tuple[int, ...]) -> tuple[int, ...]:
    """Shape of a reduction over `dims` with keepdim."""
    return tuple(1 if axis in dims else size for axis, size in enumerate(shape))


def restore_dims(value: Any, shape: tuple[int, ...], dim: Any, keepdim: bool) -> Any:
    """Reinsert the reduced dimensions, of size 1, into a reduction's result, so that it broadcasts with the input."""
    if keepdim or value.ndim == len(shape):
        return value
    dims = normalize_dims(dim, len(shape))
    if len(dims) == len(shape) and not value.ndim:
        return value
    kept = kept_shape(shape, dims)
    return reshape(value, kept) if type(value) is Tensor else value.reshape(kept)


def expand_gradient(g: Any, shape: tuple[int, ...], dim: Any = None, keepdim: bool = False) -> Any:
    """Expand the gradient of a reduction's result to the input's shape, without a copy."""
    g = restore_dims(g, shape, dim, keepdim)
    if type(g) is Tensor:
        return expand(g, shape)
    return np.broadcast_to(g, shape) if isinstance(g, np.ndarray | np.generic) else expand(g, shape)


def _count(shape: tuple[int, ...], dim: Any) -> int:
    return math.prod(shape[axis] for axis in normalize_dims(dim, len(shape)))


def _numbered(name: str, first: int = 0) -> Any:
    """Node name of a reduction, which PyTorch numbers by whether `dim` was given."""
    return lambda input, dim, *rest: f"{name}Backward{first if dim is None else 1 - first}"


def _needs_float(name: str, input: Array, dtype: DType | None) -> None:
    given = dtype or input.dtype
    if dtypes.category(given) < dtypes.FLOAT:
        raise EngineError(
            Reason.RUNTIME,
            f"{name}(): could not infer output dtype. Input dtype must be either a floating point or complex dtype. "
            f"Got: {dtypes.TITLES[given]}",
        )


# Sums.


def total(xp: Any, input: Array, dims: tuple[int, ...], keepdim: bool, dtype: DType) -> Array:
    """Sum over `dims`, computed in `dtype`; half types in float32."""
    if is_half(dtype):
        return xp.asarray(input.sum(dims, keepdims=keepdim, dtype=dtypes.float32)).astype(dtype)
    if input.dtype == dtype:
        return sum_axes(xp, input, dims, keepdim)
    return input.sum(dims, keepdims=keepdim, dtype=dtype)


@op(node=_numbered("Sum"), cost=4)
@row_major
def sum(xp: Any, input: Array, dim: Ints | None = None, keepdim: bool = False, *, dtype: DType | None = None) -> Array:
    """Sum over `dim`, or over all dimensions; integers are summed in int64 (torch.sum)."""
    if dtype is None:
        dtype = input.dtype if dtypes.category(input.dtype) >= dtypes.FLOAT else dtypes.int64
    return total(xp, input, normalize_dims(dim, input.ndim), keepdim, dtype)


sum.works_in(backward=0, grows=False).bounds_results(summed)
sum.grad(input=lambda g, input_meta, dim, keepdim: expand_gradient(g, input_meta.shape, dim, keepdim)).tangent("linear")


@op(node=_numbered("Mean"), cost=4)
@row_major
def mean(xp: Any, input: Array, dim: Ints | None = None, keepdim: bool = False, *, dtype: DType | None = None) -> Array:
    """Mean over `dim`, or over all dimensions; of a float or complex dtype (torch.mean)."""
    _needs_float("mean", input, dtype)
    dtype = dtype or input.dtype
    dims = normalize_dims(dim, input.ndim)
    count = _count(input.shape, dim)
    if is_half(dtype):
        return xp.asarray(input.sum(dims, keepdims=keepdim, dtype=dtypes.float32) / (count or math.nan)).astype(dtype)
    added = total(xp, input, dims, keepdim, dtype)
    return added / count if count else added * math.nan


mean.works_in(backward=0, grows=False)
mean.grad(
    input=lambda g, input_meta, dim, keepdim: expand_gradient(
        g * (1 / (_count(input_meta.shape, dim) or math.nan)), input_meta.shape, dim, keepdim
    )
).tangent("linear")


@op(node=_numbered("Prod"), cost=8)
@row_major
def prod(xp: Any, input: Array, dim: int | None = None, keepdim: bool = False, *, dtype: DType | None = None) -> Array:
    """Product over `dim`, or over all dimensions (torch.prod)."""
    dims = normalize_dims(dim, input.ndim)
    if dtype is None:
        dtype = input.dtype if dtypes.category(input.dtype) >= dtypes.FLOAT else dtypes.int64
    if is_half(dtype):
        return xp.asarray(input.prod(dims, keepdims=keepdim, dtype=dtypes.float32)).astype(dtype)
    return input.prod(dims, keepdims=keepdim, dtype=dtype)


@reads_values
def _prod_input(g: Any, input: Any, out: Any, dim: Any, keepdim: bool) -> Any:
    if dim is not None and input.ndim:
        return product_backward(
            restore_dims(g, input.shape, dim, keepdim), input, restore_dims(out, input.shape, dim, keepdim), dim
        )
    flat = reshape(input, (-1,))
    return reshape(product_backward(reshape(g, (1,)), flat, reshape(out, (1,)), 0), input.shape)


prod.grad(input=_prod_input).tangent("reduction")

# Variances.


def _correction(unbiased: bool | None, correction: Number | None) -> Any:
    if unbiased is not None:
        return int(unbiased)
    return 1 if correction is None else correction


@op(cost=8)
@row_major
def var(
    xp: Any,
    input: Array,
    dim: Ints | None = None,
    unbiased: bool | None = None,
    keepdim: bool = False,
    *,
    correction: Number | None = None,
) -> Array:
    """Variance over `dim`, or all dimensions; the divisor is the count minus `correction`, by default 1 (torch.var)."""
    _needs_float("var", input, None)
    return _variance(xp, input, normalize_dims(dim, input.ndim), _correction(unbiased, correction), keepdim)


var.works_in(forward=2)


def _variance(xp: Any, input: Array, dims: tuple[int, ...], correction: Any, keepdim: bool) -> Array:
    wide = input.astype(dtypes.float32) if is_half(input.dtype) else input
    count = math.prod(input.shape[axis] for axis in dims)
    centred = wide - sum_axes(xp, wide, dims, True) / (count or math.nan)
    squares = xp.multiply(centred, centred) if centred.dtype.kind != "c" else centred.real**2 + centred.imag**2
    freedom = builtins.max(count - correction, 0)
    added = xp.asarray(sum_axes(xp, squares, dims, keepdim))
    result = added / freedom if freedom else xp.where(added > 0, math.inf, math.nan)
    return result.astype(dtypes.real_part(input.dtype), copy=False)


def _var_input(g: Any, input: Any, dim: Any, unbiased: bool | None, keepdim: bool, correction: Any) -> Any:
    freedom = _freedom(input.shape, dim) - _correction(unbiased, correction)
    centre = input - mean(input, normalize_dims(dim, input.ndim), True)
    if (dim is None or not input.ndim) and freedom <= 0:
        return g * where(eq(centre, 0), math.nan, math.inf)
    return restore_dims(g, input.shape, dim, keepdim) * (2 / freedom if freedom else math.inf) * centre


def _freedom(shape: tuple[int, ...], dim: Any) -> int:
    """Number of elements per variance; PyTorch's derivative takes an empty list of dims as no reduction."""
    return 1 if dim in ((), []) else _count(shape, dim)


var.grad(input=_var_input).tangent("reduction")


@op(cost=8)
@row_major
def std(
    xp: Any,
    input: Array,
    dim: Ints | None = None,
    unbiased: bool | None = None,
    keepdim: bool = False,
    *,
    correction: Number | None = None,
) -> Array:
    """Standard deviation: the square root of the variance (torch.std)."""
    _needs_float("std", input, None)
    wide = input.astype(dtypes.float32) if is_half(input.dtype) else input  # rounds once
    squared = _variance(xp, wide, normalize_dims(dim, input.ndim), _correction(unbiased, correction), keepdim)
    return xp.sqrt(squared).astype(dtypes.real_part(input.dtype), copy=False)


std.works_in(forward=2)


def _std_input(g: Any, input: Any, out: Any, dim: Any, unbiased: bool | None, keepdim: bool, correction: Any) -> Any:
    return _var_input(where(eq(out, 0), 0, g / (2 * out)), input, dim, unbiased, keepdim, correction)


std.grad(input=_std_input).tangent("reduction")


@op(outputs=("var", "mean"), unfilled_outputs=(0, 1), cost=12)
@row_major
def var_mean(
    xp: Any,
    input: Array,
    dim: Ints | None = None,
    unbiased: bool | None = None,
    keepdim: bool = False,
    *,
    correction: Number | None = None,
) -> Array:
    """Variance and mean (torch.var_mean)."""
    return var(input, dim, unbiased, keepdim, correction=correction), mean(input, dim, keepdim)


def _var_mean_input(gs: Any, input: Any, dim: Any, unbiased: bool | None, keepdim: bool, correction: Any) -> Any:
    of_var, of_mean = gs
    parts = [] if of_var is None else [_var_input(of_var, input, dim, unbiased, keepdim, correction)]
    return _with_mean(parts, of_mean, input, dim, keepdim)


def _with_mean(parts: list[Any], of_mean: Any, input: Any, dim: Any, keepdim: bool) -> Any:
    """The gradient of the input, by its parts and the gradient of its mean, which may be None."""
    if of_mean is not None:
        each = of_mean * (1 / (_count(input.shape, dim) or math.nan))
        parts.append(expand_gradient(each, input.shape, dim, keepdim))
    return parts[0] if len(parts) == 1 else parts[0] + parts[1]


var_mean.works_in(forward=2, backward=2)
var_mean.grad(input=_var_mean_input)


@op(outputs=("std", "mean"), unfilled_outputs=(0, 1), cost=12)
@row_major
def std_mean(
    xp: Any,
    input: Array,
    dim: Ints | None = None,
    unbiased: bool | None = None,
    keepdim: bool = False,
    *,
    correction: Number | None = None,
) -> Array:
    """Standard deviation and mean (torch.std_mean)."""
    return std(input, dim, unbiased, keepdim, correction=correction), mean(input, dim, keepdim)


def _std_mean_input(
    gs: Any, input: Any, out0: Any, dim: Any, unbiased: bool | None, keepdim: bool, correction: Any
) -> Any:
    of_std, of_mean = gs
    parts = [] if of_std is None else [_std_input(of_std, input, out0, dim, unbiased, keepdim, correction)]
    return _with_mean(parts, of_mean, input, dim, keepdim)


std_mean.works_in(forward=2, backward=2)
std_mean.grad(input=_std_mean_input)


# Extremes. Over several dimensions, or all, ties share the gradient; along one `dim` the returned index receives it.


def _extreme(xp: Any, name: str, input: Array, dim: Any, keepdim: bool) -> Array:
    dims = normalize_dims(dim, input.ndim)
    empty = [axis for axis in dims if not input.shape[axis]]
    if empty and dim is not None:
        raise EngineError(
            Reason.INDEX_OUT_OF_RANGE, f"{name}(): Expected reduction dim {empty[0]} to have non-zero size."
        )
    if empty:
        raise EngineError(
            Reason.RUNTIME,
            f"{name}(): Expected reduction dim to be specified for input.numel() == 0. Specify the reduction dim with "
            "the 'dim' argument.",
        )
    needs_order(f"{name[-3:]}_values_cpu", input.dtype)
    return getattr(input, name[-3:])(dims, keepdims=keepdim)


def _split_among_ties(g: Any, input: Any, out: Any, dim: Any = None, keepdim: bool = False) -> Any:
    """Split the gradient evenly among the elements equal to the result."""
    shape = input.shape
    winners = eq(input, restore_dims(out, shape, dim, keepdim))
    ties = sum(winners, normalize_dims(dim, len(shape)), True)
    return restore_dims(g, shape, dim, keepdim) * winners / ties


def split_among_all_ties(g: Any, input: Any, out: Any) -> Any:
    """`_split_among_ties` over all dimensions; as in PyTorch the nans share the gradient of a nan result."""
    winners = logical_or(eq(input, out), logical_and(isnan(input), isnan(out)))
    return where(winners, g / sum(winners), 0)


def _dims_or_none(dim: Any) -> Any:
    return None if dim in ((), []) else dim


@op(cost=4)
@row_major
def amax(xp: Any, input: Array, dim: Ints | None = (), keepdim: bool = False) -> Array:
    """Maximum over `dim`, or over all dimensions; ties share the gradient (torch.amax)."""
    return _extreme(xp, "amax", input, _dims_or_none(dim), keepdim)


amax.works_in(backward=2.3)


@op(cost=4)
@row_major
def amin(xp: Any, input: Array, dim: Ints | None = (), keepdim: bool = False) -> Array:
    """Minimum over `dim`, or over all dimensions; ties share the gradient (torch.amin)."""
    return _extreme(xp, "amin", input, _dims_or_none(dim), keepdim)


amin.works_in(backward=2.3)


@op(name="_max", node="MaxBackward1", cost=4)
def _max_all(xp: Any, input: Array) -> Array:
    return _extreme(xp, "max", input, None, False)


@op(name="_min", node="MinBackward1", cost=4)
def _min_all(xp: Any, input: Array) -> Array:
    return _extreme(xp, "min", input, None, False)


amax.grad(input=_split_among_ties).tangent("reduction")
amin.grad(input=_split_among_ties).tangent("reduction")
_max_all.grad(input=split_among_all_ties).tangent("reduction")
_min_all.grad(input=split_among_all_ties).tangent("reduction")


def _refuse_complex(name: str, input: Array) -> None:
    if input.dtype.kind == "c":
        raise EngineError(Reason.RUNTIME, f"{name}(): does not support complex input", op=name)


def _extreme_along(xp: Any, name: str, input: Array, dim: int, keepdim: bool) -> tuple[Array, Array]:
    """Extreme values along a dimension, and their indices. Raises EngineError: INDEX_OUT_OF_RANGE, RUNTIME."""
    dim = normalize_dim(dim, input.ndim)
    if input.ndim and not input.shape[dim]:
        raise EngineError(
            Reason.INDEX_OUT_OF_RANGE, f"{name}(): Expected reduction dim {dim} to have non-zero size.", dim=dim
        )
    _refuse_complex(name, input)
    if not input.ndim:
        return input.copy(), xp.zeros((), dtypes.int64)
    indices = getattr(input, f"arg{name}")(axis=dim)
    indices = xp.expand_dims(indices, dim)
    values = xp.take_along_axis(input, indices, dim)
    return (values, indices) if keepdim else (values.squeeze(dim), indices.squeeze(dim))


@op(name="_max_dim", node="MaxBackward0", outputs=("values", "indices"), differentiable_outputs=(0,), cost=8)
def _max_dim(xp: Any, input: Array, dim: int, keepdim: bool) -> Array:
    return _extreme_along(xp, "max", input, dim, keepdim)


@op(name="_min_dim", node="MinBackward0", outputs=("values", "indices"), differentiable_outputs=(0,), cost=8)
def _min_dim(xp: Any, input: Array, dim: int, keepdim: bool) -> Array:
    return _extreme_along(xp, "min", input, dim, keepdim)


for _finder in (_max_dim, _min_dim):
    _finder.grad(
        input=lambda g, out1, input_meta, dim, keepdim: scatter_selected(g, out1, input_meta.shape, dim, keepdim)
    ).tangent("selection").bounds_results(values_and_positions(1), of_integers=False)


@composite(outputs=("values", "indices"))
def max(input: Array, dim: Array | Number | None = None, keepdim: bool = False, *, other: Array | None = None) -> Array:
    """Maximum of all elements; with a dim, values and indices along it; with a tensor, `maximum` (torch.max)."""
    if type(dim) is Tensor or other is not None:
        return maximum(input, dim if other is None else other)
    return _max_all(input) if dim is None else _max_dim(input, dim, keepdim)


@composite(outputs=("values", "indices"))
def min(input: Array, dim: Array | Number | None = None, keepdim: bool = False, *, other: Array | None = None) -> Array:
    """Minimum of all elements; with a dim, values and indices along it; with a tensor, `minimum` (torch.min)."""
    if type(dim) is Tensor or other is not None:
        return minimum(input, dim if other is None else other)
    return _min_all(input) if dim is None else _min_dim(input, dim, keepdim)


for _extreme_op in (max, min):

    @_extreme_op.overload("")
    def _(input: Array) -> Any: ...

    @_extreme_op.overload("dim", outputs=("values", "indices"))
    def _(input: Array, dim: int, keepdim: bool = False) -> Any: ...

    @_extreme_op.overload("other")
    def _(input: Array, *, other: Array) -> Any: ...


@composite(outputs=("min", "max"))
def aminmax(input: Array, *, dim: int | None = None, keepdim: bool = False) -> Array:
    """Minimum and maximum, of all elements or along `dim` (torch.aminmax)."""
    dims = () if dim is None else (dim,)
    return amin(input, dims, keepdim), amax(input, dims, keepdim)


def _arg_extreme(xp: Any, name: str, input: Array, dim: int | None, keepdim: bool) -> Array:
    _refuse_complex(name, input)
    if input.dtype == dtypes.bool_:
        raise EngineError(Reason.RUNTIME, f"{name}(): does not support bool input", op=name)
    if dim is None:
        if not input.size:
            raise EngineError(
                Reason.INDEX_OUT_OF_RANGE,
                f"{name}(): Expected reduction dim to be specified for input.numel() == 0. Specify the reduction dim "
                "with the 'dim' argument.",
            )
        place = xp.asarray(getattr(input, name)())
        return place.reshape((1,) * input.ndim) if keepdim else place
    return _extreme_along(xp, name[3:], input, dim, keepdim)[1]


@op(cost=8)
def argmax(xp: Any, input: Array, dim: int | None = None, keepdim: bool = False) -> Array:
    """Index of the maximum, along `dim` or in the flattened tensor (torch.argmax)."""
    return _arg_extreme(xp, "argmax", input, dim, keepdim)


argmax.works_in(forward=1).bounds_results(positions(1), of_integers=False)


@op(cost=8)
def argmin(xp: Any, input: Array, dim: int | None = None, keepdim: bool = False) -> Array:
    """Index of the minimum, along `dim` or in the flattened tensor (torch.argmin)."""
    return _arg_extreme(xp, "argmin", input, dim, keepdim)


argmin.works_in(forward=1).bounds_results(positions(1), of_integers=False)


# Logic and counts: no gradient.


def _logic_dtype(input: Array) -> DType:
    return dtypes.uint8 if input.dtype == dtypes.uint8 else dtypes.bool_


@op(cost=4)
@row_major
def all(xp: Any, input: Array, dim: Ints | None = None, keepdim: bool = False) -> Array:
    """Whether all elements over `dim`, or over all dimensions, are nonzero (torch.all)."""
    dims = () if dim == () or dim == [] else normalize_dims(dim, input.ndim)
    return xp.asarray((input != 0).all(dims, keepdims=keepdim)).astype(_logic_dtype(input), copy=False)


all.works_in(forward=0.5)


@op(cost=4)
@row_major
def any(xp: Any, input: Array, dim: Ints | None = None, keepdim: bool = False) -> Array:
    """Whether any element over `dim`, or over all dimensions, is nonzero (torch.any)."""
    dims = () if dim == () or dim == [] else normalize_dims(dim, input.ndim)
    return xp.asarray((input != 0).any(dims, keepdims=keepdim)).astype(_logic_dtype(input), copy=False)


any.works_in(forward=0.5)


@op(cost=4)
@row_major
def count_nonzero(xp: Any, input: Array, dim: Ints | None = None) -> Array:
    """Number of nonzero elements over `dim`, or over all dimensions (torch.count_nonzero)."""
    return (input != 0).sum(normalize_dims(dim, input.ndim), dtype=dtypes.int64)


count_nonzero.works_in(forward=0.5)


# logsumexp and norms.


@op(promote="float", in_place=False, cost=12)
@row_major
@through_float32
def logsumexp(xp: Any, input: Array, dim: Ints, keepdim: bool = False) -> Array:
    """log(sum(exp(input))) over `dim`, without overflow (torch.logsumexp)."""
    dims = normalize_dims(dim, input.ndim)
    top = input.real.max(dims, keepdims=True) if input.size else xp.zeros(kept_shape(input.shape, dims), input.dtype)
    top = xp.where(xp.isfinite(top), top, 0).astype(dtypes.real_part(input.dtype), copy=False)
    added = xp.log(sum_axes(xp, xp.exp(input - top), dims, True)) + top
    return added if keepdim else added.squeeze(dims)


logsumexp.works_in(forward=2, widens=True)


def _logsumexp_input(g: Any, input: Any, out: Any, dim: Any, keepdim: bool) -> Any:
    share = unary.exp(input - restore_dims(out, input.shape, dim, keepdim))
    g = restore_dims(g, input.shape, dim, keepdim)
    return where(eq(g, 0), 0, g * conj(share))


logsumexp.grad(input=_logsumexp_input).tangent("reduction")


@op(name="linalg.vector_norm", node="LinalgVectorNormBackward0", cost=8)
@row_major
def vector_norm(
    xp: Any, x: Array, ord: Number = 2, dim: Ints | None = None, keepdim: bool = False, *, dtype: DType | None = None
) -> Array:
    """(sum |x|**ord)**(1/ord) over `dim`, or all dimensions; inf, -inf and 0 as limits (torch.linalg.vector_norm)."""
    if isinstance(ord, complex):
        raise EngineError(
            Reason.RUNTIME, f"linalg.vector_norm: Expected a non-complex scalar as the order of norm. Got {ord}"
        )
    needs_norm_dtype("linalg.vector_norm", x.dtype, dtype)
    given = x.astype(dtype) if dtype is not None else x
    result = dtypes.real_part(given.dtype)
    dims = normalize_dims(dim, x.ndim)
    if not x.size and (ord < 0 or ord == math.inf) and builtins.any(not x.shape[axis] for axis in dims):
        raise EngineError(
            Reason.RUNTIME,
            f"linalg.vector_norm cannot compute the {ord} norm on an empty tensor because the operation does not have "
            "an identity",
        )
    wide = given.astype(dtypes.float32) if is_half(given.dtype) else given
    return xp.asarray(_norm(xp, wide, ord, dims, keepdim)).astype(result, copy=False)


vector_norm.works_in(backward=3.1)
vector_norm.ends_gradient(lambda x, ord, *_: ord == 0)


def _norm(xp: Any, x: Array, ord: Any, dims: tuple[int, ...], keepdim: bool) -> Any:
    if ord == 2:
        squares = xp.multiply(x, x) if x.dtype.kind != "c" else x.real**2 + x.imag**2
        return xp.sqrt(sum_axes(xp, squares, dims, keepdim))
    size = xp.abs(x)
    if ord in (math.inf, -math.inf):
        return size.max(dims, keepdims=keepdim) if ord > 0 else size.min(dims, keepdims=keepdim)
    if ord == 0:
        return (size != 0).sum(dims, keepdims=keepdim)
    if ord == 1:
        return sum_axes(xp, size, dims, keepdim)
    return xp.power(sum_axes(xp, xp.power(size, ord), dims, keepdim), 1 / ord)


def _norm_x(g: Any, x: Any, out: Any, ord: Any, dim: Any, keepdim: bool) -> Any:
    """Gradient of a vector norm; 0 at zero, where the norm is not differentiable."""
    g, out = restore_dims(g, x.shape, dim, keepdim), restore_dims(out, x.shape, dim, keepdim)
    at_zero = eq(out, 0)
    if ord == 0:
        return zeros(x)
    if ord == 1:
        return g * unary.sgn(x)
    if ord == 2:
        return g * where(at_zero, 0, x / out)  # PyTorch's order of operations, visible in second derivatives at zero
    if ord in (math.inf, -math.inf):
        winners = eq(unary.abs(x), out)
        ties = sum(winners, normalize_dims(dim, x.ndim), True)
        return where(winners, unary.sgn(x) * (g / ties), 0)
    size = unary.abs(x)
    if ord < 2:
        slope = where(eq(size, 0), 0, unary.sgn(x) * size ** (ord - 1))
    else:
        slope = x * size ** (ord - 2)
    out = where(at_zero, 1, out)  # an inf in the unused branch would become nan in the next derivative
    return where(at_zero, 0, slope * (g / out ** (ord - 1)))


vector_norm.grad(x=_norm_x).tangent("reduction")


@op(name="_median", node="MedianBackward0", complex_grad=False, cost=by_sorting(3))
def _median_all(xp: Any, input: Array) -> Array:
    if not input.size:
        return empty_median(xp, input.dtype)
    if input.dtype == dtypes.bool_:
        raise EngineError(Reason.NOT_SUPPORTED, "\"median_cpu\" not implemented for 'Bool'", op="median")
    return median_dim(input.reshape(-1), 0, False)[0]


_median_all.grad(input=split_among_all_ties).tangent("reduction")


@composite(outputs=("values", "indices"))
def median(input: Array, dim: int | None = None, keepdim: bool = False) -> Array:
    """Lower median of all elements; with a dim, values and indices along it (torch.median)."""
    return _median_all(input) if dim is None else median_dim(input, dim, keepdim)


@median.overload("")
def _(input: Array) -> Any: ...


@median.overload("dim", outputs=("values", "indices"))
def _(input: Array, dim: int, keepdim: bool = False) -> Any: ...


def _reduced_bytes(input: Array, dim: Any = None, *rest: Any) -> int:
    """Upper bound of the result's bytes; for an expanded view it may exceed the input's memory."""
    dims = normalize_dims(dim, input.ndim)
    return int(math.prod(kept_shape(input.shape, dims)) * builtins.max(input.itemsize, dtypes.int64.itemsize))


for _reduction in (sum, mean, prod, var, std, amax, amin, _max_dim, _min_dim, argmax, argmin, all, any, count_nonzero):
    _reduction.sized_by(_reduced_bytes, bounded=True)
logsumexp.sized_by(_reduced_bytes, bounded=True)
