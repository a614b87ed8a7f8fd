"""Comparison and logic: results are bool and carry no gradient."""

from __future__ import annotations

from typing import Any

import numpy as np

from gradwire_engine.core import dtypes
from gradwire_engine.core.device import Array
from gradwire_engine.core.dtypes import Number
from gradwire_engine.core.errors import EngineError, Reason
from gradwire_engine.graph.tensor import Tensor
from gradwire_engine.op.composite import composite
from gradwire_engine.op.integer_bounds import inverted, masked, of_ranges, truth, united
from gradwire_engine.op.op import op
from gradwire_engine.op.value_access import read_array
from gradwire_engine.ops.base.checks import needs_order


@op(promote="same", differentiable_outputs=(), cost=4)
def eq(xp: Any, input: Array, other: Array | Number) -> Array:
    """input == other, elementwise (torch.eq)."""
    return xp.equal(input, other)


@op(promote="same", differentiable_outputs=(), cost=4)
def ne(xp: Any, input: Array, other: Array | Number) -> Array:
    """input != other, elementwise (torch.ne)."""
    return xp.not_equal(input, other)


@op(promote="same", differentiable_outputs=(), cost=4)
def lt(xp: Any, input: Array, other: Array | Number) -> Array:
    """input < other, elementwise (torch.lt)."""
    needs_order("lt_cpu", input.dtype)
    return xp.less(input, other)


@op(promote="same", differentiable_outputs=(), cost=4)
def le(xp: Any, input: Array, other: Array | Number) -> Array:
    """input <= other, elementwise (torch.le)."""
    needs_order("le_cpu", input.dtype)
    return xp.less_equal(input, other)


@op(promote="same", differentiable_outputs=(), cost=4)
def gt(xp: Any, input: Array, other: Array | Number) -> Array:
    """input > other, elementwise (torch.gt)."""
    needs_order("gt_cpu", input.dtype)
    return xp.greater(input, other)


@op(promote="same", differentiable_outputs=(), cost=4)
def ge(xp: Any, input: Array, other: Array | Number) -> Array:
    """input >= other, elementwise (torch.ge)."""
    needs_order("ge_cpu", input.dtype)
    return xp.greater_equal(input, other)


def _zeros(g: Any) -> Any:
    return g * 0


for _comparison in (eq, ne, lt, le, gt, ge):  # for the in-place forms, which overwrite the old value
    _comparison.grad(input=_zeros, other=_zeros)
    _comparison.bounds_results(truth, of_integers=False)


@op(in_place=True, cost=4)
def logical_not(xp: Any, input: Array) -> Array:
    """True where the input is zero (torch.logical_not)."""
    return xp.logical_not(input)


@op(in_place=True, cost=4)
def logical_and(xp: Any, input: Array, other: Array) -> Array:
    """True where both are nonzero (torch.logical_and)."""
    return xp.logical_and(input, other)


@op(in_place=True, cost=4)
def logical_or(xp: Any, input: Array, other: Array) -> Array:
    """True where either is nonzero (torch.logical_or)."""
    return xp.logical_or(input, other)


@op(in_place=True, cost=4)
def logical_xor(xp: Any, input: Array, other: Array) -> Array:
    """True where exactly one is nonzero (torch.logical_xor)."""
    return xp.logical_xor(input, other)


for _logical in (logical_not, logical_and, logical_or, logical_xor):
    _logical.bounds_results(truth, of_integers=False)


def _check_bitwise(name: str, *values: Any) -> None:
    """Refuse dtypes other than bool and integers. Raises EngineError: NOT_SUPPORTED."""
    dtype = dtypes.result_type(*values)
    if dtypes.category(dtype) >= dtypes.FLOAT:
        raise EngineError(Reason.NOT_SUPPORTED, f"\"{name}_cpu\" not implemented for '{dtypes.TITLES[dtype]}'", op=name)


@op(promote="same", cost=4)
def bitwise_and(xp: Any, input: Array | Number, other: Array | Number) -> Array:
    """Bitwise and (torch.bitwise_and)."""
    _check_bitwise("bitwise_and", input, other)
    return xp.bitwise_and(input, other)


@op(promote="same", cost=4)
def bitwise_or(xp: Any, input: Array | Number, other: Array | Number) -> Array:
    """Bitwise or (torch.bitwise_or)."""
    _check_bitwise("bitwise_or", input, other)
    return xp.bitwise_or(input, other)


@op(promote="same", cost=4)
def bitwise_xor(xp: Any, input: Array | Number, other: Array | Number) -> Array:
    """Bitwise exclusive or (torch.bitwise_xor)."""
    _check_bitwise("bitwise_xor", input, other)
    return xp.bitwise_xor(input, other)


