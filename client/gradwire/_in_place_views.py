"""Views in place: unsqueeze_, t_, ... The proxy goes on as the view; what it was goes when nobody else holds it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from gradwire._call import _call
from gradwire._errors import refuse
from gradwire._handle import Handle, ViewOf
from gradwire._modes import is_grad_enabled
from gradwire.v1 import errors_pb2

_T = TypeVar("_T", bound="InPlaceViews")


class InPlaceViews(Handle):
    """The methods of Tensor that change its sizes and strides."""

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
    """Let the proxy change places with its view."""
    target: Any = self
    spec = target._fresh()
    if spec.requires_grad and spec.is_leaf and is_grad_enabled():
        raise refuse(
            "a leaf Variable that requires grad is being used in an in-place operation.",
            errors_pb2.REASON_LEAF_IN_PLACE,
        )
    view = _call(op, (target, *args))
    for name in ("_id", "_spec", "_edge", "_family", "_epoch"):
        mine, its = getattr(target, name), getattr(view, name)
        setattr(target, name, its)
        setattr(view, name, mine)
    shown, before = view.__dict__.pop("_view", None), target.__dict__.pop("_view", None)
    if shown is not None:
        # The base that the view was made of goes on under the other proxy.
        target.__dict__["_view"] = ViewOf(view, shown.version) if shown.base is target else shown
    if before is not None:
        view.__dict__["_view"] = before
    return self
