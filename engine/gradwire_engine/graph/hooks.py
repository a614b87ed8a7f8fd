"""Hooks as data: external callbacks of backward, for tensor and node hooks, external formulas and recomputed values.

The engine runs no user code. It stores numbers: an `ExternalCallback` identifies a callback of the engine's caller.
Backward requests it by a `CallbackRequest` (callbacks.py).
"""

from __future__ import annotations

import weakref
from enum import Enum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import MutableSequence


class ExternalCallback:
    """An external callback, by number. When no reference to it is left, the number is appended to `gone`."""

    __slots__ = ("__weakref__", "gone", "holder", "number")

    def __init__(self, number: int, gone: MutableSequence[int]) -> None:
        self.number = number
        self.gone = gone
        self.holder: weakref.ref[Hooks] | None = None

    def remove(self) -> None:
        """Unregister the callback."""
        hooks = None if self.holder is None else self.holder()
        if hooks is not None:
            hooks.remove(self)

    def __del__(self) -> None:
        self.gone.append(self.number)


class CallbackKind(Enum):
    """Kinds of callbacks: when each is called, relative to its node, and with which arguments."""

    TENSOR = "tensor"  # with the gradient of one output, before all others
    BEFORE = "before"  # with the gradients of all outputs, before the node's formulas
    AFTER = "after"  # with the gradients of inputs and of outputs, after the formulas
    ACCUMULATED = "accumulated"  # with a leaf, after its gradient was accumulated
    FORMULA = "formula"  # computes the gradients of a node without formulas of the engine
    AGAIN = "again"  # recomputes the node's saved values, which were dropped
    UNPACK = "unpack"  # returns one saved value of the node, which the caller keeps


class Hooks:
    """Hooks of a node or a leaf. `tensor` maps an output's index to the hooks of that output."""

    __slots__ = ("__weakref__", "accumulated", "after", "again", "before", "formula", "tensor")

    def __init__(self) -> None:
        self.tensor: dict[int, list[ExternalCallback]] = {}
        self.before: list[ExternalCallback] = []
        self.after: list[ExternalCallback] = []
        self.accumulated: list[ExternalCallback] = []
        self.formula: ExternalCallback | None = None
        self.again: Any = None

    def __bool__(self) -> bool:
        return bool(
            any(self.tensor.values()) or self.before or self.after or self.accumulated or self.formula or self.again
        )

    def add(self, when: CallbackKind, callback: ExternalCallback, index: int = 0) -> None:
        """Register a hook; `index` is the output's, for kind TENSOR."""
        held = self.tensor.setdefault(index, []) if when is CallbackKind.TENSOR else self._of(when)
        held.append(callback)
        callback.holder = weakref.ref(self)

    def remove(self, callback: ExternalCallback) -> None:
        """Unregister a hook."""
        for held in (*self.tensor.values(), self.before, self.after, self.accumulated):
            held[:] = [each for each in held if each is not callback]

    def _of(self, when: CallbackKind) -> list[ExternalCallback]:
        return {
            CallbackKind.BEFORE: self.before,
            CallbackKind.AFTER: self.after,
            CallbackKind.ACCUMULATED: self.accumulated,
        }[when]
