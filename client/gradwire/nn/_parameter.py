"""Parameter: a leaf that a module owns and an optimizer changes."""

from __future__ import annotations

import weakref
from typing import Any

from gradwire._functions.create import empty
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


def set_owner(held: Any, owner: Any, name: str) -> None:
    """Remember, weakly, that a module holds a parameter or module under a name."""
    object.__setattr__(held, "_owner", (weakref.ref(owner), name))


def qualified_name(held: Any) -> str | None:
    """The path of names from the outermost living module down to a parameter or module; None if no module holds it."""
    return path_of(held._owner) or None
