"""Incomplete and multivariate gamma functions, and the Hurwitz zeta function."""

from __future__ import annotations

import math
from typing import Any

from gradwire_engine.core import dtypes
from gradwire_engine.core.device import Array
from gradwire_engine.core.dtypes import Number
from gradwire_engine.core.errors import EngineError, Reason
from gradwire_engine.graph.tensor import Tensor
from gradwire_engine.op.composite import composite
from gradwire_engine.op.cost import LOOP, counted
from gradwire_engine.op.op import op
from gradwire_engine.ops.base.basic import neg
from gradwire_engine.ops.base.checks import admit, refuse_derivative
from gradwire_engine.ops.base.precision import check_special, special, through_float32
from gradwire_engine.ops.elementwise.special import digamma, lgamma
from gradwire_engine.ops.elementwise.unary import exp, log


def _check_float(name: str, *operands: Array) -> None:
    for operand in operands:
        if dtypes.category(operand.dtype) != dtypes.FLOAT:
            raise EngineError(Reason.NOT_SUPPORTED, f"\"{name}\" not implemented for '{dtypes.TITLES[operand.dtype]}'")


@op(promote="same", node="IgammaBackward0", cost=250)
@through_float32
def igamma(xp: Any, input: Array, other: Array) -> Array:
    """Regularized lower incomplete gamma function; input is the order, other the argument (torch.igamma)."""
    _check_float("igamma_cpu", input, other)
    return special(xp).gammainc(input, other)


igamma.works_in(widens=True)


@op(promote="same", node="IgammacBackward0", cost=250)
@through_float32
def igammac(xp: Any, input: Array, other: Array) -> Array:
    """Regularized upper incomplete gamma function; input is the order, other the argument (torch.igammac)."""
    _check_float("igammac_cpu", input, other)
    return special(xp).gammaincc(input, other)


igammac.works_in(widens=True)


def _density(g: Any, order: Any, other: Any) -> Any:
    return g * exp((order - 1) * log(other) - other - lgamma(order))


igamma.grad(
    input=lambda g: refuse_derivative("igamma: input"), other=lambda g, input, other: _density(g, input, other)
).tangent("holomorphic")
igammac.grad(
    input=lambda g: refuse_derivative("igammac: input"), other=lambda g, input, other: neg(_density(g, input, other))
).tangent("holomorphic")


@op(
    name="special.zeta",
    promote="float",
    in_place=False,
    node=lambda input, other: (
        f"SpecialZetaBackward{0 if type(input) is type(other) else 1 if type(other) is Tensor else 2}"
    ),
    cost=250,
)
def zeta(xp: Any, input: Array | Number, other: Array | Number) -> Array:
    """Hurwitz zeta function: sum over k >= 0 of (k + other) ** -input (torch.special.zeta)."""
    dtype = dtypes.result_type(input, other)
    check_special("zeta_cpu", dtype, half=False)
    return special(xp).zeta(xp.asarray(input, dtype), xp.asarray(other, dtype))


zeta.grad(
    input=lambda g: refuse_derivative("zeta"),
    other=lambda g, input, other: (
        g * zeta(input + 1, other) * (-input if isinstance(input, (int, float)) else neg(input))
    ),
).tangent("holomorphic")


# The derivative of mvlgamma loops over p in Python; a step costs as much as _EACH elements.
_EACH = 64


@op(
    name="_mvlgamma",
    promote="float",
    node="MvlgammaBackward0",
    cost=counted(lambda input, p: 100.0 * input.size * p + p * LOOP, 4.0),
)
@through_float32
def _mvlgamma(xp: Any, input: Array, p: int) -> Array:
    admit((input.size, p, _EACH), input.dtype)
    shifts = xp.arange(p, dtype=input.dtype) * -0.5
    constant = p * (p - 1) * 0.25 * math.log(math.pi)
    return (special(xp).gammaln(input[..., None] + shifts).sum(-1) + constant).astype(input.dtype, copy=False)


_mvlgamma.works_in(backward=4.4)


def _digamma_sum(input: Any, p: int) -> Any:
    made = digamma(input)
    for place in range(1, p):
        made = made + digamma(input - 0.5 * place)
    return made


_mvlgamma.grad(input=lambda g, input, p: g * _digamma_sum(input, p)).tangent("holomorphic")


@composite(in_place=True)
def mvlgamma(input: Array, p: int) -> Any:
    """Logarithm of the multivariate gamma function of dimension p (torch.mvlgamma).

    Raises EngineError: RUNTIME for p below 1 or bool, NOT_SUPPORTED for complex numbers.
    """
    if p < 1:
        raise EngineError(Reason.RUNTIME, "p has to be greater than or equal to 1")
    if input.dtype == dtypes.bool_:
        raise EngineError(Reason.RUNTIME, "The input tensor may not be a boolean tensor.")
    check_special("mvlgamma_cpu", input.dtype)
    return _mvlgamma(input, p)
