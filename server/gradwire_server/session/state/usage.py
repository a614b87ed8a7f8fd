"""Usage: what a session has used, on whose account, and where its worker counts it."""

from collections.abc import Iterable
from typing import Any, Protocol

from gradwire_server.common.budgets import Budget
from gradwire_server.common.errors import Refusal
from gradwire_server.common.shared_counters import PrincipalTotals


class Counting(Protocol):
    """A session's interface to its worker's metrics (session/meter.py)."""

    def applied(self, which: str, request: Any, refusal: Refusal | None, /) -> None:
        """Count a command that was applied or refused."""

    def called(self, ops: Iterable[str], /) -> None:
        """Count calls of prepared ops before they are executed."""

    def refused(self, op: str, refusal: Refusal, /) -> None:
        """Count a refused call of a prepared op."""


class Usage:
    """A session's consumption and its principal.

    The worker sets `owner`, `place` and `meter` when it opens the session. Later only its quotas write here
    (worker/quotas.py), besides the scheduler, which adds to `computed`.

    Invariants:

    - `published` is what the shared counters contain of this session. It is zero while `place` is 0.
    - `computed` only grows.
    """

    __slots__ = ("budget", "computed", "meter", "owner", "place", "published")

    def __init__(self) -> None:
        self.owner = 0  # its principal's number; 0 without a principal
        self.place = 0  # of its principal in the shared counters; 0 without a quota
        self.published = PrincipalTotals()  # as last written to the shared counters
        self.computed = 0.0  # seconds
        self.budget: Budget | None = None  # of its own compute quota; None without one
        self.meter: Counting | None = None  # the worker's, if it counts
