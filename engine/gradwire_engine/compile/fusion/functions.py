"""exp, log, log1p, tanh and sigmoid as polynomials of basic operations, which vectorize where a call would not.

The reductions and coefficients are those of the Cephes library (S. Moshier). Errors are at most 2 units in the last
place. Results at nan, infinities, zeros and subnormal numbers are those of NumPy.
"""

from __future__ import annotations

from collections.abc import Sequence

from gradwire_engine.compile.fusion.form import BITS, F4, Loop

_LOG2E = 1.4426950408889634
#: Adding and subtracting it rounds to an integer, whose bits are the difference of the bits.
_ROUNDER = {"f4": 12582912.0, "f8": 6755399441055744.0}
_MANTISSA = {"f4": 23, "f8": 52}
_BIAS = {"f4": 127, "f8": 1023}
_EXP_RANGE = {"f4": (-104.0, 89.0), "f8": (-746.0, 710.0)}
_LN2 = {"f4": (0.693359375, -2.12194440e-4), "f8": (6.93145751953125e-1, 1.42860682030941723212e-6)}
_LN2_LOG = (0.693359375, -2.121944400546905827679e-4)
_EXP4 = (
    1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1,
)  # fmt: skip
_EXP8_P = (1.26177193074810590878e-4, 3.02994407707441961300e-2, 9.99999999999999999910e-1)
_EXP8_Q = (
    3.00198505138664455042e-6, 2.52448340349684104192e-3, 2.27265548208155028766e-1, 2.00000000000000000009e0,
)  # fmt: skip
_LOG4 = (
    7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1, 1.4249322787e-1, -1.6668057665e-1,
    2.0000714765e-1, -2.4999993993e-1, 3.3333331174e-1,
)  # fmt: skip
_LOG8_P = (
    1.01875663804580931796e-4, 4.97494994976747001425e-1, 4.70579119878881725854e0, 1.44989225341610930846e1,
    1.79368678507819816313e1, 7.70838733755885391666e0,
)  # fmt: skip
_LOG8_Q = (
    1.0, 1.12873587189167450590e1, 4.52279145837532221105e1, 8.29875266912776603211e1, 7.11544750618563894466e1,
    2.31251620126765340583e1,
)  # fmt: skip
_TANH4 = (-5.70498872745e-3, 2.06390887954e-2, -5.37397155531e-2, 1.33314422036e-1, -3.33332819422e-1)
_TANH8_P = (-9.64399179425052238628e-1, -9.92877231001918586564e1, -1.61468768441708447952e3)
_TANH8_Q = (1.0, 1.12811678491632931402e2, 2.23548839060100448583e3, 4.84406305325125486048e3)


def polynomial(loop: Loop, x: int, coefficients: Sequence[float]) -> int:
    """The polynomial in x, highest coefficient first."""
    dtype = loop.dtype(x)
    if coefficients[0] == 1.0 and len(coefficients) > 1:
        made, rest = loop.binary("add", x, loop.const(coefficients[1], dtype)), coefficients[2:]
    else:
        made, rest = loop.const(coefficients[0], dtype), coefficients[1:]
    for coefficient in rest:
        made = loop.binary("add", loop.binary("mul", made, x), loop.const(coefficient, dtype))
    return made


def exp(loop: Loop, x: int) -> int:
    """e to the x."""
    dtype = loop.dtype(x)
    low, high = (loop.const(end, dtype) for end in _EXP_RANGE[dtype])
    zero = loop.compare("lt", x, low)
    x = loop.select(loop.compare("gt", x, high), high, x)
    x = loop.select(zero, low, x)
    n, whole = _rounded(loop, loop.binary("mul", x, loop.const(_LOG2E, dtype)))
    r = x
    for part in _LN2[dtype]:
        r = loop.binary("sub", r, loop.binary("mul", n, loop.const(part, dtype)))
    squared = loop.binary("mul", r, r)
    if dtype == F4:
        rest = loop.binary("mul", polynomial(loop, r, _EXP4), squared)
        y = loop.binary("add", loop.binary("add", rest, r), loop.const(1, dtype))
    else:
        p = loop.binary("mul", r, polynomial(loop, squared, _EXP8_P))
        ratio = loop.binary("div", p, loop.binary("sub", polynomial(loop, squared, _EXP8_Q), p))
        y = loop.binary("add", loop.binary("mul", ratio, loop.const(2, dtype)), loop.const(1, dtype))
    # By two factors, so that each is a normal number and the product is rounded once.
    half = loop.binary("ashr", whole, loop.const(1, BITS[dtype]))
    y = loop.binary("mul", y, _power_of_two(loop, half, dtype))
    rest = _power_of_two(loop, loop.binary("sub", whole, half), dtype)
    # A product that underflows is slow, and a mask of -inf makes many.
    return loop.binary("mul", y, loop.select(zero, loop.const(0, dtype), rest))


