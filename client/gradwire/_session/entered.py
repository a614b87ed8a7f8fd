"""The sessions of the `with` blocks that the program is in: the last one is that of new tensors."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any

#: The sessions that were entered in this context and not left.
ENTERED: ContextVar[tuple[Any, ...]] = ContextVar("gradwire_entered_sessions", default=())


def enter(session: Any) -> None:
    """Make a session the current one of this context."""
    ENTERED.set((*ENTERED.get(), session))


def leave() -> None:
    """Undo the last `enter`."""
    ENTERED.set(ENTERED.get()[:-1])
