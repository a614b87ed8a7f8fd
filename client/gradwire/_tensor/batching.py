"""Batching: lets an active vmap, autocast or saved_tensors_hooks intercept op calls; `_call` consults it first."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gradwire._base.dtypes import dtype

#: One entry per active context.
BATCHING: list[object] = []
#: Functions that handle a call, or return NotImplemented. They register themselves; vmap's is the first.
DISPATCH: list[Callable[..., Any]] = []
#: Functions that handle the call of a custom autograd.Function, or return NotImplemented. vmap's registers itself.
FUNCTIONS: list[Callable[..., Any]] = []
#: Functions that handle the call of an op of torch.library, or return NotImplemented.
CUSTOM_OPS: list[Callable[..., Any]] = []

#: Functions that read a tensor's only element, or return NotImplemented.
READS: list[Callable[[Any], Any]] = []
#: Functions that are shown a call of backward or grad, and compute it or return NotImplemented.
DERIVATIVES: list[Callable[..., Any]] = []
#: Functions that are shown a change of a tensor's sizes or memory in place, and do it or return NotImplemented.
RESHAPES: list[Callable[..., Any]] = []
#: Functions that are shown a result for an `out=` tensor, and write it or return False.
OUTS: list[Callable[..., bool]] = []
#: Functions that are shown a tensor of values that the client sent.
MADE: list[Callable[[Any], None]] = []
#: Functions that are shown a tensor whose requires_grad was set.
FLAGS: list[Callable[[Any, bool], None]] = []
#: Functions that are shown a tensor made of values, and return it or another.
LIFTS: list[Callable[[Any], Any]] = []


class Region:
    """What autocast has in force: a dtype per kind of device, None where it is off, and the weights cast so far.

    named: the dtypes of the kinds, also where it is off. Regions inside begin with them.
    """

    def __init__(
        self, chosen: Mapping[str, dtype | None], named: Mapping[str, dtype], caches: bool, outer: Region | None
    ) -> None:
        self.chosen = chosen
        self.named = named
        self.caches = caches
        #: A weight's object and its cast, by the object's id. Regions inside share them with the outermost.
        self.casts: dict[tuple[int, dtype], tuple[Any, Any]] = {} if outer is None else outer.casts


REGION: ContextVar[Region | None] = ContextVar("gradwire_autocast", default=None)


@contextmanager
def restored(region: Region | None) -> Iterator[None]:
    """Bring an earlier region of autocast back, without the casts it kept; None for no region."""
    token = REGION.set(None if region is None else Region(region.chosen, region.named, region.caches, None))
    BATCHING.append(token)
    try:
        yield
    finally:
        BATCHING.remove(token)
        REGION.reset(token)


def without_casts() -> AbstractContextManager[None]:
    """The region of autocast that is in force, without the casts it has kept: what is recorded casts its own."""
    region = REGION.get()
    return nullcontext() if region is None else restored(region)
