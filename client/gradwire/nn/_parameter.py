"""Parameter: a leaf that a module owns and an optimizer changes.

Uninitialized parameters and buffers have a dtype and a device, and no sizes yet. They take part in no op.
"""

from __future__ import annotations

import weakref
from typing import Any

from gradwire._base.errors import refuse
from gradwire._functions.create import empty
from gradwire._proxy.handle import Handle
from gradwire._session.module_calls import path_of
from gradwire._tensor.tensor import Tensor


class Parameter(Tensor):
    """A tensor that a module registers when it is assigned as an attribute.

    `Parameter(data)` is a new leaf on the storage of `data`, outside its graph. It requires grad by default. Raises
    RuntimeError if it should and its dtype has no gradients. Like torch.nn.Parameter.
    """

    __module__ = "gradwire.nn.parameter"  # PyTorch's path of the class, for `typename` and pickled classes
    __slots__ = ()
    # The modules that hold it, with its name, weakly: so that a drawn graph can name its leaves.
    _owner: tuple[weakref.ref[Any], str] | None = None

    def __new__(cls, data: Tensor | None = None, requires_grad: bool = True) -> Parameter:
        source = empty(0) if data is None else data.detach()
        return source._as_subclass(cls).requires_grad_(requires_grad)

    def _is_parameter(self) -> bool:
        return True

    @property
    def name(self) -> str | None:
        """Its name in the outermost module that holds it ("layers.0.weight"); None outside of modules."""
        return qualified_name(self)

    def __deepcopy__(self, memo: dict[int, Any]) -> Parameter:
        # As in PyTorch the copy is a leaf without a gradient, even if this one has one.
        if id(self) not in memo:
            memo[id(self)] = type(self)(self.detach().clone(), self.requires_grad)
        made: Parameter = memo[id(self)]
        return made


class _Buffers(type):
    """Makes isinstance true for the tensors that `Buffer` made."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, Tensor) and "_persistent_buffer" in instance.__dict__


class Buffer(metaclass=_Buffers):
    """`Buffer(data, persistent=True)`: a tensor that a module registers as a buffer when it is assigned to it.

    It is outside of the graph, on the storage of `data`. Like torch.nn.Buffer.
    """

    def __new__(cls, data: Tensor | None = None, *, persistent: bool = True) -> Any:
        """Return the tensor."""
        source = empty(0) if data is None else data
        made: Tensor = source.detach().requires_grad_(source.requires_grad)
        made.__dict__["_persistent_buffer"] = persistent
        return made


_NO_SHAPE = (
    "Can't access the shape of an uninitialized parameter or buffer: its sizes come from the first input. Where "
    "`load_state_dict` raises this, the state has no values for an initialized one: call `forward` before saving."
)
_NO_VALUES = (
    "Attempted to use an uninitialized parameter in a function: a {} has no values before the first forward of its "
    "module."
)


_set_storage: Any = vars(Handle)["_storage"].__set__
_delete_data: Any = vars(Tensor)["data"].__delete__


def _of_data(name: str) -> Any:
    """A method that an uninitialized tensor applies to its data, which has no elements."""

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        return getattr(self.data, name)(*args, **kwargs)

    method.__name__ = name
    return method


def _refused(self: Any, *args: Any, **kwargs: Any) -> Any:
    raise ValueError(_NO_VALUES.format(type(self).__name__))


class UninitializedTensorMixin(Tensor):
    """What parameters and buffers without sizes share (torch.nn.parameter.UninitializedTensorMixin)."""

    __slots__ = ()
    #: The class that `materialize` gives it.
    cls_to_become: Any = Tensor

    @property
    def shape(self) -> Any:
        """Refused: RuntimeError."""
        raise refuse(_NO_SHAPE)

    @property
    def _storage(self) -> Any:
        # An op asks each operand for its storage, so all of them are refused here.
        return _refused(self)

    @_storage.setter
    def _storage(self, storage: Any) -> None:
        _set_storage(self, storage)

    def _fresh(self) -> Any:
        return self._spec

    @property
    def data(self) -> Tensor:
        """A tensor of no elements, with the dtype and the device."""
        return empty(0, dtype=self.dtype, device=self.device)

    @data.setter
    def data(self, value: Tensor) -> None:
        kind = type(self)
        self.__class__ = self.cls_to_become
        try:
            self.data = value
        finally:
            self.__class__ = kind

    @data.deleter
    def data(self) -> None:
        _delete_data(self)

    cpu, cuda, to = _of_data("cpu"), _of_data("cuda"), _of_data("to")
    half, float, double = _of_data("half"), _of_data("float"), _of_data("double")
    char, short, int, long = _of_data("char"), _of_data("short"), _of_data("int"), _of_data("long")

    # Methods that are no ops: they would tell the data's numbers.
    numel = nelement = dim = ndimension = sparse_dim = dense_dim = _refused
    stride = dim_order = is_contiguous = contiguous = tolist = to_dense = _refused

    def materialize(self, shape: Any, device: Any = None, dtype: Any = None) -> None:
        """Take sizes, and unspecified values; optimizers that hold it keep it."""
        self.data = empty(shape, device=device or self.device, dtype=dtype or self.dtype)
        self.__class__ = self.cls_to_become

    def __deepcopy__(self, memo: dict[Any, Any]) -> Any:
        if id(self) not in memo:
            memo[id(self)] = type(self)(self.requires_grad, self.device, self.dtype)
        return memo[id(self)]

    def __reduce_ex__(self, protocol: Any) -> Any:
        return type(self), (self.requires_grad, self.device, self.dtype)

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"


class UninitializedParameter(UninitializedTensorMixin, Parameter):  # type: ignore[misc]
    """A parameter without sizes, until `materialize` makes it an ordinary one (torch.nn.UninitializedParameter)."""

    __slots__ = ()
    cls_to_become = Parameter

    def __new__(cls, requires_grad: bool = True, device: Any = None, dtype: Any = None) -> Any:
        return empty(0, device=device, dtype=dtype).requires_grad_(requires_grad)._as_subclass(cls)


class UninitializedBuffer(UninitializedTensorMixin):
    """A buffer without sizes, until `materialize` makes it an ordinary tensor (torch.nn.UninitializedBuffer)."""

    __slots__ = ()

    def __new__(
        cls, requires_grad: bool = False, device: Any = None, dtype: Any = None, persistent: bool = True
    ) -> Any:
        made = empty(0, device=device, dtype=dtype).requires_grad_(requires_grad)._as_subclass(cls)
        made.__dict__["_persistent_buffer"] = persistent
        return made


def is_lazy(param: object) -> bool:
    """Whether a parameter or buffer has no sizes yet (torch.nn.parameter.is_lazy)."""
    return isinstance(param, UninitializedTensorMixin)


def set_owner(held: Any, owner: Any, name: str) -> None:
    """Remember, weakly, that a module holds a parameter or module under a name."""
    object.__setattr__(held, "_owner", (weakref.ref(owner), name))


def qualified_name(held: Any) -> str | None:
    """The path of names from the outermost living module down to a parameter or module; None if no module holds it."""
    return path_of(held._owner) or None
