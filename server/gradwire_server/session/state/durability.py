"""Durability: whether a session's state, its files and its log agree."""

from collections import deque
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Protocol

from gradwire_engine import Context
from gradwire_server.common.errors import Refusal


class StoredFiles(Protocol):
    """A session's interface to its stored files (storage/session_files.py)."""

    def use(self) -> Future[None] | None:
        """Note that the session is about to apply commands that no file contains. Raises Refusal: STORAGE.

        Returns a future to wait for before the commands, if the note takes long.
        """


class CommandState(Protocol):
    """A session. A refused command may have changed its next id, and the counters in `grad_context`."""

    next_id: int
    grad_context: Context


@dataclass(frozen=True, slots=True)
class Received:
    """What a collective gave a session: the written tensors' bytes, None if it wrote none, and the rank that sent."""

    values: bytes | memoryview | None
    peer: int = 0


class LogNotes(Protocol):
    """What a session's log records besides commands (storage/write_ahead_log.py)."""

    @property
    def received_bytes(self) -> int:
        """Size of the noted values."""

    def retried(self, session: CommandState, seq: int) -> None:
        """Note that a command is tried a second time. seq: 0 if unary."""

    def refused(self, session: CommandState, seq: int, refusal: Refusal) -> None:
        """Note a refused command."""

    def received(self, what: Received) -> None:
        """Note what a collective gave, which a replay cannot compute."""


class Durability:
    """A session's files and log, and whether the session agrees with them.

    Writers: the checkpointer sets `files` and `log_notes` (storage/checkpointer.py). A replay sets `log_notes` for one
    record.
    Batches, the runtime, the log writer and a replay set `uncommitted` (session/batch.py, worker/runtime.py,
    storage/log_writer.py, storage/replay.py). The runtime sets `broken`.

    Invariants:

    - Before a call of a session with `files` changes it, `files.use` was called, and its future is done.
    - `uncommitted` is true from a call's first command until its record is queued. A call that fails while it is true
      breaks the session (worker/runtime.py).
    - `broken` never becomes None again; the session's calls are refused with it.
    - `log_notes` is set only with `files`.
    - `replayed` is set by a replay alone, for one record.
    """

    __slots__ = ("broken", "files", "log_notes", "replayed", "uncommitted")

    def __init__(self) -> None:
        self.files: StoredFiles | None = None  # None if the session is not stored
        self.log_notes: LogNotes | None = None  # refusals, retries and values for its log; None without a log
        self.replayed: deque[Received] | None = None  # what the record's collectives gave, oldest first
        self.uncommitted = False  # part of a call was applied that is neither answered nor logged
        self.broken: Refusal | None = None  # why it could not be restored, or cannot continue
