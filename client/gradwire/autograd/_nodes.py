"""Names of PyTorch's C++ part that tell about the graph (torch._C._functions, torch._C._WeakTensorRef)."""

from __future__ import annotations

import math
import weakref
from typing import Any

from gradwire._base.errors import refuse
from gradwire._graph.hook_runner import CURRENT_PASS
from gradwire._graph.nodes import class_of
from gradwire._proxy.handle import Handle
from gradwire.autograd.function import Delayed, Function
from gradwire.autograd.gradcheck import Undefined

#: The class of the nodes that accumulate a leaf's gradient.
AccumulateGrad = class_of("AccumulateGrad")


class UndefinedGrad:
    """A function that returns its tensors, and lets no gradient through."""

    def __call__(self, *tensors: Handle) -> Any:
        made = Undefined.apply(*tensors)
        return made[0] if len(made) == 1 else made


class DelayedError:
    """A function that returns its tensors, and whose derivative is refused with a message."""

    def __init__(self, message: str, num_inputs: int) -> None:
        self.num_inputs = num_inputs
        self._function: Any = type("Error", (Delayed,), {"message": message})

    def __call__(self, *tensors: Handle) -> Any:
        made = self._function.apply(*tensors)
        return made[0] if len(made) == 1 else made


class Resize(Function):
    """Another shape of a tensor with the same number of elements (torch.autograd._functions.Resize)."""

    @staticmethod
    def forward(ctx: Any, tensor: Any, sizes: Any) -> Any:
        """A copy with these sizes."""
        if tensor.numel() != math.prod(sizes):
            wanted, given = ("x".join(map(str, each)) for each in (sizes, tensor.size()))
            raise refuse(
                f"requested resize to {wanted} ({math.prod(sizes)} elements in total), but the given tensor has a size "
                f"of {given} ({tensor.numel()} elements). autograd's resize can only change the shape of a given "
                "tensor, while preserving the number of elements."
            )
        ctx.input_sizes = tensor.size()
        return tensor.clone().view(*sizes)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        """The gradient with the first shape."""
        return grad_outputs[0].contiguous().view(ctx.input_sizes), None


def current_graph_task_id() -> int:
    """The number of the backward under way in this thread, -1 outside of any."""
    this = CURRENT_PASS.get()
    return -1 if this is None else this.number


def current_graph_task_keep_graph() -> bool:
    """Whether the backward under way keeps its graph; True outside of any."""
    this = CURRENT_PASS.get()
    return this is None or this.keeps_graph


class WeakTensorRef:
    """A weak reference to a tensor's object."""

    def __init__(self, tensor: Handle) -> None:
        self._ref = weakref.ref(tensor)

    def expired(self) -> bool:
        """Whether the object is gone."""
        return self._ref() is None
