"""Draws random arrays as PyTorch does on the CPU: the same numbers of the same seed, dtype, shape and order of memory.

Each method states how many words or uniform numbers an element takes. PyTorch computes with a fused multiply-add where
it shifts and scales; `_scaled` rounds once, too. Its AVX2 kernels are followed where CPUs differ in the last digit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from gradwire_engine.core import dtypes
from gradwire_engine.core.device import Array
from gradwire_engine.core.dtypes import DType
from gradwire_engine.core.mt19937 import Twister
from gradwire_engine.ops.index.ties import top_indices
from gradwire_engine.ops.random.box_muller import BLOCK, doubles, interleaved, singles
from gradwire_engine.ops.random.counts import binomial, gamma, poisson
from gradwire_engine.ops.random.layout import Like, count_of, in_memory_order, is_contiguous
from gradwire_engine.ops.random.shuffle import permutation

_PART = 1 << 15  # elements computed in one step, so that they fit the cache
_LOW_24, _STEP_24 = np.uint32((1 << 24) - 1), 2.0**-24
_NARROW = 1 << 28  # spans of integers below take one word, others two
_HUGE = 2.0**900
_DIGITS = {dtypes.float64: 53, dtypes.float32: 24, dtypes.float16: 11, dtypes.bfloat16: 8}


def _filled(count: int, dtype: Any, draw: Callable[[int], Any]) -> Any:
    """So many numbers, drawn in steps that fit the cache."""
    if count <= _PART:
        return draw(count)
    made = np.empty(count, dtype)
    for part in _parts(count):
        made[part] = draw(part.stop - part.start)
    return made


def _parts(count: int) -> Iterator[slice]:
    return (slice(first, min(first + _PART, count)) for first in range(0, count, _PART))


def _scaled(values: Any, factor: float, offset: float) -> Any:
    """values * factor + offset, in float64, rounded once: Dekker's product, Knuth's sum."""
    if _HUGE <= max(abs(factor), abs(offset)) < math.inf:  # the corrections would overflow
        return _scaled(values, factor * 2.0**-200, offset * 2.0**-200) * 2.0**200
    made = values if factor == 1 else values * factor
    if not offset:
        return made
    lost = 0.0 if factor == 1 else _product_error(values, factor, made)
    total = made + offset
    shifted = total - made
    lost += (made - (total - shifted)) + (offset - shifted)
    return total + lost


def _product_error(values: Any, factor: float, product: Any) -> Any:
    """What rounding dropped of values * factor; 0 for factors that are not finite."""
    if not math.isfinite(factor):
        return 0.0
    high, low = _halves(factor)
    upper, lower = _halves(values)
    return ((upper * high - product) + upper * low + lower * high) + lower * low


def _halves(value: Any) -> tuple[Any, Any]:
    """The upper and lower 26 bits of float64 numbers."""
    shifted = value * 134217729.0  # 2**27 + 1
    upper = shifted - (shifted - value)
    return upper, value - upper


def _cast(values: Any, dtype: DType) -> Array:
    """Cast float64 to a dtype; half types by way of float32."""
    return values.astype(np.float32).astype(dtype) if dtype.itemsize == 2 else values.astype(dtype, copy=False)


class PytorchSampler:
    """Random arrays from a Mersenne Twister."""

    ranks_one = True  # whether a single index with replacement is found by `ranking`, too

    def __init__(self, source: Twister) -> None:
        self._source = source

    def _unit24(self, count: int) -> npt.NDArray[np.float32]:
        """Uniform numbers of 24 bits; one word each."""
        drawn = self._source.words(count)
        drawn &= _LOW_24
        made = drawn.view(np.int32).astype(np.float32)
        made *= np.float32(_STEP_24)
        return made

    def uniform(self, like: Like, dtype: DType, low: float = 0.0, high: float = 1.0) -> Array:
        """Uniform numbers from [low, high): one word, for float64 two; complex numbers have two parts."""
        if dtypes.category(dtype) == dtypes.COMPLEX:
            part = dtypes.real_part(dtype)
            return in_memory_order(like, lambda count: self._uniform(2 * count, part, low, high).view(dtype))
        return in_memory_order(like, lambda count: self._uniform(count, dtype, low, high))

    def _uniform(self, count: int, dtype: DType, low: float, high: float) -> Any:
        single = np.float32
        if dtype == dtypes.float64:
            made = _filled(count, dtype, lambda size: _scaled(self._source.uniform(size), high - low, low))
        elif (low, high) == (0, 1):
            made = _filled(count, dtype, lambda size: self._unit24(size).astype(dtype, copy=False))
        else:
            span, start = np.float64(single(high) - single(low)), float(single(low))
            made = _filled(count, dtype, lambda size: _cast(self._unit24(size) * span + start, dtype))
        if dtype.itemsize == 2 or (low, high) != (0, 1):  # rounding may have reached the end
            made[made >= dtype.type(high)] = dtype.type(low)
        return made

    def normal(self, like: Like, dtype: DType, mean: float = 0.0, std: float = 1.0) -> Array:
        """Normal numbers: `_normal_blocks` for contiguous memory of 16 or more, else `_normal_pairs`."""
        parts = 1
        if dtypes.category(dtype) == dtypes.COMPLEX:
            dtype, std, parts = dtypes.real_part(dtype), std / np.sqrt(2), 2
        blocks = is_contiguous(like) and parts * count_of(like) >= BLOCK

        def draw(count: int) -> Any:
            if blocks:
                made = self._normal_blocks(parts * count, dtype, mean, std)
            else:
                made = self._normal_pairs(parts * count, dtype, lambda drawn: _scaled(drawn, std, mean))
            return made if parts == 1 else made.view(_complex(dtype))

        return in_memory_order(like, draw)

    def normal_of(self, shape: tuple[int, ...], dtype: DType, mean: Any, std: Any) -> Array:
        """Normal numbers; mean and std broadcast to the shape, and at least one is an array."""
        by_number = not hasattr(std, "dtype")
        drawn = self.normal(shape, dtype, 0.0, std if by_number else 1.0)
        if not by_number:
            drawn = np.multiply(drawn, std, out=drawn, casting="unsafe")
        return np.add(drawn, mean if hasattr(mean, "dtype") else dtype.type(mean), out=drawn, casting="unsafe")

    def _normal_pairs(self, count: int, dtype: DType, finish: Callable[[Any], Any]) -> Any:
        """`finish` of standard normal numbers, two of two uniform numbers of 53 bits. An odd one is kept for later."""
        made = np.empty(count, dtype)
        source, first = self._source, 0
        if count and source.kept is not None:
            made[:1] = _cast(finish(np.array([source.kept])), dtype)
            source.kept, first = None, 1
        for part in _parts((count - first) // 2 * 2):
            drawn = interleaved(source.uniform(part.stop - part.start))
            made[first + part.start : first + part.stop] = _cast(finish(drawn), dtype)
        if (count - first) % 2:
            drawn = interleaved(source.uniform(2))
            made[-1:] = _cast(finish(drawn[:1]), dtype)
            source.kept = float(drawn[1])
        return made

    def _normal_blocks(self, count: int, dtype: DType, mean: float, std: float) -> Any:
        """Blocks of 16 of as many uniform numbers. The last 16 elements are drawn again if they are no whole block.

        In half types the uniform numbers of an incomplete block are not drawn.
        """
        wide, whole = dtype == dtypes.float64, count // BLOCK * BLOCK
        draw: Callable[[int], Any] = self._source.uniform if wide else self._unit24

        def block(uniform: Any) -> Any:
            if wide:
                return _scaled(doubles(uniform), std, mean)
            drawn = singles(uniform)
            if (mean, std) != (0, 1):
                drawn = (drawn * np.float64(np.float32(std)) + float(np.float32(mean))).astype(np.float32)
            return drawn

        if whole == count <= _PART and dtype.itemsize > 2:
            return block(draw(count))
        made = np.empty(count, dtype)
        *others, last = _parts(whole)
        for part in others:
            made[part] = block(draw(part.stop - part.start))
        uniform = draw(last.stop - last.start)
        if whole < count:
            if dtype.itemsize > 2:
                self._source.skip((count - whole) * (2 if wide else 1))
            uniform = np.concatenate([uniform, draw(BLOCK)])
        drawn = block(uniform)
        made[last] = drawn[: last.stop - last.start]
        if whole < count:
            made[-BLOCK:] = drawn[-BLOCK:]
        return made

    def integers(self, like: Like, low: int, high: int, dtype: DType) -> Array:
        """Integers from low to high - 1: the rest of a word, for large spans of two, by the span."""
        if dtypes.category(dtype) == dtypes.FLOAT:
            low, high = _exact_bounds(low, high, _DIGITS[dtype])
        return in_memory_order(like, lambda count: self._integers(count, low, high - low, dtype))

    def all_integers(self, like: Like, dtype: DType, most: int) -> Array:
        """Integers from 0 to `most`, the dtype's largest exact one: of one word, for 64 bits of two."""
        wide = dtype in (dtypes.int64, dtypes.float64) or most >= 1 << 32
        return in_memory_order(like, lambda count: self._integers(count, 0, most + 1, dtype, wide))

    def _integers(self, count: int, low: int, span: int, dtype: DType, wide: bool | None = None) -> Any:
        if wide is None:
            wide = span >= _NARROW

        def draw(size: int) -> Any:
            if wide:
                drawn = self._source.words64(size)
                if span == 1 << 64:  # PyTorch adds no lower bound then
                    return drawn.view(np.int64).astype(dtype, copy=False)
                drawn %= np.uint64(span)
            else:
                narrow = self._source.words(size)
                drawn = (narrow if span == 1 << 32 else narrow % np.uint32(span)).astype(np.uint64)
            if low:
                drawn += np.uint64(low % (1 << 64))
            return drawn.view(np.int64).astype(dtype, copy=False)

        return _filled(count, dtype, draw)

    def permutation(self, n: int) -> Array:
        """The numbers from 0 to n - 1 in random order; n - 1 words."""
        return permutation(self._source, n)

    def chances(self, shape: tuple[int, ...], chance: Array) -> Array:
        """True with the probability of each element of `chance`: one word, for float64 two."""
        flat = np.broadcast_to(chance, shape).reshape(-1)
        wide = chance.dtype == dtypes.float64
        made = np.empty(flat.size, np.bool_)
        for part in _parts(flat.size):
            size = part.stop - part.start
            drawn = self._source.uniform(size) if wide else self._unit24(size)
            np.less(drawn, flat[part] if wide else flat[part].astype(np.float32), out=made[part])
        return made.reshape(shape)

    def chance(self, like: Like, chance: float) -> Array:
        """True with one probability: two words."""
        return in_memory_order(
            like, lambda count: _filled(count, np.bool_, lambda size: self._source.uniform(size) < chance)
        )

    def kept(self, like: Like, p: float) -> Array:
        """False with probability p, for dropout."""
        return self.chance(like, 1 - p)

    def exponential(self, like: Like, dtype: DType, rate: float) -> Array:
        """Exponentially distributed numbers: two words."""
        return self._transformed(like, dtype, lambda drawn: -1 / rate * np.log1p(-drawn))

    def cauchy(self, like: Like, dtype: DType, median: float, sigma: float) -> Array:
        """Cauchy distributed numbers: two words."""
        return self._transformed(like, dtype, lambda drawn: _scaled(np.tan(np.pi * (drawn - 0.5)), sigma, median))

    def geometric(self, like: Like, dtype: DType, p: float) -> Array:
        """Numbers of trials up to the first success: two words."""
        return self._transformed(like, dtype, lambda drawn: np.ceil(np.log(drawn) / np.log1p(-p)))

    def _transformed(self, like: Like, dtype: DType, transform: Any) -> Array:
        def draw(size: int) -> Any:
            return _cast(transform(self._source.uniform(size)), dtype)

        return in_memory_order(like, lambda count: _filled(count, dtype, draw))

    def log_normal(self, like: Like, dtype: DType, mean: float, std: float) -> Array:
        """Log-normally distributed numbers, of `_normal_pairs`."""
        return in_memory_order(
            like, lambda count: self._normal_pairs(count, dtype, lambda drawn: np.exp(_scaled(drawn, std, mean)))
        )

    def poisson(self, rates: Array) -> Array:
        """Poisson distributed numbers; each element is a mean."""
        return poisson(self._source, rates)

    def binomial(self, count: Array, prob: Array) -> Array:
        """Numbers of successes; shapes broadcast."""
        return binomial(self._source, count, prob)

    def gamma(self, concentration: Array) -> Array:
        """Gamma distributed numbers of rate 1, as float64."""
        return gamma(self._source, concentration)

    def edges_and_numbers(self, weights: Array, count: int) -> tuple[Array, Array, str]:
        """For each row: the shares' running sums, uniform numbers, and the side on which equal ones are searched."""
        native = weights.dtype if weights.dtype == dtypes.float64 else np.float32
        edges = weights.cumsum(-1, dtype=native)
        edges /= edges[..., -1:].copy()
        return (
            edges,
            self._source.uniform(count_of(weights.shape[:-1]) * count).reshape((*weights.shape[:-1], count)),
            "left",
        )

    def ranking(self, weights: Array, count: int) -> Array:
        """Indices of the largest `count` of each row's weights divided by exponential numbers."""
        waits = self.exponential(weights, weights.dtype, 1.0)
        scores = weights / waits
        first = np.argsort(-scores, -1, kind="stable")[..., :count].copy()
        return first if count == 1 else top_indices(np, scores, scores.ndim - 1, first, True, True)

    def slopes(self, input: Array, lower: float, upper: float) -> Array:
        """Numbers from [lower, upper) where the input is not positive, which take two words each; else 1, for rrelu."""
        made = np.ones(input.shape, input.dtype)
        chosen = input <= 0
        drawn = self._source.uniform(int(np.count_nonzero(chosen)))
        lower, upper = float(input.dtype.type(lower)), float(input.dtype.type(upper))
        made[chosen] = _cast(drawn * (upper - lower) + lower, input.dtype)
        return made


def _complex(part: DType) -> DType:
    return np.dtype(np.complex128 if part == dtypes.float64 else np.complex64)


def _exact_bounds(low: int, high: int, digits: int) -> tuple[int, int]:
    """Bounds of integers that a floating dtype of so many digits reaches, if rounding would leave them."""
    last = _rounded(high - 1, digits)
    if last >= high:
        high = last - (1 << max(0, (high - 1).bit_length() - digits))
    first = _rounded(low + 1, digits)
    if first < low:
        low = first + (1 << max(0, (low + 1).bit_length() - digits))
    return low, high


def _rounded(value: int, digits: int) -> int:
    """The nearest integer of at most so many binary digits; of two, the even one."""
    cut = max(0, abs(value).bit_length() - digits)
    kept, rest = divmod(abs(value), 1 << cut)
    half = (1 << cut) >> 1
    kept += bool(cut) and (rest > half or (rest == half and kept & 1))
    return (kept << cut) * (-1 if value < 0 else 1)
