"""Orthogonal polynomials of degree n at x, by their recurrences; PyTorch has no derivatives of them.

A degree is rounded towards zero; below zero the value is 0. Chebyshev polynomials of higher degrees inside (-1, 1) are
trigonometric functions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gradwire_engine.core import dtypes
from gradwire_engine.core.device import Array
from gradwire_engine.core.dtypes import Number
from gradwire_engine.op.op import op
from gradwire_engine.op.workload import pause
from gradwire_engine.ops.base.precision import check_special

_TRIGONOMETRIC = {"t": 6, "u": 8, "v": 8, "w": 8}  # degrees above which PyTorch uses these functions
_HERMITE_LIMIT = {4: 128, 8: 512}  # by bytes of an element; PyTorch gives nan above

Step = Callable[[int, Any, Any], Any]


def _operands(xp: Any, name: str, x: Any, n: Any) -> tuple[Any, Any]:
    """x, and n as whole numbers; both of one shape. Raises EngineError: NOT_SUPPORTED."""
    dtype = dtypes.result_type(x, n)
    check_special(f"{name}_cpu", dtype, half=False)
    x, n = xp.broadcast_arrays(xp.asarray(x, dtype), xp.asarray(n, dtype))
    whole = xp.where(xp.isfinite(n), xp.clip(n, -1, 2.0**53), -1)
    return x, xp.trunc(whole).astype(np.int64)


def _recur(xp: Any, n: Any, first: Any, step: Step) -> Any:
    """Polynomials of degree n by `step(k, before, last)`, which gives the next one behind degree k."""
    one = xp.ones_like(first)
    made = xp.where(n < 0, 0 * one, xp.where(n == 0, one, first))
    before, last, k = one, first, 1
    with np.errstate(all="ignore"):
        while bool(((n > k) & ~xp.isnan(last)).any()):
            pause()
            before, last = last, step(k, before, last).astype(first.dtype, copy=False)
            k += 1
            made = xp.where(n >= k, last, made)
    return made


def _chebyshev(xp: Any, kind: str, x: Any, n: Any) -> Any:
    two = x + x
    first = {"t": x, "u": two, "v": two - 1, "w": two + 1}[kind]
    inside = (xp.abs(x) < 1) & (n > _TRIGONOMETRIC[kind])
    ends = (xp.abs(x) == 1) & (n > 1)
    made = _recur(xp, xp.where(inside | ends, 1, n), first, lambda k, before, last: two * last - before)
    angle = xp.arccos(xp.where(inside, x, 0))
    half = n + 0.5
    inner: dict[str, Callable[[], Any]] = {
        "t": lambda: xp.cos(n * angle),
        "u": lambda: xp.sin((n + 1) * angle) / xp.sin(angle),
        "v": lambda: xp.cos(half * angle) / xp.cos(angle / 2),
        "w": lambda: xp.sin(half * angle) / xp.sin(angle / 2),
    }
    most = {
        "t": xp.ones_like(x),
        "u": n + 1,
        "v": xp.where(x > 0, 1, 2 * n + 1),
        "w": xp.where(x > 0, 2 * n + 1, 1),
    }[kind]
    made = xp.where(ends, xp.where((x > 0) | (n % 2 == 0), most, -most), made)
    return xp.where(inside, inner[kind](), made).astype(x.dtype, copy=False)


def _declare_chebyshev(kind: str, shifted: bool) -> None:
    name = f"{'shifted_' if shifted else ''}chebyshev_polynomial_{kind}"

    def chebyshev(xp: Any, input: Array | Number, n: Array | Number) -> Array:
        x, degree = _operands(xp, name, input, n)
        return _chebyshev(xp, kind, x + x - 1 if shifted else x, degree)

    at = "2 x - 1" if shifted else "x"
    chebyshev.__doc__ = f"Chebyshev polynomial {kind.upper()} of degree n at {at} (torch.special.{name})."
    _declare(name, chebyshev)


def _declare(name: str, function: Callable[..., Any]) -> None:
    made = op(name=f"special.{name}", promote="float", in_place=False, differentiable_outputs=(), cost=500)(function)
    made.works_in(forward=12)


for _kind in "tuvw":
    for _shifted in (False, True):
        _declare_chebyshev(_kind, _shifted)


def _hermite(xp: Any, name: str, input: Any, n: Any, factor: int) -> Any:
    x, degree = _operands(xp, name, input, n)
    beyond = degree > _HERMITE_LIMIT[x.dtype.itemsize]
    made = _recur(xp, xp.where(beyond, 0, degree), factor * x, lambda k, before, last: factor * (x * last - k * before))
    return xp.where(beyond, xp.asarray(np.nan, x.dtype), made)


def _hermite_h(xp: Any, input: Array | Number, n: Array | Number) -> Array:
    """Physicist's Hermite polynomial of degree n (torch.special.hermite_polynomial_h)."""
    found: Array = _hermite(xp, "hermite_polynomial_h", input, n, 2)
    return found


def _hermite_he(xp: Any, input: Array | Number, n: Array | Number) -> Array:
    """Probabilist's Hermite polynomial of degree n (torch.special.hermite_polynomial_he)."""
    x, degree = _operands(xp, "hermite_polynomial_he", input, n)
    beyond = degree > _HERMITE_LIMIT[x.dtype.itemsize]
    made = _recur(xp, xp.where(beyond, 0, degree), x, _hermite_step(x))
    return xp.where(beyond, xp.asarray(np.nan, x.dtype), made)


def _hermite_step(x: Any) -> Step:
    """x last - k before. The product is exact for float32, as PyTorch's instructions keep it."""
    wide = x.astype(dtypes.float64, copy=False)
    return lambda k, before, last: wide * last - (k * before).astype(x.dtype, copy=False)


def _laguerre(xp: Any, input: Array | Number, n: Array | Number) -> Array:
    """Laguerre polynomial of degree n (torch.special.laguerre_polynomial_l)."""
    x, degree = _operands(xp, "laguerre_polynomial_l", input, n)
    degree = xp.where((x == 0) & (degree > 0), 0, degree)
    found: Array = _recur(xp, degree, 1 - x, lambda k, before, last: ((2 * k + (1 - x)) * last - k * before) / (k + 1))
    return found


def _legendre(xp: Any, input: Array | Number, n: Array | Number) -> Array:
    """Legendre polynomial of degree n (torch.special.legendre_polynomial_p)."""
    x, degree = _operands(xp, "legendre_polynomial_p", input, n)
    ends = (xp.abs(x) == 1) & (degree > 1)
    made = _recur(
        xp, xp.where(ends, 1, degree), x, lambda k, before, last: ((2 * k + 1) * x * last - k * before) / (k + 1)
    )
    found: Array = xp.where(ends & (degree % 2 == 0), xp.asarray(1, x.dtype), made)
    return found


_declare("hermite_polynomial_h", _hermite_h)
_declare("hermite_polynomial_he", _hermite_he)
_declare("laguerre_polynomial_l", _laguerre)
_declare("legendre_polynomial_p", _legendre)
