"""Modified Bessel functions of the first kind, orders 0 and 1, plain and scaled by exp(-|x|)."""

from __future__ import annotations

from typing import Any

from gradwire_engine.core.device import Array
from gradwire_engine.op.op import op
from gradwire_engine.ops.base.compare import eq
from gradwire_engine.ops.base.fill import where
from gradwire_engine.ops.base.precision import check_special, special, through_float32
from gradwire_engine.ops.elementwise.unary import sign


@op(promote="float", node="I0Backward0", cost=30)
@through_float32
def i0(xp: Any, input: Array) -> Array:
    """Modified Bessel function of order 0 (torch.i0)."""
    check_special("i0_vml_cpu", input.dtype)
    return special(xp).i0(input)


i0.works_in(widens=True)


@op(name="special.i1", promote="float", in_place=False, node="SpecialI1Backward0", cost=30)
@through_float32
def i1(xp: Any, input: Array) -> Array:
    """Modified Bessel function of order 1 (torch.special.i1)."""
    check_special("i1_cpu", input.dtype)
    return special(xp).i1(input)


i1.works_in(backward=2.3)


@op(name="special.i0e", promote="float", in_place=False, node="SpecialI0EBackward0", cost=30)
@through_float32
def i0e(xp: Any, input: Array) -> Array:
    """exp(-|x|) times the modified Bessel function of order 0 (torch.special.i0e)."""
    check_special("i0e_cpu", input.dtype)
    return special(xp).i0e(input)


@op(name="special.i1e", promote="float", in_place=False, node="SpecialI1EBackward0", cost=30)
@through_float32
def i1e(xp: Any, input: Array) -> Array:
    """exp(-|x|) times the modified Bessel function of order 1 (torch.special.i1e)."""
    check_special("i1e_cpu", input.dtype)
    return special(xp).i1e(input)


i1e.works_in(backward=2.4)


def _over(value: Any, input: Any) -> Any:
    """value / input; 1/2 at 0, the limit of i1(x) / x."""
    at_zero = eq(input, 0)
    return where(at_zero, 0.5, value / where(at_zero, 1, input))


i0.grad(input=lambda g, input: g * i1(input)).tangent("holomorphic")
i1.grad(input=lambda g, input, out: g * (i0(input) - _over(out, input))).tangent("holomorphic")
i0e.grad(input=lambda g, input, out: g * (i1e(input) - sign(input) * out)).tangent("holomorphic")
i1e.grad(input=lambda g, input, out: g * (i0e(input) - sign(input) * out - _over(out, input))).tangent("holomorphic")
