"""Running sums and products. With a zero factor the gradient formulas of products do not divide."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from gradwire_engine.core import dtypes
from gradwire_engine.core.device import Array
from gradwire_engine.core.dtypes import DType
from gradwire_engine.core.errors import EngineError, Reason
from gradwire_engine.graph.tensor import Tensor
from gradwire_engine.op.cost import LOOP, Works, counted
from gradwire_engine.op.op import op
from gradwire_engine.op.saving import reads_values
from gradwire_engine.ops.base.basic import conj
from gradwire_engine.ops.base.checks import normalize_dim
from gradwire_engine.ops.base.fill import zeros
from gradwire_engine.ops.base.precision import is_half
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
    return getattr(input, name)(dim, dtype=dtype)


@op(in_place=True, cost=8)
def cumsum(xp: Any, input: Array, dim: int, *, dtype: DType | None = None) -> Array:
    """Running sum along `dim` (torch.cumsum)."""
    if xp is np and (dtype is None or dtype == input.dtype) and input.dtype.char in "fd" and input.ndim:
        return _running_sum(input, normalize_dim(dim, input.ndim), 1)
    return _running(xp, "cumsum", input, dim, dtype)


cumsum.works_in(forward=1.2, widens=True)


@op(name="_reverse_cumsum", cost=8)
def _reverse_cumsum(xp: Any, input: Array, dim: int) -> Array:
    if not input.ndim:
        return input.copy()
    if xp is np and input.dtype.char in "fd":
        return _running_sum(input, normalize_dim(dim, input.ndim), -1)
    return xp.flip(cumsum(xp.flip(input, dim), dim), dim)


# NumPy's cumsum waits for each addition. Along the last dimension a product with a triangle of ones sums _TRIANGLE
# elements at a time. Along other dimensions whole slices of at least _SLICE elements are added.
_TRIANGLE = 32
_SLICE = 256


def _running_sum(array: Array, dim: int, way: int) -> Array:
    """Running sum of float numbers along `dim`. way: 1, or -1 from the end."""
    length = array.shape[dim]
    if dim == array.ndim - 1 and length >= 4 * _TRIANGLE and array.size >= 1 << 12:
        made = _by_triangles(np.ascontiguousarray(array).reshape(-1, length), way)
        if np.isfinite(made[:, ::way][:, -1]).all():  # else 0 * inf in the product may have given nan
            return made.reshape(array.shape)
    elif length > 1 and math.prod(array.shape[dim + 1 :]) >= _SLICE:
        return _by_slices(array, dim, way)
    if way == 1:
        return array.cumsum(dim)
    return np.ascontiguousarray(np.flip(np.flip(array, dim).cumsum(dim), dim))


def _by_slices(array: Array, dim: int, way: int) -> Array:
    made = np.empty(array.shape, array.dtype)
    source, target = np.moveaxis(array, dim, 0)[::way], np.moveaxis(made, dim, 0)[::way]
    target[0] = source[0]
    for place in range(1, len(source)):
        np.add(target[place - 1], source[place], out=target[place])
    return made


def _by_triangles(rows: Array, way: int) -> Array:
    """Running sums of rows: within blocks, by a product; then each block's total is added to the later blocks."""
    count, length = rows.shape
    left = length % _TRIANGLE
    rest, whole = slice(length - left, length), slice(0, length - left)
    if way == -1:
        rest, whole = slice(0, left), slice(left, length)
    ones = np.ones((_TRIANGLE, _TRIANGLE), rows.dtype)
    blocks = rows[:, whole].reshape(-1, _TRIANGLE) @ (np.triu(ones) if way == 1 else np.tril(ones))
    blocks = blocks.reshape(count, -1, _TRIANGLE)
    totals = blocks[:, ::way, ::way][:, :, -1].cumsum(1)
    blocks[:, ::way][:, 1:] += totals[:, :-1, None]
    if not left:
        return blocks.reshape(count, length)
    made = np.empty(rows.shape, rows.dtype)
    made[:, whole] = blocks.reshape(count, -1)
    made[:, rest][:, ::way] = rows[:, rest][:, ::way].cumsum(1) + totals[:, -1:]
    return made


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


cumprod.works_in(backward=2, widens=True)


def _has_zeros(value: Any) -> bool:
    return not bool((value.array if type(value) is Tensor else value).all())


@reads_values
def _cumprod_input(g: Any, input: Any, out: Any, dim: int) -> Any:
    if not input.ndim:
        return g
    if not _has_zeros(input):
        return _reverse_cumsum(g * conj(out), dim) / conj(input)
    return _cumprod_with_zeros(g, conj(input), normalize_dim(dim, input.ndim))


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
