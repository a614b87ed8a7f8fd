"""Functions of the normal distribution, entr and xlog1py, without overflow in the tails."""

from __future__ import annotations

import math
from typing import Any

from gradwire_engine.core import dtypes
from gradwire_engine.core.device import Array
from gradwire_engine.core.dtypes import Number
from gradwire_engine.graph.tensor import Tensor
from gradwire_engine.op.composite import composite
from gradwire_engine.op.op import op
from gradwire_engine.ops.base.basic import neg
from gradwire_engine.ops.base.compare import eq, le, logical_and
from gradwire_engine.ops.base.fill import where
from gradwire_engine.ops.base.precision import check_special, special, through_float32
from gradwire_engine.ops.elementwise.special import erf
from gradwire_engine.ops.elementwise.unary import exp, log, log1p


@composite(name="special.ndtr")
def ndtr(input: Array) -> Any:
    """Cumulative distribution function of the normal distribution (torch.special.ndtr)."""
    return (erf(input * math.sqrt(0.5)) + 1) * 0.5


@op(name="special.ndtri", promote="float", in_place=False, node="SpecialNdtriBackward0", cost=30)
def ndtri(xp: Any, input: Array) -> Array:
    """Inverse of ndtr (torch.special.ndtri)."""
    check_special("ndtri_cpu", input.dtype, half=False)
    return special(xp).ndtri(input)


@op(name="special.erfcx", promote="float", in_place=False, node="SpecialErfcxBackward0", cost=30)
def erfcx(xp: Any, input: Array) -> Array:
    """Scaled complementary error function, exp(x²) * erfc(x) (torch.special.erfcx)."""
    check_special("erfcx_cpu", input.dtype, half=False)
    return special(xp).erfcx(input)


@op(name="special.log_ndtr", promote="float", in_place=False, node="SpecialLogNdtrBackward0", cost=30)
def log_ndtr(xp: Any, input: Array) -> Array:
    """Logarithm of ndtr, accurate in the tail (torch.special.log_ndtr)."""
    check_special("log_ndtr_cpu", input.dtype, half=False)
    return special(xp).log_ndtr(input)


@op(name="special.entr", promote="float", in_place=False, node="SpecialEntrBackward0", cost=12)
@through_float32
def entr(xp: Any, input: Array) -> Array:
    """-x log(x); 0 at 0, -inf below 0 (torch.special.entr)."""
    check_special("entr_cpu", input.dtype)
    return special(xp).entr(input)


ndtri.grad(input=lambda g, out: g * math.sqrt(2 * math.pi) * exp(out * out * 0.5)).tangent("holomorphic")
erfcx.grad(input=lambda g, input, out: g * (input * out * 2 - 2 / math.sqrt(math.pi))).tangent("holomorphic")
log_ndtr.grad(input=lambda g, input, out: g / erfcx(input * -math.sqrt(0.5)) * math.sqrt(2 / math.pi))
log_ndtr.tangent("holomorphic")
entr.grad(input=lambda g, input: g * (neg(log(input)) - 1)).tangent("holomorphic")


@op(
    name="special.xlog1py",
    promote="float",
    in_place=False,
    node=lambda input, other: f"SpecialXlog1PyBackward{_operands(input, other)}",
    cost=30,
)
@through_float32
def xlog1py(xp: Any, input: Array | Number, other: Array | Number) -> Array:
    """input * log(1 + other); 0 where the input is 0 (torch.special.xlog1py)."""
    dtype = dtypes.result_type(input, other)
    check_special("xlog1py_cpu", dtype)
    x, y = xp.asarray(input, dtype), xp.asarray(other, dtype)
    return xp.where((x == 0) & ~xp.isnan(y), dtype.type(0), xp.multiply(x, xp.log1p(y)))


xlog1py.works_in(forward=1.4)


def _operands(input: Any, other: Any) -> int:
    """Number of PyTorch's overload: 0 for two tensors, 1 for a number first, 2 for a number second."""
    return 0 if type(input) is type(other) else 1 if type(other) is Tensor else 2


def _xlog1py_input(g: Any, input: Any, other: Any) -> Any:
    if not hasattr(other, "dtype"):
        return (
            g * math.log1p(other)
            if other > -1
            else where(eq(input, 0), 0, g * (-math.inf if other == -1 else math.nan))
        )
    return where(logical_and(eq(input, 0), le(other, -1)), 0, g * log1p(other))


xlog1py.grad(input=_xlog1py_input, other=lambda g, input, other: g * input / (other + 1)).tangent("holomorphic")
