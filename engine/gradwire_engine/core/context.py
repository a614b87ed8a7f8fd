"""What surrounds a computation: grad mode, whose bytes it counts, its random generator, what interrupts it.

Kept in one ContextVar, so that a thread or an async task has its own and an op looks it up once.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from gradwire_engine.core.errors import EngineError, Reason
from gradwire_engine.core.random import Generator


@dataclass(slots=True)
class Account:
    """Counts the bytes of storages that live; `limit` of 0 is none. `operations` that one op may take at most.

    `pressed`: the interrupt is to be asked before the next op, since others wait or the client wants it no more.
    """

    bytes: int = 0
    limit: int = 0
    operations: float = math.inf
    pressed: bool = False

    def admit(self, size: int) -> None:
        """Refuse what would pass the limit, before it is allocated. Raises EngineError: MEMORY_LIMIT."""
        if self.limit and self.bytes + size > self.limit:
            raise EngineError(
                Reason.MEMORY_LIMIT,
                f"out of memory: {size} more bytes would pass the limit of {self.limit} ({self.bytes} are held)",
                limit=self.limit,
                held=self.bytes,
                requested=size,
            )


class Interrupt:
    """When a long computation is to look up from its work, between two nodes or steps: to stop, or to pause.

    Until `at`, by time.monotonic(), it costs a look at the clock. Another thread may bring it forward.
    """

    __slots__ = ("at",)

    def __init__(self) -> None:
        self.at = math.inf

    def stopping(self) -> bool:
        """Whether to stop; else others are let go on before it."""
        return False

    def look(self) -> None:
        """Between two ops, where nothing can be yielded: let others go on. Raises EngineError: CANCELLED."""

    def aside(self, compute: Callable[[], Any], name: str, work: float, alone: bool, room: int = 0) -> Any:
        """What `compute` makes, which takes long: perhaps elsewhere, while others go on. Raises what it raises, and
        EngineError: CANCELLED. `alone`: it only reads arrays and makes new ones, so another process may do it. `room`:
        bytes that it takes meanwhile."""
        return compute()


class Pause:
    """What a computation that can be gone on with yields where it looks up: nothing is due but that others go on."""


PAUSE = Pause()
_FLOAT32 = np.dtype(np.float32)


class Command:
    """What the outside is carrying out, by a number of its own; nodes remember it to tell whose they are. 0: none."""

    number: int = 0


@dataclass(slots=True, frozen=True)
class Context:
    """The surroundings of a computation."""

    grad_enabled: bool = True
    account: Account = field(default_factory=Account)
    generator: Generator = field(default_factory=Generator)
    interrupt: Interrupt | None = None
    inference: bool = False  # what is made inside can never be part of a graph
    command: Command = field(default_factory=Command)
    tracer: Any = None  # what ops report to: tracing.Tracer
    default_dtype: Any = _FLOAT32  # what whole numbers become where a float is wanted


_OUTSIDE = Context()
CURRENT: ContextVar[Context] = ContextVar("gradwire_engine", default=_OUTSIDE)


# The context that was switched last, and what came of it: a session's backwards switch the same one again and again.
_switched: tuple[Context, Context] = (_OUTSIDE, replace(_OUTSIDE, grad_enabled=False))


def _switch(context: Context) -> Context:
    """The same surroundings in the other grad mode."""
    global _switched
    before, after = _switched
    if before is not context:
        after = replace(context, grad_enabled=not context.grad_enabled)
        if context.tracer is None:
            _switched = context, after
    return after


class grad_mode:
    """Record operations or not, inside the block (torch.set_grad_enabled)."""

    __slots__ = ("_enabled", "_token")

    def __init__(self, enabled: bool) -> None:
        self._enabled = enabled

    def __enter__(self) -> None:
        context = CURRENT.get()
        self._token = CURRENT.set(context if context.grad_enabled is self._enabled else _switch(context))

    def __exit__(self, *exc: object) -> None:
        CURRENT.reset(self._token)


@contextmanager
def activate(context: Context) -> Iterator[None]:
    """Compute in these surroundings, inside the block, with IEEE results where NumPy would warn."""
    token = CURRENT.set(context)
    try:
        with np.errstate(all="ignore"):
            yield
    finally:
        CURRENT.reset(token)


def generator_for(xp: Any) -> Any:
    """The current context's random generator for an array module."""
    return CURRENT.get().generator.of(xp)
