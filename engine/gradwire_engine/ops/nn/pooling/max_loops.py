"""Max pooling over two or three dimensions by the loops of compile/eager/max_pool.py: their calls and operands."""

from __future__ import annotations

import itertools
import math
from functools import lru_cache
from typing import Any

import numpy as np

from gradwire_engine.core.device import Array
from gradwire_engine.ops.base.checks import admit
from gradwire_engine.ops.base.loops import LEAST, Loops, find, run
from gradwire_engine.ops.nn.windows import Window

Ints = Any
_DIMENSIONS = (2, 3)
_MOST_DIMENSIONS = 3
_MOST_KEPT = 256  # geometries, of 2 KB at most
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
    """The sizes of a plane's windows, then the offset of each kernel position along each dimension and in the plane."""
    return _geometry_of(*(
        (one,) * (_MOST_DIMENSIONS - len(sizes)) + tuple(sizes)
        for sizes, one in (
            (window.output, 1), (window.size, 1), (window.stride, 1), (window.padding, 0), (window.kernel, 1),
            (window.dilation, 1),
        )
    ))  # fmt: skip


@lru_cache(_MOST_KEPT)
def _geometry_of(output: Ints, size: Ints, stride: Ints, padding: Ints, kernel: Ints, dilation: Ints) -> Array:
    inside = [_inside(*sizes) for sizes in zip(output, size, stride, padding, kernel, dilation, strict=True)]
    steps = [range(0, count * gap, gap) for count, gap in zip(kernel, dilation, strict=True)]
    places = list(itertools.product(*steps))
    numbers = [len(places), *output, *size, *stride, *padding, *(first for first, _ in inside)]
    numbers += [*(end for _, end in inside), math.prod(size), math.prod(output)]
    numbers += itertools.chain(*zip(*places, strict=True))
    numbers += [(z * size[1] + y) * size[2] + x for z, y, x in places]
    made = np.array(numbers, np.int64)
    made.flags.writeable = False
    return made


def _inside(count: int, size: int, stride: int, padding: int, kernel: int, dilation: int) -> tuple[int, int]:
    """The first window that has no padding along a dimension, and the one after the last."""
    first = min(-(-padding // stride), count)
    room = size + padding - dilation * (kernel - 1) - 1
    return first, max(first, min(count, room // stride + 1))


def _run(loops: Loops, name: str, window: Window, *operands: Array) -> bool:
    """Run a loop over the planes; whether there is one."""
    dtype = next(each.dtype for each in operands if each.dtype != np.uint8)
    cells, dims = math.prod(window.output), len(window.kernel)
    loop = find(loops, name, dtype.char, cells)
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
