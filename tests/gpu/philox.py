"""The engine's random numbers of a GPU (backends/philox.py), computed by NumPy: an implementation of its own."""

from __future__ import annotations

from typing import Any

import numpy as np

Words = np.ndarray[Any, np.dtype[np.uint32]]
LOW = np.uint64(0xFFFFFFFF)
SHIFT = np.uint64(32)


def hashed(counter: Words, key: Words) -> Words:
    """Philox 4x32-10 of counters (4, ...) and keys (2, ...), words of 32 bits."""
    a, b, c, d = counter.astype(np.uint64)
    k, m = key.astype(np.uint64)
    for _ in range(10):
        first, third = a * np.uint64(0xD2511F53), c * np.uint64(0xCD9E8D57)
        a, b, c, d = (third >> SHIFT) ^ b ^ k, third & LOW, (first >> SHIFT) ^ d ^ m, first & LOW
        k, m = (k + np.uint64(0x9E3779B9)) & LOW, (m + np.uint64(0xBB67AE85)) & LOW
    return np.stack([a, b, c, d]).astype(np.uint32)


def words(key: int, offset: int, count: int) -> Words:
    """The four words of `count` places from `offset` on, at their first attempt."""
    places = np.uint64(offset) + np.arange(count, dtype=np.uint64)
    counter = np.stack([places & LOW, places >> SHIFT, np.zeros_like(places), np.zeros_like(places)])
    return hashed(counter.astype(np.uint32), np.array([[key & 0xFFFFFFFF], [key >> 32]], np.uint32))


def _wide(drawn: Words, half: int) -> Any:
    return drawn[2 * half + 1].astype(np.uint64) << SHIFT | drawn[2 * half]


def _unit(drawn: Words, half: int) -> Any:
    return (_wide(drawn, half) >> np.uint64(11)) * 2.0**-53


def uniform(shape: Any, dtype: Any, key: Any, offset: Any) -> Any:
    """Uniform numbers from [0, 1)."""
    drawn = words(int(key), int(offset), int(np.prod(shape)))
    narrow = (drawn[0] >> 8).astype(np.float32) * np.float32(2.0**-24)
    return (narrow if dtype == np.float32 else _unit(drawn, 0)).reshape(shape)


def normal(shape: Any, dtype: Any, key: Any, offset: Any) -> Any:
    """Normal numbers by Box and Muller."""
    drawn = words(int(key), int(offset), int(np.prod(shape)))
    if dtype == np.float32:
        first, angle = (drawn[0] + 0.5) * 2.0**-32, drawn[1] * 2.0**-32
    else:
        first, angle = 1 - _unit(drawn, 0), _unit(drawn, 1)
    return (np.sqrt(-2 * np.log(first)) * np.cos(2 * np.pi * angle)).reshape(shape).astype(dtype)


def integers(shape: Any, dtype: Any, low: Any, count: Any, key: Any, offset: Any) -> Any:
    """Integers from low on: the high half of a product of 128 bits."""
    drawn = _wide(words(int(key), int(offset), int(np.prod(shape))), 0)
    return np.array([int(low) + (int(each) * int(count) >> 64) for each in drawn], dtype).reshape(shape)


def poisson(shape: Any, dtype: Any, mean: Any, key: Any, offset: Any) -> Any:
    """Numbers of the right law, but not the kernel's."""
    return np.random.default_rng([int(key), int(offset)]).poisson(mean, shape)


def binomial(shape: Any, dtype: Any, n: Any, p: Any, key: Any, offset: Any) -> Any:
    """Numbers of the right law, but not the kernel's."""
    return np.random.default_rng([int(key), int(offset)]).binomial(n, p, shape)


KERNELS = {f"gradwire_{each.__name__}": each for each in (uniform, normal, integers, poisson, binomial)}
