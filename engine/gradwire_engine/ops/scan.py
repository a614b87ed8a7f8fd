"""Running sums and products. Products are differentiated without dividing where a factor is zero."""

from __future__ import annotations

from typing import Any

from gradwire_engine import dtypes
from gradwire_engine.device import Array
from gradwire_engine.dtypes import DType
from gradwire_engine.op import op
from gradwire_engine.ops.basic import conj
from gradwire_engine.ops.checks import normalize_dim
from gradwire_engine.ops.fill import zeros
from gradwire_engine.ops.join import cat, flip, stack
from gradwire_engine.ops.precision import is_half
from gradwire_engine.ops.shape import narrow, select
from gradwire_engine.tensor import Tensor


def _running(xp: Any, name: str, input: Array, dim: int, dtype: DType | None) -> Array:
    dim = normalize_dim(dim, input.ndim)
    if dtype is None:
        dtype = input.dtype if dtypes.category(input.dtype) >= dtypes.FLOAT else dtypes.int64
    if not input.ndim:
        return input.astype(dtype)
    if is_half(dtype):
        return getattr(input.astype(dtypes.float32), name)(dim).astype(dtype)
    return getattr(input, name)(dim, dtype=dtype)


@op(in_place=True)
def cumsum(xp: Any, input: Array, dim: int, *, dtype: DType | None = None) -> Array:
    """Sums of the elements so far along dim (torch.cumsum)."""
    return _running(xp, "cumsum", input, dim, dtype)


@op(name="_reverse_cumsum")
def _reverse_cumsum(xp: Any, input: Array, dim: int) -> Array:
    if not input.ndim:
        return input.copy()
    return xp.flip(cumsum(xp.flip(input, dim), dim), dim)


cumsum.grad(input=lambda g, dim: _reverse_cumsum(g, dim))
_reverse_cumsum.grad(input=lambda g, dim: cumsum(g, dim))


@op(in_place=True)
def cumprod(xp: Any, input: Array, dim: int, *, dtype: DType | None = None) -> Array:
    """Products of the elements so far along dim (torch.cumprod)."""
    return _running(xp, "cumprod", input, dim, dtype)


def _has_zeros(value: Any) -> bool:
    return not bool((value.array if type(value) is Tensor else value).all())


def _cumprod_input(g: Any, input: Any, out: Any, dim: int) -> Any:
    if not input.ndim:
        return g
    if not _has_zeros(input):
        return _reverse_cumsum(g * conj(out), dim) / conj(input)
    return _cumprod_with_zeros(g, conj(input), normalize_dim(dim, input.ndim))


def _cumprod_with_zeros(g: Any, input: Any, dim: int) -> Any:
    """By the recursion s[k] = g[k] + x[k+1] * s[k+1]; the gradient is s[k] times the product before k."""
    length = input.shape[dim]
    sums = [select(g, dim, length - 1)]
    for index in range(length - 2, -1, -1):
        sums.append(select(g, dim, index) + select(input, dim, index + 1) * sums[-1])
    return stack(sums[::-1], dim) * _products_before(input, dim)


def _products_before(input: Any, dim: int) -> Any:
    """At each place the product of all elements before it."""
    length = input.shape[dim]
    one = zeros(input, (*input.shape[:dim], 1, *input.shape[dim + 1 :])) + 1
    return one if length <= 1 else cat([one, cumprod(narrow(input, dim, 0, length - 1), dim)], dim)


cumprod.grad(input=_cumprod_input)


def product_backward(g: Any, input: Any, out: Any, dim: int) -> Any:
    """The gradient of a product along dim, `g` and `out` with that dimension kept: the product of the others."""
    if not _has_zeros(input):
        return g * conj(out / input)
    dim = normalize_dim(dim, input.ndim)
    before = _products_before(input, dim)
    after = flip(_products_before(flip(input, (dim,)), dim), (dim,))
    return g * conj(before * after)
