"""Accumulation at repeated indices: sums, products and extremes, on each array module."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np

from gradwire_engine.core import dtypes
from gradwire_engine.core.device import Array
from gradwire_engine.ops.base.precision import is_half

# Dtypes for which CuPy adds at indices with atomic operations of the GPU.
_ATOMIC = frozenset(np.dtype(name) for name in ("int32", "uint32", "uint64", "float32", "float64"))


def add_rows(xp: Any, rows: Array, places: Array, count: int) -> Array:
    """Matrix of `count` rows: row i is the sum of the rows of `rows` whose place is i.

    Computed as a product with a sparse matrix of ones: np.add.at takes ten times as long, except for small arrays.
    """
    if rows.shape[1] == 0 or rows.shape[0] == 0:
        return xp.zeros((count, rows.shape[1]), rows.dtype)
    if is_half(rows.dtype):
        return add_rows(xp, rows.astype(dtypes.float32), places, count).astype(rows.dtype)
    if xp is np and rows.shape[1] > 1 and rows.size > 4096 and rows.dtype.kind in "fc":
        sparse = importlib.import_module("scipy.sparse")
        ones = np.ones(len(rows), rows.dtype)
        return sparse.csc_array((ones, places, np.arange(len(rows) + 1)), shape=(count, len(rows))) @ rows
    whole = xp.zeros((count, rows.shape[1]), rows.dtype)
    columns = xp.arange(rows.shape[1])
    add_flat(xp, whole, (places[:, None] * rows.shape[1] + columns).reshape(-1), rows.reshape(-1))
    return whole


def add_flat(xp: Any, whole: Array, places: Array, values: Array) -> None:
    """whole.flat[places] += values; values at a repeated place are added up. `whole` is contiguous."""
    combine_at(xp, "add", whole.reshape(-1), places, values)


def combine_at(xp: Any, combine: str, target: Array, key: Any, values: Array) -> None:
    """target[key] = combine(target[key], values), with all values at a repeated index, in any order.

    combine: "add", "multiply", "maximum" or "minimum". key: an index of the target. values: broadcast to target[key].
    """
    if xp is np:
        getattr(np, combine).at(target, key, values)
    elif combine == "add" and target.dtype in _ATOMIC:
        xp.add.at(target, key, values)
    else:
        places = xp.arange(target.size).reshape(target.shape)[key]
        joined = xp.broadcast_to(xp.asarray(values, target.dtype), places.shape).reshape(-1)
        _combine_sorted(xp, getattr(xp, combine), target, places.reshape(-1), joined)


def _combine_sorted(xp: Any, combine: Any, target: Array, places: Array, values: Array) -> None:
    """`combine_at` without atomic operations: sort by place, then combine in log2(n) steps of doubled width."""
    if not places.size:
        return
    order = xp.argsort(places, kind="stable")
    places, values, width = places[order], values[order], 1
    while width < len(places):
        same = places[width:] == places[:-width]
        values[width:] = xp.where(same, combine(values[:-width], values[width:]), values[width:])
        width *= 2
    last = xp.concatenate([places[1:] != places[:-1], xp.ones(1, bool)])
    at = xp.unravel_index(places[last], target.shape)
    target[at] = combine(target[at], values[last])
