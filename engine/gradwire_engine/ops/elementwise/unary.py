"""Functions of one tensor, elementwise.

As in PyTorch, a formula saves the input or the result, whichever gives the cheaper derivative. The gradient of a
complex input is the conjugate Wirtinger derivative, hence `conj`, which costs nothing for real arrays.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from gradwire_engine.core import dtypes
from gradwire_engine.core.device import Array
from gradwire_engine.core.errors import EngineError, Reason
from gradwire_engine.op.composite import composite
from gradwire_engine.op.integer_bounds import magnitude, of_ranges
from gradwire_engine.op.op import op
from gradwire_engine.op.refusals import check_writable
from gradwire_engine.ops.base.basic import cast, conj, neg, real
from gradwire_engine.ops.base.compare import eq
from gradwire_engine.ops.base.fill import where, zeros
from gradwire_engine.ops.base.loops import LEAST_OF_CHEAP, elementwise_loop, with_loop
from gradwire_engine.ops.base.precision import through_float32

# Magnitudes and signs.


@op(in_place=True, cost=4)
def abs(xp: Any, input: Array) -> Array:
    """Absolute value; real for complex numbers (torch.abs)."""
    if input.dtype == dtypes.bool_:
        raise EngineError(Reason.NOT_SUPPORTED, "\"abs_cpu\" not implemented for 'Bool'")
    return xp.abs(input)


def _abs_into(xp: Any, input: Array) -> None:
    if dtypes.category(input.dtype) == dtypes.COMPLEX:
        raise EngineError(Reason.RUNTIME, "In-place abs is not supported for complex tensors.", op="abs_")
    check_writable(input)
    input[...] = abs(input)


abs.into(_abs_into, always=True).bounds_results(of_ranges(magnitude))


_COMPLEX_SIGN = "Unlike NumPy, torch.sign is not intended to support complex numbers. Please use torch.sgn instead."


@op(in_place=True, cost=8)
def sign(xp: Any, input: Array) -> Array:
    """-1, 0 or 1; 0 for nan (torch.sign)."""
    kind = dtypes.category(input.dtype)
    if kind == dtypes.COMPLEX:
        raise EngineError(Reason.NOT_SUPPORTED, _COMPLEX_SIGN)
    return _sign(xp, input, kind)


def _sign(xp: Any, input: Array, kind: int) -> Array:
    if kind == dtypes.BOOL:
        return input.copy()
    if kind == dtypes.INT:
        return xp.sign(input)
    return xp.subtract(input > 0, input < 0, dtype=np.int8).astype(input.dtype)


sign.grad(input=lambda g: zeros(g)).tangent("holomorphic")


@op(in_place=True, cost=8)
def sgn(xp: Any, input: Array) -> Array:
    """Sign; for complex numbers z / |z|, or 0 for 0 (torch.sgn)."""
    kind = dtypes.category(input.dtype)
    if kind < dtypes.COMPLEX:
        return _sign(xp, input, kind)
    size = xp.abs(input)
    return xp.where(size == 0, 0, input / xp.where(size == 0, 1, size)).astype(input.dtype)


def _sgn_backward(g: Any, input: Any, out: Any) -> Any:
    if dtypes.category(input.dtype) < dtypes.COMPLEX:
        return zeros(g)
    size = abs(input)
    safe = where(eq(size, 0), 1, size)
    return where(eq(size, 0), 0, (g - out * real(conj(out) * g)) / safe)


abs.grad(input=lambda g, input: g * sgn(input)).tangent("holomorphic")
sgn.grad(input=lambda g, input, out: _sgn_backward(g, input, out)).tangent("pointwise")


@composite(views="always")
def positive(input: Array) -> Array:
    """Return the input itself (torch.positive)."""
    if input.dtype == dtypes.bool_:
        raise EngineError(Reason.RUNTIME, "The `+` operator, on a bool tensor is not supported.")
    return input


# Rounding: gradients are zero, except frac's.


def _rounding(xp: Any, input: Array, function: Any) -> Array:
    if dtypes.category(input.dtype) >= dtypes.FLOAT:
        return function(input)
    if input.dtype == dtypes.bool_:
        raise EngineError(Reason.NOT_SUPPORTED, "rounding is not implemented for 'Bool'")
    return input.copy()


@op(in_place=True, cost=4)
def floor(xp: Any, input: Array) -> Array:
    """Largest integer not above the input (torch.floor)."""
    return _rounding(xp, input, xp.floor)


@op(in_place=True, cost=4)
def ceil(xp: Any, input: Array) -> Array:
    """Smallest integer not below the input (torch.ceil)."""
    return _rounding(xp, input, xp.ceil)


@op(in_place=True, cost=4)
def trunc(xp: Any, input: Array) -> Array:
    """Round towards zero (torch.trunc)."""
    return _rounding(xp, input, xp.trunc)


@op(in_place=True, node=lambda input, decimals: "RoundBackward1" if decimals else "RoundBackward0", cost=4)
def round(xp: Any, input: Array, *, decimals: int = 0) -> Array:
    """Round to the nearest integer, halves to even; or to `decimals` decimals (torch.round)."""
    if not decimals:
        return _rounding(xp, input, xp.rint)
    scale = 10.0 ** math.fabs(decimals)
    scaled = input * scale if decimals > 0 else input / scale
    rounded = xp.rint(scaled)
    return (rounded / scale if decimals > 0 else rounded * scale).astype(input.dtype)


@op(in_place=True, cost=8)
def frac(xp: Any, input: Array) -> Array:
    """Fractional part, with the input's sign (torch.frac)."""
    return input - xp.trunc(input)


