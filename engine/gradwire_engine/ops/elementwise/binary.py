"""Functions of two or three tensors: powers, remainders, extremes, interpolation, clamping, gcd and lcm."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from gradwire_engine.core import dtypes
from gradwire_engine.core.device import Array
from gradwire_engine.core.dtypes import DType, Number, cast_number, is_half
from gradwire_engine.core.errors import EngineError, Reason
from gradwire_engine.graph.tensor import Tensor
from gradwire_engine.op.composite import Composite
from gradwire_engine.op.integer_bounds import clamped, divided, larger, modulo, of_ranges, smaller, subtracted
from gradwire_engine.op.op import op
from gradwire_engine.ops.base.basic import _refuse_bools, conj, div, neg, real, refuse_zeros, sub
from gradwire_engine.ops.base.checks import needs_tensor
from gradwire_engine.ops.base.compare import eq, ge, gt, le, logical_and, logical_or, lt
from gradwire_engine.ops.base.fill import where, zeros
from gradwire_engine.ops.base.loops import ON_GPU, Loops, each, with_loop
from gradwire_engine.ops.base.precision import through_float32
from gradwire_engine.ops.elementwise.unary import exp, exp2, isnan, log


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | complex)


def _pow_node(input: Any, exponent: Any) -> str:
    if type(exponent) is not Tensor:
        return "PowBackward0"
    return "PowBackward1" if type(input) is Tensor else "PowBackward2"


@op(promote="same", node=_pow_node, cost=30)
def pow(xp: Any, input: Array | Number, exponent: Array | Number) -> Array:
    """input ** exponent (torch.pow). Refuses an integer tensor with a negative integer as exponent."""
    base: Any = xp.asarray(input, getattr(exponent, "dtype", None)) if _is_number(input) else input
    kind = dtypes.category(base.dtype)
    if kind == dtypes.BOOL:
        if not isinstance(exponent, np.generic | bool):  # only a number: for a tensor PyTorch has no kernel
            raise EngineError(Reason.NOT_SUPPORTED, "\"pow\" not implemented for 'Bool'", op="pow")
        return xp.logical_or(base, xp.logical_not(exponent))
    if kind < dtypes.FLOAT and bool((xp.asarray(exponent) < 0).any()):
        return _integer_pow(xp, base, exponent)
    # A promoted number arrives as a 0-d NumPy array.
    plain = exponent.item() if isinstance(exponent, np.ndarray | np.generic) and not exponent.ndim else exponent
    product = _POWERS.get(plain) if _is_number(plain) else None
    if product is None:
        return xp.power(base, exponent)
    if base.dtype == dtypes.float16:  # PyTorch rounds these products once, those of bfloat16 at each step
        return product(xp, base.astype(dtypes.float32)).astype(dtypes.float16)
    return product(xp, base)


def _integer_pow(xp: Any, base: Array, exponent: Any) -> Array:
    """Integer powers with negative exponents: 1 / base**n, truncated."""
    below = exponent < 0
    unit = xp.where(exponent % 2 == 0, base * base, base)  # for 1 and -1, which are their own inverses
    inverse = xp.where((base == 1) | (base == -1), unit, 0)
    return xp.where(below, inverse, xp.power(base, xp.where(below, 0, exponent))).astype(base.dtype)


def _refuse_negative(input: Any, exponent: Any) -> None:
    """Refuse an integer tensor with a negative integer exponent. Raises EngineError: RUNTIME."""
    if type(exponent) is int and exponent < 0 and dtypes.category(dtypes.result_type(input)) < dtypes.FLOAT:
        raise EngineError(Reason.RUNTIME, "Integers to negative integer powers are not allowed.")
    if type(exponent) is int and hasattr(input, "dtype") and dtypes.category(input.dtype) == dtypes.INT:
        cast_number(exponent, input.dtype)


pow.checked_by(_refuse_negative)

# These products are many times as fast as NumPy's power.
_POWERS: dict[Any, Any] = {
    1: lambda xp, x: x.copy(order="K"),
    2: lambda xp, x: xp.multiply(x, x),
    3: lambda xp, x: xp.multiply(xp.multiply(x, x), x),
    4: lambda xp, x: xp.square(xp.multiply(x, x)),
    0.5: lambda xp, x: xp.sqrt(x),
    -1: lambda xp, x: xp.reciprocal(x),
    -2: lambda xp, x: xp.reciprocal(xp.multiply(x, x)),
    -0.5: lambda xp, x: xp.reciprocal(xp.sqrt(x)),
}


def _pow_input(g: Any, input: Any, exponent: Any) -> Any:
    if _is_number(exponent):
        if exponent == 0:
            return zeros(g)
        return g * (conj(exponent) * conj(pow(input, exponent - 1)))
    return where(eq(exponent, 0), 0, g * conj(exponent * pow(input, exponent - 1)))


def _pow_exponent(g: Any, input: Any, exponent: Any, out: Any) -> Any:
    if _is_number(input):
        if input == 0:
            return (
                g * where(_is_not_negative(exponent), 0, out * -math.inf)
                if not isinstance(input, complex)
                else zeros(g)
            )
        return g * conj(out * _log_of(input, dtypes.category(out.dtype) == dtypes.COMPLEX))
    at_zero = logical_and(eq(input, 0), _is_not_negative(exponent))
    return where(at_zero, 0, g * conj(out * log(_cast(input, out.dtype))))


def _is_not_negative(exponent: Any) -> Any:
    if dtypes.category(exponent.dtype) < dtypes.COMPLEX:
        return ge(exponent, 0)
    return logical_and(eq(exponent, conj(exponent)), ge(real(exponent), 0))


def _log_of(number: Any, is_complex: bool) -> Any:
    """Logarithm of a number; nan for a negative number if the result is real, like log of a tensor."""
    if isinstance(number, complex) or (is_complex and number < 0):
        return complex(np.log(complex(number)))
    return math.log(number) if number > 0 else math.nan


pow.grad(input=_pow_input, exponent=_pow_exponent).tangent("holomorphic")


class _FloatPower(Composite):
    """float_power; its in-place form requires a base of the result's dtype."""

    def in_place(self, args: tuple[Any, ...]) -> Tensor:
        wanted = _float_power_type(args[:2])
        if args[0].dtype != wanted:
            base, result = dtypes.TITLES[args[0].dtype], dtypes.TITLES[wanted]
            raise EngineError(
                Reason.RUNTIME,
                f"the base given to float_power_ has dtype {base} but the operation's result requires dtype {result}",
            )
        return super().in_place(args)


