"""Other shapes of the same elements: joined, split, turned, repeated."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

from gradwire._base import dtypes
from gradwire._base.errors import GradwireValueError
from gradwire._base.promotion import promote_types
from gradwire._tensor.call import _call
from gradwire._tensor.tensor import Tensor
from gradwire.array_api._array import Array, as_array, axes_of, call, cast, one_axis

Axes = int | tuple[int, ...]


def broadcast_shapes(*shapes: tuple[int | None, ...]) -> tuple[int | None, ...]:
    """The shape that several are broadcast to; None stands for a size not known yet. Raises ValueError if none is."""
    rank = max((len(shape) for shape in shapes), default=0)
    found: list[int | None] = []
    for place in range(-rank, 0):
        sizes = {shape[place] for shape in shapes if len(shape) >= -place} - {1}
        known = sizes - {None}
        if len(known) > 1:
            raise GradwireValueError(f"shapes {', '.join(map(str, shapes))} cannot be broadcast against each other")
        found.append(known.pop() if known else None if sizes else 1)
    return tuple(found)


def broadcast_to(x: Tensor, /, shape: tuple[int, ...]) -> Array:
    """A view of a larger shape that repeats what has size 1."""
    return call("expand", x, tuple(shape))


def broadcast_arrays(*arrays: Tensor) -> tuple[Array, ...]:
    """Views of the arrays in the one shape that they are broadcast to."""
    shape: Any = broadcast_shapes(*[tuple(one.shape) for one in arrays])
    return tuple(broadcast_to(one, shape) for one in arrays)


def _promoted(arrays: Sequence[Tensor]) -> list[Tensor]:
    joint = reduce(promote_types, [one.dtype for one in arrays])
    return [cast(one, joint) for one in arrays]


def concat(arrays: Sequence[Tensor], /, *, axis: int | None = 0) -> Array:
    """The arrays one after the other along an axis; for None all flattened first."""
    parts = _promoted(arrays)
    if axis is None:
        parts = [call("reshape", one, (-1,)) for one in parts]
    return as_array(_call("cat", (parts, 0 if axis is None else axis)), tuple(parts))


def stack(arrays: Sequence[Tensor], /, *, axis: int = 0) -> Array:
    """Arrays of one shape along a new axis."""
    return as_array(_call("stack", (_promoted(arrays), axis)))


def unstack(x: Tensor, /, *, axis: int = 0) -> tuple[Array, ...]:
    """The slices of an array along an axis."""
    return tuple(as_array(one) for one in _call("unbind", (x, one_axis(axis, x.ndim)), (), "tuple"))


def expand_dims(x: Tensor, /, axis: Axes = 0) -> Array:
    """New axes of size 1 at these places of the result. Raises IndexError for a place it does not have."""
    given = (axis,) if isinstance(axis, int) else tuple(axis)
    rank = x.ndim + len(given)
    places = {one_axis(one, rank) for one in given}
    if len(places) != len(given):
        raise GradwireValueError(f"expand_dims(): an axis is given twice: {given}")
    if len(given) == 1:
        return call("unsqueeze", x, *places)
    sizes = iter(x.shape)
    return call("reshape", x, tuple(1 if place in places else next(sizes) for place in range(rank)))


def squeeze(x: Tensor, /, axis: Axes) -> Array:
    """Without axes of size 1. Raises ValueError for one of another size."""
    axes = axes_of(x, axis)
    for one in axes:
        if x.shape[one] != 1:
            raise GradwireValueError(f"squeeze(): axis {one} has size {x.shape[one]}, not 1")
    return call("squeeze", x, axes) if axes else as_array(x, (x,))


def flip(x: Tensor, /, *, axis: Axes | None = None) -> Array:
    """The elements in reverse order along axes, or all."""
    return call("flip", x, axes_of(x, axis))


def moveaxis(x: Tensor, source: Axes, destination: Axes, /) -> Array:
    """Axes moved to other places, the others in their order."""
    return call("movedim", x, source, destination)


def permute_dims(x: Tensor, /, axes: tuple[int, ...]) -> Array:
    """The axes in another order."""
    return call("permute", x, tuple(axes))


def repeat(x: Tensor, repeats: int | Tensor, /, *, axis: int | None = None) -> Array:
    """Each element so many times, along an axis or of the flattened array. Arrays of counts are waited for."""
    if isinstance(repeats, Tensor):
        repeats = cast(repeats, dtypes.int64)
        if repeats.ndim == 0:
            repeats = call("reshape", repeats, (1,))
    source = call("reshape", x, (-1,)) if axis is None else x
    return call("repeat_interleave", source, repeats, one_axis(axis or 0, source.ndim))


def reshape(x: Tensor, /, shape: tuple[int, ...], *, copy: bool | None = None) -> Array:
    """The elements in another shape, where one size may be -1. Raises ValueError for copy=False if no view can be."""
    sizes = (shape,) if isinstance(shape, int) else tuple(shape)
    if copy is False:
        try:
            return call("view", x, sizes)
        except RuntimeError as error:
            raise GradwireValueError(f"reshape(copy=False): {error}") from None
    made = call("reshape", x, sizes)
    return call("clone", made) if copy else made


def roll(x: Tensor, /, shift: int | tuple[int, ...], *, axis: Axes | None = None) -> Array:
    """The elements moved along axes, those that fall off at one end back at the other."""
    if axis is None:
        if not isinstance(shift, int):
            raise GradwireValueError("roll(): several shifts need as many axes")
        return call("reshape", call("roll", call("reshape", x, (-1,)), shift), tuple(x.shape))
    axes = (axis,) if isinstance(axis, int) else tuple(axis)
    shifts = (shift,) * len(axes) if isinstance(shift, int) else tuple(shift)
    return call("roll", x, shifts, axes) if axes else call("clone", x)


def tile(x: Tensor, repetitions: tuple[int, ...], /) -> Array:
    """The whole array so many times along each axis."""
    return call("tile", x, tuple(repetitions))