@op(in_place=True, cost=4)
def bitwise_not(xp: Any, input: Array) -> Array:
    """Bitwise not; logical not for bools (torch.bitwise_not)."""
    _check_bitwise("bitwise_not", input)
    return xp.bitwise_not(input)


bitwise_and.bounds_results(of_ranges(masked))
bitwise_or.bounds_results(of_ranges(united))
bitwise_xor.bounds_results(of_ranges(united))
bitwise_not.bounds_results(inverted)


@op(promote="same", cost=4)
def bitwise_left_shift(xp: Any, input: Array | Number, other: Array | Number) -> Array:
    """Shift the bits of the input left by `other`; 0 from the dtype's width on (torch.bitwise_left_shift)."""
    bits = _shifted_type("lshift_cpu", input, other)
    dtype, places = dtypes.result_type(input, other), xp.asarray(other)
    beyond = (places < 0) | (places >= bits)
    return xp.where(beyond, 0, xp.left_shift(input, xp.where(beyond, 0, places).astype(dtype))).astype(dtype)


bitwise_left_shift.works_in(forward=1.3)


@op(promote="same", cost=4)
def bitwise_right_shift(xp: Any, input: Array | Number, other: Array | Number) -> Array:
    """Shift the bits of the input right by `other`, with sign extension (torch.bitwise_right_shift)."""
    dtype = dtypes.result_type(input, other)
    bits = _shifted_type("rshift_cpu", input, other)
    most = bits - 1 if dtype.kind == "i" else bits  # larger shifts give the same result
    places = xp.asarray(other)
    places = xp.where((places < 0) | (places > most), most, places).astype(dtype)
    return xp.right_shift(input, places)


bitwise_right_shift.works_in(forward=1.3)


def _shifted_type(kernel: str, *values: Any) -> int:
    """Bits of the common dtype. Raises EngineError: NOT_SUPPORTED unless it is an integer dtype."""
    dtype = dtypes.result_type(*values)
    if dtypes.category(dtype) != dtypes.INT:
        raise EngineError(Reason.NOT_SUPPORTED, f"\"{kernel}\" not implemented for '{dtypes.TITLES[dtype]}'")
    return dtype.itemsize * 8


@op(cost=8)
def isclose(
    xp: Any, input: Array, other: Array, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False
) -> Array:
    """Whether |input - other| <= atol + rtol * |other|, elementwise (torch.isclose)."""
    _same_dtype(input, other)
    if rtol < 0 or atol < 0:
        name = "rtol" if rtol < 0 else "atol"
        raise EngineError(Reason.RUNTIME, f"{name} must be greater than or equal to zero, but got {min(rtol, atol)}")
    close = input == other
    if equal_nan:
        close = close | ((input != input) & (other != other))
    if rtol == 0 and atol == 0:
        return close
    wide = (
        dtypes.float64
        if dtypes.category(input.dtype) < dtypes.FLOAT
        else dtypes.promote_types(input.dtype, dtypes.float32)
    )
    input, other = input.astype(wide), other.astype(wide)
    with np.errstate(invalid="ignore"):  # inf - inf is nan, which is not close
        difference = xp.abs(input - other)
        return close | (xp.isfinite(difference) & (difference <= atol + xp.abs(rtol * other)))


isclose.works_in(forward=1.8)


@op(cost=8)
def allclose(
    xp: Any, input: Array, other: Array, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False
) -> Array:
    """Whether all elements are close; a 0-d bool (torch.allclose)."""
    return isclose(input, other, rtol, atol, equal_nan).all()


allclose.works_in(forward=1.8)


@op(promote="same", in_place=False, cost=4)
def equal(xp: Any, input: Array, other: Array) -> Array:
    """Whether shapes and all elements are equal; a 0-d bool (torch.equal)."""
    if input.shape != other.shape:
        return xp.asarray(False)
    return xp.asarray(bool((input == other).all()))


@composite(differentiable=False, reads_values=True)
def check_all(input: Array, message: str) -> Tensor:
    """Copy of a bool tensor whose elements are all true (torch._assert_async, for any number of elements).

    Raises EngineError: ARGUMENT_VALUE with the message, unless all are true.
    """
    if not bool(read_array(input.array.all())):
        raise EngineError(Reason.ARGUMENT_VALUE, message)
    made: Tensor = logical_and(input, input)
    return made


def _same_dtype(input: Array, other: Array) -> None:
    if input.dtype != other.dtype:
        raise EngineError(
            Reason.DTYPE,
            f"{dtypes.TITLES[input.dtype]} did not match {dtypes.TITLES[other.dtype]}: both must have one dtype",
        )
