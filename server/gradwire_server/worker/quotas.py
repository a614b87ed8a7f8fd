"""Quotas: enforces each principal's limits over all workers, so one principal cannot take the whole server.

The front gives a principal a place in the shared counters while it has sessions (registry/principal_rows.py). Each
worker writes the usage of its sessions to their principal's place and reads there how much the principal may still use.
"""

from gradwire_server.common.budgets import Budget
from gradwire_server.common.limits import Limits
from gradwire_server.common.shared_counters import PrincipalTotals, SharedCounters
from gradwire_server.session.session import Session


class Quotas:
    """Usage of one worker's sessions by their principals' places. Sessions without a place are not counted."""

    def __init__(self, limits: Limits, counters: SharedCounters, worker: int) -> None:
        self.limits = limits
        self.counters = counters
        self.worker = worker
        self._held: dict[int, PrincipalTotals] = {}  # by place
        self._budgets: dict[int, Budget] = {}  # by place

    def begin(self, session: Session) -> None:
        """Start the compute budget of the session's principal, over all workers."""
        self._budget(session.usage.place)

    def tell(self, session: Session, ended: bool = False) -> None:
        """Publish what a session holds now in the shared counters; zeros if it has `ended`."""
        usage = session.usage
        if usage.place:
            now, before = PrincipalTotals(), usage.published
            if not ended:
                now = PrincipalTotals(max(0, session.account.bytes), len(session.store), len(session.programs))
            if now != before:
                held = self._of(usage.place)
                changed = [was + new - old for was, new, old in zip(held, now, before, strict=True)]
                self._write(usage.place, PrincipalTotals(*changed))
                usage.published = now

    def _of(self, place: int) -> PrincipalTotals:
        held = self._held.get(place)
        # A restarted worker continues its predecessor's count.
        return PrincipalTotals(computed=self.counters.computed(place, self.worker)) if held is None else held

    def _write(self, place: int, share: PrincipalTotals) -> None:
        self._held[place] = share
        self.counters.hold_share(self.worker, place, share)

    def spend(self, session: Session, seconds: float) -> None:
        """Charge `seconds` of computing to a session's principal."""
        usage = session.usage
        if usage.place:
            held = self._of(usage.place)
            self._write(usage.place, held._replace(computed=held.computed + int(seconds * 1e6)))

    def rest(self, session: Session) -> float:
        """Seconds that a session must rest, since it or its principal has used up its compute quota."""
        usage = session.usage
        most, rest = self.limits.max_session_compute_seconds, 0.0
        if most:
            if usage.budget is None:
                usage.budget = Budget(most)
            rest = usage.budget.rest(usage.computed)
        budget = self._budget(usage.place)
        if budget is not None:
            rest = max(rest, budget.rest(self.counters.computed(usage.place) / 1e6))
        return rest

    def _budget(self, place: int) -> Budget | None:
        """Compute budget of the principal at a place; None without a quota."""
        most = self.limits.max_principal_compute_seconds
        if not (most and place):
            return None
        budget = self._budgets.get(place)
        if budget is None:
            budget = self._budgets[place] = Budget(most, self.counters.computed(place) / 1e6)
        return budget

    def limit(self, session: Session) -> None:
        """Lower a session's limits to what its principal has left."""
        usage = session.usage
        if not usage.place:
            return
        limits = self.limits
        share = self.counters.share(usage.place)
        if limits.max_principal_bytes:
            left = limits.max_principal_bytes - share.bytes + usage.published.bytes
            session.account.limit = max(1, min(session.account.limit, left))
        if limits.max_principal_tensors:
            left = limits.max_principal_tensors - share.tensors + usage.published.tensors
            session.max_tensors = max(0, min(limits.max_session_tensors, left))
        if limits.max_principal_programs:
            left = limits.max_principal_programs - share.programs + usage.published.programs
            session.max_programs = max(0, min(limits.max_programs, left))
