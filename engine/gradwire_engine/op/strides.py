"""Strides: an array's memory layout, and copies with the layout of another array.

A geometry is (sizes, strides, offset), counted in elements of one allocation.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gradwire_engine.core.device import Array

Ints = Any


def owner_of(array: Array) -> Array:
    """The NumPy array that allocated this one's memory; skips the DummyArray that `as_strided` inserts."""
    while True:
        base = getattr(array.base, "base", None) if type(array.base).__name__ == "DummyArray" else array.base
        if not isinstance(base, np.ndarray):
            return array
        array = base


def memory_of(array: Array) -> tuple[int, int]:
    """The array's offset into its allocation, and the allocation's size, in elements."""
    if isinstance(array, np.ndarray):
        owner = owner_of(array)
        start, size = owner.__array_interface__["data"][0], owner.nbytes
        return (array.__array_interface__["data"][0] - start) // array.itemsize, size // array.itemsize
    memory = array.data.mem
    return (array.data.ptr - memory.ptr) // array.itemsize, memory.size // array.itemsize


def geometry_of(array: Array) -> tuple[Ints, int]:
    """The array's geometry, and its allocation's size in elements; for `laid_out`."""
    own, whole = memory_of(array)
    return (array.shape, tuple(step // array.itemsize for step in array.strides), own), whole


def laid_out(xp: Any, values: Array, geometry: tuple[Ints, int]) -> Array:
    """Copy values into a new allocation with the given geometry, of the same shape; the dtype is that of `values`."""
    (shape, strides, offset), whole = geometry
    memory = xp.zeros(max(whole, 1), values.dtype)
    steps = tuple(stride * values.itemsize for stride in strides)
    laid = xp.lib.stride_tricks.as_strided(memory[offset:], shape, steps)
    laid[...] = values
    return laid
