"""Sorting, and unique elements. What follows from values alone (how many are unique) is waited for."""

from __future__ import annotations

from typing import NamedTuple

from gradwire._tensor.call import _call
from gradwire._tensor.tensor import Tensor
from gradwire.array_api._array import Array, as_array, call, one_axis


def sort(x: Tensor, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Array:
    """The elements in order along an axis; NaN counts as the greatest."""
    named = (("descending", descending), ("stable", stable))
    return as_array(_call("sort", (x, one_axis(axis, x.ndim)), named, ("values", "indices"))[0], (x,))


def argsort(x: Tensor, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Array:
    """The places that sort an array along an axis; equal elements keep their order if `stable`."""
    return call("argsort", x, one_axis(axis, x.ndim), descending=descending, stable=stable)


class UniqueAll(NamedTuple):
    """The results of unique_all."""

    values: Array
    indices: Array
    inverse_indices: Array
    counts: Array


class UniqueCounts(NamedTuple):
    """The results of unique_counts."""

    values: Array
    counts: Array


class UniqueInverse(NamedTuple):
    """The results of unique_inverse."""

    values: Array
    inverse_indices: Array


def unique_all(x: Tensor, /) -> UniqueAll:
    """The sorted unique values, the first position of each, the value's index of each element, and the counts.

    NaNs are all different; the zeros are one.
    """
    flat = call("reshape", x, (-1,))
    inverse, counts = _groups(flat)
    # Sorted by group, and within one by place: the first of each group is where the groups before it end.
    order = call("argsort", inverse, 0, stable=True)
    starts = call("sub", call("cumsum", counts, 0), counts)
    first = order[starts]
    return UniqueAll(as_array(Tensor.__getitem__(flat, first)), first, call("view", inverse, tuple(x.shape)), counts)


def _groups(flat: Tensor) -> tuple[Array, Array]:
    """The rank of each element's value in a vector, and the count of each value."""
    if flat.is_complex():
        parts = [_groups(call(part, flat)) for part in ("real", "imag")]
        width = max(parts[1][1].shape[0], 1)
        flat = call("add", call("mul", parts[0][0], width), parts[1][0])
    named = (("return_inverse", True), ("return_counts", True))
    _, inverse, counts = _call("unique", (flat,), named, "tuple")
    return as_array(inverse), as_array(counts)


def unique_counts(x: Tensor, /) -> UniqueCounts:
    """The values without repeats, and how often each is there."""
    found = unique_all(x)
    return UniqueCounts(found.values, found.counts)


def unique_inverse(x: Tensor, /) -> UniqueInverse:
    """The values without repeats, and of which each element is."""
    found = unique_all(x)
    return UniqueInverse(found.values, found.inverse_indices)


def unique_values(x: Tensor, /) -> Array:
    """The values without repeats."""
    return unique_all(x).values
