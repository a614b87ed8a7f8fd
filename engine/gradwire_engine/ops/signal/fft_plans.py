"""Memory of pocketfft's plans.

pocketfft caches a plan for each length: the latest 16 plans per dtype, for real and for complex transforms. A plan
holds the roots of unity of its length. For a length with a large prime factor it also holds a transformed chirp
(Bluestein's algorithm). SciPy cannot empty the cache, but a transform of a new length evicts the oldest plan. So
`release` runs 16 tiny transforms, when the cached plans exceed MAX_CACHED_BYTES and when a session ends.
"""

from __future__ import annotations

import functools
import math
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gradwire_engine.core import dtypes

MAX_CACHED_BYTES = 64 << 20
UNCOUNTED_SIZE = 2048  # elements; plans of smaller inputs are not counted
_CACHED_PLANS = 16  # plans that pocketfft caches for each dtype, of real and of complex transforms
_LANES = 16  # upper bound of the transforms along an axis that pocketfft computes at once, each in its own buffer
_BLUESTEIN_FACTOR = 4  # size of a Bluestein plan, and of its transform's buffer, relative to the length


class _PlanCache:
    """Estimate of the bytes of the cached plans since the last release; each plan counts once."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.bytes = 0
        self.known: set[tuple[str, int, bool]] = set()

    def note(self, dtype: Any, length: int, real: bool) -> None:
        """Count the plan of a transform; release all plans if their bytes exceed MAX_CACHED_BYTES."""
        key = (dtype.char, length, real)
        if key not in self.known:
            with self.lock:
                self.known.add(key)
                self.bytes += plan_bytes(dtype, length, real)
            if self.bytes > MAX_CACHED_BYTES:
                self.release()

    def release(self) -> None:
        """Evict the cached plans, if any were counted."""
        with self.lock:
            if not self.bytes:
                return
            import scipy.fft  # loaded with the first transform

            self.bytes = 0
            self.known.clear()
            for real in (np.float32, np.float64):
                for length in range(1, _CACHED_PLANS + 1):
                    scipy.fft.rfft(np.zeros(length, real))
                    scipy.fft.fft(np.zeros(length, dtypes.to_complex(np.dtype(real))))


_plan_cache = _PlanCache()


def release() -> None:
    """Evict the cached plans, which will not be needed soon."""
    _plan_cache.release()


def transformed(
    transform: Callable[..., Any], input: Any, dims: Sequence[int], lengths: Sequence[int], real: bool, **options: Any
) -> Any:
    """Call a transform of SciPy on a host array and count its plans.

    dims: the transformed dimensions. lengths: lengths of the transforms, in the order of dims.
    real: whether the last transform is from or to real numbers.
    """
    try:
        return transform(input, axes=dims, **options)
    finally:
        if input.size > UNCOUNTED_SIZE:
            for place, length in enumerate(lengths, 1):
                _plan_cache.note(input.dtype, length, real and place == len(lengths))


def plan_bytes(dtype: Any, length: int, real: bool) -> int:
    """Upper bound of a plan's bytes. length: of the transform. real: whether it is from or to real numbers."""
    size = _complex_size(dtype)
    return length * (_BLUESTEIN_FACTOR * size if _uses_bluestein(length, real) else size // 2 if real else size)


def working_bytes(dtype: Any, shape: Sequence[int], dims: Sequence[int], real: bool) -> int:
    """Upper bound of the temporary bytes of transforms along `dims`, beside their result.

    real: whether the last transform is from or to real numbers.
    """
    count, size, most = math.prod(shape), _complex_size(dtype), 0
    for place, axis in enumerate(dims, 1):
        length, halves = max(shape[axis], 1), real and place == len(dims)
        lanes = min(_LANES, max(count // length, 1))
        buffer = (_BLUESTEIN_FACTOR + 1) * size if _uses_bluestein(length, halves) else size // 2 if halves else size
        most = max(most, plan_bytes(dtype, length, halves) + length * lanes * buffer)
    return most


def _complex_size(dtype: Any) -> int:
    return int(dtypes.to_complex(dtype).itemsize) if dtype.kind != "c" else int(dtype.itemsize)


@functools.lru_cache(4096)
def _uses_bluestein(length: int, real: bool) -> bool:
    """Whether Bluestein's algorithm costs less than a pass per prime factor, by pocketfft's estimate."""
    return length >= 50 and 3 * _cost(_smooth_length(2 * length - 1)) < _cost(length) * (0.5 if real else 1)


def _cost(length: int) -> float:
    left, factor, cost = length, 2, 0.0
    while factor * factor <= left:
        while left % factor == 0:
            cost += factor if factor <= 5 else 1.1 * factor
            left //= factor
        factor += 1
    if left > 1:
        cost += left if left <= 5 else 1.1 * left
    return cost * length


def _smooth_length(least: int) -> int:
    """A length of at least `least` without a prime factor above 5, at most a few percent above the best."""
    best = 1 << (least - 1).bit_length()
    five = 1
    while five < best:
        three = five
        while three < best:
            found = three << max((-(-least // three) - 1).bit_length(), 0)
            best = min(best, found)
            three *= 3
        five *= 5
    return best
