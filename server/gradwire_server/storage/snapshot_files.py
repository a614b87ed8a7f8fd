"""Snapshot files: writes stored sessions atomically, and checks them when read; damaged files are refused by name.

A folder belongs to one session or one named snapshot. Each generation has two files: "7.safetensors" with the tensors'
bytes and "7.session" with the rest. Generation 7 exists once "7.session" has that name; then earlier generations are
deleted. snapshots.proto defines the contents. Bytes are written directly from the tensors' memory, a piece at a time.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import struct
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from google.protobuf.message import DecodeError

from gradwire.v1 import snapshots_pb2 as pb
from gradwire_server.common.errors import Refusal
from gradwire_server.storage.byte_view import byte_view
from gradwire_server.storage.stores import SnapshotStore

FORMAT = 1
MAGIC = b"GWSNAP1\n"
SESSION, DATA, LOG = ".session", ".safetensors", ".log"
#: While this file exists, commands may have been applied that no file contains.
RUNNING = "running"
PIECE = 1 << 20
_SPARE = 1 << 20  # bytes that must stay free on the disk
_MAX_HEAD = 1 << 20
_U32, _U64 = struct.Struct("<I"), struct.Struct("<Q")
_CODES = {
    "float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16", "int64": "I64", "int32": "I32",
    "int16": "I16", "int8": "I8", "uint8": "U8", "bool": "BOOL", "complex64": "C64",
}  # fmt: skip


def storage_refusal(error: OSError) -> Refusal:
    """Refusal for a failed write, without paths, which only the log may show."""
    return Refusal("STORAGE", f"the server cannot write its state directory: {os.strerror(error.errno or 0)}")


def damaged(path: Path, what: str) -> Refusal:
    """Refusal for a damaged file."""
    return Refusal("SNAPSHOT_DAMAGED", f"{path.parent.name}/{path.name} is damaged: {what}", file=path.name)


def check_room(size: int, room: int | None) -> None:
    """Check that a snapshot fits the bytes that its principal has left. Raises Refusal: SNAPSHOT_LIMIT."""
    if room is not None and size > room:
        raise Refusal(
            "SNAPSHOT_LIMIT", f"the snapshot takes {size} bytes, and {room} are left to the principal", limit=room
        )


def make_folder(folder: Path, base: Path | None = None) -> None:
    """Create a folder that only its owner reads, durably. Raises OSError.

    `base` must exist, so that an unmounted state directory is not created again in the mount point.
    """
    if folder.is_dir():
        return
    if base is not None:
        if not base.is_dir():
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(base))
        if folder.parent != base:
            make_folder(folder.parent, base)
    folder.mkdir(mode=0o700, parents=base is None, exist_ok=True)
    sync_folder(folder.parent)


def sync_folder(folder: Path) -> None:
    """Flush a folder's entries, so created and renamed files survive a crash. Raises OSError."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def generations(folder: Path, ending: str) -> list[int]:
    """The generations that have a file with that ending, oldest first."""
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return []
    stems = [name.removesuffix(ending) for name in names if name.endswith(ending)]
    return sorted(int(stem) for stem in stems if stem.isdecimal())


