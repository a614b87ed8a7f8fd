"""Pickled tensors: values, dtype, device and flags, read from the server, and uploaded where they are loaded."""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np

from gradwire._base import dtypes
from gradwire._functions.create import make_tensor, to_bfloat16
from gradwire._tensor.tensor import Tensor
from gradwire._tensor.values import Array, read_array


def stored_array(value: Tensor) -> Array:
    """A tensor's values, row-major; bfloat16 as the upper 16 bits of float32, in uint16."""
    array = read_array(value)
    # `ascontiguousarray` makes one dimension of none.
    return np.ascontiguousarray(to_bfloat16(array) if value.dtype is dtypes.bfloat16 else array).reshape(value.shape)


def from_stored(array: Array, dtype: dtypes.dtype, device: str) -> Tensor:
    """A tensor of values as `stored_array` gives them."""
    if dtype is dtypes.bfloat16:
        array = np.left_shift(array, 16, dtype=np.uint32).view(np.float32).reshape(array.shape)
    return make_tensor(array, dtype, device)


def attributes(value: Tensor) -> dict[str, Any]:
    """Attributes that the program gave a tensor; names with an underscore and weak references are gradwire's."""
    given = value.__dict__.items()
    return {
        name: each for name, each in given if not name.startswith("_") and not isinstance(each, weakref.ReferenceType)
    }


def reduce_tensor(value: Tensor) -> tuple[Any, ...]:
    """What pickle stores of a tensor. A view is stored as its own elements."""
    array = stored_array(value.detach())
    kind = None if type(value) is Tensor else type(value)
    given = (kind, array, value.dtype, str(value.device), value.requires_grad, attributes(value))
    return _rebuild, given


def _rebuild(
    cls: Any, array: Array, dtype: dtypes.dtype, device: str, requires_grad: bool, given: dict[str, Any]
) -> Tensor:
    made = from_stored(array, dtype, device)
    if cls is not None:
        made = made._as_subclass(cls)
    if requires_grad:
        made.requires_grad_()
    made.__dict__.update(given)
    return made
