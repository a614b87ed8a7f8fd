"""Stores that keep sessions in this process's memory: what the stored-session logic needs, and no files."""

import time
from collections.abc import Iterator, Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from gradwire.v1 import snapshots_pb2 as pb
from gradwire_server.common.errors import Refusal
from gradwire_server.storage.byte_view import byte_view
from gradwire_server.storage.object_snapshots import ObjectStore
from gradwire_server.storage.stores import LogStore, SnapshotStore, SnapshotWriter


class MemoryLogs(LogStore):
    """Logs by path."""

    def __init__(self) -> None:
        self.held: dict[Path, bytearray] = {}

    def list(self, location: Path) -> list[int]:
        return sorted(int(path.stem) for path in self.held if path.parent == location)

    def exists(self, path: Path) -> bool:
        return path in self.held

    def size(self, path: Path) -> int:
        return len(self.held[path])

    def create(self, path: Path, beginning: bytes) -> None:
        self.held[path] = bytearray(beginning)

    def append(
        self, path: Path, parts: Sequence[bytes], offset: int, flush_mark: tuple[int, bytes], again: bool
    ) -> None:
        log = self.held[path]
        log[offset:] = b"".join(parts)
        log[flush_mark[0] : flush_mark[0] + len(flush_mark[1])] = flush_mark[1]

    def cut(self, path: Path, size: int) -> None:
        del self.held[path][size:]

    def close(self, path: Path) -> None:
        pass

    def open(self, path: Path) -> BinaryIO:
        return BytesIO(bytes(self.held[path]))


class MemorySnapshots(SnapshotStore):
    """Generations by location: head, state and the memories' bytes."""

    def __init__(self, logs: MemoryLogs) -> None:
        self.logs = logs
        self.held: dict[Path, dict[int, tuple[bytes, bytes, list[bytes]]]] = {}
        self.marks: set[Path] = set()

    def list(self, location: Path) -> list[int]:
        return sorted(self.held.get(location, ()))

    def head(self, location: Path) -> tuple[int, pb.SnapshotHead] | None:
        found = self.list(location)
        return (found[-1], self.read(location, found[-1])[0]) if found else None

    def read(self, location: Path, generation: int) -> tuple[pb.SnapshotHead, pb.SessionState]:
        head, state, _ = self.held[location][generation]
        return pb.SnapshotHead.FromString(head), pb.SessionState.FromString(state)

    def data(self, location: Path, generation: int, state: pb.SessionState, memories: Sequence[Any]) -> Iterator[None]:
        for owner, kept in zip(memories, self.held[location][generation][2], strict=True):
            byte_view(owner)[:] = np.frombuffer(kept, np.uint8)
            yield

    def begin(
        self, location: Path, generation: int, head: pb.SnapshotHead, state: pb.SessionState, base: Path
    ) -> SnapshotWriter:
        return MemoryWriting(self, location, generation, head, state)

    def remove(self, location: Path) -> None:
        self.held.pop(location, None)
        self.marks.discard(location)
        for path in [path for path in self.logs.held if path.parent == location]:
            del self.logs.held[path]

    def running(self, location: Path) -> bool:
        return location in self.marks

    def set_running(self, location: Path, running: bool, lasting: bool = True) -> None:
        (self.marks.add if running else self.marks.discard)(location)

    def exists(self, location: Path) -> bool:
        return location in self.held

    def locations(self, above: Path) -> Sequence[Path]:
        return list(
            dict.fromkeys(
                above / location.relative_to(above).parts[0] for location in self.held if above in location.parents
            )
        )

    def about(self, location: Path) -> tuple[int, float]:
        return sum(len(state) + sum(map(len, data)) for _, state, data in self.held[location].values()), time.time()


class MemoryWriting:
    """A generation that is not there yet."""

    def __init__(
        self, store: MemorySnapshots, folder: Path, generation: int, head: pb.SnapshotHead, state: pb.SessionState
    ) -> None:
        self.store = store
        self.folder = folder
        self.generation = generation
        self.head = head
        self.state = state
        self._data: list[bytes] = []

    def data(self, memories: list[Any], room: int | None) -> Iterator[None]:
        self.head.bytes = self.state.ByteSize() + sum(memory.bytes for memory in self.state.memories)
        if room is not None and self.head.bytes > room:
            raise Refusal("SNAPSHOT_LIMIT", f"{room} bytes are left", limit=room)
        for owner in memories:
            self._data.append(byte_view(owner).tobytes())
            yield

    def commit(self) -> int:
        written = self.head.SerializeToString(), self.state.SerializeToString(), self._data
        self.store.held[self.folder] = {self.generation: written}
        logs = self.store.logs.held
        for path in [path for path in logs if path.parent == self.folder and int(path.stem) < self.generation]:
            del logs[path]
        return int(self.head.bytes)

    def abandon(self) -> None:
        self._data.clear()


class MemoryObjects(ObjectStore):
    """Objects by name, in this process; `told` are the arguments that it was made with."""

    def __init__(self, **told: str) -> None:
        self.told = told
        self.held: dict[str, bytes] = {}
        self.broken = False

    def put(self, name: str, data: bytes) -> None:
        if self.broken:
            raise RuntimeError("the store cannot be reached")
        self.held[name] = data

    def get(self, name: str) -> bytes:
        return self.held[name]

    def list(self, prefix: str) -> Mapping[str, tuple[int, float]]:
        return {name: (len(data), time.time()) for name, data in list(self.held.items()) if name.startswith(prefix)}

    def delete(self, name: str) -> None:
        self.held.pop(name, None)
