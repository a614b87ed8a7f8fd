"""Principal rows: assigns each principal with sessions its row in the shared counters.

Workers count there what the principal's sessions hold.
"""

from collections.abc import Callable

from gradwire_server.common.errors import Refusal
from gradwire_server.common.limits import Limits
from gradwire_server.common.shared_counters import ROWS, PrincipalTotals, SharedCounters


class PrincipalRows:
    """The rows of principals, assigned by the front. Row 0 is for callers without a quota."""

    def __init__(self, limits: Limits, counters: SharedCounters) -> None:
        self.counters = counters
        #: Whether a limit of a principal is set that workers enforce.
        self.wanted = bool(
            limits.max_principal_bytes
            or limits.max_principal_tensors
            or limits.max_principal_programs
            or limits.max_principal_compute_seconds
        )
        self._of: dict[str, int] = {}
        self._free = list(range(ROWS - 1, 0, -1))

    def of(self, principal: str, present: Callable[[str], bool]) -> int:
        """The row of a principal. `present` tells whether a principal has sessions. Raises Refusal: SESSION_LIMIT."""
        if not self.wanted or not principal:
            return 0
        row = self._of.get(principal)
        if row is None:
            if not self._free:
                self._reclaim(present)
            if not self._free:
                raise Refusal(
                    "SESSION_LIMIT",
                    f"the server holds sessions of {ROWS - 1} principals, its limit",
                    limit=ROWS - 1,
                )
            row = self._of[principal] = self._free.pop()
            # Another principal's. Computed time only grows: a budget compares it with what it was.
            self.counters.set_elsewhere(row, PrincipalTotals(computed=self.counters.elsewhere(row).computed))
        return row

    def items(self) -> list[tuple[str, int]]:
        """The principals with a row."""
        return list(self._of.items())

    def _reclaim(self, present: Callable[[str], bool]) -> None:
        """Free the rows of principals that have no sessions and hold nothing."""
        for principal, row in list(self._of.items()):
            if not present(principal) and self.counters.share_here(row).is_empty:
                self._free.append(self._of.pop(principal))