frac.works_in(forward=1)


for _step in (floor, ceil, trunc, round):
    _step.grad(input=lambda g: zeros(g)).tangent("pointwise")
frac.grad(input=lambda g: g).tangent("holomorphic")

# Tests for nan, infinity and sign: bool results, no gradient.


@op(cost=4)
def isnan(xp: Any, input: Array) -> Array:
    """Whether each element is nan (torch.isnan)."""
    return xp.isnan(input)


@op(cost=4)
def isinf(xp: Any, input: Array) -> Array:
    """Whether each element is inf or -inf (torch.isinf)."""
    return xp.isinf(input)


@op(cost=4)
def isfinite(xp: Any, input: Array) -> Array:
    """Whether each element is neither nan nor infinite (torch.isfinite)."""
    return xp.isfinite(input)


@op(cost=4)
def isreal(xp: Any, input: Array) -> Array:
    """Whether the imaginary part of each element is 0; True for real dtypes (torch.isreal)."""
    return xp.equal(input.imag, 0) if input.dtype.kind == "c" else xp.ones(input.shape, bool)


@op(cost=4)
def isposinf(xp: Any, input: Array) -> Array:
    """Whether each element is inf (torch.isposinf)."""
    return xp.isinf(input) & (input > 0)


@op(cost=4)
def isneginf(xp: Any, input: Array) -> Array:
    """Whether each element is -inf (torch.isneginf)."""
    return xp.isinf(input) & (input < 0)


@op(cost=4)
def signbit(xp: Any, input: Array) -> Array:
    """Whether the sign bit of each element is set; also of -0.0 (torch.signbit)."""
    return xp.signbit(input) if input.dtype.kind != "b" else xp.zeros(input.shape, bool)


# Powers with a fixed exponent.


@op(in_place=True, node="PowBackward0", cost=4)
def square(xp: Any, input: Array) -> Array:
    """input * input (torch.square)."""
    if input.dtype == dtypes.bool_:
        input = input.astype(dtypes.int64)
    return xp.multiply(input, input)


square.grad(input=lambda g, input: g * (2 * conj(input))).tangent("holomorphic")


@op(promote="float", cost=8)
def sqrt(xp: Any, input: Array) -> Array:
    """Square root (torch.sqrt)."""
    return xp.sqrt(input)


sqrt.grad(input=lambda g, out: g / (2 * conj(out))).tangent("holomorphic")


@op(promote="float", cost=8)
@through_float32
def rsqrt(xp: Any, input: Array) -> Array:
    """1 / sqrt(input) (torch.rsqrt)."""
    return xp.reciprocal(xp.sqrt(input))


rsqrt.works_in(forward=1)
rsqrt.grad(input=lambda g, out: -0.5 * g * conj(out * out * out)).tangent("holomorphic")


@op(promote="float", cost=4)
def reciprocal(xp: Any, input: Array) -> Array:
    """1 / input (torch.reciprocal)."""
    return xp.reciprocal(input)


reciprocal.grad(input=lambda g, out: neg(g) * conj(out * out)).tangent("holomorphic")

# Exponentials and logarithms.


@op(promote="float", cost=12)
@with_loop(elementwise_loop("exp"))
def exp(xp: Any, input: Array) -> Array:
    """e to the power of input (torch.exp)."""
    return xp.exp(input)


exp.by_loops("exp")
exp.grad(input=lambda g, out: g * conj(out)).tangent("holomorphic")


@op(promote="float", cost=12)
def exp2(xp: Any, input: Array) -> Array:
    """2 to the power of input (torch.exp2)."""
    return xp.exp2(input)


exp2.grad(input=lambda g, out: g * conj(out) * math.log(2)).tangent("holomorphic")


@op(promote="float", cost=12)
def expm1(xp: Any, input: Array) -> Array:
    """exp(input) - 1, accurate near 0 (torch.expm1)."""
    return xp.expm1(input)


