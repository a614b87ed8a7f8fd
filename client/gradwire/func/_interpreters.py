"""The transforms under way, by PyTorch's names (torch._C._functorch): levels, and tensors as rules for ops see them.

A vmap's tensor here has its samples in the first dimension of its value. A derivative's tensor is no wrapper: all
levels share one graph. `_unwrap_for_grad` therefore detaches, and one function's node stands for all levels.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

from gradwire._base.errors import refuse
from gradwire._base.modes import no_grad
from gradwire._base.refused import refusal
from gradwire._proxy.transforms import TRANSFORM, Transform, depths_inside, unbatched
from gradwire._tensor.tensor import Tensor
from gradwire.autograd.single_level import ALLOWED, IN_FORWARD
from gradwire.func._batched import LEVELS, BatchedTensor, Level


class TransformType(enum.Enum):
    """What a transform does with an op (torch._C._functorch.TransformType)."""

    Torch = 0
    Vmap = 1
    Grad = 2
    Jvp = 3
    Functionalize = 4


class Interpreter:
    """One transform under way, as a rule of a HigherOrderOperator is told of it."""

    def __init__(self, transform: Transform) -> None:
        self._transform = transform

    def key(self) -> TransformType:
        """Which transform it is."""
        if not self._transform.differentiates:
            return TransformType.Vmap
        return TransformType.Jvp if self._transform.forward else TransformType.Grad

    def level(self) -> int:
        """How deep it is nested: 1 for the outermost."""
        return self._transform.depth

    @contextmanager
    def lower(self) -> Iterator[None]:
        """Context in which the next transform outwards is the innermost."""
        levels = LEVELS.get()
        if levels and levels[-1].transform is self._transform:
            levels = levels[:-1]
        transform, batched = TRANSFORM.set(self._transform.outer), LEVELS.set(levels)
        try:
            with nullcontext() if self._transform.recorded else no_grad():
                yield
        finally:
            LEVELS.reset(batched)
            TRANSFORM.reset(transform)

    def batch_size(self) -> int:
        """How many samples a vmap maps over."""
        return _batch_level(self.level()).size

    def randomness(self) -> str:
        """What random ops do under a vmap."""
        return _batch_level(self.level()).randomness


def peek_interpreter_stack() -> Interpreter | None:
    """The innermost transform of this thread."""
    inside = TRANSFORM.get()
    return None if inside is None else Interpreter(inside)


def maybe_current_level() -> int | None:
    """The innermost transform's level."""
    inside = TRANSFORM.get()
    return None if inside is None else inside.depth


def are_transforms_active() -> bool:
    """Whether a transform is under way in this thread (torch._C._are_functorch_transforms_active)."""
    return TRANSFORM.get() is not None


def is_batchedtensor(tensor: Any) -> bool:
    """Whether a tensor is one sample of a vmap, and of no transform further in."""
    return isinstance(tensor, BatchedTensor) and not is_gradtrackingtensor(tensor)


def is_gradtrackingtensor(tensor: Any) -> bool:
    """Whether a derivative is the innermost transform that knows a tensor."""
    if not isinstance(tensor, Tensor):
        return False
    batched = tensor._level.transform.depth if isinstance(tensor, BatchedTensor) else 0
    return any(depth > batched for depth in depths_inside(unbatched(tensor), float("inf")))


def is_functorch_wrapped_tensor(tensor: Any) -> bool:
    """Whether a transform under way knows a tensor."""
    return is_batchedtensor(tensor) or is_gradtrackingtensor(tensor)


def maybe_get_level(tensor: Tensor) -> int:
    """The level of the innermost transform that knows a tensor, -1 for none."""
    batched = [tensor._level.transform.depth] if isinstance(tensor, BatchedTensor) else []
    return max([*batched, *depths_inside(unbatched(tensor), float("inf"))], default=-1)


def maybe_get_bdim(tensor: Tensor) -> int:
    """The dimension of a tensor's samples, -1 for a tensor that is none of a vmap."""
    return tensor.samples[1] if isinstance(tensor, BatchedTensor) else -1


def get_unwrapped(tensor: Tensor) -> Tensor:
    """All samples of a vmap's tensor. Raises RuntimeError for another tensor."""
    if not isinstance(tensor, BatchedTensor):
        raise refuse("No wrappers present!")
    return tensor.samples[0]


def _add_batch_dim(tensor: Tensor, dim: int, level: int) -> Tensor:
    """A tensor of all samples, with them in a dimension, as one sample at a vmap's level."""
    value = tensor.movedim(dim, 0) if dim % tensor.dim() else tensor
    return BatchedTensor(value, _batch_level(level))


def _batch_level(depth: int) -> Level:
    for level in LEVELS.get():
        if level.transform.depth == depth:
            return level
    raise refuse(f"level {depth} is no vmap under way")


def _unwrap_for_grad(tensor: Tensor, level: int) -> Tensor:
    """A tensor as it is outside of a derivative, whose function computes with it in its forward."""
    _check_in_forward("_unwrap_for_grad")
    return tensor.detach()


def _wrap_for_grad(tensor: Tensor, level: int) -> Tensor:
    """A result as it is inside of a derivative: the function's node gives it its history."""
    _check_in_forward("_wrap_for_grad")
    return tensor


def _check_in_forward(name: str) -> None:
    if not IN_FORWARD.get():
        raise refusal(
            f"{name} outside of the forward of a _SingleLevelFunction", "all levels of derivatives share one graph"
        )


@contextmanager
def enable_single_level_autograd_function() -> Iterator[None]:
    """Context in which a transform's rule may call a `_SingleLevelFunction` (torch._functorch.utils)."""
    token = ALLOWED.set(True)
    try:
        yield
    finally:
        ALLOWED.reset(token)
