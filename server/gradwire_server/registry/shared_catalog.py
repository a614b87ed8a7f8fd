"""Shared catalog: a state directory that several servers use, each with the sessions that it owns (ownership.py).

    DIR/servers/<address>.lock           held by a server and its workers, so no two servers have one address
    DIR/sessions/<hash of the id>/t3/    a session's own state, in the folder of its owner's term

A server does not know what the others have stored. It looks a session up when a client asks for it: the session is this
server's, or an owner that answers has it, or this server takes it over. `Lookups` does that in threads.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any
from urllib.parse import quote

from gradwire.v1 import snapshots_pb2 as pb
from gradwire_server.common.errors import Refusal
from gradwire_server.registry.session_catalog import SessionCatalog, StoredSession, digest_of
from gradwire_server.storage import ownership
from gradwire_server.storage.ownership import Claim
from gradwire_server.storage.snapshot_files import make_folder

_SILENT_SECONDS = 1.0  # how long a server that did not answer is taken to be silent
_FRESH_SECONDS = 5.0  # how long a lookup's result holds
_MOST_LOOKUPS = 10_000
_ABANDONED_SECONDS = 86_400.0  # age after which the folder of a session that was never stored is deleted

log = logging.getLogger("gradwire.server")


class SharedCatalog(SessionCatalog):
    """The sessions of one server in a directory of several. `answers` tells whether the server at an address runs."""

    shared = True

    def __init__(self, *args: Any, endpoint: str, answers: Callable[[str], bool], **named: Any) -> None:
        """`endpoint` is this server's address for clients and for the other servers."""
        super().__init__(*args, **named)
        self.endpoint = endpoint
        self.answers = answers
        self._checks = _Checks(lambda endpoint: self.answers(endpoint))  # as it is then
        self._terms: dict[bytes, int] = {}  # of the sessions that this process owns
        self._found_at: dict[bytes, float] = {}  # when a lookup found a session of `stored_sessions` to be owned
        self._taking: set[bytes] = set()
        self._taken_over: set[bytes] = set()  # sessions that are not restored yet
        self._lock = threading.Lock()

    def open(self) -> None:
        """Lock this server's address. Raises OSError if that fails or another server has the address."""
        servers = self.root / "servers"
        for folder in (self.root, self.sessions, self.snapshots, servers):
            make_folder(folder)
        path = servers / f"{quote(self.endpoint, safe='')}.lock"
        self._take_lock(path, f"another server in {self.root} has the endpoint {self.endpoint}")

    # Claims.

    def claim(self, session_id: str) -> None:
        """Become the owner of a new session. Raises OSError."""
        digest = digest_of(session_id)
        ownership.begin(self._folder(digest), self.endpoint)
        self._terms[digest] = 1

    def home_of(self, digest: bytes) -> Path:
        """Folder of a session's own state, in this server's term. Raises Refusal: UNAVAILABLE, if it has none."""
        term = self._terms.get(digest)
        if term is None:
            raise Refusal("UNAVAILABLE", "the session has another owner; try again")
        return ownership.location(self._folder(digest), term)

    def _folder(self, digest: bytes) -> Path:
        return self.sessions / digest.hex()

    def forget(self, session_id: str) -> None:
        """Delete a session that may be evicted or not stored at all."""
        if digest_of(session_id) in self._terms:
            super().forget(session_id)

    def lost(self, session_ids: Sequence[str]) -> set[str]:
        """Those of this server's sessions that another server owns now."""
        found = set()
        for session_id in session_ids:
            digest = digest_of(session_id)
            term = self._terms.get(digest)
            try:
                moved = None if term is None else Claim(self._folder(digest), term).lost()
            except OSError as error:  # the storage is away: nothing is known
                log.warning("a session's owner cannot be read", extra={"error": str(error)})
                break
            if moved is not None:
                found.add(session_id)
        return found

    # Lookups.

    def find(self, session_id: str, owner: str) -> StoredSession | None:
        """As SessionCatalog.find, for a session that `locate` has just found to be this server's."""
        found_at = self._found_at.get(digest_of(session_id))
        if found_at is None or time.monotonic() > found_at + _FRESH_SECONDS:
            return None
        return super().find(session_id, owner)

    def remove(self, session_id: str) -> None:
        """Remove a session that is in a worker's memory again."""
        self._found_at.pop(digest_of(session_id), None)
        super().remove(session_id)

    def was_taken_over(self, session_id: str) -> bool:
        """Whether a lookup has taken a session over from another server, the first time that this is asked."""
        digest = digest_of(session_id)
        taken = digest in self._taken_over
        self._taken_over.discard(digest)
        return taken

    def release(self, session_id: str) -> None:
        """Give a session up that no worker writes any more: the next server that is asked takes it over.

        Raises OSError.
        """
        digest = digest_of(session_id)
        term = self._terms.pop(digest, None)
        if term is not None:
            ownership.release(self._folder(digest), term)

    def locate(self, session_id: str, owner: str) -> StoredSession | None:
        """Look a principal's session up, and take it over if its owner does not answer; None if there is none.

        Waits for the storage, and for the owner. Raises Refusal: SESSION_MOVED, if its owner answers; UNAVAILABLE, if
        another server has just claimed it; SNAPSHOT_DAMAGED; OSError.
        """
        digest = digest_of(session_id)
        with self._lock:
            if digest in self._taking:
                raise _claimed()
            self._taking.add(digest)
        try:
            return self._locate(digest, owner)
        finally:
            self._taking.discard(digest)

    def _locate(self, digest: bytes, owner: str) -> StoredSession | None:
        folder = self._folder(digest)
        head = self._head_of(ownership.newest_complete(folder), digest)
        if head is None or head.principal != owner:
            return None
        newest = next(reversed(ownership.terms(folder)), 0)
        if self._terms.get(digest) != newest:
            self._terms.pop(digest, None)
            holder = ownership.owner_of(folder, newest)
            if holder not in ("", self.endpoint) and self._checks.answers(holder):
                raise ownership.moved_to(holder)
            try:
                own = ownership.take_over(folder, newest, self.endpoint)
            except (FileExistsError, FileNotFoundError):
                raise _claimed() from None
            if own is None:
                return None
            self._terms[digest] = newest + 1
            self._taken_over.add(digest)
            head = self._head_of(own, digest) or head
            log.info("session taken over", extra={"file": digest.hex()[:12], "term": newest + 1, "owner": holder})
        stored = self.put_unread(head)
        stored.until = max(stored.until, time.monotonic() + self.grace)  # it is about to be used
        self._found_at[digest] = time.monotonic()
        return stored

    def _head_of(self, location: Path | None, digest: bytes) -> pb.SnapshotHead | None:
        found = None if location is None else self.store.head(location)
        if found is None:
            return None
        if found[1].session_digest != digest:
            raise Refusal("SNAPSHOT_DAMAGED", f"{digest.hex()} has another session's files")
        return found[1]

    def discard(self, session_id: str, owner: str) -> bool:
        """Delete a principal's stored session, whoever stored it; whether there was one.

        Raises Refusal as `locate` does; OSError.
        """
        return self.locate(session_id, owner) is not None and super().discard(session_id, owner)

    # Periodically.

    def sweep(self) -> None:
        """As SessionCatalog.sweep. Also delete what servers left that do not answer, once its grace is over."""
        super().sweep()
        answering: dict[str, bool] = {}
        for folder in self.store.locations(self.sessions):
            try:
                digest = bytes.fromhex(folder.name)
                terms = ownership.terms(folder)
                if not terms or self._terms.get(digest) == terms[-1]:
                    continue
                holder = ownership.owner_of(folder, terms[-1])
                if holder not in answering:
                    answering[holder] = holder not in ("", self.endpoint) and self.answers(holder)
                if not answering[holder] and self._is_expired(folder, digest):
                    ownership.remove_session(self.store, ownership.location(folder, terms[-1]))
            except (OSError, ValueError, Refusal) as error:
                log.error("stored session is skipped", extra={"file": str(folder), "error": str(error)})
        for digest in list(self._terms):
            if not self._folder(digest).is_dir():
                self._terms.pop(digest, None)

    def _is_expired(self, folder: Path, digest: bytes) -> bool:
        complete = ownership.newest_complete(folder)
        if self._head_of(complete, digest) is None or complete is None:
            return time.time() - folder.stat().st_mtime > _ABANDONED_SECONDS
        return time.time() - max(each.stat().st_mtime for each in complete.iterdir()) > self.grace


