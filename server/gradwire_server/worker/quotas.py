"""Quotas: enforces each principal's limits over all workers, so one principal cannot take the whole server.

The front gives a principal a row in the shared counters while it has sessions (registry/principal_rows.py). Each
worker writes the usage of its sessions to their principal's row and reads there how much the principal may still use.
"""

from gradwire_server.common.budgets import Budget
from gradwire_server.common.limits import Limits
from gradwire_server.common.shared_counters import PrincipalTotals, SharedCounters
from gradwire_server.session.session import Session


class Quotas:
    """Usage of one worker's sessions by their principals' rows. Sessions without a row are not counted."""

    def __init__(self, limits: Limits, counters: SharedCounters, worker: int) -> None:
        self.limits = limits
        self.counters = counters
        self.worker = worker
        self._held: dict[int, PrincipalTotals] = {}  # by row
        self._budgets: dict[int, Budget] = {}  # by row

    def begin(self, session: Session) -> None:
        """Start the compute budget of the session's principal, over all workers."""
        self._budget(session.usage.counter_row)

    def publish(self, session: Session, ended: bool = False) -> None:
        """Publish what a session holds now in the shared counters; zeros if it has `ended`."""
        usage = session.usage
        if usage.counter_row:
            now, before = PrincipalTotals(), usage.published
            if not ended:
                now = PrincipalTotals(max(0, session.account.bytes), len(session.store), len(session.programs))
            if now != before:
                held = self._of(usage.counter_row)
                changed = [was + new - old for was, new, old in zip(held, now, before, strict=True)]
                self._write(usage.counter_row, PrincipalTotals(*changed))
                usage.published = now

    def _of(self, row: int) -> PrincipalTotals:
        held = self._held.get(row)
        # A restarted worker continues its predecessor's count.
        return PrincipalTotals(computed=self.counters.computed(row, self.worker)) if held is None else held

    def _write(self, row: int, share: PrincipalTotals) -> None:
        self._held[row] = share
        self.counters.set_share(self.worker, row, share)

    def spend(self, session: Session, seconds: float) -> None:
        """Charge `seconds` of computing to a session's principal."""
        usage = session.usage
        if usage.counter_row:
            held = self._of(usage.counter_row)
            self._write(usage.counter_row, held._replace(computed=held.computed + int(seconds * 1e6)))

    def delay(self, session: Session) -> float:
        """Seconds that a session must delay, since it or its principal has used up its compute quota."""
        usage = session.usage
        most, delay = self.limits.max_session_compute_seconds, 0.0
        if most:
            if usage.budget is None:
                usage.budget = Budget(most)
            delay = usage.budget.delay(usage.computed)
        budget = self._budget(usage.counter_row)
        if budget is not None:
            delay = max(delay, budget.delay(self.counters.computed(usage.counter_row) / 1e6))
        return delay

    def _budget(self, row: int) -> Budget | None:
        """Compute budget of the principal of a row; None without a quota."""
        most = self.limits.max_principal_compute_seconds
        if not (most and row):
            return None
        budget = self._budgets.get(row)
        if budget is None:
            budget = self._budgets[row] = Budget(most, self.counters.computed(row) / 1e6)
        return budget

    def limit(self, session: Session) -> None:
        """Lower a session's limits to what its principal has left."""
        usage = session.usage
        if not usage.counter_row:
            return
        limits = self.limits
        share = self.counters.share(usage.counter_row)
        if limits.max_principal_bytes:
            left = limits.max_principal_bytes - share.bytes + usage.published.bytes
            session.account.limit = max(1, min(session.account.limit, left))
        if limits.max_principal_tensors:
            left = limits.max_principal_tensors - share.tensors + usage.published.tensors
            session.max_tensors = max(0, min(limits.max_session_tensors, left))
        if limits.max_principal_programs:
            left = limits.max_principal_programs - share.programs + usage.published.programs
            session.max_programs = max(0, min(limits.max_programs, left))
