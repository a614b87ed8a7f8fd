"""Stored files of a session: `SessionFiles`, which checkpointer and log writer share."""

from __future__ import annotations

import logging
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gradwire_server.session.session import Session
from gradwire_server.storage.snapshot_files import storage_refusal
from gradwire_server.storage.stores import SnapshotStore
from gradwire_server.storage.write_ahead_log import Log, Notes

log = logging.getLogger("gradwire.server")


@dataclass
class SessionFiles:
    """A session's folder, newest generation, log, and whether the files contain everything applied."""

    folder: Path
    head: bytes
    store: SnapshotStore
    generation: int = 0
    saved_progress: Any = None  # of the last snapshot (checkpointer._progress)
    bytes: int = 0  # the last snapshot's
    log: Log | None = None
    notes: Notes = field(default_factory=Notes)
    saving: bool = False
    # Number of `use` calls, and whether the files say that nothing was applied since the snapshot.
    uses: int = 0
    stopped: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)
    threads: ThreadPoolExecutor | None = None  # where to wait for the store; None: on the caller's thread

    def use(self) -> Future[None] | None:
        """Note that commands are about to be applied that no file contains. Raises Refusal: STORAGE.

        Returns a future if the store takes the note in a thread: then first wait for it. It raises the refusal.
        """
        if self.log is not None:
            return None
        if self.threads is None:
            self._use()
            return None
        if self.lock.acquire(blocking=False):  # else `stop` holds it while the store takes its note
            try:
                if not self.stopped:
                    self.uses += 1
                    return None
            finally:
                self.lock.release()
        return self.threads.submit(self._use)

    def _use(self) -> None:
        with self.lock:
            self.uses += 1
            if self.stopped:
                try:
                    self.store.set_running(self.folder, True)
                except OSError as error:
                    log.error("session cannot continue", extra={"file": str(self.folder), "error": str(error)})
                    raise storage_refusal(error) from None
                self.stopped = False

    def stop(self, uses: int) -> None:
        """Note that the files contain everything applied, if `use` was not called since. Raises OSError."""
        with self.lock:
            if self.uses == uses:
                self.stopped = True
                self.store.set_running(self.folder, False)


def files_of(session: Session) -> SessionFiles | None:
    """The session's files, if it is stored."""
    files = session.durability.files
    assert files is None or isinstance(files, SessionFiles)  # what Checkpointer.begin has set
    return files
