"""Tensor: the proxy of a tensor on a server, with PyTorch's interface.

Properties that follow from the description (shape, dtype, flags) are answered here; everything else is a command. The
op methods come from `ops.py`, generated from the server's registry; Python's operators come from `operators.py`.
"""

from __future__ import annotations

import copy
import itertools
import math
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import numpy as np

from gradwire._base import dtypes
from gradwire._base.absent import absent
from gradwire._base.call_site import INTERNAL
from gradwire._base.dtypes import Size
from gradwire._base.errors import GradwireIndexError, GradwireRuntimeError, GradwireTypeError, refuse
from gradwire._base.memory_formats import CONTIGUOUS, ORDERS, PRESERVE, lies_in, name_of
from gradwire._base.modes import GRAD_ENABLED, is_inference_mode_enabled, no_grad
from gradwire._base.undeletable import undeletable
from gradwire._base.wiring import wired
from gradwire._graph import commands
from gradwire._graph.hooks import RemovableHandle, hook_accumulated, hook_tensor
from gradwire._graph.nodes import Node, grad_fn_of
from gradwire._graph.sparse_gradients import is_sparse, joined_gradient, set_sparse_part, sparse_part
from gradwire._proxy import results
from gradwire._proxy.graph_structure import note_redescribed
from gradwire._proxy.handle import PRESENT, UNKNOWN, Handle
from gradwire._proxy.results import (
    expect_other_gradient,
    new_proxy,
    refresh,
    share_storage,
    watch_leaf,
    watch_retained,
)
from gradwire._proxy.transforms import TRANSFORM, depths_inside, refuse_inside
from gradwire._tensor import values
from gradwire._tensor.batching import BATCHING, FLAGS, RESHAPES
from gradwire._tensor.call import _call, _sizes
from gradwire._tensor.casts import Casts
from gradwire._tensor.composed import Composed
from gradwire._tensor.conjugates import Conjugates
from gradwire._tensor.draws import Draws
from gradwire._tensor.in_place import refuse_origin
from gradwire._tensor.in_place_views import InPlaceViews, is_shared
from gradwire._tensor.indexing import Index, as_operand, make_index
from gradwire._tensor.known_values.items import note_item, note_items
from gradwire._tensor.operators import Operators
from gradwire._tensor.ops import TensorMethods
from gradwire._tensor.storages import Address, TypedStorage, UntypedStorage, data_address, memory_of
from gradwire._tensor.warnings import warn, warn_once
from gradwire.v1 import commands_pb2, errors_pb2, service_pb2, types_pb2

Number: TypeAlias = "int | float | bool | complex"
_T = TypeVar("_T", bound="Tensor")
# Items that iteration makes at a time; the server limits the results of one op.
_MOST_ITEMS = 1 << 16

_NON_LEAF_GRAD = (
    "The .grad attribute of a Tensor that is not a leaf Tensor is being accessed. Its .grad attribute won't be "
    "populated by backward(). If you want the gradient of a non-leaf Tensor, call .retain_grad() on it before "
    "backward(); if you meant another tensor, access that one, a leaf."
)
_SCALAR_OF_GRAPH = (
    "Converting a tensor with requires_grad=True to a scalar may lead to unexpected behavior. Consider using "
    "tensor.detach() first."
)
_NEW_TENSOR_COPIES = (
    "To copy construct from a tensor, it is recommended to use sourceTensor.detach().clone() or "
    "sourceTensor.detach().clone().requires_grad_(True), rather than tensor.new_tensor(sourceTensor)."
)
_DEPRECATED_T = (
    "The use of `x.T` on tensors of dimension other than 2 to reverse their shape is deprecated and it will throw an "
    "error in a future release. Consider `x.mT` to transpose batches of matrices or `x.permute(*torch.arange(x.ndim - "
    "1, -1, -1))` to reverse the dimensions of a tensor."
)
_scalar_warned = False
_FLAG_OF_NON_LEAF = "you can only change requires_grad flags of leaf variables."
_DETACH_HINT = " To use a computed tensor where no gradient is wanted, take a detached one: var_no_grad = var.detach()."
# Attributes that only some tensors have.
_UNLISTED = ("_backward_hooks", "_bounds", "_changes_seen", "_grad_fn", "_item_values", "_known", "_received")


