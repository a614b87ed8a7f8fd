"""Object snapshots: keeps stored sessions as named objects, in a bucket or a database, instead of in a directory.

`ObjectStore` is what to provide: put, get, list, delete. `ObjectSnapshots` makes a SnapshotStore of it.
A generation has objects below its location's path: "7.data/<memory>.<offset>" with pieces of the tensors' bytes,
"7.state", and "7.head". The head is put last; with it, the generation exists. Head and state begin with the CRC-32 of
the message that follows, in four bytes, little-endian. Generations are a random number apart: an object store cannot
create exclusively, and two servers may save under one name at the same time.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import logging
import os
import secrets
import zlib
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

from google.protobuf.message import DecodeError

from gradwire.v1 import snapshots_pb2 as pb
from gradwire_server.common.futures import until_done
from gradwire_server.storage.byte_view import byte_view
from gradwire_server.storage.snapshot_files import FORMAT, PIECE, check_room, damaged
from gradwire_server.storage.stores import SnapshotStore

_HEAD, _STATE, _RUNNING = ".head", ".state", "running"
_CRC = 4  # bytes
_THREADS = 4
_MOST_QUEUED = 64  # pieces of all sessions that wait for a thread or are put: each is a copy in memory
_SPREAD = 1 << 32  # two writers that begin at the same time take one number once in so many times

log = logging.getLogger("gradwire.server")


class ObjectStore(ABC):
    """Bytes by name. Thread-safe. Any exception that a method does not declare means that the store cannot be used."""

    @abstractmethod
    def put(self, name: str, data: bytes) -> None:
        """Store an object, atomically; it survives a crash afterwards. It replaces one of the same name."""

    @abstractmethod
    def get(self, name: str) -> bytes:
        """An object's bytes. Raises LookupError if there is none."""

    @abstractmethod
    def list(self, prefix: str) -> Mapping[str, tuple[int, float]]:
        """Objects whose names have a prefix: bytes, and last change in seconds since 1970."""

    @abstractmethod
    def delete(self, name: str) -> None:
        """Delete an object. A missing object is no error."""


