"""The order in which C++'s sorts leave equal elements, which PyTorch's indices on a CPU show.

PyTorch sorts with `std::sort`, `std::nth_element` and `std::partial_sort` of libstdc++, and ranks with a quickselect of
its own. None is stable, but each is determined. These functions carry them out on ranks: whole numbers, equal where
elements are equal. Each step divides all segments at once, so it costs a few array operations for any number of them.
"""

from __future__ import annotations

import numpy as np

from gradwire_engine.core.device import Array

#: `std::sort` leaves segments of at most so many elements to an insertion sort, which is stable.
SHORT = 16
#: `std::nth_element` does so with segments of at most so many.
_FEW = 3


class Lines:
    """Lines of ranks that are being sorted, one after another in `ranks`; `places` are positions within a line."""

    def __init__(self, ranks: Array) -> None:
        """`ranks`: (lines, length), integers."""
        self.count, self.length = ranks.shape
        self.ranks = ranks.reshape(-1).copy()
        self.places = np.tile(np.arange(self.length), self.count)

    def starts(self) -> Array:
        """Where each line starts."""
        return np.arange(self.count) * self.length

    def swap(self, one: Array, other: Array) -> None:
        """Exchange the elements at positions of which none occurs twice."""
        for each in (self.ranks, self.places):
            each[one], each[other] = each[other], each[one]

    def settle(self, first: Array, last: Array) -> None:
        """Sort the segments from `first` to before `last` of all lines in place, stably. All are equally long."""
        at = first[:, None] + np.arange(int(last[0] - first[0]) if len(first) else 0)
        order = np.argsort(self.ranks[at], 1, kind="stable")
        sources = np.take_along_axis(at, order, 1)
        self.ranks[at], self.places[at] = self.ranks[sources], self.places[sources]


def _partition(lines: Lines, first: Array, last: Array, pivots: Array) -> tuple[Array, Array]:
    """Hoare's partition of segments, none empty: where each is cut, and whether both scans met at an equal element.

    One scan stops at elements of at least the pivot, the other, from the end, at those of at most it. The n-th stops of
    both exchange their elements while the first is before the second.
    """
    lengths = last - first
    ends = np.cumsum(lengths)
    positions = np.repeat(first - ends + lengths, lengths) + np.arange(ends[-1])
    ranks, pivot = lines.ranks[positions], np.repeat(pivots, lengths)
    low, high = np.flatnonzero(ranks >= pivot), np.flatnonzero(ranks <= pivot)
    low_ends, high_ends = np.searchsorted(low, ends), np.searchsorted(high, ends)
    low_starts, high_starts = np.append(0, low_ends[:-1]), np.append(0, high_ends[:-1])
    low, high = np.append(positions[low], 0), np.append(positions[high], 0)
    pairs = np.minimum(low_ends - low_starts, high_ends - high_starts)
    stops = np.cumsum(pairs)
    turn = np.arange(stops[-1])
    ones = low[np.repeat(low_starts - stops + pairs, pairs) + turn]
    others = high[np.repeat(high_ends - 1 + stops - pairs, pairs) - turn]
    apart = ones < others
    swapped = np.append(0, np.cumsum(apart))
    swaps = swapped[stops] - swapped[stops - pairs]
    lines.swap(ones[apart], others[apart])
    free = np.where(low_starts + swaps < low_ends, low[low_starts + swaps], last)
    nearest = np.where(swaps > 0, high[high_ends - swaps], last)
    met = (free < nearest) & (lines.ranks[np.minimum(free, last - 1)] == pivots)
    return np.minimum(free, nearest), met


def _halve(lines: Lines, first: Array, last: Array) -> Array:
    """One step of libstdc++'s introsort: put the median of three elements first, divide the rest by it."""
    a, b, c = first + 1, first + (last - first) // 2, last - 1
    x, y, z = (lines.ranks[each] for each in (a, b, c))
    rising = np.where(y < z, b, np.where(x < z, c, a))
    falling = np.where(x < z, a, np.where(y < z, c, b))
    lines.swap(first, np.where(x < y, rising, falling))
    return _partition(lines, first + 1, last, lines.ranks[first])[0]


def _depth(lengths: Array) -> Array:
    """How often introsort divides segments of these lengths before it turns to a heap."""
    return 2 * np.frexp(np.maximum(lengths, 1).astype(float))[1] - 2


def introsort(lines: Lines, first: Array, last: Array) -> None:
    """The divisions of `std::sort` of segments of lines: a stable sort of the result ends it."""
    depth = _depth(last - first)
    while (chosen := last - first > SHORT).any():
        first, last, depth = first[chosen], last[chosen], depth[chosen]
        deep = depth == 0
        for start, end in zip(first[deep].tolist(), last[deep].tolist(), strict=True):
            _heap_sort(lines, start, end, end)
        first, last, depth = first[~deep], last[~deep], depth[~deep] - 1
        if len(first):
            cuts = _halve(lines, first, last)
            first, last, depth = np.concatenate([first, cuts]), np.concatenate([cuts, last]), np.tile(depth, 2)


