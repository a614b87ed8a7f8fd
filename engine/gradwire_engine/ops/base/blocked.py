"""Long elementwise formulas on large arrays, a block at a time.

NumPy writes the result of every step of a formula, and memory is far slower than a cache. For NumPy only: a GPU's
kernels want the whole array at once.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from gradwire_engine.core.device import Array

# Elements of a block: a few arrays of so many fit a second-level cache, and a step on them takes longer than its call.
BLOCK = 1 << 15


def elementwise(kernel: Callable[..., None], scratch: int, *arrays: Array) -> Array:
    """The result of an elementwise kernel on C-contiguous NumPy arrays of one shape and dtype, in a new array.

    kernel(out, *parts, *scratch) writes `out`; parts and so many arrays to use freely are one-dimensional.
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
    """Whether `elementwise` can take these: C-contiguous NumPy arrays of one shape, all float32 or all float64."""
    first = arrays[0]
    return all(
        type(array) is np.ndarray
        and array.flags.c_contiguous
        and array.dtype.char in "fd"
        and array.dtype == first.dtype
        and array.shape == first.shape
        for array in arrays
    )
