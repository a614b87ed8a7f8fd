"""BatchedTensor: the tensor that a function under vmap sees. It represents one sample and contains all of them.

Its value has the batch as its first dimension, and may itself be batched by a vmap further out. An op on it calls the
batching rule of the innermost vmap among the operands. The rule calls ops on values. An argument of the function keeps
the tensor that vmap was given, of which its value is a view.
"""

from __future__ import annotations

import math
import sys
from contextvars import ContextVar
from typing import Any, NoReturn

from gradwire._base.call_site import INTERNAL
from gradwire._base.errors import GradwireRuntimeError
from gradwire._proxy.memo import Spec, intern
from gradwire._proxy.transforms import Transform, depths_inside, refuse_inside, unbatched
from gradwire._tensor import values
from gradwire._tensor.tensor import Tensor


class UnmappableError(GradwireRuntimeError):
    """A refusal of what a function under vmap may not do; without vmap it may."""


class Level:
    """One vmap under way: how deep it is nested, how many samples there are, and what random ops do."""

    __slots__ = ("depth", "maps_functions", "randomness", "size", "transform")

    def __init__(self, depth: int, size: int, randomness: str, maps_functions: bool = False) -> None:
        """maps_functions: whether custom functions without a rule run on all samples."""
        self.depth = depth
        self.size = size
        self.maps_functions = maps_functions
        self.randomness = randomness
        self.transform = Transform(differentiates=False)


#: The levels of this thread, outermost first.
LEVELS: ContextVar[tuple[Level, ...]] = ContextVar("gradwire_vmap_levels", default=())


class BatchedTensor(Tensor):
    """One of a batch, under vmap. It has no id: what needs one is refused."""

    __slots__ = ()
    _value: Any
    _level: Level

    def __new__(cls, value: Tensor, level: Level, given: tuple[Tensor, int] | None = None) -> BatchedTensor:
        """given: the tensor that vmap was given and its dimension of samples, if this is not the first."""
        made: BatchedTensor = object.__new__(cls)
        made.__dict__["_value"] = value
        made.__dict__["_level"] = level
        if given is not None:
            made.__dict__["_given"] = given
        return made

    @property
    def samples(self) -> tuple[Tensor, int]:
        """All samples, and their dimension: as vmap was given them for an argument, else the first."""
        found: tuple[Tensor, int] = self.__dict__.get("_given") or (self._value, 0)
        return found

    def __del__(self) -> None:
        return None  # the value's id is the value's to release

    @property
    def _spec(self) -> Spec:  # type: ignore[override]
        spec: Spec = self._value._fresh()
        strides = spec.strides[1:] if spec.strides else ()
        return intern(
            spec.dtype,
            spec.shape[1:],
            spec.device_name,
            spec.requires_grad,
            spec.is_leaf,
            spec.grad_fn,
            strides,
            spec.is_view,
            tangents=spec.tangents,
        )

    @property
    def _session(self) -> Any:  # type: ignore[override]
        return self._value._session

    @property
    def _edge(self) -> Any:  # type: ignore[override]
        return self._value._edge

    @property
    def _storage(self) -> None:  # type: ignore[override]
        return None

    @property
    def _grad(self) -> None:
        return None

    @property
    def _retained(self) -> None:  # type: ignore[override]
        return None

    @property
    def _id(self) -> NoReturn:  # type: ignore[override]
        raise UnmappableError(
            "vmap: a function under vmap asked for what exists only outside of it (the values of a sample, backward(), "
            "an index of varying size). Write it in ops that have a batching rule, or call it outside."
        )

    def detach(self) -> Tensor:
        return BatchedTensor(self._value.detach(), self._level)

    def requires_grad_(self, requires_grad: bool = True) -> Any:
        if not INTERNAL[sys._getframe(1).f_code.co_filename]:
            refuse_inside("requires_grad_")
        self._value.requires_grad_(requires_grad)
        return self

    def item(self) -> NoReturn:
        raise UnmappableError(
            "vmap: It looks like you're calling .item() on a Tensor. We don't support vmap over calling .item() on a "
            "Tensor: every sample has another value."
        )

    tolist = numpy = item  # type: ignore[assignment]

    def __bool__(self) -> NoReturn:
        raise UnmappableError(
            "vmap: It looks like you're attempting to use a Tensor in some data-dependent control flow. We don't "
            "support that: every sample might take another way. gradwire.where chooses between values."
        )

    def __repr__(self) -> str:
        return self._show(math.inf)

    def _show(self, below: float) -> str:
        depth = self._level.transform.depth
        inside = depths_inside(unbatched(self), below, depth)
        whole, dim = self.samples
        value: Any = whole.detach() if inside else whole
        shown = values.show_wrapped("BatchedTensor", [depth], value._show(depth), f", bdim={dim}")
        return values.show_wrapped("GradTrackingTensor", inside, shown)


def value_at(tensor: Any, level: Level) -> Any:
    """The value of a tensor that is batched at a level; anything else itself."""
    return tensor._value if isinstance(tensor, BatchedTensor) and tensor._level is level else tensor


def is_batched(tensor: Any, level: Level) -> bool:
    """Whether it is a tensor that is batched at a level."""
    return isinstance(tensor, BatchedTensor) and tensor._level is level


def spread(tensor: Tensor, level: Level) -> Any:
    """A tensor's value at a level: one that is the same for all samples is expanded."""
    if is_batched(tensor, level):
        return value_at(tensor, level)
    return tensor.expand((level.size, *tensor.shape))


def at_all_levels(tensor: Tensor) -> Any:
    """Batch a tensor at every level of this thread, so each sample has a separate gradient."""

    def rise(one: Tensor, levels: tuple[Level, ...]) -> Any:
        if not levels:
            return one
        return BatchedTensor(rise(spread(one, levels[-1]), levels[:-1]), levels[-1])

    return rise(tensor, LEVELS.get())


def innermost(tensors: Any) -> Level | None:
    """The deepest level at which one of the tensors is batched."""
    levels = [each._level for each in tensors if isinstance(each, BatchedTensor)]
    return max(levels, key=lambda level: level.depth) if levels else None
