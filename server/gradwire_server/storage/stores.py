"""Where stored sessions lie: `SnapshotStore` and `LogStore`. A directory is one (snapshot_files.py, log_files.py).

A place is a path that names one session or one named snapshot; a log has a path below its session's place. What a store
keeps under these names is its own affair. Methods that wait for a disk raise OSError where it fails.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from gradwire.v1 import snapshots_pb2 as pb


class Writing(Protocol):
    """A generation being written. `data` writes the tensors' bytes, `commit` makes it exist, `abandon` undoes it."""

    folder: Path  # its place
    generation: int  # after the first step of `data`: one that nothing else was written as
    head: pb.SnapshotHead

    def data(self, memories: list[Any], room: int | None) -> Iterator[None]:
        """Write the bytes, a piece before each yield. Raises Refusal: SNAPSHOT_LIMIT, STORAGE, before any."""

    def commit(self) -> int:
        """Make the generation exist and those before go, their logs too; its bytes. Raises OSError."""

    def abandon(self) -> None:
        """Leave nothing of it, unless it exists already."""


class SnapshotStore(ABC):
    """Generations of stored sessions and named snapshots, by place."""

    @abstractmethod
    def list(self, place: Path) -> list[int]:
        """The generations that exist, the oldest first."""

    @abstractmethod
    def head(self, place: Path) -> tuple[int, pb.SnapshotHead] | None:
        """The newest generation and its head, if there is one. Raises Refusal: SNAPSHOT_DAMAGED."""

    @abstractmethod
    def read(self, place: Path, generation: int) -> tuple[pb.SnapshotHead, pb.SessionState]:
        """What a generation has but for the tensors' bytes. Raises Refusal: SNAPSHOT_DAMAGED."""

    @abstractmethod
    def data(self, place: Path, generation: int, state: pb.SessionState, memories: Sequence[Any]) -> Iterator[None]:
        """Fill memories with a generation's bytes, a piece before each yield. Raises Refusal: SNAPSHOT_DAMAGED."""

    @abstractmethod
    def begin(self, place: Path, generation: int, head: pb.SnapshotHead, state: pb.SessionState, base: Path) -> Writing:
        """Begin a generation, or a later one if there is something of that already.

        `base`, which is above the place, is not made if it is not there.
        """

    @abstractmethod
    def remove(self, place: Path) -> None:
        """Delete all of a place, its generations first."""

    @abstractmethod
    def running(self, place: Path) -> bool:
        """Whether commands may have been applied that nothing stored knows of."""

    @abstractmethod
    def set_running(self, place: Path, running: bool, lasting: bool = True) -> None:
        """Note that. `lasting`: the note is to survive a crash from now on, not only from the next commit on."""

    @abstractmethod
    def exists(self, place: Path) -> bool:
        """Whether there is anything at a place."""

    @abstractmethod
    def places(self, above: Path) -> Sequence[Path]:
        """The places right below a path."""

    @abstractmethod
    def about(self, place: Path) -> tuple[int, float]:
        """The bytes that a place has, and when it changed last, in seconds since 1970."""


class LogStore(ABC):
    """Logs by path. One thread creates, appends and closes; the other methods are for any."""

    @abstractmethod
    def list(self, place: Path) -> list[int]:
        """The generations of a session that have a log, the oldest first."""

    @abstractmethod
    def exists(self, path: Path) -> bool:
        """Whether there is a log."""

    @abstractmethod
    def size(self, path: Path) -> int:
        """The bytes that a log has."""

    @abstractmethod
    def create(self, path: Path, beginning: bytes) -> None:
        """Make a log that has these bytes, as a whole or not at all."""

    @abstractmethod
    def append(self, path: Path, parts: Sequence[bytes], place: int, mark: tuple[int, bytes], again: bool) -> None:
        """Write at a place of the log. When that would survive a crash, put the mark's bytes at the mark's place.

        `again`: the last try failed; what it may have left is cut off first.
        """

    @abstractmethod
    def cut(self, path: Path, size: int) -> None:
        """Let a log have so many bytes and no more."""

    @abstractmethod
    def close(self, path: Path) -> None:
        """Nothing more is written to a log for now."""

    @abstractmethod
    def open(self, path: Path) -> BinaryIO:
        """A log's bytes, to be read from the beginning."""
