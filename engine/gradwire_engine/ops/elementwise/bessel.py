"""Bessel functions of orders 0 and 1, and Airy's; modified ones of the first kind have derivatives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

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


def _declare(name: str, title: str, compute: Callable[[Any, Any, Any], Any]) -> None:
    """Declare a function that PyTorch does not differentiate: `compute(xp, special functions, input)`."""

    def function(xp: Any, input: Array) -> Array:
        check_special(f"{name}_cpu", input.dtype, half=False)
        return xp.asarray(compute(xp, special(xp), input)).astype(input.dtype, copy=False)

    function.__doc__ = f"{title} (torch.special.{name})."
    made = op(name=f"special.{name}", promote="float", in_place=False, differentiable_outputs=(), cost=60)(function)
    made.works_in(forward=6)


def _finite(name: str) -> Callable[[Any, Any, Any], Any]:
    """A function of scipy.special; nan at infinity, as in PyTorch."""
    return lambda xp, sp, x: xp.where(xp.isinf(x), xp.asarray(xp.nan, x.dtype), getattr(sp, name)(x))


def _plain(name: str) -> Callable[[Any, Any, Any], Any]:
    return lambda xp, sp, x: getattr(sp, name)(x)


def _airy(xp: Any, sp: Any, x: Any) -> Any:
    """CuPy has no Airy functions, so the CPU computes them."""
    return xp.asarray(special(np).airy(x if xp is np else x.get())[0])


def _spherical(xp: Any, sp: Any, x: Any) -> Any:
    made = xp.where(xp.isinf(x), 0, xp.sinc(xp.where(xp.isinf(x), 0, x) / xp.pi))
    return made if xp is np else xp.where(xp.isnan(x), x, made)  # CuPy's sinc of nan is 1


def _scaled(name: str) -> Callable[[Any, Any, Any], Any]:
    """A function of scipy.special that is 0 at infinity, where CuPy's is nan."""

    def compute(xp: Any, sp: Any, x: Any) -> Any:
        made = getattr(sp, name)(x)
        return made if xp is np else xp.where(x == xp.inf, 0, made)

    return compute


_declare("airy_ai", "Airy function Ai", _airy)
for _order in "01":
    _declare(f"bessel_j{_order}", f"Bessel function of the first kind of order {_order}", _finite(f"j{_order}"))
    _declare(f"bessel_y{_order}", f"Bessel function of the second kind of order {_order}", _finite(f"y{_order}"))
    _title = f"Modified Bessel function of the {{}} kind of order {_order}"
    _declare(f"modified_bessel_i{_order}", _title.format("first"), _finite(f"i{_order}"))
    _declare(f"modified_bessel_k{_order}", _title.format("second"), _plain(f"k{_order}"))
    _declare(
        f"scaled_modified_bessel_k{_order}", f"exp(x) times the modified Bessel function of the second kind of order "
        f"{_order}", _scaled(f"k{_order}e"),
    )  # fmt: skip
_declare("spherical_bessel_j0", "Spherical Bessel function of the first kind of order 0", _spherical)
