"""Stores: interfaces for stored sessions, `SnapshotStore` and `LogStore`.

snapshot_files.py and log_files.py implement them with a directory. A location is a path that names one session or one
named snapshot; a log's path is below its session's location. Paths are only names: a store need not use files. Methods
that wait for a disk raise OSError if it fails.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from gradwire.v1 import snapshots_pb2 as pb


class SnapshotWriter(Protocol):
    """A generation being written. `data` writes the tensors' bytes, `commit` makes it exist, `abandon` undoes it."""

    folder: Path  # its location
    generation: int  # final, and unused before, once `data` is exhausted
    head: pb.SnapshotHead

    def data(self, memories: list[Any], room: int | None) -> Iterator[Future[Any] | None]:
        """Write the bytes, a piece before each yield, or yield a future to wait for.

        Raises Refusal: SNAPSHOT_LIMIT, STORAGE, before any.
        """

    def commit(self) -> int:
        """Make the generation exist and delete earlier ones and their logs; return its bytes. Raises OSError."""

    def abandon(self) -> None:
        """Delete what was written, unless the generation exists already."""


class SnapshotStore(ABC):
    """Generations of stored sessions and named snapshots, by location. Thread-safe.

    `may_block`: whether a method may take long. A worker then calls the methods in threads, except the steps of `data`,
    which run on its compute thread.
    """

    may_block = True

    @abstractmethod
    def list(self, location: Path) -> list[int]:
        """The generations that exist, oldest first."""

    @abstractmethod
    def head(self, location: Path) -> tuple[int, pb.SnapshotHead] | None:
        """The newest generation and its head, if there is one. Raises Refusal: SNAPSHOT_DAMAGED."""

    @abstractmethod
    def read(self, location: Path, generation: int) -> tuple[pb.SnapshotHead, pb.SessionState]:
        """Read a generation's head and state, without tensors' bytes. Raises Refusal: SNAPSHOT_DAMAGED."""

    @abstractmethod
    def data(
        self, location: Path, generation: int, state: pb.SessionState, memories: Sequence[Any]
    ) -> Iterator[Future[Any] | None]:
        """Fill memories with a generation's bytes, a piece before each yield, or yield a future to wait for.

        Raises Refusal: SNAPSHOT_DAMAGED.
        """

    @abstractmethod
    def begin(
        self, location: Path, generation: int, head: pb.SnapshotHead, state: pb.SessionState, base: Path
    ) -> SnapshotWriter:
        """Begin a generation, or a later one if data of it exists.

        `base` is an ancestor of the location; it is not created if missing.
        """

    @abstractmethod
    def remove(self, location: Path) -> None:
        """Delete a location, its generations first."""

    @abstractmethod
    def running(self, location: Path) -> bool:
        """Whether commands may have been applied that the store does not contain."""

    @abstractmethod
    def set_running(self, location: Path, running: bool, lasting: bool = True) -> None:
        """Set the value of `running`. `lasting`: it survives a crash from now on, not only after the next commit."""

    @abstractmethod
    def exists(self, location: Path) -> bool:
        """Whether the location exists."""

    @abstractmethod
    def locations(self, above: Path) -> Sequence[Path]:
        """The locations directly below a path."""

    @abstractmethod
    def about(self, location: Path) -> tuple[int, float]:
        """Stored bytes of a location, and its last change in seconds since 1970."""


class LogStore(ABC):
    """Logs by path. One thread creates, appends and closes; the other methods are thread-safe."""

    @abstractmethod
    def list(self, location: Path) -> list[int]:
        """The generations of a session that have a log, oldest first."""

    @abstractmethod
    def exists(self, path: Path) -> bool:
        """Whether the log exists."""

    @abstractmethod
    def size(self, path: Path) -> int:
        """Bytes of a log."""

    @abstractmethod
    def create(self, path: Path, beginning: bytes) -> None:
        """Create a log with these bytes, atomically."""

    @abstractmethod
    def append(
        self, path: Path, parts: Sequence[bytes], offset: int, flush_mark: tuple[int, bytes], again: bool
    ) -> None:
        """Write at offset `offset` and flush; then write the flush mark's bytes at the flush mark's offset.

        `again`: the last append failed; truncate what it may have left first.
        """

    @abstractmethod
    def cut(self, path: Path, size: int) -> None:
        """Truncate a log to `size` bytes."""

    @abstractmethod
    def close(self, path: Path) -> None:
        """Release a log's resources; a later append may reopen it."""

    @abstractmethod
    def open(self, path: Path) -> BinaryIO:
        """Open a log for reading from its beginning."""