def _float_power_type(values: tuple[Any, ...]) -> dtypes.DType:
    is_complex = any(dtypes.category(dtypes.result_type(value)) == dtypes.COMPLEX for value in values)
    return dtypes.complex128 if is_complex else dtypes.float64


def _float_power(input: Array | Number, exponent: Array | Number) -> Array:
    """pow in double precision (torch.float_power)."""
    values = (input, exponent)
    needs_tensor("float_power", *values)
    dtype = _float_power_type(values)
    return pow(*(_cast(value, dtype) if hasattr(value, "dtype") else value for value in values))


float_power = _FloatPower(_float_power, name="float_power", in_place=True)


def _cast(value: Any, dtype: Any) -> Any:
    from gradwire_engine.ops.base.basic import cast

    return value if value.dtype == dtype else cast(value, dtype)


@op(
    promote="same",
    node=lambda input, other: "RemainderBackward1" if type(other) is Tensor else "RemainderBackward0",
    cost=12,
)
def remainder(xp: Any, input: Array | Number, other: Array | Number) -> Array:
    """Remainder of the division, with the divisor's sign (torch.remainder)."""
    _refuse_zero_divisor(xp, input, other, "remainder_cpu")
    found = xp.remainder(input, other)
    if getattr(found, "dtype", dtypes.int64).kind in "iub":
        return found
    # In PyTorch a zero has the dividend's sign.
    return xp.where(found == 0, xp.copysign(found, input), found)


remainder.works_in(forward=2.3).bounds_results(of_ranges(modulo))


@op(promote="same", node=lambda input, other: "FmodBackward1" if type(other) is Tensor else "FmodBackward0", cost=12)
def fmod(xp: Any, input: Array, other: Array | Number) -> Array:
    """Remainder of the division, with the dividend's sign (torch.fmod)."""
    _refuse_zero_divisor(xp, input, other, "fmod_cpu")
    return xp.fmod(input, other)


