"""Stored values: what tensors of all sparse layouts have in common. Their stored elements are one ordinary tensor.

Dtype, device and history are those of the values, and so gradients flow through them. `backward` and `autograd.grad`
differentiate by the values.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Sequence
from sys import _getframe
from typing import Any, TypeVar

from gradwire._base import dtypes
from gradwire._base.call_site import INTERNAL
from gradwire._base.dtypes import Size
from gradwire._base.errors import GradwireRuntimeError, refuse
from gradwire._base.modes import GRAD_ENABLED
from gradwire._base.wiring import wired
from gradwire._graph.hooks import RemovableHandle
from gradwire._tensor.tensor import Tensor

_Stored = TypeVar("_Stored", bound="StoredValues")


def shared(values: Tensor, view: bool = False) -> Tensor:
    """The values for another tensor: the same memory and history, but flags and a gradient of its own.

    Where no gradients are recorded only a view has the history.
    """
    recorded = values.requires_grad and (view or GRAD_ENABLED.get() is True)
    made: Tensor = values.view_as(values) if recorded else values.detach()
    return made


def split_values(tensors: Sequence[Any]) -> tuple[list[Any], Callable[[Sequence[Any]], tuple[Any, ...]]]:
    """Tensors with the values of sparse ones, and the function that makes the tensors of these; it holds none.

    The function raises RuntimeError for a sparse tensor that has changed in place since.
    """
    makers = [each.maker() if isinstance(each, StoredValues) else None for each in tensors]
    saved = [(weakref.ref(each), each.changes) for each in tensors if isinstance(each, StoredValues)]

    def rebuild(given: Sequence[Any]) -> tuple[Any, ...]:
        for place, changes in saved:
            known = place()
            if known is not None and known.changes != changes:
                raise refuse(
                    "one of the variables needed for gradient computation has been modified by an inplace operation: "
                    f"a sparse tensor is at version {known.changes}; expected version {changes} instead."
                )
        pairs = zip(makers, given, strict=True)
        return tuple([values if make is None else make(values) for make, values in pairs])

    return [each._v if isinstance(each, StoredValues) else each for each in tensors], rebuild


class GradientLayoutError(GradwireRuntimeError):
    """A gradient of a sparse tensor that stores other elements than the tensor does."""


class StoredValues:
    """A tensor of which only some elements are stored."""

    #: Lets `_graph.sparse_gradients`, which stands below this module, know gradients of this class.
    holds_stored_values = True
    #: Number of in-place changes of the stored elements.
    changes = 0
    #: Whether it was made of two tensors whose elements are at its places.
    both_stored = False

    is_quantized = is_nested = is_mkldnn = is_meta = False
    # Lets operators of arrays and tensors defer to this class.
    __array_priority__ = 2000
    __hash__ = object.__hash__

    is_sparse: bool
    layout: Any
    shape: Size
    _v: Tensor  # (nnz, …)

    @property  # type: ignore[misc]
    def __class__(self) -> type[Any]:
        """Tensor for callers outside the package, whose `isinstance` asks; the class itself for those inside."""
        return type(self) if INTERNAL[_getframe(1).f_code.co_filename] else Tensor

    def like(self: _Stored, values: Tensor) -> _Stored:
        """The same places with other values."""
        raise NotImplementedError

    def places(self) -> tuple[Tensor, ...]:
        """The tensors of indices."""
        raise NotImplementedError

    def maker(self) -> Callable[[Tensor], Any]:
        """The function that makes this tensor of its values. It holds the indices, but not the values."""
        raise NotImplementedError

    def __reduce__(self) -> Any:
        # object's form names the class by `__class__`, which tells programs another one.
        return self.maker(), (self._v,)

    def values_of(self, gradient: Any) -> Tensor:
        """A gradient of this tensor as one of its stored values. Raises GradientLayoutError for another layout."""
        raise NotImplementedError

    def gradient(self: _Stored, values: Tensor) -> _Stored:
        """A gradient of the stored values as one of this tensor."""
        return self.like(values)

    def _nnz(self) -> int:
        return self._v.shape[0]

    def size(self, dim: int | None = None) -> Any:
        """Sizes of all dimensions, or of one."""
        return self.shape if dim is None else self.shape[dim]

    def dim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    ndim = property(dim)

    def numel(self) -> int:
        """Number of elements, with those that are not stored."""
        return math.prod(self.shape)

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of a 0-d tensor")
        return self.shape[0]

    @property
    def dtype(self) -> dtypes.dtype:
        """Dtype of the values."""
        return self._v.dtype

    @property
    def device(self) -> dtypes.device:
        """Device of the values and indices."""
        return self._v.device

    @property
    def is_cuda(self) -> bool:
        """Whether the values are on a GPU."""
        return self._v.is_cuda

    @property
    def is_cpu(self) -> bool:
        """Whether the values are in the server's memory."""
        return not self._v.is_cuda

    @property
    def requires_grad(self) -> bool:
        """Whether the values require grad."""
        return self._v.requires_grad

    @property
    def is_leaf(self) -> bool:
        """Whether the values are a leaf."""
        return self._v.is_leaf

    @property
    def grad_fn(self) -> Any:
        """Node of the values; None for a leaf. What it saved of elements at the same places is shown as such."""
        node = self._v.grad_fn
        if node is not None:
            node.stored = (self._nnz(), self.maker(), self.both_stored)
        return node

    @property
    def grad(self: _Stored) -> _Stored | None:
        """The gradient at the stored elements, sparse; None before a backward pass."""
        return None if self._v.grad is None else self.gradient(self._v.grad)

    @grad.setter
    def grad(self, value: Any) -> None:
        self._v.grad = None if value is None else self.values_of(value)

    @property
    def data(self: _Stored) -> _Stored:
        """The same tensor outside of any graph."""
        return self.like(self._v.data)

    @property
    def retains_grad(self) -> bool:
        """Whether the values are a non-leaf that keeps its gradient."""
        return self._v.retains_grad

    def retain_grad(self) -> None:
        """Keep the gradient of a non-leaf."""
        self._v.retain_grad()

    def register_hook(self, hook: Callable[[Any], Any]) -> RemovableHandle:
        """Call `hook(gradient)` with the sparse gradient; the sparse one that it returns replaces it."""

        def of_values(values: Tensor | None) -> Tensor | None:
            made = hook(None if values is None else self.gradient(values))
            return None if made is None else self.values_of(made)

        return self._v.register_hook(of_values)

    def backward(
        self, gradient: Any = None, retain_graph: bool | None = None, create_graph: bool = False, inputs: Any = None
    ) -> None:
        """Add the gradient of this tensor to the leaves that it depends on, given its own sparse one."""
        wired("backward")(self, gradient, retain_graph, create_graph, inputs=inputs)

    def requires_grad_(self: _Stored, requires_grad: bool = True) -> _Stored:
        """Set whether the values require grad."""
        self._v.requires_grad_(requires_grad)
        return self

    def _facts(self) -> list[str]:
        """What its text tells behind indices and values."""
        facts = [f"device='{self.device}'"] if self.is_cuda else []
        facts += [f"size={tuple(self.shape)}", f"nnz={self._nnz()}"]
        if self.dtype not in (dtypes.get_default_dtype(), dtypes.int64, dtypes.bool_):
            facts.append(f"dtype={self.dtype}".replace("gradwire", "torch"))
        facts.append(f"layout={self.layout}")
        if self.grad_fn is not None:
            facts.append(f"grad_fn=<{self.grad_fn.name()}>")
        elif self.requires_grad:
            facts.append("requires_grad=True")
        return facts
