"""Indices of equal elements as PyTorch's on a CPU, for sort, topk, kthvalue and mode.

They are those of C++'s sorts (`partitions.py`), carried out where the result shows them: on lines with equal elements,
while these have at most MOST elements together. Beyond that, and on a GPU, equal elements keep their order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gradwire_engine.core.device import Array
from gradwire_engine.ops.base.checks import as_sortable
from gradwire_engine.ops.index import partitions
from gradwire_engine.ops.index.partitions import Lines

#: C++'s sorts take about fifteen times as long here as NumPy's, so lines with more elements than these are left.
MOST = 1 << 16
#: `topk` sorts partially where so many times k elements are at hand.
_PARTIAL = 64


def sorted_order(xp: Any, input: Array, dim: int, order: Array, descending: bool) -> Array:
    """The order of `std::sort` along `dim`. `order`: a stable one, which is changed and returned."""
    if xp is not np or order.shape[dim] <= partitions.SHORT:
        return order
    lines, places = _lines(input, dim), _lines(order, dim)
    values = np.take_along_axis(lines, places, 1)
    tied = np.flatnonzero(_same(values[:, 1:], values[:, :-1]).any(1))

    def sort(ranked: Lines) -> Array:
        first = ranked.starts()
        partitions.introsort(ranked, first, first + ranked.length)
        ranked.settle(first, first + ranked.length)
        return ranked.places.reshape(ranked.count, -1)

    return _replaced(lines, order, dim, tied, descending, sort)


def top_indices(xp: Any, input: Array, dim: int, indices: Array, largest: bool, sorted: bool) -> Array:
    """The indices of `topk`. `indices`: those of the same values in any order of equal ones; changed and returned."""
    count = indices.shape[dim]
    if xp is not np or not indices.size or input.shape[dim] < 2:
        return indices
    partial = count * _PARTIAL <= input.shape[dim]
    lines = _lines(input, dim)
    values = np.take_along_axis(lines, _lines(indices, dim), 1)
    tied = _same(values[:, 1:], values[:, :-1]).any(1) | (_same(lines, values[:, -1:]).sum(1) > 1)
    chosen = np.flatnonzero(tied | (not sorted and not partial))

    def select(ranked: Lines) -> Array:
        if partial:
            partitions.partial_sort(ranked, count)
        else:
            partitions.nth_element(ranked, count - 1)
            if sorted and count > 1:
                first = ranked.starts()
                partitions.introsort(ranked, first, first + count - 1)
                ranked.settle(first, first + count - 1)
        return ranked.places.reshape(ranked.count, -1)[:, :count]

    return _replaced(lines, indices, dim, chosen, largest, select)


def ranked_index(xp: Any, input: Array, dim: int, indices: Array, rank: int) -> Array:
    """The index of `kthvalue`, with the dimension kept. `indices`: one of the same value; changed and returned."""
    if xp is not np or not indices.size or input.shape[dim] < 2:
        return indices
    lines = _lines(input, dim)
    values = np.take_along_axis(lines, _lines(indices, dim), 1)
    tied = np.flatnonzero(_same(lines, values).sum(1) > 1)

    def select(ranked: Lines) -> Array:
        partitions.quickselect(ranked, rank)
        return ranked.places.reshape(ranked.count, -1)[:, rank : rank + 1]

    return _replaced(lines, indices, dim, tied, False, select)


def stable_index(input: Array, dim: int, indices: Array, rank: int) -> Array:
    """The index that a stable sort has at a rank, the dimension kept. `indices`: one of the same value, not nan."""
    value = np.take_along_axis(input, indices, dim)
    turn = rank + 1 - (input < value).sum(dim, keepdims=True)
    return np.expand_dims(np.argmax((input == value).cumsum(dim) == turn, dim), dim)


def _lines(array: Array, dim: int) -> Array:
    """(lines, length): the lines along a dimension."""
    moved = np.moveaxis(array, dim, -1)
    return moved.reshape(-1, moved.shape[-1])


def _same(one: Array, other: Array) -> Array:
    """Where elements are equal, nan with nan."""
    return (one == other) | ((one != one) & (other != other))


def _replaced(
    lines: Array, indices: Array, dim: int, chosen: Array, descending: bool, found: Callable[[Lines], Array]
) -> Array:
    """`indices` with those of the chosen lines found on their ranks; without change where these are too many."""
    if not len(chosen) or len(chosen) * lines.shape[1] > MOST:
        return indices
    moved = np.moveaxis(indices, dim, -1)
    places = np.unravel_index(chosen, moved.shape[:-1]) if moved.ndim > 1 else ...
    moved[places] = found(Lines(_ranks(as_sortable(lines[chosen]), descending))).reshape(moved[places].shape)
    return indices


def _ranks(lines: Array, descending: bool) -> Array:
    """Whole numbers in the order of the elements, nan the largest; equal ones where elements are equal."""
    order = np.argsort(lines, 1, kind="stable")
    values = np.take_along_axis(lines, order, 1)
    steps = np.zeros(lines.shape, np.int64)
    steps[:, 1:] = ~_same(values[:, 1:], values[:, :-1])
    ranks = np.empty(lines.shape, np.int64)
    np.put_along_axis(ranks, order, np.cumsum(steps, 1), 1)
    return -ranks if descending else ranks
