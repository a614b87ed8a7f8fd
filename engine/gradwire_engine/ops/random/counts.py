"""Poisson, binomial and gamma numbers, drawn as PyTorch does on the CPU.

An element takes as many uniform numbers as its rejections need, so a loop draws them one by one. Small means multiply
or add uniform numbers; others use Hörmann's transformed rejection ("The transformed rejection method for generating
Poisson random variables", 1993, and "The generation of binomial random variates", 1993). Gamma numbers use Marsaglia's
and Tsang's rejection ("A simple method for generating gamma variables", 2000).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from gradwire_engine.core.device import Array
from gradwire_engine.core.mt19937 import Twister
from gradwire_engine.op.workload import pause

# PyTorch writes these constants in single precision.
_THIRD, _SQUEEZE = float(np.float32(1 / 3)), float(np.float32(0.0331))
_SMALL = 10  # means from which rejection is used
_PART = 1 << 12
_TAILS = (
    0.0810614667953272, 0.0413406959554092, 0.0276779256849983, 0.02079067210376509, 0.0166446911898211,
    0.0138761288230707, 0.0118967099458917, 0.0104112652619720, 0.00925546218271273, 0.00833056343336287,
)  # fmt: skip


class _Uniform:
    """Uniform numbers, drawn ahead and counted."""

    def __init__(self, source: Twister) -> None:
        self.used = 0
        self._source = source

    def numbers(self) -> Iterator[float]:
        """The numbers, without end; counts them."""
        size = 16
        while True:
            for number in self._source.uniform(size).tolist():
                self.used += 1
                yield number
            size = min(4 * size, _PART)


def _drawn(source: Twister, shape: tuple[int, ...], one: Callable[..., float], *given: Any) -> Array:
    """An array of `one(next uniform number, *elements)`. Raises EngineError: CANCELLED, without a draw."""
    uniform, begin, kept = _Uniform(source), source.mark(), source.kept
    following = uniform.numbers().__next__
    made = np.empty(math.prod(shape))
    flat = [np.broadcast_to(each, shape).reshape(-1) for each in given]
    try:
        for first in range(0, made.size, _PART):
            pause()
            part = slice(first, first + _PART)
            rows = zip(*(each[part].astype(np.float64).tolist() for each in flat), strict=True)
            made[part] = [one(following, *row) for row in rows]
        kept = source.kept
    finally:
        source.rewind(begin)
    source.skip(2 * uniform.used)
    source.kept = kept
    return made.reshape(shape)


def poisson(source: Twister, rates: Array) -> Array:
    """Poisson distributed numbers; each element is a mean."""
    return _drawn(source, rates.shape, _poisson, rates)


def binomial(source: Twister, count: Array, prob: Array) -> Array:
    """Numbers of successes in `count` trials of probability `prob`; shapes broadcast."""
    return _drawn(source, np.broadcast_shapes(count.shape, prob.shape), _binomial, count, prob)


def gamma(source: Twister, concentration: Array) -> Array:
    """Gamma distributed numbers of rate 1."""
    normal = _Normal(source)
    return _drawn(source, concentration.shape, lambda uniform, alpha: _gamma(uniform, normal, alpha), concentration)


class _Normal:
    """Normal numbers of pairs of uniform ones. The source keeps the second of a pair."""

    def __init__(self, source: Twister) -> None:
        self._source = source

    def next(self, uniform: Callable[[], float]) -> float:
        """The next number."""
        source = self._source
        if source.kept is not None:
            drawn, source.kept = source.kept, None
            return drawn
        angle, radius = 2 * math.pi * uniform(), math.sqrt(-2 * math.log1p(-uniform()))
        source.kept = radius * math.sin(angle)
        return radius * math.cos(angle)


def _gamma(uniform: Callable[[], float], normal: _Normal, alpha: float) -> float:
    if not alpha > 0:  # nan too
        return 0.0 if alpha == 0 else math.nan
    scale = 1.0
    if alpha < 1:
        scale = (1 - uniform()) ** (1 / alpha)
        alpha += 1
    d = alpha - _THIRD
    c = 1 / math.sqrt(9 * d)
    while True:
        x = normal.next(uniform)
        y = 1 + c * x
        if y <= 0:
            continue
        v, u, square = y * y * y, 1 - uniform(), x * x
        if u < 1 - _SQUEEZE * square * square or math.log(u) < 0.5 * square + d * (1 - v + math.log(v)):
            return scale * d * v


def _poisson(uniform: Callable[[], float], mean: float) -> float:
    if mean >= _SMALL:
        return _poisson_by_rejection(uniform, mean)
    if mean == 0:
        return 0
    limit, product, made = math.exp(-mean), uniform(), 0
    while product > limit:
        product *= uniform()
        made += 1
    return made


def _poisson_by_rejection(uniform: Callable[[], float], mean: float) -> float:
    log_mean = math.log(mean)
    b = 0.931 + 2.53 * math.sqrt(mean)
    a = -0.059 + 0.02483 * b
    inverse_alpha = 1.1239 + 1.1328 / (b - 3.4)
    accepted = 0.9277 - 3.6224 / (b - 2)
    while True:
        u, v = uniform() - 0.5, uniform()
        edge = 0.5 - abs(u)
        made = math.floor((2 * a / edge + b) * u + mean + 0.43) if edge else -1
        if edge >= 0.07 and v <= accepted:
            return made
        if made < 0 or (edge < 0.013 and v > edge):
            continue
        left = (math.log(v) if v else -math.inf) + math.log(inverse_alpha) - math.log(a / (edge * edge) + b)
        if left <= -mean + made * log_mean - math.lgamma(made + 1):
            return made


def _binomial(uniform: Callable[[], float], count: float, prob: float) -> float:
    if count <= 0 or prob <= 0:
        return 0
    if prob >= 1:
        return count
    if prob > 0.5:
        return count - _rare(uniform, count, 1 - prob)
    return _rare(uniform, count, prob)


def _rare(uniform: Callable[[], float], count: float, prob: float) -> float:
    """Successes of a probability up to a half."""
    if count * prob >= _SMALL:
        return _binomial_by_rejection(uniform, count, prob)
    scale, waited, made = math.log1p(-prob), 0.0, 0
    while True:  # numbers of trials up to each success
        drawn = uniform()
        waited += math.ceil(math.log(drawn) / scale) if drawn else math.inf
        if waited > count:
            return made
        made += 1


def _binomial_by_rejection(uniform: Callable[[], float], count: float, prob: float) -> float:
    deviation = math.sqrt(count * prob * (1 - prob))
    b = 1.15 + 2.53 * deviation
    a = -0.0873 + 0.0248 * b + 0.01 * prob
    centre = count * prob + 0.5
    accepted = 0.92 - 4.2 / b
    odds = prob / (1 - prob)
    alpha = (2.83 + 5.1 / b) * deviation
    mode = math.floor((count + 1) * prob)
    while True:
        u, v = uniform() - 0.5, uniform()
        edge = 0.5 - abs(u)
        made = math.floor((2 * a / edge + b) * u + centre) if edge else -1
        if edge >= 0.07 and v <= accepted:
            return made
        if made < 0 or made > count:
            continue
        left = math.log(v * alpha / (a / (edge * edge) + b)) if v else -math.inf
        right = (
            (mode + 0.5) * math.log((mode + 1) / (odds * (count - mode + 1)))
            + (count + 1) * math.log((count - mode + 1) / (count - made + 1))
            + (made + 0.5) * math.log(odds * (count - made + 1) / (made + 1))
            + _tail(mode) + _tail(count - mode) - _tail(made) - _tail(count - made)
        )  # fmt: skip
        if left <= right:
            return made


def _tail(k: float) -> float:
    """What Stirling's formula for log(k!) lacks."""
    if k < len(_TAILS):
        return _TAILS[int(k)]
    inverse = 1 / (k + 1)
    return (1 / 12 - (1 / 360 - inverse * inverse / 1260) * inverse * inverse) * inverse
