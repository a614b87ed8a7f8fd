"""Gamma and Dirichlet numbers with gradients: a number is an implicit function of its concentration.

With the distribution's cdf F(x; a) and density f, a sample x moves by dx/da = -(dF/da) / f. dF/da is a difference of
fourth order, of the smaller tail, with relative errors of about 1e-9. PyTorch's polynomials have about 1e-3.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

from gradwire_engine.core import dtypes
from gradwire_engine.core.device import Array
from gradwire_engine.core.dtypes import DType
from gradwire_engine.core.errors import EngineError, Reason
from gradwire_engine.op.op import op
from gradwire_engine.ops.base.precision import special
from gradwire_engine.ops.random.draw import sampler_for
from gradwire_engine.ops.reduce.reduce import sum as sum_of

_STEP = 2e-3  # of the difference, relative to the smaller of the argument and its root


def _checked(name: str, input: Array) -> DType:
    if dtypes.category(input.dtype) != dtypes.FLOAT:
        raise EngineError(
            Reason.NOT_SUPPORTED, f"\"{name}\" not implemented for '{dtypes.TITLES[input.dtype]}'", op=name
        )
    found: DType = input.dtype
    return found


def _tiny(dtype: DType) -> float:
    """The smallest normal number."""
    return float(ml_dtypes.finfo(dtype).smallest_normal)  # type: ignore[no-untyped-call]


@op(cost=2000, draws=True)
def standard_gamma(xp: Any, input: Array) -> Array:
    """Gamma distributed numbers of rate 1; each element is a concentration (torch._standard_gamma)."""
    dtype = _checked("standard_gamma", input)
    drawn = sampler_for(xp).gamma(input)
    return xp.maximum(drawn.astype(dtype), xp.asarray(_tiny(dtype), dtype))


@op(cost=2000)
def standard_gamma_grad(xp: Any, input: Array, output: Array) -> Array:
    """Derivative of a gamma distributed number by its concentration (torch._standard_gamma_grad)."""
    dtype = _checked("standard_gamma_grad", input)
    sp, a, x = special(xp), input.astype(dtypes.float64), output.astype(dtypes.float64)
    upper = x > a
    slope = xp.where(
        upper, -_slope(xp, lambda at: sp.gammaincc(at, x), a), _slope(xp, lambda at: sp.gammainc(at, x), a)
    )
    with np.errstate(all="ignore"):
        made = -slope * xp.exp(x - (a - 1) * xp.log(x) + sp.gammaln(a))
    found: Array = xp.where(xp.isnan(made), 0, made).astype(dtype)
    return found


def _slope(xp: Any, function: Callable[[Any], Any], at: Any) -> Any:
    """Derivative by a difference of fourth order."""
    step = _STEP * xp.minimum(at, xp.sqrt(at))
    near = function(at + step) - function(at - step)
    return (8 * near - (function(at + 2 * step) - function(at - 2 * step))) / (12 * step)


@op(cost=2000, draws=True)
def sample_dirichlet(xp: Any, input: Array) -> Array:
    """Vectors that sum to 1 along the last dimension, of these concentrations (torch._sample_dirichlet)."""
    dtype = _checked("dirichlet", input)
    # Numbers of small concentrations vanish; a vector of zeros has no sum to divide by.
    drawn = xp.maximum(sampler_for(xp).gamma(input), _tiny(dtypes.float64))
    with np.errstate(invalid="ignore"):
        drawn = drawn / drawn.sum(-1, keepdims=True)
    most = 1 - float(ml_dtypes.finfo(dtype).epsneg)  # type: ignore[no-untyped-call]
    return xp.clip(drawn.astype(dtype), _tiny(dtype), most).astype(dtype, copy=False)


@op(cost=4000)
def dirichlet_grad(xp: Any, x: Array, alpha: Array, total: Array) -> Array:
    """Derivative of one part of a Dirichlet vector by its concentration, over 1 - x (torch._dirichlet_grad)."""
    dtype = _checked("dirichlet_grad", x)
    sp, x = special(xp), x.astype(dtypes.float64)
    a = alpha.astype(dtypes.float64)
    b = total.astype(dtypes.float64) - a
    upper = x * (a + b) > a
    slope = xp.where(
        upper,
        -_slope(xp, lambda at: sp.betainc(b, at, 1 - x), a),
        _slope(xp, lambda at: sp.betainc(at, b, x), a),
    )
    with np.errstate(all="ignore"):
        made = -slope * xp.exp((1 - a) * xp.log(x) - b * xp.log1p(-x) + sp.betaln(a, b))
    return made.astype(dtype)


for _draw in (standard_gamma, sample_dirichlet):
    _draw.works_in(forward=8, backward=16, widens=True)
for _derivative in (standard_gamma_grad, dirichlet_grad):
    _derivative.works_in(forward=16, widens=True)


def _dirichlet_input(g: Any, input: Any, out: Any) -> Any:
    slope = dirichlet_grad(out, input, sum_of(input, -1, True))
    return slope * (g - sum_of(out * g, -1, True))


standard_gamma.grad(input=lambda g, input, out: g * standard_gamma_grad(input, out)).tangent("pointwise")
sample_dirichlet.grad(input=_dirichlet_input)