@op(promote="same", node="NotImplemented", of_numbers=True, cost=12)
def floor_divide(xp: Any, input: Array | Number, other: Array | Number) -> Array:
    """Quotient, rounded down; backward is refused, as in PyTorch (torch.floor_divide)."""
    return div(input, other, rounding_mode="floor")


def _refuse_zero_divisor(xp: Any, input: Any, other: Any, kernel: str) -> None:
    if dtypes.result_type(input, other) == dtypes.bool_:
        raise EngineError(Reason.NOT_SUPPORTED, f"\"{kernel}\" not implemented for 'Bool'")
    whole = dtypes.category(dtypes.result_type(input, other)) < dtypes.FLOAT
    some = not hasattr(input, "size") or input.size > 0
    if whole and some:
        refuse_zeros(other)


def _refuse_derivative(name: str) -> None:
    raise EngineError(Reason.RUNTIME, f"derivative for aten::{name} is not implemented", op=name)


floor_divide.grad(
    input=lambda g: _refuse_derivative("floor_divide"), other=lambda g: _refuse_derivative("floor_divide")
).tangent("pointwise")
floor_divide.opmath("other")
floor_divide.bounds_results(of_ranges(divided))
floor_divide.unsupported("c", "div_floor_cpu")
remainder.grad(
    input=lambda g: g, other=lambda g, input, other: neg(g) * div(input, other, rounding_mode="floor")
).tangent("holomorphic")
fmod.grad(input=lambda g: g, other=lambda g, input, other: neg(g) * div(input, other, rounding_mode="trunc"))
fmod.tangent("holomorphic")


@op(promote="float", cost=12)
def atan2(xp: Any, input: Array, other: Array) -> Array:
    """Angle of the point (other, input) (torch.atan2)."""
    return xp.arctan2(input, other)


atan2.works_in(backward=2.4)


def _over_square(value: Any, input: Any, other: Any) -> Any:
    square = input * input + other * other
    return where(eq(square, 0), 0, value / square)


atan2.grad(
    input=lambda g, input, other: g * _over_square(other, input, other),
    other=lambda g, input, other: g * _over_square(neg(input), input, other),
).tangent("holomorphic")


@op(promote="same", cost=12)
def hypot(xp: Any, input: Array, other: Array) -> Array:
    """sqrt(input**2 + other**2) (torch.hypot)."""
    if dtypes.category(input.dtype) != dtypes.FLOAT:
        raise EngineError(Reason.NOT_SUPPORTED, f"\"hypot_cpu\" not implemented for '{dtypes.TITLES[input.dtype]}'")
    return xp.hypot(input, other)


hypot.grad(input=lambda g, input, out: g * (input / out), other=lambda g, other, out: g * (other / out))
hypot.tangent("holomorphic")


@op(promote="same", in_place=False, cost=4)
def maximum(xp: Any, input: Array, other: Array) -> Array:
    """Larger of two elements; nan if either is nan (torch.maximum)."""
    _refuse_complex("maximum", input, other)
    return xp.maximum(input, other)


maximum.works_in(backward=3).bounds_results(of_ranges(larger))


@op(promote="same", in_place=False, cost=4)
def minimum(xp: Any, input: Array, other: Array) -> Array:
    """Smaller of two elements; nan if either is nan (torch.minimum)."""
    _refuse_complex("minimum", input, other)
    return xp.minimum(input, other)


minimum.works_in(backward=3).bounds_results(of_ranges(smaller))


def _refuse_complex(name: str, *values: Any) -> None:
    if any(dtypes.category(value.dtype) == dtypes.COMPLEX for value in values):
        raise EngineError(Reason.RUNTIME, f"{name} not implemented for complex tensors.", op=name)


def _extreme_gradient(g: Any, loses: Any, ties: Any) -> Any:
    """Gradient of an extreme's operand: all of g if it wins, half at a tie, else 0."""
    return where(loses, 0, where(ties, g * 0.5, g))


maximum.grad(
    input=lambda g, input, other: _extreme_gradient(g, lt(input, other), eq(input, other)),
    other=lambda g, input, other: _extreme_gradient(g, gt(input, other), eq(input, other)),
).tangent("holomorphic")
minimum.grad(
    input=lambda g, input, other: _extreme_gradient(g, gt(input, other), eq(input, other)),
    other=lambda g, input, other: _extreme_gradient(g, lt(input, other), eq(input, other)),
).tangent("holomorphic")


