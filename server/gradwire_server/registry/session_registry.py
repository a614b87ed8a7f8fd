"""The session registry: which sessions there are, where each lives, and until when. The front's side of a session.

It knows no tensor. Whose a session is, is looked at here and nowhere else. A lease is renewed, a writer numbered and a
session looked up here, on the event loop and past whatever is computing. `clock` counts seconds.
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
from gradwire_server.workers.entry import Entry, Traffic

ACTIVE_SECONDS = 5.0  # a session that was called within so many seconds counts as load
_CLIENT_SHOWN = 100  # characters of what a client calls itself
_EXPIRED = "the session's lease ran out; its tensors are gone"

log = logging.getLogger("gradwire.server")
W = TypeVar("W")
Refused: TypeAlias = tuple[str, str]  # the reason, and what to say


class SessionRegistry(Generic[W]):
    """Sessions by id, and the ids of those that are gone with the reason."""

    def __init__(self, limits: Limits, clock: Callable[[], float] = time.monotonic) -> None:
        self.limits = limits
        self.clock = clock
        self.entries: dict[str, Entry[W]] = {}
        self.tombstones: OrderedDict[str, tuple[str, Refused]] = OrderedDict()  # whose it was, and what to say
        #: Takes a session of the caller's up again that is stored, if there is such.
        self.revive: Callable[[str], Entry[W] | None] | None = None
        self._owners: Counter[str] = Counter()  # sessions by principal
        self._traffic: dict[str, Traffic] = {}  # by principal
        self.answered: Callable[[], None] = _nothing  # is called when a request is
        self.entered: Callable[[Entry[W]], None] | None = None  # is called with each new session
        self._numbers = itertools.count(1)
        self.opened = self.expired = 0  # so far

    def open(self, request: service_pb2.OpenSessionRequest, place: Callable[[], W]) -> Entry[W]:
        """A new session, where `place` says. Raises Refusal: SESSION_LIMIT."""
        limits = self.limits
        self._check_room()
        lease = min(request.lease_ms / 1000 or limits.lease_seconds, limits.max_lease_seconds)
        client = request.client[:_CLIENT_SHOWN]
        entry = self._enter(secrets.token_urlsafe(32), place(), lease, client)
        log.info("session opened", extra={"session": entry.shown, "principal": entry.owner, "client": client})
        return entry

    def adopt(self, session_id: str, place: Callable[[], W], lease: float, client: str) -> Entry[W]:
        """A session of the caller's that was stored. Raises Refusal: SESSION_LIMIT."""
        self._check_room()
        return self._enter(session_id, place(), lease, client)

    def _enter(self, session_id: str, worker: W, lease: float, client: str) -> Entry[W]:
        self.opened += 1
        entry = Entry(session_id, next(self._numbers), worker, lease, self.clock(), client)
        self.entries[entry.id] = entry
        self._owners[entry.owner] += 1
        if self.entered is not None:
            self.entered(entry)
        if entry.owner:
            entry.traffic = self._traffic.setdefault(entry.owner, entry.traffic)
        return entry

    def _check_room(self) -> None:
        limits = self.limits
        if len(self.entries) >= limits.max_sessions:
            raise Refusal(
                "SESSION_LIMIT",
                f"the server holds {limits.max_sessions} sessions, its limit",
                limit=limits.max_sessions,
            )
        owner, most = CALLER.get().name, limits.max_principal_sessions
        if owner and most and self._owners[owner] >= most:
            raise Refusal(
                "SESSION_LIMIT",
                f"the principal {owner} has {most} sessions, its limit",
                limit=most,
                principal=owner,
            )

    def attach(self, session_id: str) -> Entry[W]:
        """A session that has got another writer, its last. Raises Refusal: SESSION_LIMIT, and as `find` does."""
        entry = self.find(session_id)
        if entry.writers >= self.limits.writers:
            raise Refusal("SESSION_LIMIT", f"a session has at most {self.limits.writers} writers")
        entry.writers += 1
        return entry

    def find(self, session_id: str) -> Entry[W]:
        """A session of the caller's, its lease renewed. Another's is as if it were not there.

        Raises Refusal: SESSION_NOT_FOUND, SESSION_EXPIRED, UNAUTHENTICATED if the caller's token ended meanwhile.
        """
        entry = self._own(session_id)
        if entry is None and self.revive is not None:
            entry = self.revive(session_id)
        if entry is None:
            raise self._gone(session_id)
        now = self.clock()
        # Where sessions are stored, one whose lease ran out is to come back: also before it was stored and taken out.
        if now >= entry.expires and not entry.pending and self.revive is None:
            raise Refusal("SESSION_EXPIRED", _EXPIRED)
        entry.expires = now + entry.lease
        return entry

    def _gone(self, session_id: str) -> Refusal:
        owner, why = self.tombstones.get(session_id, ("", None))
        if why is None or owner != CALLER.get().name:
            return Refusal("SESSION_NOT_FOUND", "there is no such session; OpenSession gives one")
        return Refusal(*why)

    def _own(self, session_id: str) -> Entry[W] | None:
        caller = CALLER.get()
        caller.check()
        entry = self.entries.get(session_id)
        return None if entry is None or entry.owner != caller.name else entry

    def check_traffic(self, session_id: str, size: int) -> None:
        """Whether a request of so many bytes may be handed over. Raises Refusal: TRAFFIC_LIMIT, and as `find` does."""
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
        """Whether the requests of a session that are not answered, or of its principal, hold as many bytes as may."""
        entry, limits = self.entries.get(session_id), self.limits
        if entry is None:
            return False
        most, most_of_all = limits.max_session_inflight_bytes, limits.max_principal_inflight_bytes
        return bool(
            (most and entry.inflight >= most) or (most_of_all and entry.owner and entry.traffic.bytes >= most_of_all)
        )

    def begin(self, entry: Entry[W], ticket: int, method: str, raw: bytes) -> None:
        """A call is handed over."""
        entry.pending[ticket] = (method, raw)
        entry.inflight += len(raw)
        entry.traffic.bytes += len(raw)

    def finish(self, entry: Entry[W], ticket: int) -> None:
        """A call is answered; the lease begins anew."""
        answered = entry.pending.pop(ticket, None)
        if answered is not None:
            size = len(answered[1])
            entry.inflight -= size
            entry.traffic.bytes -= size
            self.answered()
        entry.expires = max(entry.expires, self.clock() + entry.lease)

    def close(self, session_id: str) -> Entry[W] | None:
        """Take a session of the caller's out; None if there is none, or none any more."""
        entry = self._own(session_id)
        if entry is not None:
            self.remove(entry)
        return entry

    def remove(self, entry: Entry[W]) -> None:
        del self.entries[entry.id]
        self._owners[entry.owner] -= 1
        if not self._owners[entry.owner]:
            del self._owners[entry.owner]
            self._traffic.pop(entry.owner, None)

    def has_sessions(self, principal: str) -> bool:
        """Whether any session is a principal's."""
        return principal in self._owners

    def end(self, number: int) -> Entry[W]:
        """Take anybody's session out. Raises Refusal: SESSION_NOT_FOUND."""
        entry = next((each for each in self.entries.values() if each.number == number), None)
        if entry is None:
            raise Refusal("SESSION_NOT_FOUND", f"there is no session of number {number}")
        self.bury(entry, "SESSION_NOT_FOUND", "the session was ended by an administrator")
        log.info("session ended", extra={"session": entry.shown, "principal": entry.owner, "by": CALLER.get().name})
        return entry

    def empty(self) -> list[Entry[W]]:
        """Take all sessions out, as the server ends."""
        entries = list(self.entries.values())
        self.entries.clear()
        self._owners.clear()
        self._traffic.clear()
        return entries

    def listed(self, after: int, principal: str, most: int) -> list[Entry[W]]:
        """Sessions of numbers above one, of one principal or for "" of all, in the order in which they were opened."""
        found = (
            each for each in self.entries.values() if each.number > after and (not principal or each.owner == principal)
        )
        return list(itertools.islice(found, most))

    def overdue(self) -> list[Entry[W]]:
        """The sessions whose lease ran out."""
        now = self.clock()
        return [each for each in self.entries.values() if now >= each.expires and not each.pending]

    def bury_expired(self, entry: Entry[W]) -> None:
        """Take a session out whose lease ran out."""
        self.expired += 1
        self.bury(entry, "SESSION_EXPIRED", _EXPIRED)
        log.info("session expired", extra={"session": entry.shown, "principal": entry.owner})

    def sweep(self) -> list[Entry[W]]:
        """Take the sessions out whose lease ran out."""
        expired = self.overdue()
        for entry in expired:
            self.bury_expired(entry)
        return expired

    def lost(self, worker: W, why: str) -> list[Entry[W]]:
        """Take the sessions out that a worker took with it."""
        lost = [each for each in self.entries.values() if each.worker is worker]
        for entry in lost:
            self.bury(entry, "SESSION_NOT_FOUND", f"the session is gone: {why}")
        return lost

    def bury(self, entry: Entry[W], reason: str, message: str) -> None:
        """Take a session out, and remember what to say of it."""
        self.remove(entry)
        self.tombstones[entry.id] = (entry.owner, (reason, message))
        while len(self.tombstones) > self.limits.tombstones:
            self.tombstones.popitem(last=False)

    def active(self) -> list[W]:
        """Where the sessions live that were called lately, once for each."""
        since = self.clock() - ACTIVE_SECONDS
        return [each.worker for each in self.entries.values() if each.pending or each.expires - each.lease >= since]


def _nothing() -> None:
    pass
