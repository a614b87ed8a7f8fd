"""Values of a range with steps that are no whole numbers: PyTorch's digits on a CPU with AVX2.

PyTorch computes blocks of as many values as a register holds. A block's first value is rounded to the dtype, and the
others are that value and multiples of the step. The last values, less than two blocks, are computed one by one.
Product and sum are rounded once.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gradwire_engine.core import dtypes
from gradwire_engine.core.device import Array
from gradwire_engine.core.dtypes import DType, is_half

# Bits of the halves of a double: the product of a half and of a whole number of this size is exact.
_HALF = 2.0**27 + 1
_MOST_EXACT = 1 << 26


def stepped(first: float, by: float, count: int, dtype: DType) -> Array:
    """`first + index * by` for each index below `count`, which is below 2**26 for the last digit."""
    lanes = 16 if is_half(dtype) else 32 // dtype.itemsize
    wide = np.dtype(np.float32 if is_half(dtype) else np.float64)
    begin, step = wide.type(first), wide.type(by)
    whole = count // (2 * lanes) * 2 * lanes
    values = np.empty(count, dtype)
    if whole:
        starts = _fused(step, np.arange(0, whole, lanes), begin).astype(dtype)
        within = np.arange(lanes, dtype=wide)
        base = starts.astype(wide)[:, None]
        # Of bfloat16, PyTorch rounds the product, too.
        values[:whole] = (step * within + base if dtype == dtypes.bfloat16 else _fused(step, within, base)).reshape(-1)
    values[whole:] = _fused(step, np.arange(whole, count), begin)
    return values


def _fused(step: Any, index: Array, begin: Any) -> Array:
    """`step * index + begin`, rounded once."""
    if step.dtype == dtypes.float32:
        return (np.float64(step) * index + begin).astype(dtypes.float32)
    scaled = step * _HALF
    high = scaled - (scaled - step)
    product, low = _sum(high * index, (step - high) * index)
    middle, least = _sum(begin, low)
    total, less = _sum(product, middle)
    rest, error = _sum(less, least)
    # What is cut off decides where the sum lies between two values: an odd last bit stands for it.
    cut = np.nonzero(error)
    if cut[0].size:
        even = rest[cut]
        odd = np.nextafter(even, np.copysign(np.inf, error[cut]))
        rest[cut] = np.where(even.view(np.int64) & 1, even, odd)
    return np.where(np.isfinite(scaled) & (index < _MOST_EXACT), total + rest, step * index + begin)


def _sum(one: Any, other: Any) -> tuple[Any, Any]:
    """The sum, rounded, and its error."""
    total = one + other
    back = total - one
    return total, (one - (total - back)) + (other - back)
