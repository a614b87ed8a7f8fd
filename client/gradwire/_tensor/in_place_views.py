"""In-place views: gives a tensor the sizes and strides of a view of it (unsqueeze_, t_, …), or other memory (set_)."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from typing import Any, TypeVar

from gradwire._base.errors import GradwireTypeError, refuse
from gradwire._base.memory_formats import CONTIGUOUS, ORDERS, name_of, row_major, strides_in
from gradwire._base.modes import GRAD_ENABLED, is_inference_mode_enabled, no_grad
from gradwire._proxy.handle import Handle
from gradwire._tensor.batching import BATCHING, RESHAPES
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
        memory_format: the order of the dimensions in memory, channels_last or channels_last_3d; row-major by default.
        Raises RuntimeError for a tensor that requires grad, for a larger one that shares its memory with others, and
        for a format that does not fit the sizes.
        """
        wanted = (*sizes[0],) if len(sizes) == 1 and not isinstance(sizes[0], int) else sizes
        return _resized(self, wanted, memory_format)

    def resize_as_(self: _T, tensor: Handle, *, memory_format: Any = None) -> _T:
        """`resize_` to another tensor's sizes; preserve_format also takes its format (torch.Tensor.resize_as_)."""
        if memory_format is not None and memory_format._name == "preserve_format":
            like: Any = tensor
            memory_format = next((each for each in ORDERS if _lies(like, each)), None)
        return _resized(self, tensor._spec.shape, memory_format)

    def set_(
        self: _T,
        source: Any = None,
        storage_offset: int | None = None,
        size: Sequence[int] | None = None,
        stride: Sequence[int] | None = None,
    ) -> _T:
        """Share a tensor's or storage's memory, with its sizes and strides or those given (torch.Tensor.set_).

        Without a source it gets no elements. Raises RuntimeError if a tensor requires grad outside of no_grad, and for
        another dtype or device.
        """
        target: Any = self
        for shown in RESHAPES if BATCHING else ():
            shown(target, "set_", (), None)
        given: Any = source._base if type(source).__name__ in ("UntypedStorage", "TypedStorage") else source
        if not (given is None or isinstance(given, Handle)):
            raise GradwireTypeError(f"set_() takes a tensor or a storage, not {type(source).__name__}")
        target._fresh()
        check_in_place("set_", (target,), GRAD_ENABLED.get(), ())
        if GRAD_ENABLED.get() and (target.requires_grad or (given is source is not None and given.requires_grad)):
            raise refuse("derivative for set_ is not implemented", errors_pb2.REASON_REQUIRES_GRAD)
        memory: Any = given
        new: Any = target.new_empty(0) if given is None else memory.detach()
        if new.dtype is not target.dtype:
            raise refuse(
                f"Could not set tensor of type {new.dtype.name} to a tensor of type {target.dtype.name}",
                errors_pb2.REASON_DTYPE,
            )
        if new.device != target.device:
            raise refuse(f"Could not set a tensor on {new.device} to a tensor on {target.device}")
        if given is not None and (storage_offset is not None or given is not source):
            shape = [new.nbytes // new.itemsize] if size is None else list(size)
            new = new.as_strided(shape, row_major(shape) if stride is None else stride, storage_offset or 0)
        with no_grad():
            # Counts as a change: what backward saved of it is out of date. It writes no values, which may overlap.
            _become(target, "permute", tuple(range(target.ndim)))
            target.data = new
        return self


def _become(self: _T, op: str, *args: Any) -> _T:
    """Give the tensor the sizes and strides of a view of it, and the view's node if that is recorded."""
    target: Any = self
    for shown in RESHAPES if BATCHING else ():
        if shown(target, f"{op}_", args, lambda: _become(self, op, *args)) is not NotImplemented:
            return self
    target._fresh()
    check_in_place(op, (target,), GRAD_ENABLED.get(), ())
    _call("take_geometry_", (target, _call(op, (target, *args))))
    return self


def _lies(tensor: Any, name: str) -> bool:
    """Whether a tensor lies in memory as a format of channels last, and not row-major."""
    sizes = tensor.shape
    fits = len(sizes) == len(ORDERS[name])
    return fits and list(tensor.stride()) == strides_in(sizes, name) != row_major(sizes)


def _resized(self: _T, sizes: Sequence[int], memory_format: Any) -> _T:
    target: Any = self
    for shown in RESHAPES if BATCHING else ():
        if shown(target, "resize_", (list(sizes),), lambda: _resized(self, sizes, memory_format)) is not NotImplemented:
            return self
    spec = target._fresh()
    if spec.requires_grad and not is_inference_mode_enabled():
        raise refuse("cannot resize variables that require grad", errors_pb2.REASON_REQUIRES_GRAD)
    wanted = tuple(int(size) for size in sizes)
    if any(size < 0 for size in wanted):
        raise refuse(f"Trying to create tensor with negative dimension {min(wanted)}: {list(wanted)}")
    strides = strides_in(wanted, CONTIGUOUS if memory_format is None else name_of(memory_format))
    if wanted == tuple(spec.shape) and memory_format is None:
        return self
    count, held = math.prod(wanted), target.numel()
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
        target.data = made.as_strided(list(wanted), strides)
    return self


def is_shared(target: Any) -> bool:
    """Whether other tensors of this process are on a tensor's memory: they hold further references to its storage."""
    return target._storage is not None and sys.getrefcount(target._storage) > _ALONE


# Reference count of the storage of a tensor that shares no bytes: the tensor's reference and getrefcount's argument.
_ALONE = 2