def _rounded(loop: Loop, x: int) -> tuple[int, int]:
    """x rounded to an integer, as a float and as an integer."""
    dtype = loop.dtype(x)
    rounder = loop.const(_ROUNDER[dtype], dtype)
    shifted = loop.binary("add", x, rounder)
    whole = loop.binary("sub", loop.bits(shifted, BITS[dtype]), loop.bits(rounder, BITS[dtype]))
    return loop.binary("sub", shifted, rounder), whole


def _power_of_two(loop: Loop, n: int, dtype: str) -> int:
    """2 to the n, for normal numbers."""
    integer = BITS[dtype]
    biased = loop.binary("add", n, loop.const(_BIAS[dtype], integer))
    return loop.bits(loop.binary("shl", biased, loop.const(_MANTISSA[dtype], integer)), dtype)


def log(loop: Loop, x: int) -> int:
    """Natural logarithm."""
    dtype = loop.dtype(x)
    integer, mantissa = BITS[dtype], _MANTISSA[dtype]

    def number(value: float) -> int:
        return loop.const(value, dtype)

    zero, one, infinity = number(0), number(1), number(float("inf"))
    smallest = number(2.0**-126 if dtype == F4 else 2.0**-1022)
    scaled = loop.binary("mul", x, number(2.0 ** (mantissa + 2)))
    small = loop.compare("lt", x, smallest)
    normal = loop.select(small, scaled, x)
    bits = loop.bits(normal, integer)
    # The mantissa in [sqrt(1/2), sqrt(2)) and the exponent.
    root = loop.bits(number(0.7071067811865476), integer)
    shifted = loop.binary("sub", bits, root)
    exponent = loop.binary("ashr", shifted, loop.const(mantissa, integer))
    m = loop.bits(loop.binary("sub", bits, loop.binary("shl", exponent, loop.const(mantissa, integer))), dtype)
    # An integer near 0 as a float: its bits are added to those of the rounder.
    rounder = number(_ROUNDER[dtype])
    e = loop.binary("sub", loop.bits(loop.binary("add", loop.bits(rounder, integer), exponent), dtype), rounder)
    e = loop.select(small, loop.binary("sub", e, number(mantissa + 2)), e)
    t = loop.binary("sub", m, one)
    z = loop.binary("mul", t, t)
    if dtype == F4:
        tail = polynomial(loop, t, _LOG4)
    else:
        tail = loop.binary("div", polynomial(loop, t, _LOG8_P), polynomial(loop, t, _LOG8_Q))
    y = loop.binary("mul", t, loop.binary("mul", z, tail))
    y = loop.binary("add", y, loop.binary("mul", e, number(_LN2_LOG[1])))
    y = loop.binary("sub", y, loop.binary("mul", z, number(0.5)))
    made = loop.binary("add", loop.binary("add", t, y), loop.binary("mul", e, number(_LN2_LOG[0])))
    made = loop.select(loop.compare("eq", x, infinity), infinity, made)
    made = loop.select(loop.compare("eq", x, zero), number(float("-inf")), made)
    # A comparison with nan is false: nan stays what it is, and so does what is below zero.
    made = loop.select(loop.compare("lt", x, zero), number(float("nan")), made)
    return loop.select(loop.compare("ne", x, x), x, made)


def log1p(loop: Loop, x: int) -> int:
    """log(1 + x), exact also for small x >= 0; as used here, x is not negative and finite or nan."""
    one = loop.const(1, loop.dtype(x))
    u = loop.binary("add", x, one)
    lost = loop.binary("sub", loop.binary("sub", u, one), x)
    return loop.binary("sub", log(loop, u), loop.binary("div", lost, u))


def tanh(loop: Loop, x: int) -> int:
    """Hyperbolic tangent."""
    dtype = loop.dtype(x)
    size = loop.unary("abs", x)
    z = loop.binary("mul", x, x)
    if dtype == F4:
        tail = polynomial(loop, z, _TANH4)
    else:
        tail = loop.binary("div", polynomial(loop, z, _TANH8_P), polynomial(loop, z, _TANH8_Q))
    near = loop.binary("add", loop.binary("mul", loop.binary("mul", tail, z), x), x)
    grown = loop.binary("add", exp(loop, loop.binary("add", size, size)), loop.const(1, dtype))
    far = loop.binary("sub", loop.const(1, dtype), loop.binary("div", loop.const(2, dtype), grown))
    far = loop.select(loop.compare("lt", x, loop.const(0, dtype)), loop.unary("neg", far), far)
    near = loop.select(loop.compare("eq", x, loop.const(0, dtype)), x, near)  # keeps the sign of zero
    return loop.select(loop.compare("lt", size, loop.const(0.625, dtype)), near, far)


def sigmoid(loop: Loop, x: int) -> int:
    """1 / (1 + exp(-x))."""
    one = loop.const(1, loop.dtype(x))
    return loop.binary("div", one, loop.binary("add", exp(loop, loop.unary("neg", x)), one))