def nth_element(lines: Lines, nth: int) -> None:
    """`std::nth_element` of each line: no element before the nth is larger, none after it smaller."""
    first = lines.starts()
    last = first + lines.length
    goal, depth = first + nth, _depth(last - first)
    active = np.arange(lines.count)
    while len(active := active[(last - first)[active] > _FEW]):
        deep = active[depth[active] == 0]
        for line in deep.tolist():
            _heap_select(lines, int(first[line]), int(goal[line]) + 1, int(last[line]))
            lines.swap(first[line], goal[line])
            last[line] = first[line]
        active = active[depth[active] > 0]
        depth[active] -= 1
        if len(active):
            cuts = _halve(lines, first[active], last[active])
            low = cuts <= goal[active]
            first[active[low]], last[active[~low]] = cuts[low], cuts[~low]
    for size in range(2, _FEW + 1):
        chosen = last - first == size
        lines.settle(first[chosen], last[chosen])


def quickselect(lines: Lines, nth: int) -> None:
    """PyTorch's own selection (`kthvalue`): the nth element of each line is at its place."""
    first = lines.starts()
    last = first + lines.length - 1
    goal = first + nth
    active = np.arange(lines.count)
    while len(active := active[(first <= goal)[active] & (last > first)[active]]):
        pairs = active[(last - first)[active] == 1]
        _exchange(lines, first[pairs], last[pairs])
        last[pairs] = first[pairs]
        active = active[(last > first)[active]]
        if not len(active):
            break
        start, end = first[active], last[active]
        second = start + 1
        lines.swap(start + (end - start) // 2, second)
        for one, other in ((second, end), (start, end), (second, start)):
            _exchange(lines, one, other)
        cuts, met = start + 2, np.zeros(len(active), bool)
        some = end > start + 2
        if some.any():
            cuts[some], met[some] = _partition(lines, start[some] + 2, end[some], lines.ranks[start[some]])
        lines.swap(start, cuts - 1)
        low = cuts - 1 <= goal[active]
        first[active[low]] = (cuts + met)[low]
        high = cuts - 1 >= goal[active]
        last[active[high]] = cuts[high] - 2


def _exchange(lines: Lines, one: Array, other: Array) -> None:
    """Exchange the elements of which the first is larger."""
    larger = lines.ranks[one] > lines.ranks[other]
    lines.swap(one[larger], other[larger])


def partial_sort(lines: Lines, count: int) -> None:
    """`std::partial_sort` of each line: its first `count` elements are the smallest, sorted."""
    for start in lines.starts().tolist():
        _heap_sort(lines, start, start + count, start + lines.length)


# Heaps, as libstdc++ keeps them: pairs of a rank and a place, the largest first.


def _heap_sort(lines: Lines, first: int, middle: int, last: int) -> None:
    heap = _heap_select(lines, first, middle, last)
    for size in range(len(heap) - 1, 0, -1):
        lifted, heap[size] = heap[size], heap[0]
        _sift(heap, 0, size, lifted)
    lines.ranks[first:middle], lines.places[first:middle] = zip(*heap, strict=True)


def _heap_select(lines: Lines, first: int, middle: int, last: int) -> list[tuple[int, int]]:
    """Gather the smallest elements of a segment before `middle` as a heap; written back and returned."""
    heap = list(zip(lines.ranks[first:middle].tolist(), lines.places[first:middle].tolist(), strict=True))
    for place in range((len(heap) - 2) // 2, -1, -1):
        _sift(heap, place, len(heap), heap[place])
    position, step = middle, len(heap)
    while position < last:
        end = min(position + step, last)
        for found in (position + np.flatnonzero(lines.ranks[position:end] < heap[0][0])).tolist():
            taken = (int(lines.ranks[found]), int(lines.places[found]))
            if taken[0] < heap[0][0]:
                lines.ranks[found], lines.places[found] = heap[0]
                _sift(heap, 0, len(heap), taken)
        position, step = end, step * 2
    lines.ranks[first:middle], lines.places[first:middle] = zip(*heap, strict=True)
    return heap


def _sift(heap: list[tuple[int, int]], top: int, size: int, value: tuple[int, int]) -> None:
    """Move the gap at `top` down to a leaf along the larger children, then `value` up to its place."""
    gap = top
    while (child := 2 * gap + 2) < size:
        if heap[child][0] < heap[child - 1][0]:
            child -= 1
        heap[gap], gap = heap[child], child
    if child == size:
        heap[gap], gap = heap[child - 1], child - 1
    while gap > top and heap[(gap - 1) // 2][0] < value[0]:
        heap[gap], gap = heap[(gap - 1) // 2], (gap - 1) // 2
    heap[gap] = value