@op(promote="same", in_place=False, cost=8)
def fmax(xp: Any, input: Array, other: Array) -> Array:
    """Larger of two elements; of a number and nan, the number (torch.fmax)."""
    _refuse_complex("fmax", input, other)
    return xp.fmax(input, other)


@op(promote="same", in_place=False, cost=8)
def fmin(xp: Any, input: Array, other: Array) -> Array:
    """Smaller of two elements; of a number and nan, the number (torch.fmin)."""
    _refuse_complex("fmin", input, other)
    return xp.fmin(input, other)


fmax.grad(
    input=lambda g, input, other: where(logical_or(ge(input, other), isnan(other)), g, 0),
    other=lambda g, input, other: where(logical_or(ge(input, other), isnan(other)), 0, g),
).tangent("holomorphic")
fmin.grad(
    input=lambda g, input, other: where(logical_or(le(input, other), isnan(other)), g, 0),
    other=lambda g, input, other: where(logical_or(le(input, other), isnan(other)), 0, g),
).tangent("holomorphic")


@op(
    promote="same",
    in_place=False,
    node=lambda input, other, alpha: "RsubBackward0" if type(other) is Tensor else "RsubBackward1",
    cost=4,
)
def rsub(xp: Any, input: Array, other: Array | Number, *, alpha: Number = 1) -> Array:
    """other - alpha * input (torch.rsub)."""
    return sub(other, input, alpha=alpha)


rsub.checked_by(_refuse_bools)
rsub.bounds_results(of_ranges(lambda one, other, alpha: subtracted(other, one, alpha)))
rsub.grad(input=lambda g, alpha: neg(g) * conj(alpha), other=lambda g: g).tangent("holomorphic")


@op(promote="same", node=lambda input, end, weight: f"LerpBackward{int(type(weight) is Tensor)}", cost=4)
def lerp(xp: Any, input: Array, end: Array, weight: Array | Number) -> Array:
    """input + weight * (end - input) (torch.lerp)."""
    span = xp.subtract(end, input)
    near = xp.asarray(xp.abs(weight) < 0.5)
    if near.ndim == 0:
        return xp.add(input, weight * span) if near else xp.subtract(end, span * (1 - weight))
    return xp.where(near, xp.add(input, weight * span), xp.subtract(end, span * (1 - weight)))


lerp.works_in(forward=3.4)
lerp.grad(
    input=lambda g, weight: g * (1 - conj(weight)),
    end=lambda g, weight: g * conj(weight),
    weight=lambda g, input, end: g * conj(end - input),
).tangent("holomorphic")


def _scaled_on_gpu(name: str) -> Callable[..., Any]:
    """The attempt of addcmul and addcdiv by a loop of a GPU over arrays of one shape."""

    def attempt(loops: Loops, xp: Any, input: Any, tensor1: Any, tensor2: Any, *, value: Number = 1) -> Array | None:
        if not isinstance(value, int | float) or not type(input) is type(tensor1) is type(tensor2):
            return None
        return each(loops, name, input, tensor1, tensor2, numbers=(float(value),))

    return attempt


def _factor(value: Number, dtype: DType) -> Number:
    """The number that multiplies elements of a dtype; half types in float32. Raises EngineError: RUNTIME."""
    if value == 1 or dtype == dtypes.bool_:
        return value
    made: Number = cast_number(value, dtypes.float32 if is_half(dtype) else dtype)
    return made


@op(promote="same", cost=4)
@with_loop(_scaled_on_gpu("addcmul"), least=ON_GPU)
def addcmul(xp: Any, input: Array, tensor1: Array, tensor2: Array, *, value: Number = 1) -> Array:
    """input + value * tensor1 * tensor2 (torch.addcmul)."""
    product = xp.multiply(tensor1, tensor2)
    value = _factor(value, product.dtype)
    return xp.add(input, product if value == 1 else product * value)


addcmul.works_in(forward=1)
addcmul.grad(
    input=lambda g: g,
    tensor1=lambda g, tensor2, value: g * conj(tensor2 * value),
    tensor2=lambda g, tensor1, value: g * conj(tensor1 * value),
).tangent("holomorphic")


