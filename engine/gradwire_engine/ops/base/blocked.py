"""Blocked evaluation of long elementwise formulas on large arrays.

NumPy writes the result of every step of a formula; a block's results stay in the cache. For NumPy only: GPU kernels
need the whole array at once.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from gradwire_engine.core.device import Array

# Elements per block: a few such arrays fit the L2 cache, and a step on a block costs more than its call overhead.
BLOCK = 1 << 15


def elementwise(kernel: Callable[..., None], scratch: int, *arrays: Array) -> Array:
    """Apply an elementwise kernel to C-contiguous NumPy arrays of one shape and dtype; the result is a new array.

    kernel(out, *parts, *scratch) writes `out`. All its arrays are one-dimensional; `scratch` is temporary memory.
    """
    made = np.empty_like(arrays[0])
    target, flat = made.reshape(-1), [array.reshape(-1) for array in arrays]
    size = min(BLOCK, max(1, target.size))
    free = [np.empty(size, made.dtype) for _ in range(scratch)]
    for start in range(0, target.size, size):
        block = slice(start, start + size)
        out = target[block]
        kernel(out, *(part[block] for part in flat), *(array[: out.size] for array in free))
    return made


def is_plain(*arrays: Array) -> bool:
    """Whether `elementwise` accepts these: C-contiguous NumPy arrays of one shape, all float32 or all float64."""
    first = arrays[0]
    return all(
        type(array) is np.ndarray
        and array.flags.c_contiguous
        and array.dtype.char in "fd"
        and array.dtype == first.dtype
        and array.shape == first.shape
        for array in arrays
    )