class Tensor(Casts, Composed, Conjugates, Draws, InPlaceViews, Operators, TensorMethods, Handle):  # type: ignore[misc]
    """A tensor on a server (torch.Tensor). Make one by gradwire.tensor, zeros, randn, … or as an op's result."""

    __slots__ = ()

    _grad_fn = undeletable("_grad_fn", "Deletion of _grad_fn not allowed. Detach tensor instead!")
    _backward_hooks = undeletable("_backward_hooks", "Deletion of _backwards_hooks not allowed!")

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        """Make a tensor of the default dtype: Tensor([1, 2]) of values, Tensor(2, 3) of sizes."""
        made = wired("legacy_tensor")(args, **kwargs)
        return made if cls is Tensor else made._as_subclass(cls)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Raise AttributeError for a missing attribute, with the nearest names."""
            if name.startswith("_"):
                raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'", name=name)
            raise absent("Tensor", name, lambda: (one for one in dir(Tensor) if not one.startswith("_")))

    def __dir__(self) -> list[str]:
        """The names of attributes; not those that only some tensors have."""
        return [name for name in super().__dir__() if name not in _UNLISTED]

    # Description.

    @property
    def shape(self) -> Size:
        """Sizes of the dimensions."""
        return self._spec.shape

    def size(self, dim: int | None = None) -> Any:
        """Sizes of all dimensions, or of one. Raises IndexError if the dimension does not exist."""
        return self._spec.shape if dim is None else self._spec.shape[self._dim(dim)]

    def _dim(self, dim: int) -> int:
        count = max(len(self._spec.shape), 1)
        if not -count <= dim < count or not self._spec.shape:
            raise GradwireIndexError(
                f"Dimension out of range (expected to be in range of [{-count}, {count - 1}], but got {dim})"
            )
        return dim

    @property
    def dtype(self) -> dtypes.dtype:
        """Element type."""
        return self._spec.dtype

    @property
    def device(self) -> dtypes.device:
        """Device that holds the values."""
        return self._spec.device

    @property
    def is_cuda(self) -> bool:
        """Whether it is on a GPU."""
        return self._spec.device.type == "cuda"

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self._spec.shape)

    def dim(self) -> int:
        """Number of dimensions."""
        return len(self._spec.shape)

    ndimension = dim

    def numel(self) -> int:
        """Number of elements."""
        return math.prod(self._spec.shape)

    nelement = numel

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return self._spec.dtype.itemsize

    def element_size(self) -> int:
        """Bytes of an element."""
        return self._spec.dtype.itemsize

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return self.numel() * self.itemsize

    def data_ptr(self) -> Address:
        """A stable number for the first element's place in memory; no address of this process (torch.Tensor.data_ptr).

        It is that of `untyped_storage` plus the offset's bytes. A tensor that shares memory waits for the server.
        """
        return data_address(self)

    def storage_offset(self) -> int:
        """Elements from the start of its memory to its first element (torch.Tensor.storage_offset)."""
        alone = self._storage is None and self.__dict__.get("_memory") is None
        return 0 if alone else int(self._described().storage_offset)

    def is_set_to(self, tensor: Tensor) -> bool:
        """Whether both are the same elements of the same memory, with equal strides (torch.Tensor.is_set_to)."""
        alike = self.shape == tensor.shape and self.stride() == tensor.stride() and self.dtype is tensor.dtype
        return alike and self.data_ptr() == tensor.data_ptr()

    def untyped_storage(self) -> UntypedStorage:
        """The tensor's memory: which tensors share it, and its size (torch.Tensor.untyped_storage)."""
        return UntypedStorage(self)

    def storage(self) -> TypedStorage:
        """The tensor's memory as elements of its dtype (torch.Tensor.storage)."""
        return TypedStorage(self)

    @property
    def layout(self) -> Any:
        """torch.strided."""
        return wired("strided")

    def as_subclass(self, cls: type[_T]) -> _T:
        """This tensor's values as an instance of a subclass, in the same graph (torch.Tensor.as_subclass)."""
        made: Tensor = _call("view", (self, tuple(self._spec.shape)))
        return made._as_subclass(cls)

    @staticmethod
    def _make_subclass(cls: type[_T], data: Tensor, require_grad: bool = False) -> _T:
        """A leaf of a subclass on the values of `data`."""
        return data.detach()._as_subclass(cls).requires_grad_(require_grad)

    def stride(self, dim: int | None = None) -> Any:
        """Strides in elements: the distance between neighbours in each dimension, or in one."""
        strides = self._spec.strides or _dense_strides(self._spec.shape)
        return strides if dim is None else strides[self._dim(dim)]

    def is_contiguous(self, memory_format: Any = None) -> bool:
        """Whether the elements lie row-major without gaps, or with the channels innermost for `channels_last`."""
        spec = self._spec
        if memory_format is not None and (name := name_of(memory_format)) in ORDERS:
            return lies_in(spec.shape, self.stride(), name)
        if not spec.strides:
            return True
        dense = zip(spec.shape, spec.strides, _dense_strides(spec.shape), strict=True)
        return all(size == 1 or stride == wanted for size, stride, wanted in dense)

    def is_floating_point(self) -> bool:
        """Whether the dtype is floating."""
        return self._spec.dtype.is_floating_point

    def is_complex(self) -> bool:
        """Whether the dtype is complex."""
        return self._spec.dtype.is_complex

    def is_signed(self) -> bool:
        """Whether the dtype has negative values."""
        return self._spec.dtype.is_signed

    def __len__(self) -> int:
        if not self._spec.shape:
            raise TypeError("len() of a 0-d tensor")
        return self._spec.shape[0]

    # The graph.

    def _fresh(self) -> Any:
        """Current spec; refreshed if an in-place op on a relative may have changed it."""
        if self._storage is not None and self._storage.changes != self._changes_seen:
            refresh(self)
        return self._spec

    @property
    def is_leaf(self) -> bool:
        """Whether it is a leaf, where backward ends. Raises RuntimeError for a view that may not follow its base."""
        if self._fresh().outdated:
            raise refuse_origin(self._spec, "its base or another view of its base has been")
        return bool(self._spec.is_leaf)

    @property
    def grad_fn(self) -> Node | None:
        """Node that made the tensor; None for a leaf. Raises RuntimeError for a view that may not follow its base."""
        if self._fresh().outdated:
            raise refuse_origin(self._spec, "its base or another view of its base has been")
        view = self.__dict__.get("_view")
        if view is not None and view.written and not self._spec.is_leaf:
            commands.refresh_view(self)
            view.written = False
        return grad_fn_of(self)

    @property
    def output_nr(self) -> int:
        """Index among its node's results; 0 for a leaf (torch.Tensor.output_nr)."""
        return int(self._fresh().output_nr)

    @property
    def _version(self) -> int:
        """Number of in-place changes of its bytes; views and detached tensors share the count."""
        if self._spec.inference:
            raise refuse("Inference tensors do not track version counter.")
        told = int(self._described().version)
        storage = self._storage
        return told if storage is None or storage.parted is None else storage.version + storage.parted

    @property
    def _base(self) -> Tensor | None:
        """Tensor that this one is a view of; None if it is no view."""
        view = self.__dict__.get("_view")
        return None if view is None else view.base

    def _is_view(self) -> bool:
        """Whether it is a view of another tensor."""
        return "_view" in self.__dict__

    def _view_func(self, new_base: Tensor, symint_visitor_fn: Any = None, tensor_visitor_fn: Any = None) -> Any:
        """This view of another base; None if it is no view, or the bases differ in sizes, strides or memory.

        The functions change the sizes and tensors that the calls take, if views were tracked when they were made.
        """
        return wired("view_again")(self, new_base, symint_visitor_fn, tensor_visitor_fn, True)

    def _view_func_unsafe(self, new_base: Tensor, symint_visitor_fn: Any = None, tensor_visitor_fn: Any = None) -> Any:
        """This view of another base, whatever its sizes; None if it is no view."""
        return wired("view_again")(self, new_base, symint_visitor_fn, tensor_visitor_fn, False)

    def _rev_view_func_unsafe(self, new_view: Tensor) -> Any:
        """This view's base in the memory of another view; None if it is no view.

        Raises RuntimeError unless views were tracked when it was made, or if the memory is too small.
        """
        return wired("base_again")(self, new_view)

    def is_inference(self) -> bool:
        """Whether inference mode made it (torch.Tensor.is_inference)."""
        return bool(self._spec.inference)

    def _described(self) -> types_pb2.TensorSpec:
        request = commands_pb2.DescribeRequest(tensors=[self._id])
        return self._session.wait(service_pb2.Command(describe=request)).describe.tensors[0]

    def detach(self) -> Tensor:
        """A leaf on the same values that shares their version and requires no gradient (torch.Tensor.detach)."""
        made = _call("detach", (self,))
        share_storage(made, self)
        return made

    @property
    def requires_grad(self) -> bool:
        """Whether backward computes a gradient for it or through it."""
        return bool(self._fresh().requires_grad)

    @requires_grad.setter
    def requires_grad(self, flag: bool) -> None:
        if not self._fresh().is_leaf:
            raise refuse(_FLAG_OF_NON_LEAF + ("" if flag else _DETACH_HINT), errors_pb2.REASON_REQUIRES_GRAD)
        self._set_requires_grad(bool(flag), "only Tensors of floating point and complex dtype can require gradients")

    @requires_grad.deleter
    def requires_grad(self) -> None:
        raise refuse("requires_grad must be a bool")

    def requires_grad_(self: _T, requires_grad: bool = True) -> _T:
        """Set requires_grad of a leaf and return this tensor.

        Raises RuntimeError for clearing the flag of a non-leaf, and for setting it on an integer or bool tensor.
        """
        if TRANSFORM.get() is not None and not INTERNAL[sys._getframe(1).f_code.co_filename]:
            refuse_inside("requires_grad_")
        if not self._fresh().is_leaf:
            if requires_grad:
                return self
            raise refuse(_FLAG_OF_NON_LEAF + _DETACH_HINT, errors_pb2.REASON_REQUIRES_GRAD)
        self._set_requires_grad(bool(requires_grad), "only Tensors of floating point dtype can require gradients")
        return self

    def _set_requires_grad(self, flag: bool, refusal: str) -> None:
        spec = self._spec
        if flag and not (spec.dtype.is_floating_point or spec.dtype.is_complex):
            raise refuse(refusal, errors_pb2.REASON_REQUIRES_GRAD)
        if flag and spec.inference and not is_inference_mode_enabled():
            raise refuse(
                "Setting requires_grad=True on inference tensor outside InferenceMode is not allowed.",
                errors_pb2.REASON_REQUIRES_GRAD,
            )
        if flag == (self._edge is not None):
            return
        commands.set_requires_grad(self, flag)
        for shown in FLAGS if BATCHING else ():
            shown(self, flag)
        note_redescribed(self)
        base = self._base
        self._spec = spec.with_requires_grad(flag or (base is not None and base._spec.requires_grad))
        if flag:
            watch_leaf(self)
        else:
            self._edge = None
        if self._storage is not None and base is None:
            self._storage.changes += 1
            self._changes_seen = self._storage.changes

    @property
    def retains_grad(self) -> bool:
        """Whether it is a non-leaf that keeps its gradient."""
        return self._retained is not None and not self._fresh().is_leaf

    def retain_grad(self) -> None:
        """Keep this non-leaf's gradient in backward; no effect on a leaf. Raises RuntimeError without requires_grad."""
        refuse_inside("retain_grad")
        spec = self._fresh()
        if not spec.requires_grad:
            raise refuse("can't retain_grad on Tensor that has requires_grad=False", errors_pb2.REASON_REQUIRES_GRAD)
        if spec.is_leaf or self._retained is not None:
            return
        commands.retain_grad(self)
        watch_retained(self)

    def register_hook(self, hook: Callable[[Tensor], Tensor | None]) -> RemovableHandle:
        """Call `hook(gradient)` when backward has computed this tensor's gradient (torch.Tensor.register_hook).

        If the hook returns a tensor, it replaces the gradient. The hook stays with the tensor's current values if the
        tensor is changed in place later. Raises RuntimeError without requires_grad.
        """
        self._fresh()
        return hook_tensor(self, hook)

    def register_post_accumulate_grad_hook(self, hook: Callable[[Tensor], None]) -> RemovableHandle:
        """Call `hook(tensor)` whenever backward has added to this leaf's `.grad`. Raises RuntimeError for non-leaves.

        (torch.Tensor.register_post_accumulate_grad_hook)
        """
        self._fresh()
        return hook_accumulated(self, hook)

    def _joined_grad(self, state: Any) -> Any:
        """The gradient of a leaf that has a sparse part of it."""
        if state is PRESENT or state is UNKNOWN:
            sparse = sparse_part(self)
            set_sparse_part(self, None)
            state = self.grad
            set_sparse_part(self, sparse)
        made = joined_gradient(self, state)
        self._grad = None if made is sparse_part(self) else made
        return made

    @property
    def grad(self) -> Any:
        """Gradient accumulated by backward; None before. It stays the same object until it is replaced.

        Warns for a non-leaf that does not retain its gradient.
        """
        state = self._grad
        if "_sparse_grad" in self.__dict__:
            return self._joined_grad(state)
        if state is None:
            if self._retained is None and not self._fresh().is_leaf:
                warnings.warn(_NON_LEAF_GRAD, UserWarning, stacklevel=2)
            return None
        if state is PRESENT or state is UNKNOWN:
            tensor_id = next(self._session.ids)
            spec = commands.name_grad(self, tensor_id, known=state is PRESENT)
            self._grad = state = None if spec is None else new_proxy(self._session, tensor_id, spec)
        return state

    @grad.setter
    def grad(self, value: Tensor | None) -> None:
        if value is None:
            self._clear_grad()
            return
        _check_grad(self, value)
        if is_sparse(value):
            self.grad = None
            set_sparse_part(self, value)
            return
        set_sparse_part(self, None)
        commands.set_grad(self, value)
        self._grad = value

    @grad.deleter
    def grad(self) -> None:
        self.grad = None

    def _clear_grad(self, call_site: commands.CallSite | None = None) -> None:
        """Drop the gradient. `call_site` is the user's, if it is known."""
        set_sparse_part(self, None)
        if self._grad is not None:
            commands.clear_grad(self, call_site)
            self._grad = None

    def backward(
        self,
        gradient: Tensor | None = None,
        retain_graph: bool | None = None,
        create_graph: bool = False,
        inputs: Sequence[Tensor] | Tensor | None = None,
    ) -> None:
        """Add the gradient of this tensor to the leaves it depends on (torch.Tensor.backward).

        `gradient` has the tensor's shape; a tensor of one element needs none. Raises RuntimeError without history, or
        if an earlier backward without `retain_graph` freed the history's saved values.
        """
        wired("backward")(self, gradient, retain_graph, create_graph, inputs=inputs)

    def detach_(self: _T) -> _T:
        """Make it a leaf without history, in place."""
        spec = self._fresh()
        if spec.is_view:
            raise refuse("Can't detach views in-place. Use detach() instead.")
        if spec.requires_grad or spec.tangents:
            storage, mirrors = self._storage, None
            if storage is not None:
                mirrors, storage.mirrors = storage.mirrors, None
            try:
                with no_grad():
                    _call("detach_", (self,))
            finally:
                if storage is not None:
                    storage.mirrors = mirrors
            if storage is not None:
                storage.version -= 1  # unlike other in-place ops, detach_ changes no values
                storage.left = True
            self._edge = self._retained = None
            note_redescribed(self)
        return self

    @property
    def volatile(self) -> bool:
        """False, with a warning: no_grad has replaced it."""
        warnings.warn("volatile was removed (Variable.volatile is always False)", UserWarning, stacklevel=2)
        return False

    @property
    def data(self) -> Tensor:
        """A leaf on the same values, outside any graph and with its own version counter."""
        bare: Tensor = _call("detach", (self,))
        bare._spec = commands.set_data(bare, self)
        bare.__dict__["_memory"] = memory_of(self)
        self._session.shares_memory = True
        self._session.untracked_writes += 1  # so that what is known now is counted anew
        if self._spec.dtype.is_complex:
            bare._share_conjugates(self, False)
        return bare

    @data.setter
    def data(self, value: Tensor) -> None:
        if is_sparse(value):
            raise refuse(
                "Attempted to call `variable.set_data(tensor)`, but `variable` and `tensor` have incompatible tensor "
                "type."
            )
        if not isinstance(value, Tensor):
            raise GradwireTypeError(f"Variable data has to be a tensor, but got {type(value).__name__}")
        if self._fresh().requires_grad and not (value.is_floating_point() or value.is_complex()):
            raise refuse("data set to a tensor that requires gradients must be floating point or complex dtype")
        for shown in RESHAPES if BATCHING else ():
            shown(self, "data", (value,), None)
        shared, storage = is_shared(self), self._storage  # in this order: the name is a reference, too
        if shared and storage is not None and storage.parted is None and not self._spec.inference:
            storage.parted = self._version - storage.version
        self._spec = commands.set_data(self, value)
        if value._spec.dtype.is_complex:
            self._share_conjugates(value, shared)
        # The version stays the tensor's own; the memory is the other's.
        self.__dict__["_memory"] = memory_of(value)
        note_redescribed(self)
        self._session.untracked_writes += 1
        self._session.shares_memory = True
        expect_other_gradient(self)

    @data.deleter
    def data(self) -> None:
        raise refuse("Deleting tensor data is not allowed. Delete tensor instead!")

    def _as_subclass(self: Tensor, cls: type[_T]) -> _T:
        """Change this proxy's class to a subclass. The proxy is not copied, so it must have no other holders."""
        self.__class__ = cls
        assert isinstance(self, cls)
        return self

    # Values.

    def item(self) -> Any:
        """The one value as a Python number. Raises RuntimeError if there is not exactly one."""
        return values.read_item(self)

    def tolist(self) -> Any:
        """The values as nested lists of Python numbers."""
        return values.read_list(self)

    def numpy(self, *, force: bool = False) -> np.ndarray[Any, Any]:
        """Copy the values from the server to an array.

        Raises RuntimeError if it requires grad (use detach() first, or `force`), TypeError for bfloat16 and GPUs.
        """
        if force and self._spec.dtype.numpy is not None:
            return values.read_array(self)
        self._fresh()
        values.check_numpy(self)
        if self.is_cuda:
            raise TypeError(
                f"can't convert {self._spec.device_name} device type tensor to numpy. Use Tensor.cpu() first."
            )
        return values.read_array(self)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        array: np.ndarray[Any, Any] = self.numpy()
        return array if dtype is None else array.astype(dtype, copy=False)

    def studio(self, url: str = "http://127.0.0.1:8080", show: bool = True) -> str:
        """Open Studio at this tensor's graph; return the address. See gradwire.studio."""
        address: str = wired("studio")(self, url, show)
        return address

    def __array_namespace__(self, /, *, api_version: str | None = None) -> Any:
        """Namespace of the array API standard's functions on tensors. Raises ValueError for an unknown version."""
        return wired("namespace")(api_version)

    def __dlpack__(
        self, *, stream: Any = None, max_version: Any = None, dl_device: Any = None, copy: bool | None = None
    ) -> Any:
        """Copy the values to CPU memory for another library in this process. Raises BufferError if it cannot."""
        return values.export(self, max_version, dl_device, copy)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)

    def __array_wrap__(self, array: Any, context: Any = None, return_scalar: bool = False) -> Any:
        return wired("make_tensor")(np.asarray(array), session=self._session)

    def _number(self, kind: type[Any]) -> Any:
        if self.numel() != 1:
            raise ValueError("only one element tensors can be converted to Python scalars")
        if kind is not complex and self.is_complex():
            value = self.item()
            if value.imag:
                raise RuntimeError(f"value cannot be converted to type {kind.__name__} without overflow")
            return kind(value.real)
        return kind(self.item())

    def __bool__(self) -> bool:
        count = self.numel()
        if count != 1:
            raise RuntimeError(
                "Boolean value of Tensor with no values is ambiguous"
                if count == 0
                else "Boolean value of Tensor with more than one value is ambiguous"
            )
        return bool(self.item())

    def __float__(self) -> float:
        warn_of_scalar(self)
        return float(self._number(float))

    def __int__(self) -> int:
        return int(self._number(int))

    def __complex__(self) -> complex:
        warn_of_scalar(self)
        return complex(self._number(complex))

    def __index__(self) -> int:
        if self.numel() != 1 or self.is_floating_point() or self.is_complex():
            raise TypeError("only integer tensors of a single element can be converted to an index")
        return int(self.item())

    def __iter__(self) -> Iterator[Tensor]:
        if not self._spec.shape:
            raise TypeError("iteration over a 0-d tensor")
        length = self._spec.shape[0]
        if length > _MOST_ITEMS:
            return itertools.chain.from_iterable(
                _call("unbind", (_call("narrow", (self, 0, first, min(_MOST_ITEMS, length - first))), 0), (), "tuple")
                for first in range(0, length, _MOST_ITEMS)
            )
        items = _call("unbind", (self, 0), (), "tuple")
        note_items(self, items)
        return iter(items)

    def __reversed__(self) -> Tensor:
        return self if not self._spec.shape else _call("flip", (self, (0,)))

    def __contains__(self, element: object) -> bool:
        if not isinstance(element, (Tensor, int, float, bool, complex)):
            raise RuntimeError(
                f"Tensor.__contains__ only supports Tensor or scalar, but you passed in a {type(element)}."
            )
        return bool((self == element).any().item())

    def __getitem__(self, key: Any) -> Tensor:
        if not self._spec.shape and isinstance(key, int) and not isinstance(key, bool):
            raise GradwireIndexError(
                "invalid index of a 0-dim tensor. Use `tensor.item()` in Python to convert a 0-dim tensor to a number"
            )
        index = Index((key,)) if type(key) is int else make_index(self, key)
        made: Tensor = _call("getitem", (self, index))
        view = made.__dict__.get("_view") if isinstance(made, Handle) else None
        if view is not None:
            view.item = (self._id, index.items)
            if not made._spec.shape:
                note_item(self, index.items, made)
        return made

    def __setitem__(self, key: Any, value: Any) -> None:
        if key is False:
            return  # as in PyTorch: nothing is written or checked
        key = None if key is True else key
        index = make_index(self, key)
        storage = self._storage
        if storage is not None and storage.mirrors is not None:
            storage.writing = (self._id, index.items)
        try:
            _call("setitem_", (self, index, as_operand(value, self)))
        except GradwireRuntimeError:
            _refuse_key(self, index)  # PyTorch reports an invalid key before any other error
            raise
        finally:
            if storage is not None:
                storage.writing = None
        view = self.__dict__.get("_view")
        if view is not None:
            view.written = True

    def __delitem__(self, key: Any) -> None:
        """Refuse it, as PyTorch does."""
        raise TypeError("Tensor does not support deleting items")

    # Text.

    def __repr__(self) -> str:
        self._fresh()
        return self._show(math.inf)

    def _show(self, below: float) -> str:
        """The text, with PyTorch's wrappers for the transforms under way of a depth below this."""
        inside = depths_inside(self, below)
        shown = values.show(self.detach() if inside else self, self._is_parameter())
        return values.show_wrapped("GradTrackingTensor", inside, shown)

    def _repr_html_(self) -> str:
        self._fresh()
        return values.show_html(self, self._is_parameter())

    def _is_parameter(self) -> bool:
        return False

    def __format__(self, spec: str) -> str:
        if not self._spec.shape and type(self) is Tensor:
            return format(self.item(), spec)
        return object.__format__(self, spec)

    # Copies.

    def __copy__(self: _T) -> _T:
        """A leaf on the same values with the same requires_grad, like PyTorch's shallow copy."""
        return self.detach()._as_subclass(type(self)).requires_grad_(self.requires_grad)

    def __reduce_ex__(self, protocol: object) -> Any:
        """Pickle the values, which are read from the server and uploaded again where they are loaded."""
        return wired("reduce_tensor")(self)

    def __deepcopy__(self: _T, memo: dict[int, Any]) -> _T:
        if not self.is_leaf:
            raise refuse(
                "Only Tensors created explicitly by the user (graph leaves) support the deepcopy protocol at the "
                "moment. Copy a detached one: copy.deepcopy(t.detach())"
            )
        if id(self) in memo:
            known: _T = memo[id(self)]
            return known
        with nullcontext() if is_inference_mode_enabled() else no_grad():
            made = _call("clone", (self,))._as_subclass(type(self))
        memo[id(self)] = made
        made.requires_grad_(self.requires_grad)
        if self.grad is not None:
            made.grad = copy.deepcopy(self.grad, memo)
        for name, value in self.__dict__.items():
            if not name.startswith("_"):
                made.__dict__[name] = copy.deepcopy(value, memo)
        return made

    def nonzero(self, *, as_tuple: bool = False) -> Any:
        """Indices of nonzero elements: a row per element, or a tuple of one vector per dimension."""
        return _call("nonzero", (self,), (("as_tuple", as_tuple),), "tuple" if as_tuple else None)

    def where(self, condition: Tensor, other: Any) -> Tensor:  # type: ignore[override]
        """This tensor where the condition holds, `other` elsewhere (torch.Tensor.where)."""
        return _call("where", (condition, self, other))

    def gather(self, dim: int, index: Tensor, *, sparse_grad: bool = False) -> Tensor:
        """result[i, j, ...] = self[i, index[i, j, ...], ...] for dim 1, and so on (torch.Tensor.gather)."""
        if sparse_grad:
            made: Tensor = wired("gather")(self, dim, index, sparse_grad=True)
            return made
        return _call("gather", (self, dim, index))

    def polygamma(self, n: int) -> Tensor:
        """The n-th derivative of digamma (torch.Tensor.polygamma)."""
        return _call("polygamma", (n, self))

    def polygamma_(self, n: int) -> Tensor:
        """In-place form of `polygamma`."""
        return self.copy_(_call("polygamma", (n, self.clone())))

    def tensor_split(self, indices_or_sections: Any = None, dim: int = 0, **named: Any) -> Any:
        """Split into a number of parts, or at the given indices (torch.Tensor.tensor_split)."""
        return wired("tensor_split")(self, indices_or_sections, dim, **named)

    def hsplit(self, indices_or_sections: Any) -> Any:
        """Split along the second dimension, or a vector along its only dimension (torch.Tensor.hsplit)."""
        return wired("hsplit")(self, indices_or_sections)

    def vsplit(self, indices_or_sections: Any) -> Any:
        """Split along the first dimension (torch.Tensor.vsplit)."""
        return wired("vsplit")(self, indices_or_sections)

    def dsplit(self, indices_or_sections: Any) -> Any:
        """Split along the third dimension (torch.Tensor.dsplit)."""
        return wired("dsplit")(self, indices_or_sections)

    def view(self, *size: Any, dtype: Any = None) -> Tensor:
        """View the elements with other sizes, or the bytes as another dtype, without a copy (torch.Tensor.view)."""
        wanted = size[0] if len(size) == 1 and dtype is None else dtype
        if isinstance(wanted, (dtypes.dtype, type)):
            # PyTorch differentiates no view of other bytes: its result is detached.
            source = self.detach() if self.requires_grad else self
            return _call("view_dtype", (source, dtypes.as_dtype(wanted)))
        return _call("view", (self, _sizes(size)))

    def clone(self, *, memory_format: Any = None) -> Tensor:
        """A copy that stays in the graph, with this tensor's strides or in a memory format (torch.Tensor.clone).

        Strides with gaps are not kept: the copy is row-major. Raises RuntimeError for a format of another rank.
        """
        if memory_format is not None and name_of(memory_format) != PRESERVE:
            made = self.contiguous(memory_format)
            if made is not self:
                return made
        return _call("clone", (self,))

    def contiguous(self, memory_format: Any = None) -> Tensor:
        """This tensor if its elements lie without gaps, row-major or in another memory format; else such a copy.

        Raises RuntimeError for a format of another rank.
        """
        if self.is_contiguous(memory_format):
            return self
        name = CONTIGUOUS if memory_format is None else name_of(memory_format)
        if name == PRESERVE:
            raise refuse("preserve memory format is unsupported by the contiguous operator")
        return _call("contiguous", (self,) if name == CONTIGUOUS else (self, name))

    @property
    def T(self) -> Tensor:  # type: ignore[override]
        """View with the dimensions in reverse order. Warns once per process unless there are two dimensions."""
        if not self._spec.shape:
            warn_once("Tensor.T is deprecated on 0-D tensors. This function is the identity in these cases.")
        elif len(self._spec.shape) != 2:
            warn_once(_DEPRECATED_T)
        return _call("T", (self,))

    @property
    def mT(self) -> Tensor:  # type: ignore[override]
        """View with the last two dimensions swapped."""
        if not self._spec.shape:
            warn_once("Tensor.mT is deprecated on 0-D tensors. This function is the identity in these cases.")
        return _call("mT", (self,))

    @property
    def real(self) -> Tensor:  # type: ignore[override]
        """The real parts; a real tensor itself."""
        return _call("real", (self,)) if self.is_complex() else self

    def sum_to_size(self, *size: Any) -> Tensor:
        """Sum over the dimensions that broadcasting from `size` would expand; this tensor if the shapes are equal."""
        sizes = _sizes(size)
        if not sizes:  # in PyTorch a plain sum, which widens integers
            return _call("sum", (self,))
        return self if sizes == self._spec.shape else _call("sum_to_size", (self, sizes))

    def count_nonzero(self, dim: Any = None, *further: int, axis: Any = None) -> Tensor:
        """See `gradwire.count_nonzero`. Dimensions may be given one by one."""
        return super().count_nonzero((dim, *further) if further else dim, axis=axis)

    def squeeze(self, dim: Any = None, *further: int, axis: Any = None) -> Tensor:
        """See `gradwire.squeeze`. Dimensions may be given one by one."""
        return super().squeeze((dim, *further) if further else dim, axis=axis)

    def is_nonzero(self) -> bool:
        """Whether the only element is not zero. Raises RuntimeError if there is not exactly one."""
        return bool(self)

    def is_same_size(self, other: Tensor) -> bool:
        """Whether the other tensor has the same shape."""
        return self.shape == other.shape

    def get_device(self) -> int:
        """The number of its GPU; -1 on the CPU."""
        return (self.device.index or 0) if self.is_cuda else -1

    @property
    def is_cpu(self) -> bool:
        """Whether it is in the server's memory."""
        return self.device.type == "cpu"

    # New tensors like this one.

    def new(self, *args: Any) -> Tensor:
        """A tensor of this one's dtype and device: of sizes, or of values (torch.Tensor.new)."""
        sizes = args[0] if len(args) == 1 and isinstance(args[0], Size) else args
        if all(type(size) is int for size in sizes):
            return self.new_empty(sizes if isinstance(sizes, Size) else args or (0,))
        return self.new_tensor(args[0])

    def new_tensor(self, data: Any, *, dtype: Any = None, device: Any = None, requires_grad: bool = False) -> Tensor:
        """Make a leaf of values, by default with this tensor's dtype and device."""
        wanted = self._spec.dtype if dtype is None else dtypes.as_dtype(dtype)
        place = self._spec.device_name if device is None else dtypes.device_name(device)
        if isinstance(data, Tensor):
            warn(_NEW_TENSOR_COPIES)
            copied: Tensor = data.detach().to(dtype=wanted, device=place, copy=True)
            return copied.requires_grad_(requires_grad)
        made: Tensor = wired("make_tensor")(data, wanted, place, requires_grad, self._session)
        return made


