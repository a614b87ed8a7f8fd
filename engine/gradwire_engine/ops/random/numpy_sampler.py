"""Draws random arrays by a generator that has NumPy's methods: PCG64 on the CPU, Philox on a GPU.

Half types are drawn as float32 and rounded. Recorded seeds must give the same numbers again, so no formula may change.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gradwire_engine.core import dtypes
from gradwire_engine.core.device import Array
from gradwire_engine.core.dtypes import DType
from gradwire_engine.op.workload import pause
from gradwire_engine.ops.random.layout import Like, shape_of


class NumpySampler:
    """Random arrays of one array module. The elements are drawn in the order of their indices."""

    ranks_one = False  # whether a single index with replacement is found by `ranking`, too

    def __init__(self, xp: Any, source: Any) -> None:
        self._xp = xp
        self._source = source

    def _unit(self, shape: tuple[int, ...], dtype: DType) -> Array:
        native = dtype if dtype in (dtypes.float32, dtypes.float64) else dtypes.float32
        drawn = self._source.random(shape, dtype=native)
        if native == dtype:
            return self._xp.asarray(drawn)
        # Round down, so that 1 is never returned.
        bits = 11 if dtype == dtypes.float16 else 8
        return (self._xp.floor(drawn * 2.0**bits) / 2.0**bits).astype(dtype)

    def _wide(self, like: Like) -> Array:
        return self._unit(shape_of(like), dtypes.float64)

    def uniform(self, like: Like, dtype: DType, low: float = 0.0, high: float = 1.0) -> Array:
        """Uniform numbers from [low, high)."""
        drawn = self._unit(shape_of(like), dtype)
        return drawn if (low, high) == (0, 1) else (drawn * (high - low) + low).astype(dtype, copy=False)

    def normal(self, like: Like, dtype: DType, mean: float = 0.0, std: float = 1.0) -> Array:
        """Normal numbers; complex ones have half the variance in each part."""
        drawn = self._normal(shape_of(like), dtype)
        return drawn if (mean, std) == (0, 1) else (drawn * std + mean).astype(dtype, copy=False)

    def normal_of(self, shape: tuple[int, ...], dtype: DType, mean: Any, std: Any) -> Array:
        """Normal numbers; mean and std broadcast to the shape, and at least one is an array."""
        return (self._normal(shape, dtype) * std + mean).astype(dtype, copy=False)

    def _normal(self, shape: tuple[int, ...], dtype: DType) -> Array:
        if dtypes.category(dtype) == dtypes.COMPLEX:
            part = dtypes.real_part(dtype)
            return ((self._normal(shape, part) + 1j * self._normal(shape, part)) / np.sqrt(2)).astype(dtype)
        native = dtype if dtype in (dtypes.float32, dtypes.float64) else dtypes.float32
        return self._xp.asarray(self._source.standard_normal(shape, dtype=native)).astype(dtype, copy=False)

    def integers(self, like: Like, low: int, high: int, dtype: DType) -> Array:
        """Integers from low to high - 1."""
        high = min(high, 2**63 - 1)  # one less than all of int64 fits
        drawn = self._source.integers(low, high, shape_of(like), dtype=np.int64)
        return self._xp.asarray(drawn).astype(dtype, copy=False)

    def all_integers(self, like: Like, dtype: DType, most: int) -> Array:
        """Integers from 0 to `most`, the dtype's largest exact one."""
        return self.integers(like, 0, most + 1, dtype)

    def permutation(self, n: int) -> Array:
        """The numbers from 0 to n - 1 in random order."""
        return self._xp.argsort(self._xp.asarray(self._source.random(n)))

    def chances(self, shape: tuple[int, ...], chance: Array) -> Array:
        """True with the probability of each element of `chance`, which broadcasts to the shape."""
        return self._wide(shape) < chance

    def chance(self, like: Like, chance: float) -> Array:
        """True with one probability."""
        return self._wide(like) < chance

    def kept(self, like: Like, p: float) -> Array:
        """False with probability p, for dropout."""
        return self._unit(shape_of(like), dtypes.float32) >= p

    def exponential(self, like: Like, dtype: DType, rate: float) -> Array:
        """Exponentially distributed numbers."""
        return (-self._xp.log1p(-self._wide(like)) / rate).astype(dtype)

    def cauchy(self, like: Like, dtype: DType, median: float, sigma: float) -> Array:
        """Cauchy distributed numbers."""
        return (median + sigma * self._xp.tan(np.pi * (self._wide(like) - 0.5))).astype(dtype)

    def log_normal(self, like: Like, dtype: DType, mean: float, std: float) -> Array:
        """Log-normally distributed numbers."""
        return self._xp.exp(self._normal(shape_of(like), dtypes.float64) * std + mean).astype(dtype)

    def geometric(self, like: Like, dtype: DType, p: float) -> Array:
        """Numbers of trials up to the first success."""
        drawn = self._xp.log1p(-self._wide(like)) / np.log1p(-p)
        return self._xp.ceil(drawn).clip(1).astype(dtype)

    def poisson(self, rates: Array) -> Array:
        """Poisson distributed numbers; each element is a mean."""
        return self._xp.asarray(self._source.poisson(rates.astype(dtypes.float64)))

    def binomial(self, count: Array, prob: Array) -> Array:
        """Numbers of successes; shapes broadcast."""
        return self._xp.asarray(self._source.binomial(count.astype(dtypes.int64), prob.astype(dtypes.float64)))

    def gamma(self, concentration: Array) -> Array:
        """Gamma distributed numbers of rate 1, as float64; all elements are drawn in each round of rejections."""
        xp, alpha = self._xp, concentration.astype(dtypes.float64)
        small = (alpha < 1) & (alpha > 0)
        scale = xp.where(small, (1 - self._wide(alpha.shape)) ** (1 / xp.where(small, alpha, 1)), 1.0)
        d = xp.where(alpha > 0, xp.where(small, alpha + 1, alpha), 1) - 1 / 3
        c = 1 / xp.sqrt(9 * d)
        found, missing = xp.where(alpha < 0, np.nan, alpha), (alpha > 0) & xp.isfinite(alpha)
        while bool(missing.any()):
            pause()
            x = self._normal(alpha.shape, dtypes.float64)
            v = (1 + c * x) ** 3
            bound = 0.5 * x**2 + d * (1 - v + xp.log(xp.where(v > 0, v, 1.0)))
            accepted = missing & (v > 0) & (xp.log(1 - self._wide(alpha.shape)) < bound)
            found = xp.where(accepted, scale * d * v, found)
            missing &= ~accepted
        return found

    def edges_and_numbers(self, weights: Array, count: int) -> tuple[Array, Array, str]:
        """For each row: the shares' running sums, uniform numbers, and the side on which equal ones are searched."""
        wide = weights.astype(dtypes.float64)
        edges = wide.cumsum(-1)
        edges /= wide.sum(-1, keepdims=True)
        return edges, self._wide((*weights.shape[:-1], count)), "right"

    def ranking(self, weights: Array, count: int) -> Array:
        """Indices of the first `count` of each row: the smallest of exponential waiting times."""
        # The probability to be first is the index's share of the weights.
        waits = -self._xp.log1p(-self._wide(weights.shape)) / weights.astype(dtypes.float64)
        return self._xp.argsort(waits, -1)[..., :count]

    def slopes(self, input: Array, lower: float, upper: float) -> Array:
        """Numbers from [lower, upper) where the input is not positive, else 1, for rrelu."""
        drawn = self._wide(input.shape) * (upper - lower) + lower
        return self._xp.where(input <= 0, drawn, 1).astype(input.dtype)
