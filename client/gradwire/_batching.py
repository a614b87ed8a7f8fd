"""Where vmap takes part in calling ops: while one is under way, in any thread, `_call` asks the dispatcher first."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

#: An entry for each vmap under way.
BATCHING: list[object] = []
#: Answers a call that has batched tensors among its operands, NotImplemented to any other. It registers itself.
DISPATCH: list[Callable[..., Any]] = []