def _refuse_key(tensor: Tensor, index: Any) -> None:
    """Raise IndexError for a key whose numbers and slices do not fit a tensor; ignore the values of index tensors."""
    try:
        with no_grad():
            _call("getitem", (tensor, index))
    except GradwireIndexError as error:
        if "too many" in str(error) or not any(isinstance(each, Handle) for each in index.items):
            raise


def warn_of_scalar(tensor: Tensor, stacklevel: int = 3) -> None:
    """Warn once per process that a Python number no longer belongs to the graph."""
    global _scalar_warned
    if tensor._spec.requires_grad and not _scalar_warned and GRAD_ENABLED.get():
        _scalar_warned = True
        warnings.warn(_SCALAR_OF_GRAPH, UserWarning, stacklevel=stacklevel)


def _dense_strides(shape: Sequence[int]) -> tuple[int, ...]:
    strides: list[int] = []
    step = 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


def _check_grad(target: Tensor, grad: Any) -> None:
    if not isinstance(grad, Tensor) and not (is_sparse(grad) and grad.is_sparse):
        raise GradwireTypeError(
            f"assigned grad expected to be a Tensor or None but got grad of type {type(grad).__name__}"
        )
    if grad is target:
        raise refuse("can't assign Variable as its own grad")
    if grad.dtype is not target.dtype:
        raise refuse(
            f"attempting to assign a gradient with dtype '{grad.dtype.name}' to a tensor with dtype "
            f"'{target.dtype.name}'",
            errors_pb2.REASON_DTYPE,
        )
    if grad.device != target.device:
        raise refuse(
            f"assigned grad has data located on a different device: {grad.device} instead of {target.device}",
            errors_pb2.REASON_DEVICE_MISMATCH,
        )
    if grad.shape != target.shape:
        raise refuse(
            f"attempting to assign a gradient of size '{list(grad.shape)}' to a tensor of size "
            f"'{list(target.shape)}'. Please ensure that the gradient and the tensor are the same size",
            errors_pb2.REASON_SHAPE,
        )


results.TENSOR_CLASS[0] = Tensor
