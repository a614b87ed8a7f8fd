"""softmax and log_softmax along a dimension; their gradient formulas use the result.

NumPy reduces short rows slowly. So maxima are taken column by column from a transposed copy, and sums are products
with ones.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gradwire_engine.core import dtypes
from gradwire_engine.core.device import Array
from gradwire_engine.core.dtypes import DType
from gradwire_engine.core.errors import EngineError, Reason
from gradwire_engine.op.composite import composite
from gradwire_engine.op.op import cast_array, op
from gradwire_engine.ops.base.basic import neg
from gradwire_engine.ops.base.checks import normalize_dim
from gradwire_engine.ops.base.loops import LEAST, Loops, along_rows, with_loop
from gradwire_engine.ops.base.memory_format import row_major
from gradwire_engine.ops.base.precision import is_half, through_float32
from gradwire_engine.ops.elementwise.unary import exp
from gradwire_engine.ops.reduce.reduce import sum as total

# Longest rows that are reduced by columns.
_SHORT = 48


def _is_rows(xp: Any, array: Array, dim: int) -> bool:
    """Whether `dim` is the contiguous last dimension of an array in host memory."""
    return xp is np and dim == array.ndim - 1 and array.flags.c_contiguous


def max_along(xp: Any, array: Array, dim: int) -> Array:
    """Maximum along a dimension, with keepdim."""
    length = array.shape[dim]
    if _is_rows(xp, array, dim) and array.size > length and 1 < length <= _SHORT:
        columns = np.ascontiguousarray(array.reshape(-1, length).T)
        return np.maximum.reduce(columns, 0).reshape(*array.shape[:-1], 1)
    return array.max(dim, keepdims=True)


def sum_along(xp: Any, array: Array, dim: int) -> Array:
    """Sum along a dimension, with keepdim."""
    if _is_rows(xp, array, dim) and array.ndim > 1 and array.dtype.kind == "f" and array.size:
        length = array.shape[dim]
        return (array.reshape(-1, length) @ np.ones(length, array.dtype)).reshape(*array.shape[:-1], 1)
    return array.sum(dim, keepdims=True, dtype=array.dtype)


def dot_along(xp: Any, one: Array, other: Array, dim: int) -> Array:
    """Sum of products along a dimension, with keepdim."""
    if _is_rows(xp, one, dim) and other.flags.c_contiguous and one.dtype == other.dtype and one.dtype.char in "fd":
        return np.vecdot(one, other)[..., None]
    return sum_along(xp, one * other, dim)


def _prepared(kernel: str, input: Array, dim: int, dtype: DType | None) -> tuple[Array, int]:
    """The input with at least one dimension in the requested float dtype, and the dimension counted from the front."""
    dim = normalize_dim(dim, input.ndim)
    if dtype is not None:
        input = cast_array(input, dtype)
    if dtypes.category(input.dtype) != dtypes.FLOAT and input.size:
        place = "_lastdim" if dim >= input.ndim - 1 else ""
        raise EngineError(
            Reason.NOT_SUPPORTED, f"\"{kernel}{place}_kernel_impl\" not implemented for '{dtypes.TITLES[input.dtype]}'"
        )
    return input.reshape(1) if not input.ndim else input, dim


def _rows_loop(name: str) -> Callable[..., Any]:
    """The attempt of a softmax by a loop over rows."""

    def attempt(loops: Loops, xp: Any, input: Any, dim: int, *, dtype: DType | None = None) -> Array | None:
        return along_rows(loops, name, dim, input) if dtype is None or dtype == input.dtype else None

    return attempt


@op(complex_grad=False, cost=12)
@row_major
@with_loop(_rows_loop("softmax"))
def softmax(xp: Any, input: Array, dim: int, *, dtype: DType | None = None) -> Array:
    """exp(input) divided by its sum along a dimension (torch.softmax).

    dtype: cast the input to it first. Raises EngineError: DIM_OUT_OF_RANGE, NOT_SUPPORTED for integers.
    """
    array, dim = _prepared("softmax", input, dim, dtype)
    if is_half(array.dtype):
        return softmax.function(xp, array.astype(dtypes.float32), dim).astype(array.dtype).reshape(input.shape)
    if not array.size:
        return array.copy()
    result = array - max_along(xp, array, dim)
    xp.exp(result, out=result)
    result /= sum_along(xp, result, dim)
    return result.reshape(input.shape)


@op(complex_grad=False, cost=12)
@row_major
@with_loop(_rows_loop("log_softmax"))
def log_softmax(xp: Any, input: Array, dim: int, *, dtype: DType | None = None) -> Array:
    """log(softmax(input, dim)), without underflow (torch.log_softmax).

    dtype: cast the input to it first. Raises EngineError: DIM_OUT_OF_RANGE, NOT_SUPPORTED for integers.
    """
    array, dim = _prepared("log_softmax", input, dim, dtype)
    if is_half(array.dtype):
        return log_softmax.function(xp, array.astype(dtypes.float32), dim).astype(array.dtype).reshape(input.shape)
    if not array.size:
        return array.copy()
    result = array - max_along(xp, array, dim)
    result -= xp.log(sum_along(xp, xp.exp(result), dim))
    return result.reshape(input.shape)


def _direct_log_softmax(input: Array, dim: int, dtype: DType | None) -> Callable[..., Array] | None:
    """log_softmax of floats that are too few for a loop, without checks."""
    place = _direct_dim(input, dim)
    if place is None or dtype is not None:
        return None

    def run(xp: Any, input: Array, dim: int, dtype: DType | None) -> Array:
        result = input - max_along(np, input, place)
        result -= np.log(sum_along(np, np.exp(result), place))
        return result

    return run


def _direct_dim(input: Array, dim: int) -> int | None:
    """The dimension counted from the front; None if the op's own choices matter."""
    plain = input.ndim > 0 and 0 < input.size < LEAST and input.dtype in (dtypes.float32, dtypes.float64)
    return normalize_dim(dim, input.ndim) if plain and input.flags.c_contiguous else None


