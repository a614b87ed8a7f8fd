"""Names of PyTorch's C++ part that tell about the graph (torch._C._functions, torch._C._WeakTensorRef)."""

from __future__ import annotations

import weakref
from typing import Any

from gradwire._graph.nodes import class_of
from gradwire._proxy.handle import Handle
from gradwire.autograd.gradcheck import Undefined

#: The class of the nodes that accumulate a leaf's gradient.
AccumulateGrad = class_of("AccumulateGrad")


class UndefinedGrad:
    """A function that returns its tensors, and lets no gradient through."""

    def __call__(self, *tensors: Handle) -> Any:
        made = Undefined.apply(*tensors)
        return made[0] if len(made) == 1 else made


class WeakTensorRef:
    """A weak reference to a tensor's object."""

    def __init__(self, tensor: Handle) -> None:
        self._ref = weakref.ref(tensor)

    def expired(self) -> bool:
        """Whether the object is gone."""
        return self._ref() is None
