"""Distances between rows by the loops of compile/eager/distances.py: the calls that they fit, and operands."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from gradwire_engine.core.device import Array
from gradwire_engine.ops.base.checks import broadcast_shape
from gradwire_engine.ops.base.loops import LEAST, Loops, find, run

#: Rows of x2 from which vectors of them are worth their padding, and the least number of differences.
_LEAST_ROWS, _LEAST_DIFFERENCES = 16, LEAST
#: Columns up to which differences take less time than a matrix product and its passes.
_MOST_FOR_PRODUCT, _LEAST_FOR_PRODUCT = 16, 1 << 16
_VECTOR = 128  # bytes, as in compile/eager/distances.py
_SPREAD = 128  # elements: columns whose distance is a multiple of it would share few places of the cache
_NAMES = {1.0: "cdist_1", 2.0: "cdist_2", math.inf: "cdist_inf"}
NAMES = tuple(f"{name}{part}" for name in _NAMES.values() for part in ("", "_backward"))


def _flat(value: Array, batch: tuple[int, ...]) -> Array:
    """A row-major array with one dimension of batches."""
    wide = np.broadcast_to(value, (*batch, *value.shape[-2:]))
    return np.ascontiguousarray(wide.reshape(math.prod(batch), *value.shape[-2:]))


def pitch_of(rows: int, itemsize: int) -> int:
    """Elements from one column of x2 to the next."""
    width = _VECTOR // itemsize
    pitch = -(-rows // width) * width
    return pitch + width if pitch % _SPREAD == 0 else pitch


def _turned(other: Array, batch: tuple[int, ...]) -> Array:
    """The columns of x2, padded with zeros."""
    rows, columns = other.shape[-2:]
    made = np.zeros((*batch, columns, pitch_of(rows, other.itemsize)), other.dtype)
    made[..., :rows] = other.swapaxes(-1, -2)
    return made


def _fits(p: float, *arrays: Any) -> bool:
    """Whether these are arrays in host memory of one float dtype, and large enough. The first two are x1 and x2."""
    one, other = arrays[:2]
    return (
        p in _NAMES
        and all(type(each) is np.ndarray and each.dtype == one.dtype for each in arrays)
        and one.dtype.char in "fd"
        and other.shape[-2] >= _LEAST_ROWS
        and one.size * other.shape[-2] >= _LEAST_DIFFERENCES
    )


def _run(loops: Loops, name: str, batch: tuple[int, ...], one: Array, other: Array, *more: Array) -> bool:
    """Run a loop over the rows of x1; whether there is one."""
    (rows, columns), others = one.shape[-2:], other.shape[-2]
    loop = find(loops, name, one.dtype.char, others * columns)
    if loop is None:
        return False
    turned = _turned(other, batch)
    geometry = np.asarray([rows, others, columns, turned.shape[-1]], np.int64)
    run(loop, math.prod(batch) * rows, others * columns, geometry, _flat(one, batch), turned, *more)
    return True


def norms_loop(loops: Loops, xp: Any, x1: Array, x2: Array, p: float) -> Array | None:
    """p-norms of the differences of all rows. None if there is no loop."""
    if not _fits(p, x1, x2):
        return None
    batch = broadcast_shape(x1.shape[:-2], x2.shape[:-2])
    if 0 in batch:
        return None
    made = np.empty((*batch, x1.shape[-2], x2.shape[-2]), x1.dtype)
    return made if _run(loops, _NAMES[p], batch, x1, x2, made) else None


def euclidean_loop(loops: Loops, xp: Any, x1: Array, x2: Array) -> Array | None:
    """2-norms of short rows, of which a matrix product would be slower, and less exact. None if there is no loop."""
    short = x1.shape[-1] <= _MOST_FOR_PRODUCT and x1.size * x2.shape[-2] >= _LEAST_FOR_PRODUCT
    return norms_loop(loops, xp, x1, x2, 2.0) if short else None


def shares_of(g: Array, out: Array) -> Array:
    """Gradients by distances, for p = 2: g / out, and 0 for a distance of 0."""
    shares: Array = g / out
    same = out == 0
    if same.any():  # seldom: a choice for each element takes several times as long
        shares[same] = 0
    return shares


def gradient_loop(loops: Loops, g: Any, one: Any, other: Any, p: float, out: Any) -> Array | None:
    """The gradient of x1. None if there is no loop."""
    if not _fits(p, one, other, g, out):
        return None
    batch = broadcast_shape(one.shape[:-2], other.shape[:-2])
    if 0 in batch:
        return None
    if p == 2:
        g = shares_of(g, out)
    given = [_flat(g, batch)]
    if p == math.inf:
        given.append(_flat(out, batch))
    made = np.zeros((*batch, *one.shape[-2:]), one.dtype)
    return made if _run(loops, f"{_NAMES[p]}_backward", batch, one, other, *given, made) else None