@op(promote="same", cost=4)
@with_loop(_scaled_on_gpu("addcdiv"), least=ON_GPU)
def addcdiv(xp: Any, input: Array, tensor1: Array, tensor2: Array, *, value: Number = 1) -> Array:
    """input + value * tensor1 / tensor2 (torch.addcdiv)."""
    if dtypes.category(dtypes.result_type(tensor1, tensor2)) < dtypes.FLOAT:
        raise EngineError(
            Reason.RUNTIME, "Integer division with addcdiv is no longer supported: make them float first."
        )
    quotient = xp.true_divide(tensor1, tensor2)
    value = _factor(value, quotient.dtype)
    return xp.add(input, quotient if value == 1 else quotient * value)


addcdiv.works_in(forward=1)
addcdiv.grad(
    input=lambda g: g,
    tensor1=lambda g, tensor2, value: g * conj(value / tensor2),
    tensor2=lambda g, tensor1, tensor2, value: neg(g) * conj(tensor1 * value / (tensor2 * tensor2)),
).tangent("holomorphic")

# Clamping: the gradient also passes at the bounds.


_WIDELY_HELD = 1e38  # below the largest number of float32 and bfloat16


@op(promote="same", node=lambda input, min, max: f"ClampBackward{int(not _any_tensor(min, max))}", cost=4)
def clamp(xp: Any, input: Array, min: Array | Number | None = None, max: Array | Number | None = None) -> Array:
    """Clamp the input to [min, max]; one of the bounds may be None (torch.clamp)."""
    if min is None and max is None:
        raise EngineError(Reason.RUNTIME, "torch.clamp: At least one of 'min' or 'max' must not be None")
    if dtypes.category(input.dtype) == dtypes.COMPLEX:
        raise EngineError(Reason.NOT_SUPPORTED, "clamp is not supported for complex types")
    bounds: list[Any] = [bound for bound in (min, max) if bound is not None]
    one_tensor = len(bounds) == 1 and not _is_number(bounds[0])
    if input.dtype == dtypes.bool_ and not one_tensor:
        raise EngineError(Reason.NOT_SUPPORTED, "\"clamp_cpu\" not implemented for 'Bool'", op="clamp")
    for bound in bounds:  # a call of arrays of one dtype and floats converts no numbers
        if type(bound) is float and not -_WIDELY_HELD < bound < _WIDELY_HELD:
            cast_number(bound, input.dtype)
    if dtypes.category(input.dtype) == dtypes.FLOAT:  # NumPy's clip is several times as fast with both bounds
        return xp.clip(input, -math.inf if min is None else min, math.inf if max is None else max)
    result = input if min is None else xp.maximum(input, min)
    return result if max is None else xp.minimum(result, max)


clamp.works_in(widens=True).bounds_results(of_ranges(clamped))
clamp.casts_numbers("min", "max")


def _any_tensor(*bounds: Any) -> bool:
    return any(type(bound) is Tensor for bound in bounds)


def _clamp_input(g: Any, input: Any, min: Any, max: Any) -> Any:
    if min is None or max is None:
        return where(le(input, max) if min is None else ge(input, min), g, 0)
    return where(logical_and(ge(input, min), le(input, max)), g, 0)


def _clamp_min(g: Any, input: Any, min: Any, max: Any) -> Any:
    below = lt(input, min)
    return where(below if max is None else logical_and(below, _less(min, max)), g, 0)


def _clamp_max(g: Any, input: Any, min: Any, max: Any) -> Any:
    above = gt(input, max)
    return where(above if min is None else logical_or(above, _less(max, min)), g, 0)


def _less(low: Any, high: Any) -> Any:
    if _is_number(low):
        return np.asarray(low < high) if _is_number(high) else gt(high, low)
    return lt(low, high)


clamp.grad(input=_clamp_input, min=_clamp_min, max=_clamp_max).tangent("holomorphic")


@op(promote="same", node=lambda input, min: f"ClampMinBackward{int(_any_tensor(min))}", cost=4)
def clamp_min(xp: Any, input: Array, min: Array | Number) -> Array:
    """Clamp the input to at least min (torch.clamp_min)."""
    return clamp(input, min, None)


clamp_min.works_in(widens=True).bounds_results(of_ranges(larger))
clamp_min.casts_numbers("min")


