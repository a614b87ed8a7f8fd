"""Special functions of one tensor: error functions, gamma functions, sinc, logit, nan_to_num."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np

from gradwire_engine.core import dtypes
from gradwire_engine.core.device import Array
from gradwire_engine.core.errors import EngineError, Reason
from gradwire_engine.op.op import op
from gradwire_engine.ops.base.basic import conj, neg
from gradwire_engine.ops.base.compare import eq, ge, le, logical_and, logical_or
from gradwire_engine.ops.base.fill import where
from gradwire_engine.ops.base.loops import each, elementwise_loop, with_loop
from gradwire_engine.ops.base.precision import check_special, special, through_float32
from gradwire_engine.ops.elementwise.unary import cos, exp, isfinite, sin


@op(promote="float", cost=12)
@through_float32
@with_loop(elementwise_loop("erf"))
def erf(xp: Any, input: Array) -> Array:
    """Error function (torch.erf)."""
    check_special("erf_vml_cpu", input.dtype)
    return special(xp).erf(input)


erf.works_in(backward=2.1, widens=True)


@op(promote="float", cost=12)
@through_float32
def erfc(xp: Any, input: Array) -> Array:
    """1 - erf, accurate in the tail (torch.erfc)."""
    check_special("erfc_vml_cpu", input.dtype)
    return special(xp).erfc(input)


erfc.works_in(backward=2.1, widens=True)


@op(promote="float", cost=30)
@through_float32
def erfinv(xp: Any, input: Array) -> Array:
    """Inverse of erf (torch.erfinv)."""
    check_special("erfinv_vml_cpu", input.dtype)
    return special(xp).erfinv(input)


erfinv.works_in(backward=2.1, widens=True)


@with_loop(lambda loops, g, input: each(loops, "erf_backward", g, input), 0)
def _erf_input(g: Any, input: Any) -> Any:
    return g * (2 / math.sqrt(math.pi)) * exp(neg(input * input))


erf.by_loops("erf", "erf_backward")
erf.grad(input=_erf_input).tangent("holomorphic")
erfc.grad(input=lambda g, input: g * (-2 / math.sqrt(math.pi)) * exp(neg(input * input))).tangent("holomorphic")
erfinv.grad(input=lambda g, out: g * (math.sqrt(math.pi) / 2) * exp(out * out)).tangent("holomorphic")


@op(promote="float", cost=60)
@through_float32
def lgamma(xp: Any, input: Array) -> Array:
    """Logarithm of the absolute value of the gamma function (torch.lgamma)."""
    check_special("lgamma_vml_cpu", input.dtype)
    return xp.where(xp.isinf(input), xp.abs(input), special(xp).gammaln(input))


lgamma.works_in(forward=2.3, backward=2.3, widens=True)


@op(promote="float", cost=250)
@through_float32
def digamma(xp: Any, input: Array) -> Array:
    """Derivative of lgamma (torch.digamma)."""
    check_special("digamma", input.dtype)
    found = special(xp).digamma(input)
    return xp.where(input == 0, xp.copysign(xp.asarray(math.inf, found.dtype), -input), found)


digamma.works_in(forward=2.3, backward=4.1, widens=True)


@op(in_place=False, cost=250)
@through_float32
def polygamma(xp: Any, n: int, input: Array) -> Array:
    """n-th derivative of digamma (torch.polygamma)."""
    if n < 0:
        raise EngineError(Reason.RUNTIME, "polygamma(n, x) does not support negative n.")
    if dtypes.category(input.dtype) < dtypes.FLOAT:
        input = input.astype(dtypes.float32)
    if n == 0:
        return digamma(input)
    if n == 1 and xp is np and input.dtype == dtypes.float32:
        return _trigamma_in_single(input)
    return xp.asarray(special(xp).polygamma(n, input)).astype(input.dtype, copy=False)


def _trigamma_in_single(input: Array) -> Array:
    """Derivative of digamma in float32, by the formula and in the precision of PyTorch on a CPU.

    Reflection at 1/2 (Abramowitz & Stegun 6.4.7), recurrence to 6 and more (6.4.6), asymptotic series (6.4.12). Between
    poles on the left, the rounding of pi x costs digits.
    """
    one, below = np.float32(1), input < 0.5
    sine = np.sin(np.float32(np.pi) * input)
    made = np.where(below, -np.float32(np.pi * np.pi) / (sine * sine), np.float32(0))
    x = np.where(below, one - input, input)
    for _ in range(6):
        made += one / (x * x)
        x = x + one
    inverse = one / (x * x)
    series = inverse * (one / 6 - inverse * (np.float32(1 / 30) - inverse * np.float32(1 / 42)))
    made += (one + one / (2 * x) + series) / x
    return np.where(below, -made, made)


polygamma.works_in(forward=1.5, backward=4.1)


lgamma.grad(input=lambda g, input: g * digamma(input)).tangent("holomorphic")
digamma.grad(input=lambda g, input: g * polygamma(1, input)).tangent("holomorphic")
polygamma.grad(input=lambda g, n, input: g * polygamma(n + 1, input)).tangent("holomorphic")


@op(promote="float", cost=8)
@through_float32
def logit(xp: Any, input: Array, eps: float | None = None) -> Array:
    """log(x / (1 - x)), with x clamped to [eps, 1 - eps] (torch.logit)."""
    check_special("logit_cpu", input.dtype)
    if eps is not None:
        input = xp.clip(input, xp.asarray(eps, input.dtype), xp.asarray(1 - eps, input.dtype))
    return xp.log(input / (1 - input))


logit.works_in(forward=1, backward=4, widens=True)


def _logit_input(g: Any, input: Any, eps: float | None) -> Any:
    at_end = logical_or(eq(input, 0), eq(input, 1))
    slope = where(at_end, g * math.inf, g / (input * (1 - input)))
    low = 0.0 if eps is None else eps
    inside = logical_and(ge(input, low), le(input, 1 - low))
    return where(inside, slope, math.nan if eps is None else 0)


logit.grad(input=_logit_input).tangent("holomorphic")


@op(promote="float", cost=12)
@through_float32
def sinc(xp: Any, input: Array) -> Array:
    """sin(pi x) / (pi x); 1 at 0 (torch.sinc)."""
    return xp.sinc(input).astype(input.dtype, copy=False)


sinc.works_in(forward=2.2, backward=3.3)


def _sinc_input(g: Any, input: Any) -> Any:
    angle = input * math.pi
    square = angle * input  # 0 also where the square of a small number is none
    slope = (angle * cos(angle) - sin(angle)) / square
    return where(eq(square, 0), 0, g * conj(slope))


sinc.grad(input=_sinc_input).tangent("holomorphic")


@op(in_place=True, complex_grad=False, cost=8)
def nan_to_num(
    xp: Any, input: Array, nan: float | None = None, posinf: float | None = None, neginf: float | None = None
) -> Array:
    """Replace nan, inf and -inf; by default by 0, the dtype's largest and smallest number (torch.nan_to_num)."""
    if dtypes.category(input.dtype) < dtypes.FLOAT:
        return input.copy()
    limits = ml_dtypes.finfo(input.dtype)  # type: ignore[no-untyped-call]
    result = xp.where(xp.isnan(input), xp.asarray(0.0 if nan is None else nan, input.dtype), input)
    result = xp.where(input == math.inf, xp.asarray(limits.max if posinf is None else posinf, input.dtype), result)
    return xp.where(input == -math.inf, xp.asarray(limits.min if neginf is None else neginf, input.dtype), result)


nan_to_num.works_in(forward=1.3)
nan_to_num.grad(input=lambda g, input: where(isfinite(input), g, 0)).tangent("holomorphic")
