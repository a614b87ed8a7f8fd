"""The cancel token: whether a session's running command must stop or yield, and who runs its expensive ops."""

import math
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any, Protocol

from gradwire_engine import Account, Interrupt
from gradwire_engine.core.errors import EngineError, Reason
from gradwire_server.common.errors import Refusal


class Offloader(Protocol):
    """Runs a session's expensive ops while other sessions compute (worker/offload.py)."""

    def extend_slice(self, cancel_token: "CancelToken", /) -> bool:
        """Extend the slice of the command, if no other session waits; whether it was extended."""

    def yield_to_others(self, cancel_token: "CancelToken", /) -> None:
        """Yield to other sessions between two ops of one command. Raises EngineError: CANCELLED."""

    def run(self, cancel_token: "CancelToken", compute: Callable[[], Any], name: str, alone: bool, room: int, /) -> Any:
        """Return the result of `compute`. Raises EngineError: CANCELLED, COMPUTE_LIMIT."""


class CancelToken(Interrupt):
    """The running call and whether it should stop: polled by the engine between nodes, pulled by the control thread.

    `ticket` is the running call's; for a batch `writer` and `seq` are the running command's. `at` is the time of the
    next check: the end of the slice, when a long command yields to other sessions, or the deadline.
    """

    __slots__ = (
        "_slice_ends",
        "account",
        "awaited",
        "cancel_ticket",
        "cancelled_through",
        "closed",
        "deadline",
        "extend",
        "offloader",
        "seq",
        "ticket",
        "timeout_seconds",
        "writer",
    )  # fmt: skip

    def __init__(self) -> None:
        super().__init__()
        self._slice_ends = math.inf
        self.closed = False  # the session is closed; its waiting calls are refused
        self.cancel_ticket = 0  # calls up to this one are cancelled
        self.cancelled_through: dict[int, int] = {}  # by writer: commands through this seq are cancelled
        self.ticket = 1
        self.writer = 0
        self.seq = 0
        self.deadline: float | None = None
        self.timeout_seconds: float | None = None  # the command's own time limit, for the refusal's message
        self.offloader: Offloader | None = None  # runs expensive ops
        self.extend: Callable[[], bool] | None = None  # extends the slice, without an offloader
        self.account: Account | None = None  # the session's
        self.awaited: Future[Any] | None = None  # what the command waits for in its next pause

    def begin_call(self, ticket: int, deadline: float | None = None, writer: int = 0) -> None:
        """Begin a call."""
        self.ticket, self.writer = ticket, writer
        self.timeout_seconds = None
        self._until(deadline)

    def set_timeout(self, milliseconds: int) -> None:
        """Set the running command's own time limit; 0 removes it."""
        self.timeout_seconds = milliseconds / 1000 if milliseconds else None
        self._until(time.monotonic() + milliseconds / 1000 if milliseconds else None)

    def _until(self, deadline: float | None) -> None:
        self.deadline = deadline
        self.at = self._slice_ends if deadline is None else min(deadline, self._slice_ends)

    def begin_slice(self, ends: float) -> None:
        """Begin a slice that ends at time.monotonic() `ends`."""
        self._slice_ends = ends
        self._until(self.deadline)

    def interrupt(self) -> None:
        """Make the running command check for cancellation. Called by the control thread."""
        self.at = -math.inf
        if self.account is not None:
            self.account.pressed = True

    def pauses(self) -> bool:
        """Whether to pause at the end of a slice: another session may compute, or the command is stopped."""
        if self.offloader is not None:
            return not self.offloader.extend_slice(self)
        # The extension may have hidden an interruption.
        return self.extend is None or not self.extend() or self.closed or self.stopping()

    def wait_for(self, future: Future[Any]) -> None:
        """Note what the command waits for: the scheduler continues it then, or when it is stopped."""
        self.awaited = future

    def poll(self) -> None:
        """Check for cancellation, and yield to others, between two ops of a command. Raises EngineError: CANCELLED."""
        if self.offloader is not None:
            self.offloader.yield_to_others(self)
        elif self.stopping():
            raise EngineError(Reason.CANCELLED, "the command was cancelled")

    def offload(self, compute: Callable[[], Any], name: str, work: float, alone: bool, room: int = 0) -> Any:
        """Run an expensive op by the offloader, if there is one. Raises EngineError: CANCELLED, COMPUTE_LIMIT."""
        return compute() if self.offloader is None else self.offloader.run(self, compute, name, alone, room)

    def cancelled(self) -> bool:
        """Whether the client cancelled the running command."""
        return self.cancel_ticket >= self.ticket or self.cancelled_through.get(self.writer, -1) >= self.seq

    def stopping(self) -> bool:
        """Whether the running command is cancelled or past its deadline."""
        if self.cancel_ticket >= self.ticket or (self.cancelled_through and self.cancelled()):
            return True
        return self.deadline is not None and time.monotonic() >= self.deadline

    def repeats(self, keeps_effects: bool) -> bool:
        """Whether the running command, though refused, must repeat its effects. Only in a replay (replay.py)."""
        return False

    def repeated(self) -> Mapping[str, str] | None:
        """Metadata of the refusal before which the running command repeats its effects; None outside a replay."""
        return None

    def refusal(self) -> Refusal:
        """Refusal of a stopped command: CANCELLED or DEADLINE_EXCEEDED."""
        if self.cancelled():
            return Refusal("CANCELLED", "cancelled by the client; no tensor has changed")
        limit = (
            "the call's deadline"
            if self.timeout_seconds is None
            else f"the command's limit of {self.timeout_seconds} s"
        )
        return Refusal("DEADLINE_EXCEEDED", f"{limit} passed before the work was done; no tensor has changed")
