"""Variable: the old name of a tensor (torch.autograd.Variable), which old programs make and test for."""

from __future__ import annotations

from typing import Any

from gradwire._functions.create import empty
from gradwire._tensor.tensor import Tensor


class _AnyTensor(type):
    """Makes isinstance(tensor, Variable) true for every tensor."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, Tensor)


class Variable(metaclass=_AnyTensor):
    """`Variable(data, requires_grad=False)`: a new leaf, a tensor, on the values of `data`."""

    def __new__(cls, data: Tensor | None = None, requires_grad: bool = False) -> Any:
        """Raises RuntimeError if it should require a gradient and its dtype has none."""
        source = empty(0) if data is None else data.detach()
        return source.requires_grad_() if requires_grad else source


__all__ = ["Variable"]
