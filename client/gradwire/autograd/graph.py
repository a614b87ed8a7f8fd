"""The graph's own surface (torch.autograd.graph): nodes, edges, versions, and hooks of several tensors."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from gradwire._edges import GradientEdge, get_gradient_edge
from gradwire._errors import GradwireValueError, refuse
from gradwire._hooks import RemovableHandle
from gradwire._modes import no_grad
from gradwire._nodes import Node
from gradwire._running import CURRENT_PASS, Pass
from gradwire._tensor import Tensor


def increment_version(tensor: Tensor | Iterable[Tensor]) -> None:
    """Count a change in place that was none: what backward has saved of these tensors is out of date then."""
    for each in [tensor] if isinstance(tensor, Tensor) else tensor:
        if not each.is_inference():
            with no_grad():
                each.copy_(each.clone())


def register_multi_grad_hook(
    tensors: Sequence[Tensor], fn: Callable[..., None], *, mode: str = "all"
) -> RemovableHandle:
    """Call `fn` in each backward that computes gradients of any of these tensors.

    mode "all": `fn(gradients)` once, with None for those that backward did not come to, when the backward is through:
    PyTorch calls it as soon as the last of them is there. "any": `fn(gradient)` with the first. Raises ValueError for
    another mode, RuntimeError for a tensor that requires no gradient.
    """
    if mode not in ("all", "any"):
        raise GradwireValueError(f"Expects mode to be one of ('all', 'any') but got {mode}")
    make = _all_hooks if mode == "all" else _any_hooks
    handles = [each.register_hook(hook) for each, hook in zip(tensors, make(len(tensors), fn), strict=True)]

    def remove() -> None:
        for handle in handles:
            handle.remove()

    return RemovableHandle(remove)


def _current() -> Pass:
    this = CURRENT_PASS.get()
    if this is None:
        raise refuse("expected this hook to be called inside a backward call")
    return this


def _all_hooks(count: int, fn: Callable[..., None]) -> list[Callable[[Any], None]]:
    gathered: dict[Pass, list[Any]] = {}

    def note(place: int, gradient: Any) -> None:
        this = _current()
        if this not in gathered:
            gathered[this] = [None] * count
            this.at_end.append(lambda: fn(gathered.pop(this)))
        gathered[this][place] = gradient

    return [functools.partial(note, place) for place in range(count)]


def _any_hooks(count: int, fn: Callable[..., None]) -> list[Callable[[Any], None]]:
    ran: weakref.WeakSet[Pass] = weakref.WeakSet()

    def first(gradient: Any) -> None:
        this = _current()
        if this not in ran:
            ran.add(this)
            fn(gradient)

    return [first] * count


__all__ = ["GradientEdge", "Node", "get_gradient_edge", "increment_version", "register_multi_grad_hook"]