@op(promote="same", node=lambda input, max: f"ClampMaxBackward{int(_any_tensor(max))}", cost=4)
def clamp_max(xp: Any, input: Array, max: Array | Number) -> Array:
    """Clamp the input to at most max (torch.clamp_max)."""
    return clamp(input, None, max)


clamp_max.works_in(widens=True).bounds_results(of_ranges(smaller))
clamp_max.casts_numbers("max")


clamp_min.grad(
    input=lambda g, input, min: where(ge(input, min), g, 0), min=lambda g, input, min: where(lt(input, min), g, 0)
).tangent("holomorphic")
clamp_max.grad(
    input=lambda g, input, max: where(le(input, max), g, 0), max=lambda g, input, max: where(gt(input, max), g, 0)
).tangent("holomorphic")

# Logarithms and signs.


@op(promote="same", in_place=False, cost=12)
def logaddexp(xp: Any, input: Array, other: Array) -> Array:
    """log(exp(input) + exp(other)) (torch.logaddexp)."""
    return log_of_sum(xp, input, other)


def log_of_sum(xp: Any, one: Array, other: Array) -> Array:
    """logaddexp, also of complex numbers, which NumPy's lacks."""
    if one.dtype.kind != "c":
        return xp.logaddexp(one, other)
    first = one.real >= other.real
    large, small = xp.where(first, one, other), xp.where(first, other, one)
    at_end = xp.isinf(large.real) & (large.real == small.real) & (large.imag == small.imag)
    return xp.where(at_end & (large.real < 0), large, large + xp.log1p(xp.exp(small - large)))


@op(promote="same", in_place=False, cost=12)
def logaddexp2(xp: Any, input: Array, other: Array) -> Array:
    """log2(2**input + 2**other) (torch.logaddexp2)."""
    return xp.logaddexp2(input, other)


logaddexp.grad(
    input=lambda g, input, other: g / conj(1 + exp(other - input)),
    other=lambda g, input, other: g / conj(1 + exp(input - other)),
).tangent("holomorphic")
logaddexp2.grad(
    input=lambda g, input, other: g / (1 + exp2(other - input)),
    other=lambda g, input, other: g / (1 + exp2(input - other)),
).tangent("holomorphic")


@op(promote="float", node=lambda input, other: f"CopysignBackward{int(type(other) is not Tensor)}", cost=4)
def copysign(xp: Any, input: Array, other: Array | Number) -> Array:
    """Absolute value of the input with the sign of `other` (torch.copysign)."""
    return xp.copysign(input, other)


copysign.grad(input=lambda g, input, out: g * where(eq(input, 0), 0, out / input), other=lambda g: zeros(g))
copysign.tangent("holomorphic")


@op(promote="float", cost=12)
@through_float32
def ldexp(xp: Any, input: Array, other: Array) -> Array:
    """input * 2**other (torch.ldexp)."""
    return xp.multiply(input, xp.power(xp.asarray(2, input.dtype), other))


ldexp.works_in(forward=1, widens=True)


def _refuse_bool_exponent(input: Any, other: Any) -> None:
    if other.dtype == dtypes.bool_ and dtypes.category(input.dtype) >= dtypes.FLOAT:
        raise EngineError(Reason.NOT_SUPPORTED, "\"ldexp_cpu_exp\" not implemented for 'Bool'", op="ldexp")


ldexp.checked_by(_refuse_bool_exponent)
# As in PyTorch, an integer exponent gives an integer power in the gradient: 0 for a negative exponent.
ldexp.grad(input=lambda g, other: g * conj(pow(2, other)), other=lambda g, out: g * conj(out * math.log(2)))
ldexp.tangent("holomorphic")


@op(promote="same", cost=12)
def nextafter(xp: Any, input: Array, other: Array) -> Array:
    """Next floating-point number after the input, towards `other` (torch.nextafter)."""
    return xp.nextafter(input, other)


nextafter.grad(input=lambda g, input, other: where(eq(input, other), 0, g), other=lambda g: zeros(g))
nextafter.tangent("holomorphic")


# Integers.


@op(promote="same", cost=30)
def gcd(xp: Any, input: Array, other: Array) -> Array:
    """Greatest common divisor of integers (torch.gcd)."""
    return xp.gcd(input, other)


