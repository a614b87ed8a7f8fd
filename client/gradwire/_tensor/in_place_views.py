"""In-place views: gives a tensor the sizes and strides of a view of it (unsqueeze_, t_, …)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from gradwire._base.modes import GRAD_ENABLED
from gradwire._proxy.handle import Handle
from gradwire._tensor.call import _call
from gradwire._tensor.in_place import check_in_place

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


def _become(self: _T, op: str, *args: Any) -> _T:
    """Give the tensor the sizes and strides of a view of it, and the view's node if that is recorded."""
    target: Any = self
    target._fresh()
    check_in_place(op, (target,), GRAD_ENABLED.get(), ())
    _call("take_geometry_", (target, _call(op, (target, *args))))
    return self