class ObjectSnapshots(SnapshotStore):
    """Snapshots as objects: names begin with the location's path, without its leading slash."""

    def __init__(self, objects: ObjectStore) -> None:
        self.objects = objects
        self.writers = ThreadPoolExecutor(_THREADS, "gradwire-object-writer")
        self.readers = ThreadPoolExecutor(_THREADS, "gradwire-object-reader")  # a read waits for no session's writing
        self._pieces: deque[Future[None]] = deque()  # being put, oldest first; on the compute thread only

    def put(self, location: Path, key: str, data: bytes) -> None:
        """Put an object of a location. Raises OSError."""
        with _failures():
            self.objects.put(name_of(location, key), data)

    def get(self, location: Path, key: str) -> bytes:
        """Get an object of a location. Raises OSError: FileNotFoundError if there is none."""
        try:
            with _failures(LookupError):
                return self.objects.get(name_of(location, key))
        except LookupError:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(location / key)) from None

    def room(self) -> Iterator[Future[Any]]:
        """Wait until another piece may be queued, whichever session's the queued ones are."""
        pieces = self._pieces
        while True:
            while pieces and pieces[0].done():
                pieces.popleft()
            if len(pieces) < _MOST_QUEUED:
                return
            yield pieces[0]

    def queue(self, location: Path, key: str, data: bytes) -> Future[None]:
        """Put a piece of tensors' bytes in a thread, after `room`."""
        putting = self.writers.submit(self.put, location, key, data)
        self._pieces.append(putting)
        return putting

    def about_all(self, location: Path) -> dict[str, tuple[int, float]]:
        """The objects of a location and below it: bytes and last change by key. Raises OSError."""
        prefix = name_of(location, "")
        with _failures():
            return {name.removeprefix(prefix): told for name, told in self.objects.list(prefix).items()}

    def delete(self, location: Path, keys: Iterable[str]) -> None:
        """Delete objects of a location, in this order. Raises OSError at the first that cannot be deleted."""
        for key in keys:
            with _failures():
                self.objects.delete(name_of(location, key))

    def list(self, location: Path) -> list[int]:
        """The generations that have a head."""
        stems = [key.removesuffix(_HEAD) for key in self.about_all(location) if key.endswith(_HEAD)]
        return sorted(int(stem) for stem in stems if stem.isdecimal())

    def head(self, location: Path) -> tuple[int, pb.SnapshotHead] | None:
        """Get the newest head. Raises OSError."""
        while found := self.list(location):
            try:
                return found[-1], self._head(location, found[-1])
            except FileNotFoundError:
                if self.list(location)[-1:] == found[-1:]:
                    raise  # else a newer generation has replaced it
        return None

    def _head(self, location: Path, generation: int) -> pb.SnapshotHead:
        head: pb.SnapshotHead = self._parsed(pb.SnapshotHead, location, f"{generation}{_HEAD}")
        if head.format != FORMAT:
            what = f"it is of format {head.format}, and this server reads {FORMAT}"
            raise damaged(location / f"{generation}{_HEAD}", what)
        return head

    def _parsed(self, kind: Any, location: Path, key: str) -> Any:
        raw = self.get(location, key)
        if zlib.crc32(raw[_CRC:]) != int.from_bytes(raw[:_CRC], "little"):
            raise damaged(location / key, "its checksum is not that of its bytes")
        try:
            return kind.FromString(raw[_CRC:])
        except DecodeError:
            raise damaged(location / key, f"it is not a {kind.__name__}") from None

    def read(self, location: Path, generation: int) -> tuple[pb.SnapshotHead, pb.SessionState]:
        """Get head and state."""
        head = self._head(location, generation)
        return head, self._parsed(pb.SessionState, location, f"{generation}{_STATE}")

    def data(
        self, location: Path, generation: int, state: pb.SessionState, memories: Sequence[Any]
    ) -> Iterator[Future[Any] | None]:
        """Get tensors' bytes in threads, a few pieces ahead; copy a piece before each yield."""
        path = location / f"{generation}.data"
        keys = (
            _piece(generation, number, start)
            for number, message in enumerate(state.memories)
            for start in range(0, message.bytes, PIECE)
        )
        gets = deque(self.readers.submit(self.get, location, key) for key in itertools.islice(keys, _THREADS))
        for owner, message in zip(memories, state.memories, strict=True):
            on_host = message.device in ("", "cpu")
            view = byte_view(owner) if on_host else owner
            crc = 0
            import numpy as np  # the front imports this file, and computes nothing

            for start in range(0, message.bytes, PIECE):
                try:
                    raw = yield from until_done(gets.popleft())
                except FileNotFoundError:
                    raise damaged(path, "a piece is missing") from None
                gets.extend(self.readers.submit(self.get, location, key) for key in itertools.islice(keys, 1))
                if len(raw) != min(PIECE, message.bytes - start):
                    raise damaged(path, "a piece is shorter or longer than the state says")
                crc = zlib.crc32(raw, crc)
                piece = np.frombuffer(raw, np.uint8)
                if on_host:
                    view[start : start + len(piece)] = piece
                else:
                    view[start : start + len(piece)].set(piece)
                yield None
            if crc != message.crc:
                raise damaged(path, "its checksum is not that of its bytes")

    def begin(
        self, location: Path, generation: int, head: pb.SnapshotHead, state: pb.SessionState, base: Path
    ) -> ObjectSnapshotWriter:
        """Begin writing a generation. An object store has no folders, so `base` is not used."""
        return ObjectSnapshotWriter(self, location, generation, head, state)

    def remove(self, location: Path) -> None:
        """Delete the location's objects, heads first, newest to oldest. Raises OSError."""
        heads = [f"{generation}{_HEAD}" for generation in reversed(self.list(location))]
        self.delete(location, heads)
        self.delete(location, self.about_all(location))

    def running(self, location: Path) -> bool:
        """Whether the location has the object "running"."""
        return _RUNNING in self.about_all(location)

    def set_running(self, location: Path, running: bool, lasting: bool = True) -> None:
        """Put or delete the object "running"."""
        if running:
            self.put(location, _RUNNING, b"")
        else:
            self.delete(location, [_RUNNING])

    def exists(self, location: Path) -> bool:
        """Whether the location has an object."""
        return bool(self.about_all(location))

    def locations(self, above: Path) -> Sequence[Path]:
        """Paths directly below, that have objects below them."""
        return [
            above / name for name in dict.fromkeys(key.split("/")[0] for key in self.about_all(above) if "/" in key)
        ]

    def about(self, location: Path) -> tuple[int, float]:
        """The objects' bytes, and the newest object's change."""
        found = self.about_all(location).values()
        return sum(size for size, _ in found), max((changed for _, changed in found), default=0.0)