expm1.grad(input=lambda g, out: g * (conj(out) + 1)).tangent("holomorphic")


@op(promote="float", cost=12)
@with_loop(elementwise_loop("log"))
def log(xp: Any, input: Array) -> Array:
    """Natural logarithm (torch.log)."""
    return xp.log(input)


log.by_loops("log")
log.grad(input=lambda g, input: g / conj(input)).tangent("holomorphic")


@op(promote="float", cost=12)
def log2(xp: Any, input: Array) -> Array:
    """Logarithm to base 2 (torch.log2)."""
    return xp.log2(input)


log2.works_in(backward=2)
log2.grad(input=lambda g, input: g / (conj(input) * math.log(2))).tangent("holomorphic")


@op(promote="float", cost=12)
def log10(xp: Any, input: Array) -> Array:
    """Logarithm to base 10 (torch.log10)."""
    return xp.log10(input)


log10.works_in(backward=2)
log10.grad(input=lambda g, input: g / (conj(input) * math.log(10))).tangent("holomorphic")


@op(promote="float", node="Log1PBackward0", cost=12)
def log1p(xp: Any, input: Array) -> Array:
    """log(1 + input), accurate near 0 (torch.log1p)."""
    return xp.log1p(input)


log1p.grad(input=lambda g, input: g / conj(input + 1)).tangent("holomorphic")

# Trigonometry.


@op(promote="float", cost=12)
def sin(xp: Any, input: Array) -> Array:
    """Sine (torch.sin)."""
    return xp.sin(input)


@op(promote="float", cost=12)
def cos(xp: Any, input: Array) -> Array:
    """Cosine (torch.cos)."""
    return xp.cos(input)


sin.grad(input=lambda g, input: g * conj(cos(input))).tangent("holomorphic")
cos.grad(input=lambda g, input: neg(g) * conj(sin(input))).tangent("holomorphic")


@op(promote="float", cost=12)
def tan(xp: Any, input: Array) -> Array:
    """Tangent (torch.tan)."""
    return xp.tan(input)


tan.grad(input=lambda g, out: g * conj(1 + out * out)).tangent("holomorphic")


@op(promote="float", cost=12)
def asin(xp: Any, input: Array) -> Array:
    """Inverse sine (torch.asin)."""
    return xp.arcsin(input)


asin.grad(input=lambda g, input: g * conj(rsqrt(1 - input * input))).tangent("holomorphic")


@op(promote="float", cost=12)
def acos(xp: Any, input: Array) -> Array:
    """Inverse cosine (torch.acos)."""
    return xp.arccos(input)


acos.works_in(backward=3.1)
acos.grad(input=lambda g, input: neg(g) * conj(rsqrt(1 - input * input))).tangent("holomorphic")


@op(promote="float", cost=12)
def atan(xp: Any, input: Array) -> Array:
    """Inverse tangent (torch.atan)."""
    return xp.arctan(input)


atan.grad(input=lambda g, input: g / conj(input * input + 1)).tangent("holomorphic")

# Hyperbolic functions.


@op(promote="float", cost=12)
def sinh(xp: Any, input: Array) -> Array:
    """Hyperbolic sine (torch.sinh)."""
    return xp.sinh(input)


@op(promote="float", cost=12)
def cosh(xp: Any, input: Array) -> Array:
    """Hyperbolic cosine (torch.cosh)."""
    return xp.cosh(input)


sinh.grad(input=lambda g, input: g * conj(cosh(input))).tangent("holomorphic")
cosh.grad(input=lambda g, input: g * conj(sinh(input))).tangent("holomorphic")


@op(promote="float", cost=12)
@with_loop(elementwise_loop("tanh"))
def tanh(xp: Any, input: Array) -> Array:
    """Hyperbolic tangent (torch.tanh)."""
    return xp.tanh(input)


@op(name="_tanh_backward", cost=12)
@with_loop(elementwise_loop("tanh_backward"), least=LEAST_OF_CHEAP)
def _tanh_backward(xp: Any, g: Array, out: Array) -> Array:
    """g * (1 - conj(out)**2), with one temporary."""
    slope = xp.multiply(out, out)
    slope = xp.subtract(1, slope, out=slope if slope.ndim else None)
    return xp.multiply(g, conj(slope))


tanh.by_loops("tanh", "tanh_backward")
_tanh_backward.by_loops("tanh_backward")
tanh.grad(input=lambda g, out: _tanh_backward(g, out)).tangent("holomorphic")
_tanh_backward.grad(
    g=lambda g, out: _tanh_backward(g, conj(out)),
    out=lambda h, g, out: -2.0 * conj(h * conj(g) * out),
).tangent("pointwise")


