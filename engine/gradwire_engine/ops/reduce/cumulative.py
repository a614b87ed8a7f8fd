"""cummax, cummin, logcumsumexp, diff and nansum."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from gradwire_engine.core import dtypes
from gradwire_engine.core.device import Array, module_of
from gradwire_engine.core.dtypes import DType
from gradwire_engine.core.errors import EngineError, Reason
from gradwire_engine.op.composite import composite
from gradwire_engine.op.cost import LOOP, counted
from gradwire_engine.op.op import op
from gradwire_engine.ops.base.basic import conj, sub
from gradwire_engine.ops.base.checks import normalize_dim, normalize_dims
from gradwire_engine.ops.base.compare import eq, logical_not, logical_xor
from gradwire_engine.ops.base.fill import where
from gradwire_engine.ops.base.loops import with_loop
from gradwire_engine.ops.base.memory_format import row_major
from gradwire_engine.ops.base.precision import through_float32
from gradwire_engine.ops.elementwise.binary import log_of_sum
from gradwire_engine.ops.elementwise.unary import exp, isnan
from gradwire_engine.ops.index.gather import gather_backward
from gradwire_engine.ops.reduce.reduce import restore_dims
from gradwire_engine.ops.reduce.reduce import sum as total
from gradwire_engine.ops.reduce.scan import loop_cost, loop_length
from gradwire_engine.ops.reduce.scan_loops import extremes_by_loop
from gradwire_engine.ops.shape.join import cat, stack
from gradwire_engine.ops.shape.shape import at, clone, narrow, select

Ints = tuple[int, ...]


def accumulated(xp: Any, combine: Any, input: Array, dim: int) -> Array:
    """Running `combine` along `dim`. CuPy's ufuncs lack accumulate: there, log2(n) steps of doubled width."""
    if xp is np:
        return combine.accumulate(input, dim)
    result, width = input.copy(), 1
    while width < input.shape[dim]:
        later, earlier = at(result, dim, slice(width, None)), at(result, dim, slice(None, -width))
        later[...] = combine(later, earlier.copy())
        width *= 2
    return result


def _running_extreme(xp: Any, name: str, input: Array, dim: int) -> tuple[Array, Array]:
    """Running extreme along `dim` and its index, the last of equal ones. Raises EngineError: NOT_SUPPORTED."""
    if not input.size:  # PyTorch does not even check dim then
        return input.copy(), xp.zeros(input.shape, dtypes.int64)
    dim = normalize_dim(dim, input.ndim)
    if not input.ndim:
        return input.copy(), xp.zeros((), dtypes.int64)
    if input.dtype.kind == "c":
        raise EngineError(Reason.NOT_SUPPORTED, f"\"{name}_cpu\" not implemented for '{dtypes.TITLES[input.dtype]}'")
    made: tuple[Array, Array] = _extremes(name, input, dim)
    return made


@with_loop(extremes_by_loop, place=1)
def _extremes(name: str, input: Array, dim: int) -> tuple[Array, Array]:
    """The values and indices by passes over the whole array."""
    xp = module_of(input)
    combine = xp.maximum if name == "cummax" else xp.minimum
    values = accumulated(xp, combine, input, dim)
    taken = input == values
    floats = dtypes.category(input.dtype) == dtypes.FLOAT
    if floats:
        taken |= xp.isnan(input)
    places = xp.arange(input.shape[dim], dtype=dtypes.int64).reshape((-1,) + (1,) * (input.ndim - 1 - dim))
    indices = accumulated(xp, xp.maximum, xp.where(taken, places, 0), dim)
    # Of two zeros, maximum may take either; PyTorch and the loop take the one at the index.
    return xp.take_along_axis(input, indices, dim) if floats else values, indices


@op(outputs=("values", "indices"), differentiable_outputs=(0,), complex_grad=False, cost=8)
@row_major
def cummax(xp: Any, input: Array, dim: int) -> Array:
    """Running maximum along `dim`, and its index (torch.cummax)."""
    return _running_extreme(xp, "cummax", input, dim)


@op(outputs=("values", "indices"), differentiable_outputs=(0,), complex_grad=False, cost=8)
@row_major
def cummin(xp: Any, input: Array, dim: int) -> Array:
    """Running minimum along `dim`, and its index (torch.cummin)."""
    return _running_extreme(xp, "cummin", input, dim)


for _finder in (cummax, cummin):
    _finder.by_loops("cummax", "cummin").grad(
        input=lambda g, out1, input_meta, dim: gather_backward(g, dim, out1, input_meta.shape)
    ).tangent("selection")


