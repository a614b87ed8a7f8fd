"""What pocketfft takes and keeps: a plan for each length, of which it keeps the latest sixteen of a kind for ever.

A plan has the roots of unity of its length; where that has a large prime factor, the transform of a chirp beside them
(Bluestein). SciPy has no call that lets go of them. But a transform of another length takes the place of the oldest
plan, so sixteen tiny ones take the place of all. They are made when the plans kept come to more than KEPT_BYTES, and
when a session ends.
"""

from __future__ import annotations

import functools
import math
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gradwire_engine.core import dtypes

KEPT_BYTES = 64 << 20
FEW = 2048  # elements, whose plans are so small that nobody counts them
_KINDS = 16  # lengths that pocketfft keeps the plans of, for each dtype and of real and complex transforms
_LANES = 16  # transforms of one axis that it makes at once at most, each in a buffer of its own
_CHIRP = 4  # of its length, in a plan by Bluestein's; and in the buffer of a transform


class _Kept:
    """The bytes of plans that were made since they were let go of; a plan made twice counts once."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.bytes = 0
        self.known: set[tuple[str, int, bool]] = set()

    def note(self, dtype: Any, length: int, real: bool) -> None:
        """A plan for this was made, or was there; lets go of all where they have become too many."""
        key = (dtype.char, length, real)
        if key not in self.known:
            with self.lock:
                self.known.add(key)
                self.bytes += plan_bytes(dtype, length, real)
            if self.bytes > KEPT_BYTES:
                self.release()

    def release(self) -> None:
        """Let go of the plans, if there are any worth it."""
        with self.lock:
            if not self.bytes:
                return
            import scipy.fft  # loaded with the first transform

            self.bytes = 0
            self.known.clear()
            for real in (np.float32, np.float64):
                for length in range(1, _KINDS + 1):
                    scipy.fft.rfft(np.zeros(length, real))
                    scipy.fft.fft(np.zeros(length, dtypes.to_complex(np.dtype(real))))


_kept = _Kept()


def release() -> None:
    """Let go of the plans that are kept: they are not needed again soon."""
    _kept.release()


def transformed(
    transform: Callable[..., Any], input: Any, dims: Sequence[int], lengths: Sequence[int], real: bool, **options: Any
) -> Any:
    """What SciPy's transform makes along these dimensions of an array of the host; no more plans are kept than may be.

    lengths: of the transforms, in the order of dims. real: whether the last of them is of, or to, real numbers.
    """
    try:
        return transform(input, axes=dims, **options)
    finally:
        if input.size > FEW:
            for place, length in enumerate(lengths, 1):
                _kept.note(input.dtype, length, real and place == len(lengths))


def plan_bytes(dtype: Any, length: int, real: bool) -> int:
    """At most the bytes of a plan for transforms of this length; real: of, or to, real numbers."""
    size = _complex_size(dtype)
    return length * (_CHIRP * size if _by_chirp(length, real) else size // 2 if real else size)


def working_bytes(dtype: Any, shape: Sequence[int], dims: Sequence[int], real: bool) -> int:
    """At most the bytes that transforms along these dimensions take beside their result; real: the last of them is."""
    count, size, most = math.prod(shape), _complex_size(dtype), 0
    for place, axis in enumerate(dims, 1):
        length, halves = max(shape[axis], 1), real and place == len(dims)
        lanes = min(_LANES, max(count // length, 1))
        buffer = (_CHIRP + 1) * size if _by_chirp(length, halves) else size // 2 if halves else size
        most = max(most, plan_bytes(dtype, length, halves) + length * lanes * buffer)
    return most


def _complex_size(dtype: Any) -> int:
    return int(dtypes.to_complex(dtype).itemsize) if dtype.kind != "c" else int(dtype.itemsize)


@functools.lru_cache(4096)
def _by_chirp(length: int, real: bool) -> bool:
    """Whether Bluestein's algorithm is less work than one pass for each prime factor, as pocketfft estimates it."""
    return length >= 50 and 3 * _cost(_smooth(2 * length - 1)) < _cost(length) * (0.5 if real else 1)


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


def _smooth(least: int) -> int:
    """A length from `least` on with no prime factor above 5: at most a few percent beyond the best."""
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
