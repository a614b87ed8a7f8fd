"""Ownership: which server answers for a session whose folder several servers share.

A session's folder has a folder per term: "t1", "t2" and so on. A server owns a session from the moment it makes the
newest term's folder. That is exclusive, so each term has one owner, and no clock is compared. The file "owner" in it
has the owner's address.

A new owner copies the state of the term before. The former owner may still run: after each write, and before it
answers, it looks for the next term. What it wrote before the next term existed is part of the copy. What it wrote later
it does not answer. Older terms are deleted, the oldest first: then a term without a successor is the newest, or its own
folder is gone too.

This needs a file system on which a directory made on one machine is seen by the others at once.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
import shutil
import time
from pathlib import Path

from gradwire_server.common.errors import Refusal
from gradwire_server.storage.snapshot_files import DATA, LOG, RUNNING, SESSION, generations, sync_folder
from gradwire_server.storage.stores import SnapshotStore

OWNER = "owner"
_SESSION_FOLDER = re.compile(r"[0-9a-f]{64}")
_TERM = re.compile(r"t([1-9][0-9]{0,17})")
_REMOVED = "removed-"
_UNNAMED_SECONDS = 0.2  # how long a new owner gets to write its address
_CANNOT_LINK = (errno.EPERM, errno.EOPNOTSUPP, errno.EXDEV, errno.EMLINK)


def terms(folder: Path) -> list[int]:
    """The terms of a session's folder, oldest first; empty if there is no such folder. Raises OSError."""
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return []
    return sorted(int(found[1]) for name in names if (found := _TERM.fullmatch(name)))


def location(folder: Path, term: int) -> Path:
    """Folder of a term."""
    return folder / f"t{term}"


def owner_of(folder: Path, term: int) -> str:
    """Address of a term's owner; "" if it has not been written. Raises OSError."""
    ends = time.monotonic() + _UNNAMED_SECONDS
    while True:
        try:
            return (location(folder, term) / OWNER).read_text()
        except FileNotFoundError:
            if time.monotonic() >= ends or not location(folder, term).is_dir():
                return ""
        time.sleep(_UNNAMED_SECONDS / 10)


class Claim:
    """A server's claim to own a session, by its term's folder."""

    __slots__ = ("_following", "_own", "folder", "term")

    def __init__(self, folder: Path, term: int) -> None:
        self.folder, self.term = folder, term
        self._own, self._following = str(location(folder, term)), str(location(folder, term + 1))

    def lost(self) -> Refusal | None:
        """Why the session has another owner, or none; None while the claim holds.

        Call it after a write and before the answer. Raises OSError.
        """
        if _exists(self._following):
            return self._moved()
        # Looked at second: the next term's folder is deleted after this one.
        return None if _exists(self._own) else self._moved()

    def _moved(self) -> Refusal:
        newest = terms(self.folder)[-1:]
        if not newest and not self.folder.is_dir():
            return Refusal("SESSION_NOT_FOUND", "the session was closed at another server")
        return moved_to(owner_of(self.folder, newest[0]) if newest else "")


def moved_to(endpoint: str) -> Refusal:
    """The refusal for a session that another server owns; its address is "" if it is not known yet."""
    if not endpoint:
        return Refusal("SESSION_MOVED", "another server has taken the session over")
    return Refusal("SESSION_MOVED", f"the session is at {endpoint}", endpoint=endpoint)


def _exists(path: str) -> bool:
    try:
        os.stat(path)
    except FileNotFoundError:
        return False
    return True


def claim_of(path: Path) -> Claim | None:
    """The claim that a location stands for; None for a location that one server has to itself."""
    found = _TERM.fullmatch(path.name)
    if found is None or _SESSION_FOLDER.fullmatch(path.parent.name) is None:
        return None
    return Claim(path.parent, int(found[1]))


def claim(folder: Path, term: int, endpoint: str) -> Path:
    """Become the owner of a session's term; its location. Raises FileExistsError if another server is; OSError."""
    own = location(folder, term)
    own.mkdir(mode=0o700)
    beside = own / f"{OWNER}.new"
    _write(beside, endpoint.encode())
    os.replace(beside, own / OWNER)
    sync_folder(own)
    sync_folder(folder)
    return own


