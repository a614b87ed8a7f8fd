"""In-place views: gives a tensor the sizes and strides of a view of it (unsqueeze_, t_, …), or other memory (set_)."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from typing import Any, TypeVar

from gradwire._base.errors import GradwireTypeError, refuse
from gradwire._base.modes import GRAD_ENABLED, no_grad
from gradwire._proxy.handle import Handle
from gradwire._tensor.call import _call
from gradwire._tensor.in_place import check_in_place
from gradwire.v1 import errors_pb2

_T = TypeVar("_T", bound="InPlaceViews")


class InPlaceViews(Handle):
    """Methods of Tensor that change its sizes and strides."""

    __slots__ = ()

    def squeeze_(self: _T, dim: int | Sequence[int] | None = None) -> _T:
        """In-place form of `squeeze`."""
        return _become(self, "squeeze", dim)

    def unsqueeze_(self: _T, dim: int) -> _T:
        """In-place form of `unsqueeze`."""
        return _become(self, "unsqueeze", dim)

    def transpose_(self: _T, dim0: int, dim1: int) -> _T:
        """In-place form of `transpose`."""
        return _become(self, "transpose", dim0, dim1)

    def swapdims_(self: _T, dim0: int, dim1: int) -> _T:
        """In-place form of `swapdims`."""
        return _become(self, "transpose", dim0, dim1)

    def swapaxes_(self: _T, axis0: int, axis1: int) -> _T:
        """In-place form of `swapaxes`."""
        return _become(self, "transpose", axis0, axis1)

    def as_strided_(self: _T, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None) -> _T:
        """In-place form of `as_strided`."""
        return _become(self, "as_strided", size, stride, storage_offset)

    def t_(self: _T) -> _T:
        """In-place form of `t`."""
        return _become(self, "t")

    def resize_(self: _T, *sizes: Any, memory_format: Any = None) -> _T:
        """Change the sizes; elements keep their order in memory (torch.Tensor.resize_).

        A larger tensor gets memory of its own, and the new elements are zeros, where PyTorch leaves them undefined.
        `memory_format` has no effect. Raises RuntimeError for a tensor that requires grad, and for a larger one that
        shares its memory with others.
        """
        return _resized(self, (*sizes[0],) if len(sizes) == 1 and not isinstance(sizes[0], int) else sizes)

    def resize_as_(self: _T, tensor: Handle, *, memory_format: Any = None) -> _T:
        """`resize_` to another tensor's sizes (torch.Tensor.resize_as_)."""
        return _resized(self, tensor._spec.shape)

    def set_(self: _T, source: Any = None, *geometry: Any) -> _T:
        """Share another tensor's memory, with its sizes and strides; without one, have no elements (torch.Tensor.set_).

        Raises RuntimeError if one of them requires grad outside of no_grad, and for another dtype or device;
        TypeError for a storage, which holds no values here.
        """
        target: Any = self
        given: Any = source
        if geometry or not (source is None or isinstance(source, Handle)):
            raise GradwireTypeError("set_() takes a tensor: a storage holds no values here. Give as_strided() of one")
        target._fresh()
        check_in_place("set_", (target,), GRAD_ENABLED.get(), ())
        if GRAD_ENABLED.get() and (target.requires_grad or (source is not None and given.requires_grad)):
            raise refuse("derivative for set_ is not implemented", errors_pb2.REASON_REQUIRES_GRAD)
        new: Any = target.new_empty(0) if source is None else given.detach()
        if new.dtype is not target.dtype:
            raise refuse(
                f"Could not set tensor of type {new.dtype.name} to a tensor of type {target.dtype.name}",
                errors_pb2.REASON_DTYPE,
            )
        if new.device != target.device:
            raise refuse(f"Could not set a tensor on {new.device} to a tensor on {target.device}")
        with no_grad():
            target.copy_(target.clone())  # counts as a change: what backward saved of it is out of date
            target.data = new
        return self


def _become(self: _T, op: str, *args: Any) -> _T:
    """Give the tensor the sizes and strides of a view of it, and the view's node if that is recorded."""
    target: Any = self
    target._fresh()
    check_in_place(op, (target,), GRAD_ENABLED.get(), ())
    _call("take_geometry_", (target, _call(op, (target, *args))))
    return self


def _resized(self: _T, sizes: Sequence[int]) -> _T:
    target: Any = self
    spec = target._fresh()
    if spec.requires_grad:
        raise refuse("cannot resize variables that require grad", errors_pb2.REASON_REQUIRES_GRAD)
    wanted = tuple(int(size) for size in sizes)
    if any(size < 0 for size in wanted):
        raise refuse(f"Trying to create tensor with negative dimension {min(wanted)}: {list(wanted)}")
    if wanted == tuple(spec.shape):
        return self
    count, held = math.prod(wanted), target.numel()
    strides = [math.prod(wanted[place + 1 :]) for place in range(len(wanted))]
    try:  # the storage may hold more elements than the tensor shows; only the server knows
        return _become(self, "as_strided", list(wanted), strides)
    except RuntimeError as error:
        if "out of bounds for storage" not in str(error):
            raise
    if not target.is_contiguous() or is_shared(target):
        raise refuse(
            f"resize_(): a tensor of shape {list(spec.shape)} cannot be resized to {list(wanted)}: it is not "
            "contiguous, or shares its memory with other tensors. Resize a clone",
            errors_pb2.REASON_SHAPE,
        )
    with no_grad():
        made = target.new_zeros(count)
        made[:held] = target.reshape(-1)
        target.zero_()  # counts as a change: what backward saved of it is out of date
        target.data = made.view(wanted)
    return self


def is_shared(target: Any) -> bool:
    """Whether other tensors of this process are on a tensor's memory: they hold further references to its storage."""
    return target._storage is not None and sys.getrefcount(target._storage) > _ALONE


# Reference count of the storage of a tensor that shares no bytes: the tensor's reference and getrefcount's argument.
_ALONE = 2
