"""Batching: lets an active vmap or saved_tensors_hooks intercept op calls; `_call` consults it first."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

#: One entry per active context.
BATCHING: list[object] = []
#: Functions that handle a call, or return NotImplemented. They register themselves; vmap's is the first.
DISPATCH: list[Callable[..., Any]] = []
#: Functions that handle the call of a custom autograd.Function, or return NotImplemented. vmap's registers itself.
FUNCTIONS: list[Callable[..., Any]] = []