def _claimed() -> Refusal:
    return Refusal("UNAVAILABLE", "the session is being taken over; try again")


class _Checks:
    """Checks whether servers answer. Lookups of many sessions of one server share a check, which may take a second."""

    def __init__(self, answers: Callable[[str], bool]) -> None:
        self._answers = answers
        self._lock = threading.Lock()
        self._under_way: dict[str, Future[bool]] = {}  # by endpoint
        self._silent: dict[str, float] = {}  # by endpoint, until when a server counts as silent

    def answers(self, endpoint: str) -> bool:
        """Whether a server answers. One that did not within the last second is not asked again."""
        with self._lock:
            if self._silent.get(endpoint, 0.0) > time.monotonic():
                return False
            found = self._under_way.get(endpoint)
            mine = found is None
            if found is None:
                found = self._under_way[endpoint] = Future()
        if not mine:
            return found.result()
        try:
            found.set_result(self._answers(endpoint))
        except BaseException as error:
            found.set_exception(error)
            raise
        finally:
            with self._lock:
                del self._under_way[endpoint]
                now = time.monotonic()
                self._silent = {each: until for each, until in self._silent.items() if until > now}
                if found.exception() is None and not found.result():
                    self._silent[endpoint] = now + _SILENT_SECONDS
        return found.result()


