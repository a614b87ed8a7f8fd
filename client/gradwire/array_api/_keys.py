"""Index expressions of the standard: slices may go backward, and unsigned integers are positions, never masks.

PyTorch's slices go forward only, and its uint8 tensors are masks. A backward slice here is a forward one of the same
elements, flipped. A mask may have size 0 where the array has another: it chooses nothing.
"""

from __future__ import annotations

import operator
from typing import Any

from gradwire._base import dtypes
from gradwire._base.errors import GradwireIndexError, GradwireValueError
from gradwire._functions.create import create
from gradwire._tensor.call import _call
from gradwire._tensor.tensor import Tensor

_WHOLE = slice(None)


def plain_key(x: Tensor, key: Any) -> tuple[Any, ...]:
    """A key as a tuple of items that a Tensor takes, except slices with negative steps."""
    items = key if isinstance(key, tuple) else (key,)
    if len(items) == 1 and isinstance(key, Tensor) and key.dtype is dtypes.bool_ and not key.numel():
        sizes = tuple(x.shape[: key.ndim])
        if len(sizes) == key.ndim and all(found in (0, size) for found, size in zip(key.shape, sizes, strict=True)):
            return (create("zeros", (sizes,), {"dtype": dtypes.bool_, "device": x.device}, x._session),)
    return tuple([_positions(item) if isinstance(item, Tensor) else item for item in items])


def _positions(item: Tensor) -> Tensor:
    unsigned = not item.dtype.is_signed and item.dtype is not dtypes.bool_
    return _call("to", (item,), (("dtype", dtypes.int64),)) if unsigned else item


def forward(x: Tensor, items: tuple[Any, ...]) -> tuple[Tensor, tuple[Any, ...]]:
    """The array with backward slices done, and the items with the whole axis in their places."""
    backward = _backward(x, items)
    if not backward:
        return x, items
    cut: list[Any] = [_WHOLE] * x.ndim
    for axis, part in backward.values():
        cut[axis] = part
    flipped = _call("flip", (Tensor.__getitem__(x, tuple(cut)), tuple(axis for axis, _ in backward.values())))
    return flipped, tuple(_WHOLE if place in backward else item for place, item in enumerate(items))


def assign(x: Tensor, key: Any, value: Any) -> None:
    """x[key] = value in place."""
    items = plain_key(x, key)
    backward = _backward(x, items)
    if not backward:
        Tensor.__setitem__(x, items, value)
        return
    axes = tuple(axis for axis, _ in backward.values())
    cut: list[Any] = [_WHOLE] * x.ndim
    for axis, part in backward.values():
        cut[axis] = part
    region = _call("flip", (Tensor.__getitem__(x, tuple(cut)), axes))
    Tensor.__setitem__(region, tuple(_WHOLE if place in backward else item for place, item in enumerate(items)), value)
    Tensor.__setitem__(x, tuple(cut), _call("flip", (region, axes)))


def _backward(x: Tensor, items: tuple[Any, ...]) -> dict[int, tuple[int, slice]]:
    """Per place of a backward slice among the items its axis, and the forward slice of the same elements."""
    if not any(isinstance(item, slice) and item.step is not None and operator.index(item.step) <= 0 for item in items):
        return {}
    taken = sum(_axes_taken(item) for item in items)
    if taken > x.ndim:
        raise GradwireIndexError(f"too many indices for an array of {x.ndim} axes")
    axis, found = 0, {}
    for place, item in enumerate(items):
        if item is Ellipsis:
            axis += x.ndim - taken
        elif isinstance(item, slice):
            step = 1 if item.step is None else operator.index(item.step)
            if step == 0:
                raise GradwireValueError("slice step cannot be zero")
            if step < 0:
                found[place] = axis, _reversed(item, x.shape[axis])
            axis += 1
        else:
            axis += _axes_taken(item)
    return found


def _reversed(part: slice, size: int) -> slice:
    """The forward slice of the elements that a backward slice selects."""
    start, stop, step = part.indices(size)
    count = len(range(start, stop, step))
    last = start + (count - 1) * step
    return slice(last, start + 1, -step) if count else slice(0, 0, 1)


def _axes_taken(item: Any) -> int:
    if item is None or item is Ellipsis or isinstance(item, bool):
        return 0
    if isinstance(item, Tensor) and item.dtype is dtypes.bool_:
        return item.ndim
    return 1
