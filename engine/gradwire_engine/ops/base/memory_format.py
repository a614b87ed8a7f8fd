"""Memory formats: PyTorch's orders of an image's dimensions in memory, and results that keep their input's.

In channels_last and channels_last_3d, an element's channels lie side by side.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from gradwire_engine.core.device import Array
from gradwire_engine.core.errors import EngineError, Reason

Ints = Any
Forward: TypeAlias = "Callable[..., Any]"

#: The dimensions of each format from the outermost in memory to the innermost.
ORDERS = {"channels_last": (0, 2, 3, 1), "channels_last_3d": (0, 2, 3, 4, 1)}
_VOLUME = (1, 2, 3, 0)
_OF_RANK = {len(order): order for order in ORDERS.values()}


def order_of_format(name: str, rank: int) -> Ints | None:
    """The order of a format's dimensions; None for row-major. Raises EngineError: RUNTIME for another rank or name."""
    if name == "contiguous_format":
        return None
    if name not in ORDERS:
        raise EngineError(Reason.RUNTIME, f"Unsupported memory format: {name}")
    if rank != len(ORDERS[name]):
        raise EngineError(Reason.RUNTIME, f"required rank {len(ORDERS[name])} tensor to use {name} format")
    return ORDERS[name]


def order_of(array: Array) -> Ints | None:
    """The order of a batch's dimensions if its strides are those of channels last; None for other tensors.

    These are PyTorch's conditions: among strides that fit both, those of a row-major tensor do not count.
    """
    return order_of_strides(array.shape, array.strides)


def order_of_strides(shape: Sequence[int], strides: Sequence[int]) -> Ints | None:
    """The same of a batch with these sizes and strides."""
    order = _OF_RANK.get(len(shape))
    return order if order is not None and strides[1] and _rises(shape, strides, order) else None


def order_of_volume(array: Array) -> Ints | None:
    """The same of a volume without a batch: (c, d, h, w)."""
    return _VOLUME if array.strides[0] and _rises(array.shape, array.strides, _VOLUME) else None


def memory_in_order(xp: Any, shape: Sequence[int], dtype: Any, order: Ints | None) -> Array:
    """Memory with the dimensions in this order; row-major without one."""
    if order is None:
        return xp.empty(shape, dtype)
    back = sorted(range(len(order)), key=order.__getitem__)
    return xp.empty([shape[dim] for dim in order], dtype).transpose(back)


def _rises(shape: Sequence[int], strides: Sequence[int], order: Ints) -> bool:
    """Whether each dimension's stride leaves room for those within it, and the strides are not row-major."""
    least, channels = 0, strides[order[-1]]
    for dim in reversed(order):
        size, stride = shape[dim], strides[dim]
        if not size or stride < least or (dim == order[0] and least == channels):
            return False
        least = stride * size if size > 1 else stride
    return True


def in_order(xp: Any, array: Array, order: Ints) -> Array:
    """A copy with the dimensions in this order in memory."""
    back = sorted(range(len(order)), key=order.__getitem__)
    return xp.array(array.transpose(order), order="C").transpose(back)


def keeps_format(order: Callable[..., Ints | None]) -> Callable[[Forward], Forward]:
    """Decorate a forward whose results have their channels last if its first array has; else they are row-major.

    order: gets the forward's arguments, and returns the results' order of dimensions, or None.
    """

    def decorate(forward: Forward) -> Forward:
        @functools.wraps(forward)
        def formatted(xp: Any, input: Array, *args: Any, **kwargs: Any) -> Any:
            made = forward(xp, input, *args, **kwargs)
            kept = order(input, *args, **kwargs)
            return tuple([_laid(xp, each, kept) for each in made]) if type(made) is tuple else _laid(xp, made, kept)

        return formatted

    return decorate


def row_major(forward: Forward) -> Forward:
    """Decorate a forward whose results PyTorch lays row-major, whatever the strides of its first array."""

    @functools.wraps(forward)
    def laid(xp: Any, input: Array, *args: Any, **kwargs: Any) -> Any:
        made = forward(xp, input, *args, **kwargs)
        if input.flags.c_contiguous:
            return made
        return tuple([_laid(xp, each) for each in made]) if isinstance(made, tuple) else _laid(xp, made)

    return laid


def _laid(xp: Any, array: Array, order: Ints | None = None) -> Array:
    """The array in this order of memory; row-major without one."""
    if order is not None:
        return in_order(xp, array, order)
    return array if array.flags.c_contiguous else xp.array(array, order="C")
