"""Session registry: looks up sessions, checks their owner, renews leases and numbers writers, on the event loop.

It holds no tensors and waits for no computation. Ownership of a session in memory is checked only here. `clock` counts
seconds.
"""

import itertools
import logging
import secrets
import time
from collections import Counter, OrderedDict
from collections.abc import Callable
from typing import Generic, TypeAlias, TypeVar

from gradwire.v1 import service_pb2
from gradwire_server.auth.principals import CALLER
from gradwire_server.common.errors import Refusal
from gradwire_server.common.limits import Limits
from gradwire_server.registry.gangs import Gangs, gang_of
from gradwire_server.worker_pool.session_entry import SessionEntry, UnansweredBytes

ACTIVE_SECONDS = 5.0  # a session called within so many seconds counts as active
_CLIENT_NAME_LENGTH = 100  # characters kept of the client's name for itself
_EXPIRED = "the session's lease ran out; its tensors are gone"

log = logging.getLogger("gradwire.server")
W = TypeVar("W")
Refused: TypeAlias = tuple[str, str]  # reason and message


class SessionRegistry(Generic[W]):
    """Sessions by id, and tombstones: ids of ended sessions with the reason."""

    def __init__(self, limits: Limits, clock: Callable[[], float] = time.monotonic) -> None:
        self.limits = limits
        self.clock = clock
        self.entries: dict[str, SessionEntry[W]] = {}
        self.tombstones: OrderedDict[str, tuple[str, Refused]] = OrderedDict()  # by session id: owner, refusal
        #: Restores the caller's stored session; None if there is none.
        self.restore_evicted: Callable[[str], SessionEntry[W] | None] | None = None
        self._owners: Counter[str] = Counter()  # sessions by principal
        self.elsewhere: dict[str, int] = {}  # sessions at other servers of the cluster, by principal
        self.gangs = Gangs(clock)
        self._traffic: dict[str, UnansweredBytes] = {}  # by principal
        self.answered: Callable[[], None] = _nothing  # called after each answered request
        self._numbers = itertools.count(1)
        self.opened = self.expired = 0  # counts since the start

    def open(self, request: service_pb2.OpenSessionRequest, choose_worker: Callable[[], W]) -> SessionEntry[W]:
        """Open a session on the worker that `choose_worker` chooses. Raises Refusal: SESSION_LIMIT, ARGUMENT_VALUE."""
        limits, owner = self.limits, CALLER.get().name
        gang, _ = gang_of(request, owner)
        self._check_room(self.elsewhere.get(owner, 0), self.gangs.reserved_for_others(owner, gang))
        lease = min(request.lease_ms / 1000 or limits.lease_seconds, limits.max_lease_seconds)
        client = request.client[:_CLIENT_NAME_LENGTH]
        entry = self._enter(secrets.token_urlsafe(32), choose_worker(), lease, client)
        if gang:
            entry.gang = gang
            self.gangs.opened(gang, owner)
        log.info("session opened", extra={"session": entry.short_id, "principal": entry.owner, "client": client})
        return entry

    def add_restored(
        self, session_id: str, choose_worker: Callable[[], W], lease: float, client: str
    ) -> SessionEntry[W]:
        """Enter a stored session of the caller. Raises Refusal: SESSION_LIMIT."""
        self._check_room()  # without other servers' sessions: one of them may have had this one until now
        return self._enter(session_id, choose_worker(), lease, client)

    def _enter(self, session_id: str, worker: W, lease: float, client: str) -> SessionEntry[W]:
        self.opened += 1
        entry = SessionEntry(session_id, next(self._numbers), worker, lease, self.clock(), client)
        self.entries[entry.id] = entry
        self._owners[entry.owner] += 1
        if entry.owner:
            entry.traffic = self._traffic.setdefault(entry.owner, entry.traffic)
        return entry

    def _check_room(self, elsewhere: int = 0, reserved: int = 0) -> None:
        """Check that a session may be added.

        `elsewhere` are the caller's sessions at other servers of the cluster, `reserved` places of its other gangs.
        """
        limits = self.limits
        if len(self.entries) >= limits.max_sessions:
            raise Refusal(
                "SESSION_LIMIT",
                f"the server holds {limits.max_sessions} sessions, its limit",
                limit=limits.max_sessions,
            )
        owner, most = CALLER.get().name, limits.max_principal_sessions
        if owner and most and self._owners[owner] + elsewhere + reserved >= most:
            where = f"; {elsewhere} are at other servers of the cluster" if elsewhere else ""
            kept = f"; {reserved} more are reserved for its gangs" if reserved else ""
            held = self._owners[owner] + elsewhere
            raise Refusal(
                "SESSION_LIMIT",
                f"the principal {owner} has {held} sessions, and its limit is {most}{where}{kept}",
                limit=most,
                principal=owner,
            )

    def attach(self, session_id: str) -> SessionEntry[W]:
        """Add a writer to a session; the session. Raises Refusal: SESSION_LIMIT, and those of `find`."""
        entry = self.find(session_id)
        if entry.writers >= self.limits.writers:
            raise Refusal("SESSION_LIMIT", f"a session has at most {self.limits.writers} writers")
        entry.writers += 1
        return entry

    def find(self, session_id: str) -> SessionEntry[W]:
        """Find the caller's session and renew its lease. Other principals' sessions are not found.

        Raises Refusal: SESSION_NOT_FOUND, SESSION_EXPIRED; UNAUTHENTICATED if the caller's credential no longer holds.
        """
        entry = self._own(session_id)
        if entry is None and self.restore_evicted is not None:
            entry = self.restore_evicted(session_id)
        if entry is None:
            raise self._tombstone_refusal(session_id)
        now = self.clock()
        # With persistence an expired session can be used again, also before the sweep evicts it.
        if now >= entry.expires and not entry.pending and self.restore_evicted is None:
            raise Refusal("SESSION_EXPIRED", _EXPIRED)
        entry.expires = now + entry.lease
        return entry

    def _tombstone_refusal(self, session_id: str) -> Refusal:
        owner, why = self.tombstones.get(session_id, ("", None))
        if why is None or owner != CALLER.get().name:
            return Refusal("SESSION_NOT_FOUND", "there is no such session; OpenSession opens one")
        return Refusal(*why)

    def _own(self, session_id: str) -> SessionEntry[W] | None:
        caller = CALLER.get()
        caller.check()
        entry = self.entries.get(session_id)
        return None if entry is None or entry.owner != caller.name else entry

    def check_traffic(self, session_id: str, size: int) -> None:
        """Check that a request of `size` bytes may be submitted. Raises Refusal: TRAFFIC_LIMIT, and those of `find`."""
        entry, limits = self.find(session_id), self.limits
        for whose, held, most in (
            ("session's", entry.inflight, limits.max_session_inflight_bytes),
            ("principal's", entry.traffic.bytes, limits.max_principal_inflight_bytes if entry.owner else 0),
        ):
            if most and held and held + size > most:
                raise Refusal(
                    "TRAFFIC_LIMIT",
                    f"the {whose} requests that are not answered hold {held} bytes; {size} more would pass the limit "
                    f"of {most}",
                    limit=most,
                    held=held,
                )

    def is_full(self, session_id: str) -> bool:
        """Whether unanswered requests of a session or of its principal reach their limit of bytes."""
        entry, limits = self.entries.get(session_id), self.limits
        if entry is None:
            return False
        most, most_of_all = limits.max_session_inflight_bytes, limits.max_principal_inflight_bytes
        return bool(
            (most and entry.inflight >= most) or (most_of_all and entry.owner and entry.traffic.bytes >= most_of_all)
        )

    def begin(self, entry: SessionEntry[W], ticket: int, method: str, raw: bytes) -> None:
        """Record a submitted call."""
        entry.pending[ticket] = (method, raw)
        entry.inflight += len(raw)
        entry.traffic.bytes += len(raw)

    def finish(self, entry: SessionEntry[W], ticket: int) -> None:
        """Record an answered call, and renew the lease."""
        answered = entry.pending.pop(ticket, None)
        if answered is not None:
            size = len(answered[1])
            entry.inflight -= size
            entry.traffic.bytes -= size
            self.answered()
        entry.expires = max(entry.expires, self.clock() + entry.lease)

    def close(self, session_id: str) -> SessionEntry[W] | None:
        """Remove the caller's session and return it; None if there is none."""
        entry = self._own(session_id)
        if entry is not None:
            self.remove(entry)
        return entry

    def remove(self, entry: SessionEntry[W]) -> None:
        del self.entries[entry.id]
        self._owners[entry.owner] -= 1
        if entry.gang:
            self.gangs.ended(entry.gang)
        if not self._owners[entry.owner]:
            del self._owners[entry.owner]
            self._traffic.pop(entry.owner, None)

    def sessions_by_principal(self) -> dict[str, int]:
        """The number of sessions of each principal that has a name."""
        return {owner: count for owner, count in self._owners.items() if owner}

    def has_sessions(self, principal: str) -> bool:
        """Whether a principal has sessions."""
        return principal in self._owners

    def end(self, number: int) -> SessionEntry[W]:
        """Remove any principal's session, for an administrator. Raises Refusal: SESSION_NOT_FOUND."""
        entry = self.of_number(number)
        if entry is None:
            raise Refusal("SESSION_NOT_FOUND", f"there is no session of number {number}")
        self.remove_with_tombstone(entry, "SESSION_NOT_FOUND", "the session was ended by an administrator")
        log.info("session ended", extra={"session": entry.short_id, "principal": entry.owner, "by": CALLER.get().name})
        return entry

    def of_number(self, number: int) -> SessionEntry[W] | None:
        """The session of a number; None if there is none."""
        return next((each for each in self.entries.values() if each.number == number), None)

    def empty(self) -> list[SessionEntry[W]]:
        """Remove all sessions, as the server ends."""
        entries = list(self.entries.values())
        self.entries.clear()
        self._owners.clear()
        self.gangs.clear()
        self._traffic.clear()
        return entries

    def listed(self, after: int, principal: str, most: int) -> list[SessionEntry[W]]:
        """Sessions numbered above `after`, `most` at most, in opening order. An empty `principal` means all."""
        found = (
            each for each in self.entries.values() if each.number > after and (not principal or each.owner == principal)
        )
        return list(itertools.islice(found, most))

    def overdue(self) -> list[SessionEntry[W]]:
        """Sessions whose lease ran out and that have no pending calls."""
        now = self.clock()
        return [each for each in self.entries.values() if now >= each.expires and not each.pending]

    def expire(self, entry: SessionEntry[W]) -> None:
        """Remove a session whose lease ran out."""
        self.expired += 1
        self.remove_with_tombstone(entry, "SESSION_EXPIRED", _EXPIRED)
        log.info("session expired", extra={"session": entry.short_id, "principal": entry.owner})

    def sweep(self) -> list[SessionEntry[W]]:
        """Remove the sessions whose lease ran out."""
        expired = self.overdue()
        for entry in expired:
            self.expire(entry)
        return expired

    def lost(self, worker: W, why: str) -> list[SessionEntry[W]]:
        """Remove the sessions of an ended worker."""
        lost = [each for each in self.entries.values() if each.worker is worker]
        for entry in lost:
            self.remove_with_tombstone(entry, "SESSION_NOT_FOUND", f"the session is gone: {why}")
        return lost

    def remove_with_tombstone(self, entry: SessionEntry[W], reason: str, message: str) -> None:
        """Remove a session, and keep a tombstone with the refusal for later calls."""
        self.remove(entry)
        self.tombstones[entry.id] = (entry.owner, (reason, message))
        while len(self.tombstones) > self.limits.tombstones:
            self.tombstones.popitem(last=False)

    def active(self) -> list[W]:
        """Workers of the active sessions, one item per session."""
        since = self.clock() - ACTIVE_SECONDS
        return [each.worker for each in self.entries.values() if each.pending or each.expires - each.lease >= since]


def _nothing() -> None:
    pass
