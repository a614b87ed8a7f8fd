"""Accumulation at repeated indices: sums, products and extremes, on each array module."""

from __future__ import annotations

import importlib.util
import os
from functools import cache
from importlib.machinery import PathFinder
from typing import Any

import numpy as np

from gradwire_engine.core import dtypes
from gradwire_engine.core.device import Array
from gradwire_engine.ops.base.precision import is_half

# Dtypes for which CuPy adds at indices with atomic operations of the GPU.
_ATOMIC = frozenset(np.dtype(name) for name in ("int32", "uint32", "uint64", "float32", "float64"))


def add_rows(xp: Any, rows: Array, places: Array, count: int) -> Array:
    """Matrix of `count` rows: row i is the sum of the rows of `rows` whose place is i.

    np.add.at takes ten times as long as a product with a sparse matrix of ones, except for small arrays.
    """
    if rows.shape[1] == 0 or rows.shape[0] == 0:
        return xp.zeros((count, rows.shape[1]), rows.dtype)
    if is_half(rows.dtype):
        return add_rows(xp, rows.astype(dtypes.float32), places, count).astype(rows.dtype)
    if xp is np and rows.shape[1] > 1 and rows.size > 4096 and rows.dtype.kind in "fc":
        return add_weighted_rows(rows, places, np.ones(len(rows), rows.dtype), count)
    whole = xp.zeros((count, rows.shape[1]), rows.dtype)
    columns = xp.arange(rows.shape[1])
    add_flat(xp, whole, (places[:, None] * rows.shape[1] + columns).reshape(-1), rows.reshape(-1))
    return whole


def add_weighted_rows(rows: Array, places: Array, weights: Array, count: int) -> Array:
    """`add_rows` of a NumPy matrix whose row j counts `weights[j]` times, in the order of the rows.

    Computed as a product with a sparse matrix. The places must be valid: they are not checked.
    """
    product = _sparse_product()
    bounds = np.arange(len(rows) + 1, dtype=np.int64)
    places = np.ascontiguousarray(places, np.int64)
    if product is None:
        sparse = importlib.import_module("scipy.sparse")
        return np.asarray(sparse.csc_array((weights, places, bounds), shape=(count, len(rows))) @ rows)
    rows, weights = np.ascontiguousarray(rows), np.ascontiguousarray(weights)
    added = np.zeros((count, rows.shape[1]), rows.dtype)
    product(count, len(rows), rows.shape[1], bounds, places, weights, rows.reshape(-1), added.reshape(-1))
    return added


@cache
def _sparse_product() -> Any:
    """scipy.sparse's function for `csc_array @ matrix`, from its extension alone; None if it has another place.

    Importing the package takes a hundred times as long, which the first call would wait for.
    """
    package = importlib.util.find_spec("scipy")
    folders = [] if package is None else package.submodule_search_locations or []
    spec = PathFinder.find_spec("_sparsetools", [os.path.join(folder, "sparse") for folder in folders])
    if spec is None or spec.loader is None:
        return None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, "csc_matvecs", None)


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
