"""Max pooling over two or three dimensions by the loops of compile/eager/max_pool.py: their calls and operands."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np

from gradwire_engine.core.device import Array
from gradwire_engine.ops.base.checks import admit
from gradwire_engine.ops.base.loops import LEAST, Loops, find, run
from gradwire_engine.ops.nn.windows import Window

Ints = Any
_DIMENSIONS = (2, 3)
_MOST_TAPS = 64  # of larger windows, NumPy's doubling takes fewer operations; positions are bytes


def _fits(window: Window, *arrays: Array) -> bool:
    """Whether the first array has a loop's dtype, and all are row-major and of the loops' shapes."""
    first = arrays[0]
    return (
        len(window.kernel) in _DIMENSIONS
        and 0 < window.taps <= _MOST_TAPS
        and all(type(each) is np.ndarray and each.flags.c_contiguous for each in arrays)
        and first.dtype.char in "fd"
        and first.size >= LEAST
    )


def _geometry(window: Window) -> Array:
    """The sizes of a plane's windows, then the offset of each kernel position along each dimension."""
    places = np.array(list(itertools.product(*map(range, window.kernel))), np.int64) * np.array(window.dilation)
    numbers = [window.taps, *window.output, *window.size, *window.stride, *window.padding]
    sizes = [math.prod(window.size), math.prod(window.output)]
    return np.concatenate([np.array([*numbers, *sizes], np.int64), places.ravel(order="F")])


def _run(loops: Loops, name: str, window: Window, *operands: Array) -> bool:
    """Run a loop over the planes, by its name without the number of dimensions; whether there is one."""
    dtype = next(each.dtype for each in operands if each.dtype != np.uint8)
    cells, dims = math.prod(window.output), len(window.kernel)
    loop = find(loops, f"{name}{dims}d", dtype.char, cells)
    if loop is None:
        return False
    planes = operands[0].size // math.prod(operands[0].shape[-dims:])
    run(loop, planes, cells, _geometry(window), *operands)
    return True


def maxima(loops: Loops, window: Window, input: Array) -> tuple[Array, Array] | None:
    """Maximum of each window, and its kernel position. None if there is no loop."""
    if not _fits(window, input):
        return None
    shape = (*input.shape[: -len(window.output)], *window.output)
    admit(shape, input.dtype)
    values, which = np.empty(shape, input.dtype), np.empty(shape, np.uint8)
    return (values, which) if _run(loops, "max_pool", window, input, values, which) else None


def scattered(loops: Loops, window: Window, grad: Array, which: Array) -> Array | None:
    """Sums of the windows' gradients at their maxima. None if there is no loop."""
    if not _fits(window, grad, which) or which.dtype != np.uint8 or which.shape != grad.shape:
        return None
    shape = (*grad.shape[: -len(window.size)], *window.size)
    admit(shape, grad.dtype)
    target = np.empty(shape, grad.dtype)
    return target if _run(loops, "max_unpool", window, grad, which, target) else None


def picked(loops: Loops, window: Window, input: Array, which: Array) -> Array | None:
    """The element of each window at its maximum's position. None if there is no loop."""
    dims = len(window.kernel)
    if not _fits(window, input, which) or which.dtype != np.uint8 or which.shape[:-dims] != input.shape[:-dims]:
        return None
    made = np.empty(which.shape, input.dtype)
    return made if _run(loops, "max_pick", window, input, which, made) else None
