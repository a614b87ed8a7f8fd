"""Bounds of the integers in a tensor's memory on a GPU, so that indices are checked without waiting for it.

They are noted when integers are uploaded, when an op's results have bounds (op/integer_bounds.py), and when an op has
checked its indices. They belong to the memory's version: a later change in place ends them, unless the bounds of what
it wrote are known. Unknown bounds are computed where they are needed. Bools count as integers, since casts make
indices of them.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from gradwire_engine.core.device import Array, host, module_of

#: What cross entropy ignores by default: it is no index, and is not counted among them.
IGNORED = -100
_MOST = 1 << 22  # integers of an upload whose bounds are noted


class Bounds(NamedTuple):
    """Bounds of the integers in the memory from `begin` to `end`, at a version; `ignored`: some may be IGNORED.

    dtype: of the integers; the memory read as another dtype has other ones.
    """

    version: int
    begin: int
    end: int
    dtype: Any
    least: int
    most: int
    ignored: bool


#: Of memory that several storages change, each with its own version.
UNKNOWABLE = Bounds(-1, 0, 0, None, 0, 0, False)


def note(storage: Any, array: Array, values: Array) -> None:
    """Note the bounds of an uploaded array, from the values in host memory."""
    found = None if storage.bounds is UNKNOWABLE else bounds_of_host(values)
    if found is not None:
        least, most, ignored = found
        storage.bounds = Bounds(storage.version, *_span(array), array.dtype, least, most, ignored)


def bounds_of_host(values: Array) -> tuple[int, int, bool] | None:
    """The bounds of integers or bools in host memory; None of others, and of too many."""
    if values.dtype.kind not in "iub" or not 0 < values.size <= _MOST:
        return None
    return _extremes_of(values.view(np.uint8) if values.dtype.kind == "b" else values)


def note_range(storage: Any, array: Array, least: int, most: int, ignored: bool = False) -> None:
    """Note bounds of a row-major array on a GPU that follow from how it was made, or were checked."""
    if storage.bounds is UNKNOWABLE or array.dtype.kind not in "iub" or not array.size or not array.flags.c_contiguous:
        return
    if can_hold(array.dtype, least, most, ignored):  # else a cast wraps them
        storage.bounds = Bounds(storage.version, *_span(array), array.dtype, least, most, ignored)


def note_written(
    storage: Any, array: Array, before: Bounds | None, version: int, least: int, most: int, ignored: bool = False
) -> None:
    """Note the bounds of memory after one change in place, which wrote integers within bounds to all of an array.

    before, version: what the storage had before the change.
    """
    if storage.bounds is UNKNOWABLE or storage.version != version + 1:
        return
    begin, end = _span(array)
    held = before is not None and before.version == version and before.dtype == array.dtype
    if before is None or not held or begin < before.begin or before.end < end:
        note_range(storage, array, least, most, ignored)
    elif can_hold(array.dtype, least, most, ignored):
        if (begin, end) != (before.begin, before.end) or not array.flags.c_contiguous:  # others stay
            least, most, ignored = min(least, before.least), max(most, before.most), ignored or before.ignored
        storage.bounds = before._replace(version=storage.version, least=least, most=most, ignored=ignored)


def limits_of(dtype: Any) -> tuple[int, int]:
    """The least and the largest integer of a dtype."""
    limits = np.iinfo(dtype)
    return int(limits.min), int(limits.max)


def can_hold(dtype: Any, least: int, most: int, ignored: bool = False) -> bool:
    """Whether a dtype of integers or bools holds all integers within bounds."""
    first, last = (0, 1) if dtype.kind == "b" else limits_of(dtype)
    return first <= (min(least, IGNORED) if ignored else least) and most <= last


def known(storage: Any, array: Array) -> Bounds | None:
    """The bounds of an array on a GPU, if they are known."""
    found: Bounds | None = storage.bounds
    if found is None or found.version != storage.version or array.dtype != found.dtype:
        return None
    begin, end = _span(array)
    return found if found.begin <= begin and end <= found.end else None


def bounds_of(storage: Any, array: Array) -> Bounds:
    """The bounds of memory that holds the array. Waits for the GPU if they are not known."""
    found = known(storage, array)
    if found is None:
        least, most, ignored = _extremes_of(array)
        found = Bounds(storage.version, *_span(array), array.dtype, least, most, ignored)
        if storage.bounds is not UNKNOWABLE and array.flags.c_contiguous:
            storage.bounds = found
    return found


def _span(array: Array) -> tuple[int, int]:
    """The first byte of an array on a GPU, and the one behind its last."""
    begin = int(array.data.ptr)
    if array.flags.c_contiguous or not array.size:
        return begin, begin + array.nbytes
    reach = [stride * (size - 1) for stride, size in zip(array.strides, array.shape, strict=True)]
    first, last = (sum(each for each in reach if (each > 0) is ahead) for ahead in (False, True))
    return begin + first, begin + last + array.itemsize


def _extremes_of(values: Array) -> tuple[int, int, bool]:
    """The least and the largest integer, IGNORED apart, and whether IGNORED is among them."""
    least, most = _extremes(values)
    ignored = least == IGNORED
    if ignored:
        kept = module_of(values).where(values == IGNORED, np.asarray(most, values.dtype)[()], values)
        least, most = _extremes(kept)
        least = 0 if least == IGNORED else least
    return least, most, ignored


def _extremes(values: Array) -> tuple[int, int]:
    if not values.size:
        return 0, 0
    least, most = host(module_of(values).stack([values.min(), values.max()]))
    return int(least), int(most)


class _Now(threading.local):
    """What is known of the current op's indices.

    checked: they were checked before. known: bounds of arrays, each for the memory of the array alone. learned: bounds
    that the op has found.
    """

    checked = False
    known: Sequence[Bounds] = ()
    learned: list[Bounds] | None = None


_NOW = _Now()


@contextmanager
def checked() -> Iterator[None]:
    """Ops inside have indices that were checked before: they do not wait for the GPU to check them."""
    before, _NOW.checked = _NOW.checked, True
    try:
        yield
    finally:
        _NOW.checked = before


@contextmanager
def knowing(tensors: Iterable[tuple[Any, Array]]) -> Iterator[list[Bounds]]:
    """Ops inside know the bounds of these integers on a GPU, by storage and array. Yields what they learn."""
    before = _NOW.known, _NOW.learned
    found = [(bounds, array) for storage, array in tensors if (bounds := known(storage, array)) is not None]
    learned: list[Bounds] = []
    _NOW.known, _NOW.learned = [_only(bounds, array) for bounds, array in found], learned
    try:
        yield learned
    finally:
        _NOW.known, _NOW.learned = before


def _only(bounds: Bounds, array: Array) -> Bounds:
    """The bounds for the memory of the array alone."""
    begin, end = _span(array)
    return bounds._replace(begin=begin, end=end)


def range_of(index: Array) -> tuple[int, int] | None:
    """The least and largest integer that an array of the current op may hold; None if that is not known."""
    if type(index) is np.ndarray or not _NOW.known:
        return None
    begin, end = _span(index)
    for each in _NOW.known:
        if each.begin <= begin and end <= each.end and each.dtype == index.dtype:
            return min(each.least, IGNORED) if each.ignored else each.least, each.most
    return None


def are_within(index: Array, least: int, end: int, ignored: int | None = None) -> bool:
    """Whether indices are known to be from `least` to before `end`, or `ignored`."""
    if type(index) is np.ndarray or not _NOW.known:
        return False
    begin, after = _span(index)
    return any(
        each.begin <= begin
        and after <= each.end
        and each.dtype == index.dtype
        and least <= each.least
        and each.most < end
        and (ignored == IGNORED or not each.ignored)
        for each in _NOW.known
    )


def learn(index: Array, least: int, most: int, ignored: bool = False) -> None:
    """Tell what an op has found about its indices on a GPU, so that they are not checked again."""
    if _NOW.learned is not None and type(index) is not np.ndarray and index.size:
        _NOW.learned.append(Bounds(0, *_span(index), index.dtype, least, most, ignored))


def are_checked() -> bool:
    """Whether the current op's indices were checked before."""
    return _NOW.checked