class Lookups:
    """Lookups of sessions that are not in memory. They run in threads; until one is done its caller tries again."""

    def __init__(self, catalog: SharedCatalog, in_thread: Callable[..., Awaitable[StoredSession | None]]) -> None:
        self._catalog = catalog
        self._in_thread = in_thread
        #: By session and principal: when a lookup began, and its task.
        self._begun: OrderedDict[tuple[str, str], tuple[float, asyncio.Task[StoredSession | None]]] = OrderedDict()

    def check(self, session_id: str, owner: str) -> None:
        """Return if the principal has no such session. Begin a lookup if there is none.

        Raises Refusal: UNAVAILABLE while the session is being looked up, and once it can be found; SESSION_MOVED and
        others of SharedCatalog.locate.
        """
        now = time.monotonic()
        while self._begun and (first := next(iter(self._begun.values())))[0] + _FRESH_SECONDS < now and first[1].done():
            self._begun.popitem(last=False)
        task = self._begun.get((session_id, owner), (0.0, None))[1]
        if task is not None and task.done():
            del self._begun[session_id, owner]
            if task.result() is None:
                return
            task = None  # found, and no longer fresh
        if task is None and len(self._begun) < _MOST_LOOKUPS:
            looking = asyncio.get_running_loop().create_task(self._look(session_id, owner))
            self._begun[session_id, owner] = (now, looking)
            looking.add_done_callback(_retrieve)
        raise Refusal("UNAVAILABLE", "the session is being looked up; try again")

    async def _look(self, session_id: str, owner: str) -> StoredSession | None:
        try:
            return await self._in_thread(self._catalog.locate, session_id, owner)
        except OSError as error:
            log.error("a session cannot be looked up", extra={"error": str(error)})
            raise Refusal("UNAVAILABLE", "the server cannot read its stored sessions; try again") from None


def _retrieve(task: asyncio.Task[StoredSession | None]) -> None:
    if not task.cancelled():
        task.exception()  # so asyncio logs nothing if the caller does not return
