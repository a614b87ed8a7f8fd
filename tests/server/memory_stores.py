"""Stores that keep sessions in this process's memory: what the stored-session logic needs, and no files."""

import math
import time
from collections.abc import Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import BinaryIO

from gradwire.v1 import snapshots_pb2 as pb
from gradwire_server.storage.object_snapshots import ObjectSnapshots, ObjectSnapshotWriter, ObjectStore
from gradwire_server.storage.stores import LogStore
from gradwire_server.storage.write_ahead_log import log_path


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

    def remove(self, location: Path, before: float = math.inf) -> None:
        """Delete a session's logs of earlier generations."""
        for generation in self.list(location):
            if generation < before:
                del self.held[log_path(location, generation)]


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


class MemorySnapshots(ObjectSnapshots):
    """Generations as objects in this process. With a generation go the logs before it, as in a directory."""

    def __init__(self, logs: MemoryLogs) -> None:
        self.memory = MemoryObjects()
        super().__init__(self.memory)
        self.logs = logs

    def begin(
        self, location: Path, generation: int, head: pb.SnapshotHead, state: pb.SessionState, base: Path
    ) -> ObjectSnapshotWriter:
        return MemoryWriter(self, location, generation, head, state)

    def remove(self, location: Path) -> None:
        super().remove(location)
        self.logs.remove(location)


class MemoryWriter(ObjectSnapshotWriter):
    """A generation being written; its commit deletes earlier logs."""

    store: MemorySnapshots

    def commit(self) -> int:
        size = super().commit()
        self.store.logs.remove(self.folder, before=self.generation)
        return size
