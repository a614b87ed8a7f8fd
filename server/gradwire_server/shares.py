"""Shares: what each principal holds over all workers, so that one alone cannot have the server.

The front gives a principal a place in the ledger while it has sessions. Each worker writes there what its sessions of
that principal hold, and looks there for what is left.
"""

from collections.abc import Callable

from gradwire_server.errors import Refusal
from gradwire_server.ledger import PLACES, Ledger
from gradwire_server.limits import Limits
from gradwire_server.session import Session


class Places:
    """The places of principals, given by the front. 0 is for who has no quota."""

    def __init__(self, limits: Limits, ledger: Ledger) -> None:
        self.ledger = ledger
        self._wanted = bool(limits.max_principal_bytes or limits.max_principal_tensors)
        self._of: dict[str, int] = {}
        self._free = list(range(PLACES - 1, 0, -1))

    def of(self, principal: str, present: Callable[[str], bool]) -> int:
        """A principal's place. `present` tells who has sessions. Raises Refusal: SESSION_LIMIT."""
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
        """Take the places of those that hold nothing any more."""
        for principal, place in list(self._of.items()):
            if not present(principal) and self.ledger.share(place) == (0, 0):
                self._free.append(self._of.pop(principal))


class Shares:
    """What the sessions of one worker hold by place; of sessions that have none, nothing is kept."""

    def __init__(self, limits: Limits, ledger: Ledger, worker: int) -> None:
        self.limits = limits
        self.ledger = ledger
        self.worker = worker
        self._held: dict[int, tuple[int, int]] = {}  # bytes and tensors by place

    def tell(self, session: Session, ended: bool = False) -> None:
        """Write down what a session holds by now."""
        if session.place:
            now = (0, 0) if ended else (max(0, session.account.bytes), len(session.store))
            before = session.told
            if now != before:
                size, count = self._held.get(session.place, (0, 0))
                held = size + now[0] - before[0], count + now[1] - before[1]
                self._held[session.place] = held
                self.ledger.hold_share(self.worker, session.place, *held)
                session.told = now

    def limit(self, session: Session) -> None:
        """What a principal has left is its session's limit, too, where that is less than the session's own."""
        if not session.place:
            return
        limits = self.limits
        size, count = self.ledger.share(session.place)
        if limits.max_principal_bytes:
            left = limits.max_principal_bytes - size + session.told[0]
            session.account.limit = max(1, min(session.account.limit, left))
        if limits.max_principal_tensors:
            left = limits.max_principal_tensors - count + session.told[1]
            session.max_tensors = max(0, min(limits.max_session_tensors, left))