@op(
    cost=counted(
        lambda input, dim: 40.0 * input.size + (LOOP * loop_length(input, dim) if input.dtype.kind == "c" else 0),
        loop_cost(60),
        1 << 11,
    )
)
@row_major
@through_float32
def logcumsumexp(xp: Any, input: Array, dim: int) -> Array:
    """Logarithm of the running sum of exp(input) along `dim`, without overflow (torch.logcumsumexp)."""
    if dtypes.category(input.dtype) < dtypes.FLOAT:
        raise EngineError(
            Reason.NOT_SUPPORTED, f"\"logcumsumexp_out_cpu\" not implemented for '{dtypes.TITLES[input.dtype]}'"
        )
    dim = normalize_dim(dim, input.ndim)
    if not input.size or not input.ndim:
        return input.copy()
    if input.dtype.kind != "c":
        return accumulated(xp, xp.logaddexp, input, dim)
    result = input.copy()
    for index in range(1, input.shape[dim]):
        here = at(result, dim, index)
        here[...] = log_of_sum(xp, at(result, dim, index - 1), here)
    return result


logcumsumexp.works_in(backward=3.2)


def _logcumsumexp_input(g: Any, input: Any, out: Any, dim: int) -> Any:
    """exp(input[i]) * sum over j >= i of g[j] / exp(out[j]), by a recursion without positive exponents."""
    if not input.ndim or not math.prod(input.shape):
        return g
    dim = normalize_dim(dim, input.ndim)
    level = where(eq(out, -math.inf), 0, out)  # where out is -inf, exp(input) is 0 for any finite level
    length = input.shape[dim]
    sums = [select(g, dim, length - 1)]
    for index in range(length - 2, -1, -1):
        fading = exp(select(out, dim, index) - select(level, dim, index + 1))
        sums.append(select(g, dim, index) + conj(fading) * sums[-1])
    return conj(exp(input - level)) * stack(sums[::-1], dim)


logcumsumexp.grad(input=_logcumsumexp_input)


@composite
def diff(input: Array, n: int = 1, dim: int = -1, prepend: Array | None = None, append: Array | None = None) -> Array:
    """n-th differences of neighbours along `dim` (torch.diff).

    prepend, append: values to join before and after the input. Raises EngineError: RUNTIME, DIM_OUT_OF_RANGE.
    """
    if not input.ndim:
        raise EngineError(Reason.RUNTIME, "diff expects input to be at least one-dimensional")
    if n < 0:
        raise EngineError(Reason.RUNTIME, f"order must be non-negative but got {n}")
    dim = normalize_dim(dim, input.ndim)
    for name, other in (("prepend", prepend), ("append", append)):
        if other is not None and other.ndim != input.ndim:
            raise EngineError(Reason.RUNTIME, f"diff expects {name} or append to be the same dimension as input")
        if other is not None and any(
            size != wanted
            for axis, (size, wanted) in enumerate(zip(other.shape, input.shape, strict=True))
            if axis != dim
        ):
            raise EngineError(
                Reason.RUNTIME,
                "diff expects the shape of tensor to prepend or append to match that of input except along the "
                f"differencing dimension; input.size() = {list(input.shape)}, but got {name}.size() = "
                f"{list(other.shape)}",
            )
    if not n:  # PyTorch joins nothing either
        return clone(input)
    if prepend is not None or append is not None:
        input = cat([part for part in (prepend, input, append) if part is not None], dim)
    less: Callable[..., Any] = logical_xor if input.dtype == dtypes.bool_ else sub
    for _ in range(min(n, input.shape[dim])):
        length = input.shape[dim] - 1
        input = less(narrow(input, dim, 1, length), narrow(input, dim, 0, length))
    return input


@op(cost=8)
@row_major
def nansum(
    xp: Any, input: Array, dim: Ints | None = None, keepdim: bool = False, *, dtype: DType | None = None
) -> Array:
    """Sum over `dim`, or over all dimensions; nan counts as 0 (torch.nansum).

    Raises EngineError: RUNTIME for complex numbers.
    """
    if input.dtype.kind == "c":
        raise EngineError(Reason.RUNTIME, "nansum on CPU does not support complex inputs")
    if dtypes.category(input.dtype) == dtypes.FLOAT:
        input = xp.where(xp.isnan(input), input.dtype.type(0), input)
    return total(input, normalize_dims(dim, input.ndim), keepdim, dtype=dtype)


nansum.grad(
    input=lambda g, input, dim, keepdim: restore_dims(g, input.shape, dim, keepdim) * logical_not(isnan(input))
).tangent("reduction")
