"""Max pooling of large windows by doubling, one dimension after another; the work grows with the kernel's logarithm.

The first maximum of a window in row-major order lies in the first row whose maximum is largest. Along a row, a window
of n elements is the union of two overlapping shorter windows. The right one wins only if it is larger, or nan, of
which the last wins. So values and positions equal those of a loop over each window.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from gradwire_engine.core import dtypes
from gradwire_engine.core.device import Array
from gradwire_engine.ops.nn.windows import Window

Ints = Any


def wide_max(xp: Any, padded: Array, real: Array | None, window: Window) -> tuple[Array, Array]:
    """Maximum of each window of a padded array, and its kernel position (int32).

    real: mask of the elements that are not padding, over the spatial dimensions; None if no element is padding.
    """
    values, which = padded, xp.zeros(padded.shape, np.int32)
    floating = dtypes.category(padded.dtype) == dtypes.FLOAT
    for axis in reversed(range(len(window.kernel))):
        unit = math.prod(window.kernel[axis + 1 :])
        rest = (slice(None),) * (len(window.kernel) - 1 - axis)
        for shift, step in _steps(window.kernel[axis], window.dilation[axis]):
            left, right = (..., slice(None, -step), *rest), (..., slice(step, None), *rest)
            one, other = values[left], values[right]
            better = other > one
            if real is not None:
                better |= real[right] & ~real[left] & ~(other < one)
                real = real[left] | real[right]
            if floating:
                better |= xp.isnan(other)
            values = xp.where(better, other, one)
            which = xp.where(better, which[right] + np.int32(shift * unit), which[left])
        index = (..., window.along(axis, 0), *rest)
        values, which, real = values[index], which[index], None if real is None else real[index]
    return xp.array(values, order="C"), xp.array(which, order="C")


def _steps(kernel: int, dilation: int) -> Iterator[tuple[int, int]]:
    """For each doubling step: the shift between the two shorter windows, in kernel positions and in elements."""
    length = 1
    while length < kernel:
        shift = min(length, kernel - length)
        yield shift, shift * dilation
        length += shift


def maxima_positions(xp: Any, which: Array, window: Window) -> Array:
    """Flat index of each window's maximum in the padded array's spatial dimensions; int64."""
    spatial = len(window.kernel)
    flat, rest = xp.zeros(which.shape, np.int64), which.astype(np.int64)
    for axis in range(spatial):
        below = math.prod(window.kernel[axis + 1 :])
        starts = xp.arange(window.output[axis]).reshape(-1, *[1] * (spatial - 1 - axis)) * window.stride[axis]
        flat = flat * window.padded[axis] + starts + rest // below * window.dilation[axis]
        rest = rest % below
    return flat.reshape(*which.shape[:-spatial], -1)


def scatter_to_maxima(xp: Any, grad: Array, which: Array, window: Window) -> Array:
    """Add each window's gradient at its maximum into zeros of the padded sizes, in the windows' order."""
    lead, count = grad.shape[: -len(window.kernel)], math.prod(window.padded)
    places = maxima_positions(xp, which, window).reshape(math.prod(lead), -1)
    places += xp.arange(math.prod(lead))[:, None] * count
    target = xp.zeros(math.prod(lead) * count, grad.dtype)
    xp.add.at(target, places.ravel(), grad.ravel())
    return target.reshape(*lead, *window.padded)


def gather_maxima(xp: Any, padded: Array, which: Array, window: Window) -> Array:
    """The element of each window at its maximum."""
    flat = padded.reshape(*padded.shape[: -len(window.kernel)], -1)
    return xp.take_along_axis(flat, maxima_positions(xp, which, window), -1).reshape(which.shape)