def begin(folder: Path, endpoint: str) -> Path:
    """Become the first owner of a new session. The folder's parent must exist. Raises OSError."""
    folder.mkdir(mode=0o700)
    sync_folder(folder.parent)
    return claim(folder, 1, endpoint)


def newest_complete(folder: Path) -> Path | None:
    """The newest term with a stored session; None without. Raises OSError."""
    while True:
        found = terms(folder)
        for term in reversed(found):
            if generations(location(folder, term), SESSION):
                return location(folder, term)
        if terms(folder) == found:  # else a term was deleted since it was listed, and there is a later one
            return None


def take_over(folder: Path, newest: int, endpoint: str) -> Path | None:
    """Become the owner after term `newest`, with a copy of its state; the location. None if nothing is stored.

    Raises FileExistsError if another server did that first; OSError.
    """
    own = claim(folder, newest + 1, endpoint)
    while (source := newest_complete(folder)) is not None:
        try:
            _copy(source, own)
        except FileNotFoundError:  # the former owner stored a newer snapshot, or closed the session
            for each in own.iterdir():
                if each.name != OWNER:
                    each.unlink()
            continue
        _remove_terms(folder, [term for term in terms(folder) if term <= newest])
        return own
    _remove_terms(folder, [newest + 1])
    return None


def release(folder: Path, term: int) -> None:
    """Give a term up: the next server that is asked takes the session over without asking its owner. Raises OSError.

    The owner must have stopped writing. Does nothing if another server has taken the session over already.
    """
    own = location(folder, term)
    with contextlib.suppress(FileNotFoundError):
        beside = own / f"{OWNER}.new"
        _write(beside, b"")
        os.replace(beside, own / OWNER)
        sync_folder(own)


def remove_session(store: SnapshotStore, path: Path) -> None:
    """Delete a stored session by its location, unless another server owns it. Raises OSError."""
    held = claim_of(path)
    if held is None:
        store.remove(path)
        return
    try:
        # The next term, so that no server takes over what is about to be deleted.
        location(held.folder, held.term + 1).mkdir(mode=0o700)
    except (FileExistsError, FileNotFoundError):
        return
    _remove_terms(held.folder, terms(held.folder))
    for left in held.folder.glob(f"{_REMOVED}*"):  # of a server that was killed
        shutil.rmtree(left, ignore_errors=True)
    with contextlib.suppress(OSError):
        held.folder.rmdir()


def _remove_terms(folder: Path, ended: list[int]) -> None:
    for term in ended:
        aside = folder / f"{_REMOVED}{term}-{secrets.token_hex(4)}"
        with contextlib.suppress(FileNotFoundError):
            location(folder, term).rename(aside)  # at once: a half-deleted folder would still look owned
            shutil.rmtree(aside, ignore_errors=True)


def _copy(source: Path, own: Path) -> None:
    """Copy a term's newest snapshot and its logs. The snapshot's head comes last: it makes the copy complete.

    Logs get new files, since the former owner may still append to its own. Raises OSError.
    """
    found = generations(source, SESSION)
    if not found:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(source))
    newest = found[-1]
    for each in generations(source, LOG):
        if each >= newest:
            _write(own / f"{each}{LOG}", (source / f"{each}{LOG}").read_bytes())
    if (source / RUNNING).exists():
        _write(own / RUNNING, b"")
    _link(source / f"{newest}{DATA}", own / f"{newest}{DATA}")
    sync_folder(own)
    _link(source / f"{newest}{SESSION}", own / f"{newest}{SESSION}")
    sync_folder(own)


def _link(source: Path, target: Path) -> None:
    """Give an unchanging file a second name, or copy it where the file system has no links."""
    try:
        os.link(source, target)
    except OSError as error:
        if error.errno not in _CANNOT_LINK:
            raise
        _write(target, source.read_bytes())


def _write(path: Path, data: bytes) -> None:
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
