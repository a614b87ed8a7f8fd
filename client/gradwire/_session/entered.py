"""Entered sessions: the stack of `with` blocks; the last session receives new tensors."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any

#: The sessions entered and not left in this context, innermost last.
ENTERED: ContextVar[tuple[Any, ...]] = ContextVar("gradwire_entered_sessions", default=())


def enter(session: Any) -> None:
    """Make a session the current one of this context."""
    ENTERED.set((*ENTERED.get(), session))


def leave() -> None:
    """Undo the last `enter`."""
    ENTERED.set(ENTERED.get()[:-1])
