"""Indexing: converts the index of x[...] to the items that are sent.

Integers, slices, None, Ellipsis, bools, integer tensors and mask tensors are sent unchanged. Lists and NumPy arrays
become tensors.
"""

from __future__ import annotations

import operator
import warnings
from typing import Any

import numpy as np

from gradwire._base.errors import GradwireIndexError, GradwireTypeError, GradwireValueError
from gradwire._base.wiring import wired
from gradwire._proxy.handle import Handle
from gradwire._tensor.warnings import BYTES

_INDEX_DTYPES = ("int64", "int32", "int16", "int8", "uint8", "bool")


_SEQUENCE = (
    "Using a non-tuple sequence for multidimensional indexing is deprecated; use x[tuple(seq)] instead of x[seq], or "
    "an array index, x[torch.tensor(seq)], which is another thing."
)


class Index:
    """An index expression: its items from left to right."""

    __slots__ = ("items",)

    def __init__(self, items: tuple[Any, ...]) -> None:
        self.items = items


def make_index(tensor: Handle, key: object) -> Index:
    """Make the Index of tensor[key]. Raises IndexError, TypeError or ValueError for keys that PyTorch refuses too."""
    if type(key) is list and _stands_for_a_tuple(key):
        warnings.warn(_SEQUENCE, UserWarning, stacklevel=3)
        key = tuple(key)
    items = key if isinstance(key, tuple) else (key,)
    return Index(tuple([_item(tensor, item) for item in items]))


def _stands_for_a_tuple(key: list[Any]) -> bool:
    """Whether PyTorch treats a list as a tuple of indices: it has fewer than 32 items, and not only numbers."""
    return len(key) < 32 and any(
        item is None or item is Ellipsis or isinstance(item, (Handle, list, tuple, range, slice, np.ndarray, str))
        for item in key
    )


def _item(tensor: Handle, item: Any) -> Any:
    if item is None or item is Ellipsis or type(item) is int or type(item) is bool:
        return item
    if isinstance(item, slice):
        return _slice(item)
    if isinstance(item, Handle):
        return _tensor(item)
    if isinstance(item, (list, tuple, range, np.ndarray)):
        return _tensor(_as_tensor(tensor, item))
    if isinstance(item, np.bool_):
        return bool(item)
    if isinstance(item, str):
        raise GradwireTypeError("new(): invalid data type 'str'")
    try:
        return operator.index(item)
    except TypeError:
        raise GradwireIndexError(
            "only integers, slices (`:`), ellipsis (`...`), None and long or byte Variables are valid indices "
            f"(got {type(item).__name__})"
        ) from None


def _slice(item: slice) -> slice:
    start, stop, step = (None if part is None else _bound(part) for part in (item.start, item.stop, item.step))
    if step is not None and step <= 0:
        raise GradwireValueError("step must be greater than zero")
    return slice(start, stop, step)


def _bound(part: Any) -> int:
    try:
        return operator.index(part)
    except TypeError:
        raise GradwireTypeError(
            f"slice indices must be integers or None or have an __index__ method, not {type(part).__name__}"
        ) from None


def _tensor(item: Handle) -> Handle:
    if item._spec.dtype.name not in _INDEX_DTYPES:
        raise GradwireIndexError("tensors used as indices must be long, int, byte or bool tensors")
    if item._spec.dtype.name == "uint8":
        if not item._spec.shape:  # a mask of one element, not a number
            return item.bool()  # type: ignore[attr-defined,no-any-return]
        warnings.warn(BYTES, UserWarning, stacklevel=6)
    return item


def _as_tensor(tensor: Handle, item: Any) -> Handle:
    data = list(item) if isinstance(item, range) else item
    if isinstance(data, (list, tuple)) and len(data) == 0:
        data = np.zeros(0, dtype=np.int64)
    made: Handle = wired("make_tensor")(data, device=tensor._spec.device_name, session=tensor._session)
    return made


def as_operand(value: Any, like: Any) -> Any:
    """Check the right-hand side of x[i] = value, a tensor or number. Raises TypeError for anything else."""
    if isinstance(value, (Handle, bool, int, float, complex)):
        return value
    if isinstance(value, (np.number, np.bool_)):
        return value.item()
    raise TypeError(f"can't assign a {type(value).__name__} to a {like.type()}")
