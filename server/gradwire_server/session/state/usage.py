"""Usage: what a session has used, on whose account, and where its worker counts it."""

from collections.abc import Iterable
from typing import Any, Protocol

from gradwire_server.common.budgets import Budget
from gradwire_server.common.errors import Refusal
from gradwire_server.common.shared_counters import PrincipalTotals


class CommandMeter(Protocol):
    """A session's interface to its worker's metrics (session/meter.py)."""

    def applied(self, which: str, request: Any, refusal: Refusal | None, /) -> None:
        """Count a command that was applied or refused."""

    def called(self, ops: Iterable[str], /) -> None:
        """Count calls of prepared ops before they are executed."""

    def refused(self, op: str, refusal: Refusal, /) -> None:
        """Count a refused call of a prepared op."""


class Usage:
    """A session's consumption and its principal.

    Writers: the runtime sets `owner`, `counter_row` and `meter` when it opens the session, and clears `counter_row`
    when it drops it; it also sets `counted` (worker/runtime.py). The quotas set `published` and `budget`
    (worker/quotas.py). The scheduler adds to `computed` (worker/scheduler.py).

    Invariants:

    - `published` is what the shared counters contain of this session. It is zero while `counter_row` is 0.
    - `computed` only grows.
    """

    __slots__ = ("budget", "computed", "counted", "counter_row", "meter", "owner", "published")

    def __init__(self) -> None:
        self.owner = 0  # its principal's number; 0 without a principal
        self.counter_row = 0  # of its principal in the shared counters; 0 without a quota
        self.published = PrincipalTotals()  # as last written to the shared counters
        self.computed = 0.0  # seconds
        self.counted = 0  # bytes of it in the worker's total
        self.budget: Budget | None = None  # of its own compute quota; None without one
        self.meter: CommandMeter | None = None  # the worker's, if it counts
