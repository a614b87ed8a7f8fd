"""Where a vmap or a saved_tensors_hooks takes part in calling ops: while one is under way `_call` asks it first."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

#: An entry for each that is under way.
BATCHING: list[object] = []
#: Each answers the calls that are its own, NotImplemented to any other. They register themselves; vmap's is the first.
DISPATCH: list[Callable[..., Any]] = []
