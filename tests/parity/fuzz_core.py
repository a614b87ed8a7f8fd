"""What fresh random calls of the first groups look like: elementwise, comparing, reducing, products, decompositions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tests.parity.fuzz import CALLS, COMPLEX, EVERY, FLOATS, WHOLE, D, Draw, Made, a, calls

_BEFORE = set(CALLS)


def _each(names: str) -> list[str]:
    return names.split()


NUMBERS = (2, -3, 0, 2.5, -0.0, math.inf, math.nan, True, 0.5, -1)


def _unary(d: Draw) -> Any:
    low, high = d.pick((-2.0, 2.0), (-2.0, 2.0), (0.05, 0.95), (1.05, 8.0))
    return a(d.tensor(d.shape(), low=low, high=high))


calls(
    *_each(
        """abs neg sign sgn square sqrt rsqrt reciprocal exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos
    atan sinh cosh tanh asinh acosh atanh sigmoid logit erf erfc erfinv floor ceil round trunc frac positive
    signbit deg2rad rad2deg isnan isinf isfinite isposinf isneginf logical_not bitwise_not angle conj real"""
    )
)(_unary)
calls(
    *_each("""abs_ neg_ sqrt_ exp_ sin_ tanh_ sigmoid_ floor_ square_ logical_not_ reciprocal_"""),
    order=1,
)(_unary)


def _binary(d: Draw) -> Any:
    shape = d.shape()
    one, other = d.dtype(), d.dtype()
    if d.chance(0.5):
        other = one
    low = 0.2 if d.chance(0.4) else -2.0
    first, second = d.tensor(d.broadcast(shape), one, low=low), d.tensor(shape, other, low=low)
    return a(first, d.pick(*NUMBERS)) if d.chance(0.25) else a(first, second)


calls(
    *_each(
        """add sub mul div floor_divide remainder fmod pow float_power eq ne lt le gt ge logical_and logical_or
    logical_xor rsub bitwise_and bitwise_or bitwise_xor copysign true_divide"""
    ),
    order=1,
)(_binary)


@calls(
    *_each("""atan2 hypot maximum minimum fmax fmin logaddexp logaddexp2 isclose allclose equal"""),
    order=1,
)
def _tensors(d: Draw) -> Any:
    shape, dtype = d.shape(), d.dtype()
    return a(d.tensor(d.broadcast(shape), dtype), d.tensor(shape, dtype if d.chance(0.7) else d.dtype()))


@calls(*_each("add_ sub_ mul_ div_ pow_ remainder_ lt_ eq_ bitwise_and_ fmod_"), order=1)
def _in_place(d: Draw) -> Any:
    shape, dtype = d.shape(), d.dtype((*FLOATS, *WHOLE))
    other = d.tensor(d.broadcast(shape), dtype, low=0.5)
    return a(d.tensor(shape, dtype, low=0.5), d.pick(other, 2, 1.5))


@calls("lerp", "addcmul", "addcdiv", order=1)
def _ternary(d: Draw) -> Any:
    shape, dtype = d.shape(), d.dtype((*FLOATS, *COMPLEX))
    return a(*(d.tensor(d.broadcast(shape) if place else shape, dtype) for place in range(3)))


def _dims(d: Draw, x: Made) -> Any:
    return tuple(int(dim) for dim in d.rng.permutation(x.ndim)[: d.int(0, x.ndim)])


@calls(
    *_each("""sum nansum mean nanmean prod amax amin var std all any count_nonzero argmax argmin median nanmedian""")
)
def _reduce(d: Draw) -> Any:
    x = d.tensor(d.shape(), ties=0.3)
    return a(x) if d.chance(0.3) else a(x, d.dim(x))


@calls(*(f"{name}/dims" for name in _each("sum mean amax amin var std all any logsumexp std_mean var_mean")))
def _over_dims(d: Draw) -> Any:
    x = d.tensor(d.shape(1), ties=0.3)
    return a(x, _dims(d, x) or (0,), keepdim=d.chance(0.5))


@calls(*_each("cumsum cumprod cummax cummin logcumsumexp softmax log_softmax"))
def _along(d: Draw) -> Any:
    x = d.tensor(d.shape(), ties=0.1, odd=0.0)
    return a(x, d.dim(x))


@calls("max", "min", order=1)
def _extreme(d: Draw) -> Any:
    x = d.tensor(d.shape(1), ties=0.3)
    return d.pick(a(x), a(x, d.tensor(x.shape, x.dtype)))


@calls("sort", "argsort", order=1)
def _sort(d: Draw) -> Any:
    x = d.tensor(d.shape(), ties=0.4)
    return a(x, dim=d.dim(x), descending=d.chance(0.5), stable=True)


def _sizes(d: Draw, count: int) -> list[int]:
    return [0 if d.chance(0.04) else d.int(1, 4) for _ in range(count)]


@calls("matmul")
def _matmul(d: Draw) -> Any:
    n, k, m, b = _sizes(d, 4)
    dtype = d.dtype()
    first, second = d.pick(
        ((k,), (k,)), ((n, k), (k,)), ((k,), (k, m)), ((n, k), (k, m)), ((b, n, k), (k, m)), ((b, 1, n, k), (b, k, m))
    )
    return a(d.tensor(first, dtype, odd=0.0), d.tensor(second, dtype if d.chance(0.9) else d.dtype(), odd=0.0))


def _product(name: str, *shapes: str) -> None:
    def draw(d: Draw) -> Any:
        sizes = dict(zip("nkmb", _sizes(d, 4), strict=True))
        dtype = d.dtype()
        given = [d.tensor([sizes[letter] for letter in shape], dtype, odd=0.0) for shape in shapes]
        if name[:3] in ("add", "bad") and d.chance(0.5):
            return a(*given, beta=d.pick(0, 2, 0.5), alpha=d.pick(1, -1, 2))
        return a(*given)

    calls(name)(draw)


for _name, _shapes in {
    "mm": ("nk", "km"), "addmm": ("nm", "nk", "km"), "bmm": ("bnk", "bkm"), "mv": ("nk", "k"), "dot": ("k", "k"),
    "outer": ("n", "m"), "inner": ("nk", "mk"), "addmv": ("n", "nk", "k"), "baddbmm": ("bnm", "bnk", "bkm"),
}.items():  # fmt: skip
    _product(_name, *_shapes)


def _square(d: Draw) -> Made:
    n, b = _sizes(d, 2)
    x = d.tensor((b, n, n) if d.chance(0.4) else (n, n), odd=0.0, ties=0.0)
    if x.values.dtype.kind in "fc" and n:
        x.values = np.asarray(x.values + 5 * np.eye(n)).astype(x.values.dtype)
        if x.dtype == "bfloat16":
            x.values = np.round(x.values)
    return x


@calls("linalg.inv", "linalg.det", "linalg.slogdet", "logdet", "linalg.matrix_exp")
def _of_square(d: Draw) -> Any:
    return a(_square(d))


@calls("linalg.solve")
def _solve(d: Draw) -> Any:
    x = _square(d)
    return a(x, d.tensor((*x.shape[:-1], d.int(1, 3)), x.dtype, odd=0.0))


@calls("linalg.svdvals", "linalg.pinv", "linalg.matrix_norm", order=1)
def _of_matrix(d: Draw) -> Any:
    return a(d.tensor(_sizes(d, 2), odd=0.0, ties=0.0))


@calls(*_each("fft.fft fft.ifft fft.rfft fft.irfft fft.hfft fft.ihfft"))
def _fft(d: Draw) -> Any:
    x = d.tensor(d.shape(), odd=0.0)
    norm = d.pick(None, "ortho", "forward", "backward")
    return d.pick(a(x, norm=norm), a(x, d.pick(0, 1, 3, 8), d.dim(x), norm))


@calls("Tensor.to", order=1)
def _to(d: Draw) -> Any:
    return a(d.tensor(d.shape(), odd=0.0, low=0, high=3), D(d.dtype(EVERY)))


# The ops that are drawn for here.
NAMES = set(CALLS) - _BEFORE