class ObjectSnapshotWriter:
    """A generation being written. Threads put its pieces while the session's worker computes; `commit` waits."""

    def __init__(
        self, store: ObjectSnapshots, folder: Path, generation: int, head: pb.SnapshotHead, state: pb.SessionState
    ) -> None:
        self.store = store
        self.folder = folder
        self.generation = generation
        self.head = head
        self.state = state
        self._exists = False
        self._puts: deque[Future[None]] = deque()

    def data(self, memories: list[Any], room: int | None) -> Iterator[Future[Any] | None]:
        """Copy the bytes for the threads, a piece before each yield. Raises OSError; first, Refusal: SNAPSHOT_LIMIT."""
        self.head.bytes = self.state.ByteSize() + sum(memory.bytes for memory in self.state.memories)
        check_room(self.head.bytes, room)
        found = yield from until_done(self.store.readers.submit(self.store.about_all, self.folder))
        taken = map(_generation_of, found)
        least = max((self.generation, *(1 + generation for generation in taken if generation is not None)))
        self.generation = least + secrets.randbelow(_SPREAD)
        for number, (owner, message) in enumerate(zip(memories, self.state.memories, strict=True)):
            view = byte_view(owner)
            crc = 0
            for start in range(0, message.bytes, PIECE):
                yield from self.store.room()  # before the copy
                while self._puts and self._puts[0].done():
                    self._puts.popleft().result()
                piece = view[start : start + PIECE]
                raw = bytes(memoryview(piece if message.device in ("", "cpu") else piece.get()))
                crc = zlib.crc32(raw, crc)
                key = _piece(self.generation, number, start)
                self._puts.append(self.store.queue(self.folder, key, raw))
                yield None
            message.crc = crc

    def commit(self) -> int:
        """Put state and head after the data, then delete earlier generations; the bytes. Raises OSError."""
        while self._puts:
            self._puts.popleft().result()
        self.store.put(self.folder, f"{self.generation}{_STATE}", sealed(self.state))
        self.store.put(self.folder, f"{self.generation}{_HEAD}", sealed(self.head))
        self._exists = True
        self._clear(lambda generation: generation < self.generation)
        return int(self.head.bytes)

    def abandon(self) -> None:
        """Delete the generation's objects, unless the generation exists already."""
        if self._exists:
            return
        begun = [put for put in self._puts if not put.cancel()]  # cancels all before it waits for any
        self._puts.clear()
        wait(begun)
        self._clear(lambda generation: generation == self.generation)

    def _clear(self, chosen: Callable[[int], bool]) -> None:
        """Delete the chosen generations, heads first. The log shows a failure; a later commit deletes what is left."""
        try:
            found = ((key, _generation_of(key)) for key in self.store.about_all(self.folder))
            keys = [key for key, generation in found if generation is not None and chosen(generation)]
            self.store.delete(self.folder, sorted(keys, key=lambda key: not key.endswith(_HEAD)))
        except OSError as error:
            log.warning("objects cannot be deleted", extra={"file": str(self.folder), "error": str(error)})


@contextlib.contextmanager
def _failures(*declared: type[Exception]) -> Iterator[None]:
    """Make every failure of an object store an OSError with an errno, except the declared ones."""
    try:
        yield None
    except declared:
        raise
    except Exception as error:
        if isinstance(error, OSError) and error.errno:
            raise
        raise OSError(errno.EIO, f"the object store failed: {error!r}") from error


def sealed(message: Any) -> bytes:
    """Serialize a message, after its checksum."""
    raw: bytes = message.SerializeToString()
    return zlib.crc32(raw).to_bytes(_CRC, "little") + raw


def name_of(location: Path, key: str) -> str:
    """The name of a location's object."""
    return f"{location.as_posix().lstrip('/')}/{key}"


def _generation_of(key: str) -> int | None:
    """The generation of an object; None for other objects, such as "running" or a folder's mark in a bucket."""
    stem = key.partition(".")[0]
    return int(stem) if stem.isdecimal() else None


def _piece(generation: int, memory: int, start: int) -> str:
    return f"{generation}.data/{memory}.{start}"