@op(promote="float", cost=12)
def asinh(xp: Any, input: Array) -> Array:
    """Inverse hyperbolic sine (torch.asinh)."""
    return xp.arcsinh(input)


asinh.grad(input=lambda g, input: g * conj(rsqrt(input * input + 1))).tangent("holomorphic")


@op(promote="float", cost=12)
def acosh(xp: Any, input: Array) -> Array:
    """Inverse hyperbolic cosine (torch.acosh)."""
    return xp.arccosh(input)


acosh.works_in(backward=2.1)
acosh.grad(
    input=lambda g, input: (
        g * conj(rsqrt(input + 1) * rsqrt(input - 1))
        if dtypes.category(input.dtype) == dtypes.COMPLEX
        else g * rsqrt(input * input - 1)
    )
).tangent("holomorphic")


@op(promote="float", cost=12)
def atanh(xp: Any, input: Array) -> Array:
    """Inverse hyperbolic tangent (torch.atanh)."""
    return xp.arctanh(input)


atanh.grad(input=lambda g, input: g / conj(1 - input * input)).tangent("holomorphic")


@op(promote="float", cost=12)
@through_float32
@with_loop(elementwise_loop("sigmoid"))
def sigmoid(xp: Any, input: Array) -> Array:
    """1 / (1 + exp(-input)) (torch.sigmoid)."""
    result = xp.negative(input)
    if not result.ndim:
        return 1 / (1 + xp.exp(result))
    xp.exp(result, out=result)
    result += 1
    return xp.reciprocal(result, out=result)


@op(name="_sigmoid_backward", cost=12)
@with_loop(elementwise_loop("sigmoid_backward"), least=LEAST_OF_CHEAP)
def _sigmoid_backward(xp: Any, g: Array, out: Array) -> Array:
    """g * conj(out * (1 - out)), with one temporary."""
    slope = xp.subtract(1, out)
    slope = xp.multiply(slope, out, out=slope if slope.ndim else None)
    return xp.multiply(g, conj(slope))


sigmoid.by_loops("sigmoid", "sigmoid_backward")
_sigmoid_backward.by_loops("sigmoid_backward")
sigmoid.grad(input=lambda g, out: _sigmoid_backward(g, out)).tangent("holomorphic")
_sigmoid_backward.grad(
    g=lambda g, out: _sigmoid_backward(g, conj(out)),
    out=lambda h, g, out: conj(h * conj(g) * (1 - 2 * out)),
).tangent("pointwise")

# Degrees.


@op(promote="float", node="Deg2RadBackward0", cost=4)
def deg2rad(xp: Any, input: Array) -> Array:
    """Convert degrees to radians (torch.deg2rad)."""
    return xp.multiply(input, math.pi / 180)


deg2rad.works_in(widens=True)


@op(promote="float", node="Rad2DegBackward0", cost=4)
def rad2deg(xp: Any, input: Array) -> Array:
    """Convert radians to degrees (torch.rad2deg)."""
    return xp.multiply(input, 180 / math.pi)


deg2rad.grad(input=lambda g: g * (math.pi / 180)).tangent("holomorphic")
rad2deg.grad(input=lambda g: g * (180 / math.pi)).tangent("holomorphic")

round.unsupported("c", "round_vml_cpu")
round.unsupported("bi", "round_cpu", when=lambda input, decimals: bool(decimals))
frac.unsupported("bic", "frac_cpu")
isposinf.unsupported("c", "", "isposinf does not support complex inputs.")
isneginf.unsupported("c", "", "isneginf does not support complex inputs.")
deg2rad.unsupported("c", "", "deg2rad is not supported for complex tensors.")
rad2deg.unsupported("c", "", "rad2deg is not supported for complex tensors.")


@op(node="FrexpBackward0", outputs=("mantissa", "exponent"), differentiable_outputs=(0,), cost=8)
def frexp(xp: Any, input: Array) -> Array:
    """Mantissas in [0.5, 1) with the input's sign, and int32 exponents: input = mantissa * 2**exponent (torch.frexp).

    Raises EngineError: RUNTIME for a dtype that is not floating.
    """
    if dtypes.category(input.dtype) != dtypes.FLOAT:
        raise EngineError(Reason.RUNTIME, "torch.frexp() only supports floating-point dtypes", op="frexp")
    wide = input.astype(dtypes.float32) if input.dtype.itemsize == 2 else input
    mantissa, exponent = xp.frexp(wide)
    return mantissa.astype(input.dtype, copy=False), exponent.astype(dtypes.int32, copy=False)


frexp.works_in(forward=2, backward=2, widens=True)
frexp.grad(input=lambda gs, out1: gs[0] / exp2(cast(out1, gs[0].dtype)))
