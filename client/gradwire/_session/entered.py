"""Entered sessions: the stack of `with` blocks; the last session receives new tensors."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any

#: The sessions entered and not left in this context, innermost last.
ENTERED: ContextVar[tuple[Any, ...]] = ContextVar("gradwire_entered_sessions", default=())


def enter(session: Any) -> None:
    """Make a session the current one of this context."""
    ENTERED.set((*ENTERED.get(), session))


def leave(session: Any) -> None:
    """Undo the last `enter` of a session, also in another context, or with others entered since and not left."""
    entered = ENTERED.get()
    for place in reversed(range(len(entered))):
        if entered[place] is session:
            ENTERED.set((*entered[:place], *entered[place + 1 :]))
            return
