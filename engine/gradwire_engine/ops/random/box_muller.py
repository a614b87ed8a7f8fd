"""Pairs of normal numbers from pairs of uniform ones (Box and Muller), rounded as PyTorch rounds them.

PyTorch fills contiguous tensors in blocks of 16: eight uniform numbers give the radii, eight the angles. In float32 its
AVX2 kernel computes logarithm, sine and cosine by the polynomials of the Cephes library with fused multiply-adds. These
functions repeat its roundings, so all digits agree.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from gradwire_engine.ops.base.loops import LEAST, Loops, run, with_loop

Singles = npt.NDArray[np.float32]
Doubles = npt.NDArray[np.float64]

BLOCK = 16
_HALF = BLOCK // 2
TURN = np.float32(2 * np.pi)
ROOT_HALF_BITS = np.int32(0x3F3504F3)  # of sqrt(1/2)

# Polynomials of Cephes (logf, sinf, cosf), highest power first.
LOG = (
    7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1, 1.4249322787e-1,
    -1.6668057665e-1, 2.0000714765e-1, -2.4999993993e-1, 3.3333331174e-1,
)  # fmt: skip
LOG_LOW, LOG_HIGH = np.float32(-2.12194440e-4), np.float32(0.693359375)  # the sum is log(2)
SIN = (-1.9515295891e-4, 8.3321608736e-3, -1.6666654611e-1)
COS = (2.443315711809948e-5, -1.388731625493765e-3, 4.166664568298827e-2)
OCTANT = np.float32(1.27323954473516)  # 4 / pi
PARTS = tuple(np.float32(part) for part in (-0.78515625, -2.4187564849853515625e-4))  # of -pi / 4; exact in products
LAST_PART = float(np.float32(-3.77489497744594108e-8))


def _multiply_add(x: Singles, y: Doubles, z: Singles | Doubles | float, wide: Doubles) -> None:
    """Set x to x * y + z, rounded once; y holds numbers of float32. wide: working memory."""
    np.multiply(x, y, out=wide)  # exact
    wide += z
    np.copyto(x, wide, casting="same_kind")


def _polynomial(coefficients: tuple[float, ...], at: Doubles, wide: Doubles) -> Singles:
    first, second, *others = (float(np.float32(coefficient)) for coefficient in coefficients)
    np.multiply(at, first, out=wide)
    wide += second
    found = wide.astype(np.float32)
    for coefficient in others:
        _multiply_add(found, at, coefficient, wide)
    return found


def _log(x: Singles, wide: Doubles) -> Singles:
    """Natural logarithm of positive normal numbers."""
    bits = x.view(np.int32)
    exponent = (bits - ROOT_HALF_BITS) >> np.int32(23)
    x = (bits - (exponent << np.int32(23))).view(np.float32)  # from sqrt(1/2) to sqrt(2)
    x -= np.float32(1)
    e = exponent.astype(np.float32)
    square = x * x
    made = _polynomial(LOG, x.astype(np.float64), wide)
    made *= x
    _multiply_add(made, square.astype(np.float64), e * LOG_LOW, wide)
    square *= np.float32(0.5)
    made -= square
    x += made
    e *= LOG_HIGH
    x += e
    return x


def _sin_cos(x: Singles, wide: Doubles) -> tuple[Singles, Singles]:
    """Sine and cosine of numbers that are not negative."""
    octant = (x * OCTANT).astype(np.int32)
    octant += np.int32(1)
    octant &= np.int32(~1)
    count = octant.astype(np.float32)
    for part in PARTS:
        x = x + count * part
    np.multiply(count, LAST_PART, out=wide, dtype=np.float64)
    wide += x
    x = wide.astype(np.float32)
    square = x * x
    at = square.astype(np.float64)
    cos = _polynomial(COS, at, wide)
    cos *= square
    square32 = square * np.float32(-0.5)
    _multiply_add(cos, at, square32, wide)
    cos += np.float32(1)
    sin = _polynomial(SIN, at, wide)
    sin *= square
    _multiply_add(sin, x.astype(np.float64), x, wide)
    return _in_octant(sin, cos, octant)


def _in_octant(sin: Singles, cos: Singles, octant: npt.NDArray[np.int32]) -> tuple[Singles, Singles]:
    """Exchange sine and cosine and change their signs as the octant says. Works in place."""
    s, c = sin.view(np.int32), cos.view(np.int32)
    exchanged = s ^ c
    exchanged &= -((octant >> np.int32(1)) & np.int32(1))
    s ^= exchanged
    c ^= exchanged
    s ^= (octant & np.int32(4)) << np.int32(29)
    octant += np.int32(2)
    c ^= (octant & np.int32(4)) << np.int32(29)
    return sin, cos


def _loop(loops: Loops, uniform: Singles) -> Singles | None:
    if not uniform.flags.c_contiguous:
        return None
    # NumPy's passes give the same bits, so a few numbers do not wait for the loop.
    loop = loops.find("normal", "f") if uniform.size >= LEAST else loops.loaded("normal", "f")
    if loop is None:
        return None
    made = np.empty_like(uniform)
    run(loop, uniform.size // BLOCK, _HALF, uniform, made)
    return made


@with_loop(_loop, 0, BLOCK)
def singles(uniform: Singles) -> Singles:
    """Normal numbers of uniform ones from [0, 1); their number is a multiple of `BLOCK`."""
    pairs = uniform.reshape(-1, 2, _HALF)
    wide = np.empty(pairs[:, 0].size)
    radius = _log((np.float32(1) - pairs[:, 0]).ravel(), wide)
    radius *= np.float32(-2)
    np.sqrt(radius, out=radius)
    sin, cos = _sin_cos((pairs[:, 1] * TURN).ravel(), wide)
    made = np.empty_like(pairs)
    np.multiply(radius.reshape(-1, _HALF), cos.reshape(-1, _HALF), out=made[:, 0])
    np.multiply(radius.reshape(-1, _HALF), sin.reshape(-1, _HALF), out=made[:, 1])
    return made.reshape(-1)


def _log1p(x: Doubles) -> Doubles:
    """Logarithm of 1 + x, rounded as the C library rounds it where few are drawn: such a number may be kept as state.

    With AVX-512, NumPy's own differs in the last digit of some numbers.
    """
    return np.array([math.log1p(each) for each in x.tolist()]) if x.size <= _HALF else np.log1p(x)


def doubles(uniform: Doubles) -> Doubles:
    """As `singles`, in float64."""
    pairs = uniform.reshape(-1, 2, _HALF)
    radius = np.sqrt(-2 * np.log(1 - pairs[:, 0]))
    angle = 2 * np.pi * pairs[:, 1]
    return np.stack([radius * np.cos(angle), radius * np.sin(angle)], 1).reshape(-1)


def interleaved(uniform: Doubles) -> Doubles:
    """Normal numbers of uniform ones, an even number; each pair of angle and radius gives two neighbours."""
    angle, radius = 2 * np.pi * uniform[0::2], np.sqrt(-2 * _log1p(-uniform[1::2]))
    return np.stack([radius * np.cos(angle), radius * np.sin(angle)], 1).reshape(-1)
