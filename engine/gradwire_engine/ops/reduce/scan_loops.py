"""Running sums, products, maxima and minima by the loops of compile/eager/scans.py: their calls and operands."""

from __future__ import annotations

import math

import numpy as np

from gradwire_engine.core.device import Array
from gradwire_engine.ops.base.loops import Loops, are_plain, run

_VECTOR = 128  # bytes, as in compile/eager/loop_code.py
_AT_ONCE = 4  # chains that are not adjacent


def _geometry(array: Array, dim: int, way: int) -> tuple[int, Array]:
    """The number of units, and the geometry. Along the last dimension chains are rows, else they are adjacent."""
    outer, length, inner = math.prod(array.shape[:dim]), array.shape[dim], math.prod(array.shape[dim + 1 :])
    first = 0 if way == 1 else (length - 1) * inner
    if inner == 1:
        units = -(-outer // _AT_ONCE)
        return units, np.array([length, outer, length, way, first, 0, units, _AT_ONCE], np.int64)
    width = _VECTOR // array.itemsize
    units = -(-inner // width)
    return outer * units, np.array([length, inner, 1, way * inner, first, length * inner, units, width], np.int64)


def _run(loops: Loops, name: str, array: Array, dim: int, way: int, *made: Array) -> bool:
    """Run a loop along a dimension of an array that is not empty; whether there is one."""
    loop = loops.find(name, array.dtype.char) if type(array) is np.ndarray and are_plain(array) else None
    if loop is None:
        return False
    units, geometry = _geometry(array, dim, way)
    run(loop, units, array.shape[dim], geometry, array, *made, work=array.size)
    return True


def folded_by_loop(loops: Loops, name: str, array: Array, dim: int, way: int = 1) -> Array | None:
    """The running sum ("cumsum") or product. way: 1, or -1 from the end. None if there is no loop."""
    made = np.empty(array.shape, array.dtype)
    return made if _run(loops, name, array, dim, way, made) else None


def extremes_by_loop(loops: Loops, name: str, array: Array, dim: int) -> tuple[Array, Array] | None:
    """The running maximum ("cummax") or minimum, and its index, the last of equal ones. None if there is no loop."""
    made, places = np.empty(array.shape, array.dtype), np.empty(array.shape, np.int64)
    return (made, places) if _run(loops, name, array, dim, 1, made, places) else None