log_softmax.directly(_direct_log_softmax)


@composite
def softmin(input: Array, dim: int, *, dtype: DType | None = None) -> Any:
    """softmax(-input, dim) (torch.nn.functional.softmin)."""
    return softmax(neg(input), dim, dtype=dtype)


@op(name="_softmax_backward", cost=12)
@through_float32
@with_loop(lambda loops, xp, grad, result, dim: along_rows(loops, "softmax_backward", dim, grad, result))
def softmax_backward(xp: Any, grad: Array, result: Array, dim: int) -> Array:
    """result * (grad - sum(grad * result))."""
    if not result.ndim:
        return result * (grad - grad * result)
    made = xp.subtract(grad, dot_along(xp, grad, result, normalize_dim(dim, result.ndim)))
    made *= result
    return made


@op(name="_log_softmax_backward", cost=12)
@through_float32
@with_loop(lambda loops, xp, grad, result, dim: along_rows(loops, "log_softmax_backward", dim, grad, result))
def _log_softmax_backward(xp: Any, grad: Array, result: Array, dim: int) -> Array:
    """grad - exp(result) * sum(grad)."""
    if not result.ndim:
        return grad - xp.exp(result) * grad
    shares = xp.exp(result)
    shares *= sum_along(xp, grad, normalize_dim(dim, result.ndim))
    return xp.subtract(grad, shares, out=shares)


def _direct_backward(grad: Array, result: Array, dim: int) -> Callable[..., Array] | None:
    """_log_softmax_backward of floats that are too few for a loop, without checks."""
    place = _direct_dim(grad, dim) if grad.dtype == result.dtype and grad.shape == result.shape else None
    if place is None:
        return None

    def run(xp: Any, grad: Array, result: Array, dim: int) -> Array:
        shares = np.exp(result)
        shares *= sum_along(np, grad, place)
        return np.subtract(grad, shares, out=shares)

    return run


_log_softmax_backward.directly(_direct_backward)


@op(name="_safe_softmax", complex_grad=False, cost=16)
@row_major
def safe_softmax(xp: Any, input: Array, dim: int) -> Array:
    """softmax that is 0 where all elements along the dimension are -inf, as PyTorch's attention has it."""
    made: Array = softmax.function(xp, input, dim)
    alone = (input == -xp.inf).all(dim, keepdims=True)
    return xp.where(alone, made.dtype.type(0), made)


safe_softmax.by_loops("softmax", "softmax_backward")
softmax.by_loops("softmax", "softmax_backward")
softmax_backward.by_loops("softmax_backward")
log_softmax.by_loops("log_softmax", "log_softmax_backward")
_log_softmax_backward.by_loops("log_softmax_backward")
softmax.grad(input=lambda g, out, dim: softmax_backward(g, out, dim)).tangent("symmetric")
safe_softmax.grad(input=lambda g, out, dim: softmax_backward(g, out, dim)).tangent("symmetric")
softmax_backward.grad(
    grad=lambda g, result, dim: softmax_backward(g, result, dim),
    result=lambda g, grad, result, dim: (
        g * (grad - total(grad * result, dim, True)) - grad * total(g * result, dim, True)
    ),
)
log_softmax.tangent(lambda t_input, out, dim: t_input - total(t_input * exp(out), dim, True))
log_softmax.grad(input=lambda g, out, dim: _log_softmax_backward(g, out, dim))
_log_softmax_backward.grad(
    grad=lambda g, result, dim: g - total(g * exp(result), dim, True),
    result=lambda g, grad, result, dim: neg(g * exp(result)) * total(grad, dim, True),
)
