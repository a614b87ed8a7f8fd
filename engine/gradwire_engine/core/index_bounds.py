"""The least and largest integer of a tensor's memory on a GPU, so that indices are checked without waiting for it.

They are noted when integers are uploaded, and computed when they are first needed. They belong to the memory's version:
a later change in place ends them.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from gradwire_engine.core.device import Array, host, module_of

#: What cross entropy ignores by default: it is no index, and is not counted among them.
IGNORED = -100
_MOST = 1 << 22  # integers of an upload whose bounds are noted


class Bounds(NamedTuple):
    """Bounds of the integers in the memory from `begin` to `end`, at a version; `ignored`: some are IGNORED."""

    version: int
    begin: int
    end: int
    least: int
    most: int
    ignored: bool


#: Of memory that several storages change, each with its own version.
UNKNOWABLE = Bounds(-1, 0, 0, 0, 0, False)


def note(storage: Any, array: Array, values: Array) -> None:
    """Note the bounds of an uploaded array, from the values in host memory."""
    if storage.bounds is not UNKNOWABLE and values.dtype.kind in "iu" and 0 < values.size <= _MOST:
        storage.bounds = _bounds(storage.version, array, values)


def bounds_of(storage: Any, array: Array) -> Bounds:
    """The bounds of memory that holds the array. Waits for the GPU if they are not known."""
    found: Bounds | None = storage.bounds
    begin, end = _span(array)
    if found is None or found.version != storage.version or begin < found.begin or found.end < end:
        known, found = found, _bounds(storage.version, array, array)
        if known is not UNKNOWABLE:
            storage.bounds = found
    return found


def _span(array: Array) -> tuple[int, int]:
    """First and last address of a row-major array on a GPU."""
    begin = int(array.data.ptr)
    return begin, begin + array.nbytes


def _bounds(version: int, array: Array, values: Array) -> Bounds:
    least, most = _extremes(values)
    ignored = least == IGNORED
    if ignored:
        kept = module_of(values).where(values == IGNORED, np.asarray(most, values.dtype)[()], values)
        least, most = _extremes(kept)
        least = 0 if least == IGNORED else least
    return Bounds(version, *_span(array), least, most, ignored)


def _extremes(values: Array) -> tuple[int, int]:
    if not values.size:
        return 0, 0
    least, most = host(module_of(values).stack([values.min(), values.max()]))
    return int(least), int(most)


class _Checked(threading.local):
    now = False


_CHECKED = _Checked()


@contextmanager
def checked() -> Iterator[None]:
    """Ops inside have indices that were checked before: they do not wait for the GPU to check them."""
    before, _CHECKED.now = _CHECKED.now, True
    try:
        yield
    finally:
        _CHECKED.now = before


def are_checked() -> bool:
    """Whether the current op's indices were checked before."""
    return _CHECKED.now
