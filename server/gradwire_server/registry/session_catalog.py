"""Session catalog: indexes the sessions and snapshots on disk. It reads only the heads of files.

    DIR/lock                         held by the server and its workers, so one server uses a state directory
    DIR/sessions/<hash of the id>/   a session's own state; the id is a secret and is not stored
    DIR/snapshots/<owner>/<name>/    a principal's named snapshots; a folder may be copied to another server

Damaged files are logged and skipped. Slow methods belong off the event loop.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import itertools
import logging
import os
import re
import time
from dataclasses import dataclass
from pathlib import Path

from gradwire.v1 import snapshots_pb2 as pb
from gradwire_server.common.errors import Refusal
from gradwire_server.storage.configured import snapshot_store
from gradwire_server.storage.ownership import remove_session
from gradwire_server.storage.snapshot_files import make_folder
from gradwire_server.storage.stores import SnapshotStore

_DIGEST = re.compile(r"[0-9a-f]{64}")
NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}")
_UNFINISHED_SECONDS = 86_400.0  # age after which an unfinished snapshot counts as abandoned
_LOCK_SECONDS = 30.0  # wait for the workers of a killed server to end and release the lock

log = logging.getLogger("gradwire.server")


@dataclass
class StoredSession:
    """An evicted session on disk.

    `until` is when it may be deleted, on time.monotonic()'s clock. `number` identifies it to administrators.
    """

    folder: Path
    head: pb.SnapshotHead
    until: float
    number: int
    why: Refusal | None = None  # why it cannot be restored; then head.principal may be unknown


def digest_of(session_id: str) -> bytes:
    """The SHA-256 that replaces a session's id on disk."""
    return hashlib.sha256(session_id.encode()).digest()


def folder_of(owner: str) -> str:
    """Name of a principal's folder."""
    return hashlib.sha256(owner.encode()).hexdigest()[:32] if owner else "anyone"


def check_name(name: str, what: str) -> None:
    """Check a file's or snapshot's name. Raises Refusal: ARGUMENT_VALUE."""
    if not NAME.fullmatch(name):
        raise Refusal(
            "ARGUMENT_VALUE",
            f"a {what}'s name has 1 to 100 letters, digits and '._-', and begins with no '.', not {name[:100]!r}",
            argument="name",
        )