class SnapshotFileWriter:
    """A generation being written. `data` writes the tensors' bytes, `commit` makes it exist, `abandon` undoes it."""

    def __init__(
        self, folder: Path, generation: int, head: pb.SnapshotHead, state: pb.SessionState, base: Path | None = None
    ) -> None:
        """`base` is an ancestor of the folder; it is not created if missing."""
        self.folder = folder
        self.base = base
        self.generation = generation  # or a later one, if files of it exist
        self.head = head
        self.state = state
        self._data = -1
        self._exists = False

    @property
    def _data_path(self) -> Path:
        return self.folder / f"{self.generation}{DATA}"

    @property
    def _temporary_path(self) -> Path:
        return self.folder / f"{self.generation}{SESSION}.new"

    def _begin(self) -> int:
        """Create a new data file; skip generations whose data file exists, perhaps from before a crash."""
        while True:
            try:
                return os.open(self._data_path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            except FileExistsError:
                self.generation += 1

    def data(self, memories: list[Any], room: int | None) -> Iterator[None]:
        """Write the bytes, a piece before each yield. Raises OSError; first, Refusal: SNAPSHOT_LIMIT, STORAGE."""
        state = self.state
        header = _header(state)
        size = len(header) + sum(memory.bytes for memory in state.memories)
        total = size + state.ByteSize()
        check_room(total, room)
        make_folder(self.folder, self.base)
        free = os.statvfs(self.folder)
        if free.f_bavail * free.f_frsize < total + _SPARE:
            raise Refusal("STORAGE", f"the server's disk is too full for a snapshot of {total} bytes", bytes=total)
        self.head.bytes = total
        self._data = self._begin()
        _write(self._data, header)
        for owner, message in zip(memories, state.memories, strict=True):
            view = byte_view(owner)
            crc = 0
            for start in range(0, message.bytes, PIECE):
                piece = view[start : start + PIECE]
                piece = memoryview(piece if message.device in ("", "cpu") else piece.get())
                crc = zlib.crc32(piece, crc)
                _write(self._data, piece)
                yield
            message.crc = crc

    def commit(self) -> int:
        """Make the generation exist and delete earlier ones; return its bytes. Waits for the disk. Raises OSError."""
        os.fsync(self._data)
        head, body = self.head.SerializeToString(), self.state.SerializeToString()
        target = self.folder / f"{self.generation}{SESSION}"
        descriptor = os.open(self._temporary_path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            _write(descriptor, MAGIC + _U32.pack(len(head)) + head + _U32.pack(zlib.crc32(head)))
            _write(descriptor, _U64.pack(len(body)))
            _write(descriptor, body)
            _write(descriptor, _U32.pack(zlib.crc32(body)))
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        sync_folder(self.folder)
        os.replace(self._temporary_path, target)
        self._exists = True
        sync_folder(self.folder)
        self._close()
        clear_before(self.folder, self.generation)
        return int(self.head.bytes)

    def abandon(self) -> None:
        """Delete the generation's files, unless the generation exists already."""
        if self._data < 0:
            return
        self._close()
        if self._exists:
            return
        for path in (self._data_path, self._temporary_path):
            with contextlib.suppress(OSError):
                path.unlink()

    def _close(self) -> None:
        os.close(self._data)
        self._data = -1


def clear_before(folder: Path, generation: int) -> None:
    """Delete the generations before `generation`."""
    for ending in (SESSION, LOG, DATA, f"{SESSION}.new", f"{LOG}.new"):
        for old in generations(folder, ending):
            if old < generation:
                with contextlib.suppress(OSError):
                    (folder / f"{old}{ending}").unlink()


def remove(folder: Path) -> None:
    """Delete a folder, the session files first, newest to oldest."""
    for old in reversed(generations(folder, SESSION)):
        with contextlib.suppress(OSError):
            (folder / f"{old}{SESSION}").unlink()
    shutil.rmtree(folder, ignore_errors=True)


def head_of(folder: Path) -> tuple[int, pb.SnapshotHead] | None:
    """The newest generation and its head; None for a folder without. Raises Refusal: SNAPSHOT_DAMAGED; OSError."""
    found = generations(folder, SESSION)
    if not found:
        return None
    path = folder / f"{found[-1]}{SESSION}"
    with path.open("rb") as file:
        return found[-1], _read_head(path, file)


def _read_head(path: Path, file: Any) -> pb.SnapshotHead:
    start = file.read(len(MAGIC) + _U32.size)
    if len(start) < len(MAGIC) + _U32.size or start[: len(MAGIC)] != MAGIC:
        raise damaged(path, "it does not begin as a stored session does")
    size = _U32.unpack(start[len(MAGIC) :])[0]
    if size > _MAX_HEAD:
        raise damaged(path, "its head has no length that a head has")
    raw, crc = file.read(size), file.read(_U32.size)
    if len(crc) < _U32.size or zlib.crc32(raw) != _U32.unpack(crc)[0]:
        raise damaged(path, "its head has changed")
    try:
        head = pb.SnapshotHead.FromString(raw)
    except DecodeError:
        raise damaged(path, "its head is not a SnapshotHead") from None
    if head.format != FORMAT:
        raise damaged(path, f"it is of format {head.format}, and this server reads {FORMAT}")
    return head


def read_state(folder: Path, generation: int) -> tuple[pb.SnapshotHead, pb.SessionState]:
    """Read a generation's head and state, without tensors' bytes. Raises Refusal: SNAPSHOT_DAMAGED; OSError."""
    path = folder / f"{generation}{SESSION}"
    with path.open("rb") as file:
        head = _read_head(path, file)
        start = file.read(_U64.size)
        left = os.fstat(file.fileno()).st_size - file.tell()
        size = _U64.unpack(start)[0] if len(start) == _U64.size else -1
        if size + _U32.size != left:
            raise damaged(path, "it is shorter or longer than its head says")
        raw, crc = file.read(size), file.read(_U32.size)
    if zlib.crc32(raw) != _U32.unpack(crc)[0]:
        raise damaged(path, "its checksum is not that of its bytes")
    try:
        return head, pb.SessionState.FromString(raw)
    except DecodeError:
        raise damaged(path, "it is not a SessionState") from None


def read_data(folder: Path, generation: int, state: pb.SessionState, memories: Sequence[Any]) -> Iterator[None]:
    """Fill the memories with a generation's bytes, a piece before each yield. Raises Refusal: SNAPSHOT_DAMAGED."""
    path = folder / f"{generation}{DATA}"
    try:
        file = path.open("rb", buffering=0)
    except FileNotFoundError:
        raise damaged(path, "it is missing") from None
    with file:
        start = file.read(_U64.size)
        begin = _U64.size + _U64.unpack(start)[0] if len(start) == _U64.size else 0
        if begin + sum(each.bytes for each in state.memories) > os.fstat(file.fileno()).st_size:
            raise damaged(path, "it is truncated, or its head has changed")
        for owner, message in zip(memories, state.memories, strict=True):
            file.seek(begin + message.offset)
            on_host = message.device in ("", "cpu")
            view = byte_view(owner) if on_host else owner
            crc = 0
            for start in range(0, message.bytes, PIECE):
                size = min(PIECE, message.bytes - start)
                piece = memoryview(view)[start : start + size] if on_host else memoryview(bytearray(size))
                if file.readinto(piece) != size:
                    raise damaged(path, "it is cut short")
                crc = zlib.crc32(piece, crc)
                if not on_host:
                    import numpy as np  # the front imports this file, and computes nothing

                    view[start : start + size].set(np.frombuffer(piece, np.uint8))
                yield
            if crc != message.crc:
                raise damaged(path, "its checksum is not that of its bytes")


def _header(state: pb.SessionState) -> bytes:
    """Header of a safetensors file: dtype, shape and offsets of each memory."""
    entries: dict[str, Any] = {"__metadata__": {"format": "gradwire", "version": str(FORMAT)}}
    for number, memory in enumerate(state.memories, 1):
        code, shape = _CODES.get(memory.dtype), list(memory.shape)
        if memory.dtype == "complex128":
            code, shape = "F64", [*shape, 2]
        if code is None:
            code, shape = "U8", [memory.bytes]
        offsets = [memory.offset, memory.offset + memory.bytes]
        entries[f"memory.{number}"] = {"dtype": code, "shape": shape, "data_offsets": offsets}
    raw = json.dumps(entries, separators=(",", ":")).encode()
    raw += b" " * (-len(raw) % 8)
    return _U64.pack(len(raw)) + raw


def _write(descriptor: int, data: Any) -> None:
    view = memoryview(data)
    while view.nbytes:
        view = view[os.write(descriptor, view) :]


class SnapshotFiles(SnapshotStore):
    """Snapshots as files: a location is a folder."""

    may_block = False  # a local disk; the calls that wait for a flush have their own thread

    def list(self, location: Path) -> list[int]:
        """The generations that have a session file."""
        return generations(location, SESSION)

    def head(self, location: Path) -> tuple[int, pb.SnapshotHead] | None:
        """Read the newest head; see `head_of`."""
        return head_of(location)

    def read(self, location: Path, generation: int) -> tuple[pb.SnapshotHead, pb.SessionState]:
        """Read head and state; see `read_state`."""
        return read_state(location, generation)

    def data(self, location: Path, generation: int, state: pb.SessionState, memories: Sequence[Any]) -> Iterator[None]:
        """Read tensors' bytes; see `read_data`."""
        return read_data(location, generation, state, memories)

    def begin(
        self, location: Path, generation: int, head: pb.SnapshotHead, state: pb.SessionState, base: Path
    ) -> SnapshotFileWriter:
        """Begin writing a generation."""
        return SnapshotFileWriter(location, generation, head, state, base)

    def remove(self, location: Path) -> None:
        """Delete the folder."""
        remove(location)

    def running(self, location: Path) -> bool:
        """Whether the RUNNING file exists."""
        return (location / RUNNING).exists()

    def set_running(self, location: Path, running: bool, lasting: bool = True) -> None:
        """Create or delete the RUNNING file."""
        if running:
            (location / RUNNING).touch(0o600)
            if lasting:
                sync_folder(location)
            return
        with contextlib.suppress(FileNotFoundError):
            (location / RUNNING).unlink()
            sync_folder(location)

    def exists(self, location: Path) -> bool:
        """Whether the folder exists."""
        return location.is_dir()

    def locations(self, above: Path) -> Sequence[Path]:
        """The direct subfolders."""
        return [each for each in above.iterdir() if each.is_dir()] if above.is_dir() else []

    def about(self, location: Path) -> tuple[int, float]:
        """The files' bytes, and when the folder changed."""
        return sum(each.stat().st_size for each in location.iterdir()), location.stat().st_mtime
