"""Principal places: assigns each principal with sessions its place in the shared counters.

Workers count there what the principal's sessions hold.
"""

from collections.abc import Callable

from gradwire_server.common.errors import Refusal
from gradwire_server.common.limits import Limits
from gradwire_server.common.shared_counters import PLACES, SharedCounters


class PrincipalPlaces:
    """The places of principals, assigned by the front. Place 0 is for callers without a quota."""

    def __init__(self, limits: Limits, counters: SharedCounters) -> None:
        self.counters = counters
        self._wanted = bool(
            limits.max_principal_bytes
            or limits.max_principal_tensors
            or limits.max_principal_programs
            or limits.max_principal_compute_seconds
        )
        self._of: dict[str, int] = {}
        self._free = list(range(PLACES - 1, 0, -1))

    def of(self, principal: str, present: Callable[[str], bool]) -> int:
        """The place of a principal. `present` tells whether a principal has sessions. Raises Refusal: SESSION_LIMIT."""
        if not self._wanted or not principal:
            return 0
        place = self._of.get(principal)
        if place is None:
            if not self._free:
                self._reclaim(present)
            if not self._free:
                raise Refusal(
                    "SESSION_LIMIT",
                    f"the server holds sessions of {PLACES - 1} principals, its limit",
                    limit=PLACES - 1,
                )
            place = self._of[principal] = self._free.pop()
        return place

    def _reclaim(self, present: Callable[[str], bool]) -> None:
        """Free the places of principals that have no sessions and hold nothing."""
        for principal, place in list(self._of.items()):
            if not present(principal) and self.counters.share(place).is_empty:
                self._free.append(self._of.pop(principal))
