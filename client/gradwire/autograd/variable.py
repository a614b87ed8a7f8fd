"""Variable: the old name of a tensor (torch.autograd.Variable), which old programs make and test for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gradwire._base.errors import refuse
from gradwire._functions.create import empty
from gradwire._graph.hook_runner import CURRENT_PASS
from gradwire._tensor.tensor import Tensor


class _AnyTensor(type):
    """Makes isinstance(tensor, Variable) true for every tensor."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, Tensor)


class _Engine:
    """The part of PyTorch's engine that libraries call: callbacks at the end of the backward under way."""

    def queue_callback(self, callback: Callable[[], None]) -> None:
        """Call `callback()` at the end of the backward whose hook or function calls this.

        Raises RuntimeError outside of a backward.
        """
        this = CURRENT_PASS.get()
        if this is None:
            raise refuse("Final callbacks can only be installed during backward pass.")
        this.at_end.append(lambda through: callback())


class Variable(metaclass=_AnyTensor):
    """`Variable(data, requires_grad=False)`: a new leaf, a tensor, on the values of `data`."""

    _execution_engine = _Engine()

    def __new__(cls, data: Tensor | None = None, requires_grad: bool = False) -> Any:
        """Raises RuntimeError if it should require a gradient and its dtype has none."""
        source = empty(0) if data is None else data.detach()
        return source.requires_grad_() if requires_grad else source


__all__ = ["Variable"]