class SessionCatalog:
    """Evicted sessions by digest, and named snapshots. One server uses the directory (shared_catalog.py: several)."""

    #: Whether other servers use the directory too, so that a session must be claimed before it is used.
    shared = False

    def __init__(
        self,
        root: Path,
        grace: float,
        max_snapshots: int,
        max_bytes: int,
        max_ttl: float = 0.0,
        snapshots: str = "",
        max_sessions: int = 0,
        store: SnapshotStore | None = None,
    ) -> None:
        """Keep evicted sessions for `grace` seconds.

        `max_sessions` limits a principal's evicted sessions, `max_snapshots` its named snapshots. `max_bytes` limits
        the bytes of each kind. 0 means no limit.
        """
        self.root = root
        self.store = store or snapshot_store()  # the directory's lock is a file, whatever the store
        self.grace = grace
        self.max_snapshots = max_snapshots
        self.max_bytes = max_bytes
        self.max_ttl = max_ttl
        self.max_sessions = max_sessions
        self.sessions = root / "sessions"
        self.snapshots = Path(snapshots) if snapshots else root / "snapshots"
        self.stored_sessions: dict[bytes, StoredSession] = {}  # in the order of storing
        self._numbers = itertools.count(1)
        self.lock = -1
        self.closed = False  # then it deletes nothing: another server may use the directory
        # Wall time is read once per snapshot: a clock that jumps later expires nothing early.
        self._named_until: dict[tuple[Path, int], float] = {}

    def open(self) -> None:
        """Lock the directory and index its sessions. Raises OSError if that fails or another server holds it."""
        for folder in (self.root, self.sessions, self.snapshots):
            make_folder(folder)
        self._take_lock(self.root / "lock", f"another server holds the state directory {self.root}")
        self._index()

    def _take_lock(self, path: Path, held: str) -> None:
        """Lock a file, for this server and its workers. Raises OSError, with `held` if another server has it."""
        self.lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        until = time.monotonic() + _LOCK_SECONDS
        while True:
            try:
                fcntl.flock(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= until:
                    self.close()
                    raise OSError(held) from None
                time.sleep(0.05)

    def _index(self) -> None:
        """Enter all stored sessions."""
        found: list[tuple[Path, pb.SnapshotHead, Refusal | None]] = []
        for folder in self.store.locations(self.sessions):
            if not _DIGEST.fullmatch(folder.name):
                continue  # not a session's folder
            if self.store.list(folder):
                found.append((folder, *self._head_or_refusal(folder)))
            else:  # no client received its id
                self._delete(folder)
        for folder, head, why in sorted(found, key=lambda each: each[1].saved_unix_ms):
            self._hold(folder, head, why)

    def _head_or_refusal(self, folder: Path) -> tuple[pb.SnapshotHead, Refusal | None]:
        """A stored session's head, and why it cannot be restored. A damaged session's head has only dates and sizes."""
        digest = bytes.fromhex(folder.name)
        try:
            found = self.store.head(folder)
            if found is not None and found[1].session_digest == digest:
                return found[1], None
            why = Refusal("SNAPSHOT_DAMAGED", f"{folder.name} has another session's files")
        except Refusal as refusal:
            why = refusal
        except OSError as error:
            why = Refusal("STORAGE", f"{folder.name} cannot be read: {os.strerror(error.errno or 0)}")
        log.error("stored session cannot be restored", extra={"file": str(folder), "error": why.message})
        size, changed = self.store.about(folder)
        return pb.SnapshotHead(session_digest=digest, saved_unix_ms=int(changed * 1000), bytes=size), why

    def close(self) -> None:
        """Release the directory. Workers that still run keep its lock."""
        self.closed = True
        if self.lock >= 0:
            os.close(self.lock)
            self.lock = -1

    def _hold(self, folder: Path, head: pb.SnapshotHead, why: Refusal | None = None) -> StoredSession:
        self.stored_sessions.pop(head.session_digest, None)
        stored = StoredSession(folder, head, self._until(head), next(self._numbers), why)
        self.stored_sessions[head.session_digest] = stored
        return stored

    def _until(self, head: pb.SnapshotHead) -> float:
        age = max(0.0, time.time() - head.saved_unix_ms / 1000)
        return time.monotonic() + max(0.0, self.grace - age)

    def _head(self, folder: Path) -> pb.SnapshotHead | None:
        try:
            found = self.store.head(folder)
        except (Refusal, OSError) as error:
            log.error("stored session is skipped", extra={"file": str(folder), "error": str(error)})
            return None
        return None if found is None else found[1]

    # Sessions.

    def home(self, session_id: str) -> Path:
        """Folder of a session's own state."""
        return self.home_of(digest_of(session_id))

    def home_of(self, digest: bytes) -> Path:
        """Folder of a session's own state, by its digest."""
        return self.sessions / digest.hex()

    def find(self, session_id: str, owner: str) -> StoredSession | None:
        """A principal's evicted session; None if there is none.

        Raises Refusal: the reason why it cannot be restored, such as SNAPSHOT_DAMAGED. If its files no longer tell
        the owner, every caller with the session's id gets that refusal.
        """
        stored = self.stored_sessions.get(digest_of(session_id))
        if stored is None or time.monotonic() >= stored.until:
            return None
        if stored.why is not None and stored.head.principal in ("", owner):
            raise Refusal(stored.why.reason, stored.why.message)
        return stored if stored.head.principal == owner else None

    def remove(self, session_id: str) -> None:
        """Remove a session that is in a worker's memory again."""
        self.stored_sessions.pop(digest_of(session_id), None)

    def put(self, session_id: str, deletes_oldest: bool = True, why: Refusal | None = None) -> bool:
        """Add an evicted session; whether its files exist. Deletes a principal's oldest sessions over the limits.

        `why` is the refusal for later calls, if the session cannot be restored.
        """
        head = self._head(self.home(session_id))
        if head is None:
            return False
        self._hold(self.home(session_id), head, why)
        if deletes_oldest:
            self._delete_oldest(head)
        return True

    def put_unread(self, head: pb.SnapshotHead, why: Refusal | None = None) -> StoredSession:
        """Add an evicted session by what is known of its head, without a call of the store; `confirm` does the rest."""
        return self._hold(self.home_of(head.session_digest), head, why)

    def confirm(self, stored: StoredSession, deletes_oldest: bool) -> bool:
        """Read the head of a session added by `put_unread`; False if there is none and it was therefore removed.

        A head that cannot be read is logged, and the session stays: a restore then tells its caller why.
        """
        digest = stored.head.session_digest
        try:
            found = self.store.head(stored.folder)
        except (Refusal, OSError) as error:
            log.error("stored session cannot be read", extra={"file": str(stored.folder), "error": str(error)})
            return True
        if self.stored_sessions.get(digest) is not stored:
            return True  # restored or deleted meanwhile
        if found is None:
            self.stored_sessions.pop(digest, None)
            return False
        stored.head = found[1]
        stored.until = self._until(stored.head)
        if deletes_oldest:
            self._delete_oldest(stored.head)
        return True

    def _delete_oldest(self, newest: pb.SnapshotHead) -> None:
        own = [
            (digest, each)
            for digest, each in list(self.stored_sessions.items())
            if each.head.principal == newest.principal and each.why is None
        ]
        size, count = sum(each.head.bytes for _, each in own), len(own)
        for digest, each in own:
            fits = not (self.max_bytes and size > self.max_bytes) and not (
                self.max_sessions and count > self.max_sessions
            )
            if fits or digest == newest.session_digest:
                break
            size, count = size - each.head.bytes, count - 1
            log.warning(
                "stored session deleted to fit a newer one into the principal's limits",
                extra={"file": str(each.folder)},
            )
            self._discard(digest)

    def _discard(self, digest: bytes) -> None:
        stored = self.stored_sessions.pop(digest, None)
        if stored is not None:
            self._delete(stored.folder)

    def _delete(self, folder: Path) -> None:
        """Delete stored files that no client waits for. The log shows a failure; the next start finds what is left."""
        if self.closed:
            return
        try:
            self.remove_files(folder)
        except OSError as error:
            log.error("stored files cannot be deleted", extra={"file": str(folder), "error": str(error)})

    def remove_files(self, folder: Path) -> None:
        """Delete a session or a snapshot. Raises OSError."""
        remove_session(self.store, folder)

    def discard(self, session_id: str, owner: str) -> bool:
        """Delete a principal's evicted session; whether there was one. Raises OSError; it then stays in the catalog."""
        digest = digest_of(session_id)
        stored = self.stored_sessions.get(digest)
        if stored is None or stored.why is not None or stored.head.principal != owner:  # damaged ones may be repaired
            return False
        del self.stored_sessions[digest]  # first: no lookup restores it meanwhile
        try:
            self.remove_files(stored.folder)
        except OSError:
            self.stored_sessions[digest] = stored
            raise
        return True

    def forget(self, session_id: str) -> None:
        """Delete a session that may be evicted or not stored at all."""
        self.stored_sessions.pop(digest_of(session_id), None)
        self._delete(self.home(session_id))

    def numbered(self, after: int, principal: str, most: int) -> list[StoredSession]:
        """Evicted sessions numbered above `after`, `most` at most. An empty `principal` means all."""
        found = (
            each
            for each in list(self.stored_sessions.values())
            if each.number > after and (not principal or each.head.principal == principal)
        )
        return list(itertools.islice(found, most))

    def remove_numbered(self, number: int) -> StoredSession:
        """Remove any principal's evicted session; the caller deletes its files. Raises Refusal: SESSION_NOT_FOUND."""
        digest = next((digest for digest, each in list(self.stored_sessions.items()) if each.number == number), b"")
        stored = self.stored_sessions.pop(digest, None)
        if stored is None:
            raise Refusal("SESSION_NOT_FOUND", f"there is no stored session of number {number}")
        return stored

    def sweep(self) -> None:
        """Delete expired sessions and snapshots, and abandoned files."""
        now = time.monotonic()
        for digest in [digest for digest, each in list(self.stored_sessions.items()) if now >= each.until]:
            self._discard(digest)
        for key in [key for key in list(self._named_until) if not self.store.exists(key[0])]:
            self._named_until.pop(key, None)
        with contextlib.suppress(OSError):
            for owner in self.store.locations(self.snapshots):
                for folder in self.store.locations(owner):
                    head = self._head(folder)
                    unfinished = not self.store.list(folder)
                    abandoned = unfinished and time.time() - self.store.about(folder)[1] > _UNFINISHED_SECONDS
                    if abandoned or (head is not None and self.left(folder, head) == 0.0):
                        self._delete(folder)

    # Named snapshots.

    def named(self, owner: str, name: str) -> Path:
        """Folder of a named snapshot, existing or not. Raises Refusal: ARGUMENT_VALUE."""
        check_name(name, "snapshot")
        return self._owner(owner) / name

    def _owner(self, owner: str) -> Path:
        return self.snapshots / folder_of(owner)

    def left(self, folder: Path, head: pb.SnapshotHead) -> float | None:
        """Seconds until a snapshot expires; None if it never does, 0 if it has."""
        if not head.ttl_ms:
            return None
        key = (folder, head.saved_unix_ms)
        until = self._named_until.get(key)
        if until is None:
            age = max(0.0, time.time() - head.saved_unix_ms / 1000)
            until = self._named_until[key] = time.monotonic() + head.ttl_ms / 1000 - age
        return max(0.0, until - time.monotonic())

    def found(self, owner: str, name: str) -> tuple[Path, pb.SnapshotHead]:
        """A principal's snapshot. Raises Refusal: SNAPSHOT_NOT_FOUND, SNAPSHOT_DAMAGED, ARGUMENT_VALUE, STORAGE."""
        folder = self.named(owner, name)
        try:
            found = self.store.head(folder)
        except OSError as error:
            raise Refusal("STORAGE", f"the stored data cannot be read: {os.strerror(error.errno or 0)}") from None
        if found is None or self.left(folder, found[1]) == 0.0:
            raise Refusal("SNAPSHOT_NOT_FOUND", f"there is no snapshot {name!r}", name=name)
        return folder, found[1]

    def listed(self, owner: str) -> list[tuple[pb.SnapshotHead, float | None]]:
        """A principal's snapshots, sorted by name, with the seconds left of each. Skips damaged ones."""
        folder = self._owner(owner)
        heads = [(each, self._head(each)) for each in sorted(self.store.locations(folder))]
        unexpired = [(head, self.left(each, head)) for each, head in heads if head is not None]
        return [(head, left) for head, left in unexpired if left != 0.0]

    def room(self, owner: str, name: str) -> int | None:
        """Bytes that a snapshot of that name may have; None for no limit. Raises Refusal: SNAPSHOT_LIMIT."""
        self.named(owner, name)
        others = [head for head, _ in self.listed(owner) if head.name != name]
        if self.max_snapshots and len(others) >= self.max_snapshots:
            raise Refusal(
                "SNAPSHOT_LIMIT",
                f"a principal has at most {self.max_snapshots} snapshots; delete one first",
                limit=self.max_snapshots,
            )
        return max(0, self.max_bytes - sum(head.bytes for head in others)) if self.max_bytes else None

    def delete(self, owner: str, name: str) -> int:
        """Delete a principal's snapshot, damaged or not; bytes freed. Raises Refusal: SNAPSHOT_NOT_FOUND; OSError."""
        folder = self.named(owner, name)
        if not self.store.exists(folder):
            raise Refusal("SNAPSHOT_NOT_FOUND", f"there is no snapshot {name!r}", name=name)
        size, _ = self.store.about(folder)
        self.store.remove(folder)
        return size