@op(promote="same", cost=30)
def lcm(xp: Any, input: Array, other: Array) -> Array:
    """Least common multiple of integers (torch.lcm)."""
    common = xp.gcd(input, other)
    wide = input.dtype if input.itemsize > 2 else dtypes.int32  # C's integer promotion
    parts = xp.floor_divide(input, xp.where(common == 0, 1, common)).astype(wide)
    return xp.abs(parts * other.astype(wide)).astype(input.dtype)


lcm.works_in(forward=3.2)


@op(promote="same", node="NotImplemented", cost=8)
def heaviside(xp: Any, input: Array, values: Array) -> Array:
    """0 below zero, 1 above, `values` at zero; backward is refused, as in PyTorch (torch.heaviside)."""
    return xp.where(input == 0, values, (input > 0).astype(input.dtype))


heaviside.works_in(forward=1.3)
heaviside.grad(
    input=lambda g: _refuse_derivative("heaviside"), values=lambda g: _refuse_derivative("heaviside")
).tangent("pointwise")


def _xlogy_node(input: Any, other: Any) -> str:
    return f"XlogyBackward{0 if type(input) is type(other) else 1 if type(other) is Tensor else 2}"


@op(promote="float", node=_xlogy_node, cost=30)
@through_float32
def xlogy(xp: Any, input: Array | Number, other: Array | Number) -> Array:
    """input * log(other); 0 where the input is 0 (torch.xlogy)."""
    dtype = dtypes.result_type(input, other)
    if dtypes.category(dtype) == dtypes.COMPLEX:
        raise EngineError(Reason.NOT_SUPPORTED, f"\"xlogy_cpu\" not implemented for '{dtypes.TITLES[dtype]}'")
    x, y = xp.asarray(input, dtype), xp.asarray(other, dtype)
    return xp.where((x == 0) & ~xp.isnan(y), 0, xp.multiply(x, xp.log(y))).astype(dtype, copy=False)


xlogy.works_in(forward=1.4)
xlogy.grad(
    input=lambda g, input, other: g * _log_where(input, other),
    other=lambda g, input, other: g * input / other,
).tangent("holomorphic")


def _log_of_scale(number: float) -> float:
    return math.log(number) if number > 0 else -math.inf if number == 0 else math.nan


def _log_where(input: Any, other: Any) -> Any:
    silent = le(other, 0) if not _is_number(other) else np.asarray(other <= 0)
    silent = logical_and(silent, eq(input, 0)) if not _is_number(input) else silent
    return where(silent, 0, log(other) if not _is_number(other) else _log_of_scale(other))


nextafter.unsupported("bic", "nextafter_cpu")
gcd.unsupported("bfc", "gcd_cpu")
lcm.unsupported("bfc", "lcm_cpu")
logaddexp.unsupported("bi", "logaddexp_cpu")
logaddexp2.unsupported("bic", "logaddexp2_cpu")
addcmul.unsupported("b", "addcmul_cpu_out")
lerp.unsupported("bi", "lerp_kernel")
heaviside.unsupported("c", "", "heaviside is not yet implemented for complex tensors.")


def _refuse_mixed_heaviside(input: Any, values: Any) -> None:
    if input.dtype != values.dtype:
        a, b = dtypes.TITLES[input.dtype], dtypes.TITLES[values.dtype]
        raise EngineError(
            Reason.RUNTIME,
            f"heaviside is not yet implemented for tensors with different dtypes. They are {a} and {b}",
            op="heaviside",
        )


def _refuse_mixed_lerp(input: Any, end: Any, weight: Any) -> None:
    if dtypes.category(input.dtype) < dtypes.FLOAT:
        title = dtypes.TITLES[input.dtype]
        raise EngineError(Reason.NOT_SUPPORTED, f"\"lerp_kernel_scalar\" not implemented for '{title}'", op="lerp")
    for name, value in (("end", end), ("weight", weight)):
        if hasattr(value, "dtype") and value.dtype != input.dtype:
            expected, found = dtypes.name_of(input.dtype), dtypes.name_of(value.dtype)
            raise EngineError(
                Reason.RUNTIME, f"lerp: expected dtype {expected} for `{name}` but got dtype {found}", op="lerp"
            )


heaviside.checked_by(_refuse_mixed_heaviside)
lerp.checked_by(_refuse_mixed_lerp)
