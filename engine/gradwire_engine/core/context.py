"""Context of a computation: grad mode, memory account, random generator, node numbers and interrupt.

One ContextVar holds it, so each thread or async task has its own and an op reads it once.
"""

import math
from collections.abc import Callable
from concurrent.futures import Future, wait
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from gradwire_engine.core.errors import EngineError, Reason
from gradwire_engine.core.random import Generator


@dataclass(slots=True)
class Account:
    """Bytes of live storages, and limits.

    limit: maximum of `bytes`; 0 means none. operations: maximum for one op.
    pressed: the next op must first check the interrupt, because sessions wait or the client cancelled.
    """

    bytes: int = 0
    limit: int = 0
    operations: float = math.inf
    pressed: bool = False

    def admit(self, size: int) -> None:
        """Check the limit before `size` bytes are allocated. Raises EngineError: MEMORY_LIMIT."""
        if self.limit and self.bytes + size > self.limit:
            raise EngineError(
                Reason.MEMORY_LIMIT,
                f"out of memory: {size} more bytes would pass the limit of {self.limit} ({self.bytes} are held)",
                limit=self.limit,
                held=self.bytes,
                requested=size,
            )


_WAIT_SECONDS = 0.002


class Interrupt:
    """Requests that a long computation stop or pause between two nodes or steps.

    at: time.monotonic() of the next check; until then a check only reads the clock. Another thread may lower it.
    node_began: called with a node's name before backward visits the node; None in most cases.
    """

    __slots__ = ("at", "node_began")

    def __init__(self) -> None:
        self.at = math.inf
        self.node_began: Callable[[str], object] | None = None

    def stopping(self) -> bool:
        """Whether to stop; if False, `pauses` says whether the computation pauses."""
        return False

    def pauses(self) -> bool:
        """Whether to pause for other sessions; if False, none waits, and the next check is later."""
        return True

    def wait_for(self, future: Future[Any]) -> None:
        """Note that the next pause need not end before a future is done; without other sessions, wait a moment."""
        wait([future], _WAIT_SECONDS)

    def poll(self) -> None:
        """Let other sessions compute, between two ops where the caller cannot yield. Raises EngineError: CANCELLED."""

    def offload(self, compute: Callable[[], Any], name: str, work: float, alone: bool, room: int = 0) -> Any:
        """Run an expensive `compute` and return its result, perhaps in another process while other sessions compute.

        work: operations. alone: it only reads arrays and makes new ones, so another process may run it.
        room: bytes it takes meanwhile. Raises what `compute` raises, and EngineError: CANCELLED.
        """
        return compute()


class Pause:
    """Yielded by a resumable computation where other sessions may compute; it needs no answer."""


PAUSE = Pause()
_FLOAT32 = np.dtype(np.float32)


class Command:
    """Number of the command in progress, assigned by the engine's caller; nodes record it. 0: none."""

    number: int = 0


class NodeNumbers:
    """Numbers the nodes of one session in order of creation. Backward visits newer nodes first.

    next: the next node's number. One thread at a time makes a session's nodes.
    """

    __slots__ = ("next",)

    def __init__(self) -> None:
        self.next = 0

    def take(self) -> int:
        """Return a number and advance to the next."""
        number = self.next
        self.next = number + 1
        return number


class Duals:
    """Tangents of tensors, for forward-mode differentiation: autograd/forward.py implements them."""

    #: Whether a tensor may have a tangent. Ops call the other methods only then.
    active = False
    #: The implementation, which registers itself.
    implementation: "type[Duals] | None" = None

    @staticmethod
    def new() -> "Duals":
        """The tangents of a new context: none yet."""
        return (Duals.implementation or Duals)()

    def applied(self, op: Any, args: tuple[Any, ...], made: Any) -> None:
        """Called after each op, with its results."""

    def before_change(self, op: Any, args: tuple[Any, ...]) -> Any:
        """Called before each in-place op; what it returns is for `after_change`, unless it is None."""

    def after_change(self, op: Any, before: Any, target: Any) -> None:
        """Called after an in-place op."""

    def copy(self, source: Any, target: Any) -> None:
        """Called for a copy of a tensor that a composite is about to overwrite."""

    def overwrite(self, target: Any, result: Any) -> None:
        """Called after a composite has overwritten a tensor by a result."""

    def hold(self, tensor: Any, tangents: Any) -> None:
        """Called with a tensor made of saved values, and the tangents saved with them."""

    def drop(self, tensor: Any) -> None:
        """Take a tensor's tangents away: it left the graph. Without a level there are none."""

    def make(self, primal: Any, tangent: Any, token: Any, depth: int) -> Any:
        """A view of a tensor with a tangent at a level, for which a tensor stands."""
        raise NotImplementedError

    def tangent(self, tensor: Any, token: Any) -> Any:
        """The tangent of a tensor at a level; zeros if it has none."""
        raise NotImplementedError

    def primal(self, tensor: Any, token: Any) -> Any:
        """A view of a tensor without its tangent at a level."""
        raise NotImplementedError

    def leave(self, token: Any) -> None:
        """Drop the tangents at a level."""

    def described(self, tensor: Any) -> list[tuple[int, Any]]:
        """Depth and tangent of each level at which a tensor has one, outermost first."""
        return []


@dataclass(slots=True, frozen=True)
class Context:
    """Settings and services of a computation."""

    grad_enabled: bool = True
    account: Account = field(default_factory=Account)
    generator: Generator = field(default_factory=Generator)
    interrupt: Interrupt | None = None
    inference: bool = False  # tensors made inside can never be part of a graph
    command: Command = field(default_factory=Command)
    nodes: NodeNumbers = field(default_factory=NodeNumbers)
    tracer: Any = None  # receives each op: tracing.Tracer
    default_dtype: Any = _FLOAT32  # for integers where a float is needed
    duals: Duals = field(default_factory=Duals.new)
    loops: Any = None  # machine code for ops on large arrays: ops.base.loops.Loops


_OUTSIDE = Context()
CURRENT: ContextVar[Context] = ContextVar("gradwire_engine", default=_OUTSIDE)


# Cache of the last switch, (before, after): a session's backward passes switch the same context each time.
_switched: tuple[Context, Context] = (_OUTSIDE, replace(_OUTSIDE, grad_enabled=False))


def _switch(context: Context) -> Context:
    """The same context in the other grad mode."""
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


class _Active:
    """What `activate` returns."""

    __slots__ = ("_context", "_errors", "_token")

    def __init__(self, context: Context) -> None:
        self._context = context

    def __enter__(self) -> None:
        self._token = CURRENT.set(self._context)
        self._errors = np.errstate(all="ignore")
        self._errors.__enter__()

    def __exit__(self, *raised: Any) -> None:
        self._errors.__exit__(*raised)
        CURRENT.reset(self._token)


def activate(context: Context) -> _Active:
    """Make the context current inside a `with` block; NumPy returns IEEE results without warnings."""
    return _Active(context)


def generator_for(xp: Any) -> Any:
    """The current context's random generator for an array module."""
    return CURRENT.get().generator.of(xp)
