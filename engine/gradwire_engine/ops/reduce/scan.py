"""Running sums and products. With a zero factor the gradient formulas of products do not divide."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from gradwire_engine.core import dtypes
from gradwire_engine.core.device import Array, module_of
from gradwire_engine.core.dtypes import DType
from gradwire_engine.core.errors import EngineError, Reason
from gradwire_engine.graph.tensor import Tensor
from gradwire_engine.op.cost import LOOP, Works, counted
from gradwire_engine.op.integer_bounds import running
from gradwire_engine.op.op import op
from gradwire_engine.op.saving import reads_values
from gradwire_engine.ops.base.basic import conj
from gradwire_engine.ops.base.checks import normalize_dim
from gradwire_engine.ops.base.fill import zeros
from gradwire_engine.ops.base.loops import with_loop
from gradwire_engine.ops.base.precision import is_half
from gradwire_engine.ops.reduce.scan_loops import folded_by_loop
from gradwire_engine.ops.shape.join import cat, flip, stack
from gradwire_engine.ops.shape.shape import narrow, select


def _running(xp: Any, name: str, input: Array, dim: int, dtype: DType | None) -> Array:
    dim = normalize_dim(dim, input.ndim)
    if dtype is None:
        dtype = input.dtype if dtypes.category(input.dtype) >= dtypes.FLOAT else dtypes.int64
    if dtype == dtypes.bool_:
        raise EngineError(Reason.NOT_SUPPORTED, f"\"{name}_out_cpu\" not implemented for 'Bool'")
    if not input.ndim:
        return input.astype(dtype)
    if is_half(dtype):
        return getattr(input.astype(dtypes.float32), name)(dim).astype(dtype)
    if xp is np and dtype.kind in "fc":
        return _folded(name, input.astype(dtype, copy=False), dim)
    return getattr(input, name)(dim, dtype=dtype)


# Of float32 and complex64, PyTorch adds and multiplies in double precision and rounds each result.
_WIDE = {"f": np.dtype("d"), "F": np.dtype("D")}
_FOLDS = {"cumsum": (np.add, 0), "cumprod": (np.multiply, 1)}
# Elements that are widened at once, so that they stay in the cache. And the elements of a slice from which NumPy takes
# less time for slice after slice.
_BLOCK, _SLICE = 1 << 14, 256


@with_loop(folded_by_loop, place=1)
def _folded(name: str, array: Array, dim: int, way: int = 1) -> Array:
    """Running sum or product of float or complex numbers along `dim`. way: 1, or -1 from the end."""
    made = np.empty(array.shape, array.dtype)
    if not made.size:
        return made
    shape = (math.prod(array.shape[:dim]), array.shape[dim], math.prod(array.shape[dim + 1 :]))
    source, target = (np.ascontiguousarray(each).reshape(shape)[:, ::way] for each in (array, made))
    length = 1 if shape[2] >= _SLICE else min(shape[1], max(1, _BLOCK // shape[2]))
    rows = max(1, _BLOCK // (length * shape[2]))
    for begin in range(0, shape[0], rows):
        _fold(name, source[begin : begin + rows], target[begin : begin + rows], length)
    return made


def _fold(name: str, source: Array, target: Array, length: int) -> None:
    """Accumulate along dimension 1, `length` elements at once."""
    combine, start = _FOLDS[name]
    rows, end, columns = source.shape
    held = np.full((rows, length + 1, columns), start, _WIDE.get(source.dtype.char, source.dtype))
    for begin in range(0, end, length):
        given = source[:, begin : begin + length]
        part = held[:, : given.shape[1] + 1]
        part[:, 1:] = given
        combine.accumulate(part, 1, out=part)
        target[:, begin : begin + length] = part[:, 1:]
        held[:, 0] = part[:, -1]


@op(in_place=True, cost=8)
def cumsum(xp: Any, input: Array, dim: int, *, dtype: DType | None = None) -> Array:
    """Running sum along `dim` (torch.cumsum)."""
    return _running(xp, "cumsum", input, dim, dtype)


cumsum.works_in(forward=1.2, widens=True).by_loops("cumsum").bounds_results(running)


@op(name="_reverse_cumsum", cost=8)
def _reverse_cumsum(xp: Any, input: Array, dim: int) -> Array:
    if not input.ndim or input.shape[dim] == 1:
        return input.copy()
    if xp is np and input.dtype.kind in "fc" and not is_half(input.dtype):
        return _folded("cumsum", input, normalize_dim(dim, input.ndim), -1)
    return xp.flip(cumsum(xp.flip(input, dim), dim), dim)


_reverse_cumsum.by_loops("cumsum")
cumsum.grad(input=lambda g, dim: _reverse_cumsum(g, dim)).tangent("linear")
_reverse_cumsum.grad(input=lambda g, dim: cumsum(g, dim)).tangent("linear")


def loop_length(input: Any, dim: int, *rest: Any) -> int:
    """Size of the dimension along which the gradient formulas loop in Python."""
    return input.shape[dim] if input.ndim else 1


def loop_cost(weight: float) -> Works:
    def works(input: Any, dim: int, *rest: Any) -> Any:
        return weight * input.size + LOOP * loop_length(input, dim)

    return works


@op(in_place=True, cost=counted(lambda input, dim, dtype: 4.0 * input.size, loop_cost(30), 1 << 11))
def cumprod(xp: Any, input: Array, dim: int, *, dtype: DType | None = None) -> Array:
    """Running product along `dim` (torch.cumprod)."""
    return _running(xp, "cumprod", input, dim, dtype)


cumprod.works_in(backward=2, widens=True).by_loops("cumprod", "cumsum")


def _has_zeros(value: Any) -> bool:
    return not bool((value.array if type(value) is Tensor else value).all())


@reads_values
def _cumprod_input(g: Any, input: Any, out: Any, dim: int) -> Any:
    if not input.ndim or input.shape[dim] == 1:
        return g
    if not _has_zeros(input):
        return _reverse_cumsum(g * conj(out), dim) / conj(input)
    if type(g) is Tensor or type(input) is Tensor:
        return _cumprod_with_zeros(g, conj(input), normalize_dim(dim, input.ndim))
    return _cumprod_by_first_zeros(g, conj(input), conj(out), normalize_dim(dim, input.ndim))


def _cumprod_by_first_zeros(g: Array, input: Array, out: Array, dim: int) -> Array:
    """Gradient of arrays without a loop: 0 behind each line's first zero, whose own gradient ends before the second.

    Where factors are infinite or nan, the gradient is nan where PyTorch's is.
    """
    xp, zero = module_of(g), g.dtype.type(0)
    is_zero = input == 0
    zeros_so_far = xp.cumsum(is_zero, dim)
    before, first = zeros_so_far == 0, (zeros_so_far == 1) & is_zero
    early = _reverse_cumsum(xp.where(before, g * out, zero), dim) / input
    # Products of what follows the first zero, times those of what precedes it.
    follows = xp.where((zeros_so_far == 1) & ~is_zero, input, input.dtype.type(1))
    late = cumprod(follows, dim) * xp.where(zeros_so_far == 1, g, zero)
    places = xp.argmax(first, dim, keepdims=True)
    leads = xp.take_along_axis(out, xp.maximum(places - 1, 0), dim)
    whole = late.sum(dim, keepdims=True) * xp.where(places == 0, leads.dtype.type(1), leads)
    return xp.where(first, whole, xp.where(before, early, zero))


def _cumprod_with_zeros(g: Any, input: Any, dim: int) -> Any:
    """Gradient s[k] * product of x before k, with the recursion s[k] = g[k] + x[k+1] * s[k+1]."""
    length = input.shape[dim]
    sums = [select(g, dim, length - 1)]
    for index in range(length - 2, -1, -1):
        sums.append(select(g, dim, index) + select(input, dim, index + 1) * sums[-1])
    return stack(sums[::-1], dim) * _products_before(input, dim)


def _products_before(input: Any, dim: int) -> Any:
    """Product of all elements before each position along `dim`."""
    length = input.shape[dim]
    one = zeros(input, (*input.shape[:dim], 1, *input.shape[dim + 1 :])) + 1
    return one if length <= 1 else cat([one, cumprod(narrow(input, dim, 0, length - 1), dim)], dim)


cumprod.grad(input=_cumprod_input)


def product_backward(g: Any, input: Any, out: Any, dim: int) -> Any:
    """Gradient of a product along `dim`: g times the product of the other elements. g, out: with the dimension kept."""
    if not _has_zeros(input):
        return g * conj(out / input)
    dim = normalize_dim(dim, input.ndim)
    before = _products_before(input, dim)
    after = flip(_products_before(flip(input, (dim,)), dim), (dim,))
    return g * conj(before * after)
