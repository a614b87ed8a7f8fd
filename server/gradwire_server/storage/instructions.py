"""Instructions: how the front asks a worker to store or read a session, a snapshot or a file."""

from __future__ import annotations

import base64
import json
from dataclasses import asdict, dataclass
from typing import Any

LATER = "later"  # metadata of a refusal: the session can be stored once a backward has finished
_BYTES = ("head", "request", "home_head")


@dataclass
class StorageInstruction:
    """The front's instruction to open, store or restore a session, or to store a named snapshot."""

    folder: str = ""  # source or target; "" for the session's own
    head: bytes = b""  # a SnapshotHead without the worker's fields
    room: int | None = None  # bytes that the principal has left
    request: bytes = b""  # the client's request
    last: bool = False  # whether the session ends here
    counter_row: int = 0  # of the principal in the shared counters
    owner: int = 0  # the principal's number
    short_id: str = ""  # the part of the session's id that logs may contain
    principal: str = ""  # for logs
    home: str = ""  # the session's own folder; its head follows
    home_head: bytes = b""

    def pack(self) -> bytes:
        """Serialize the instruction."""
        fields = dict(self.__dict__)
        for name in _BYTES:
            fields[name] = base64.b64encode(fields[name]).decode()
        return json.dumps(fields).encode()

    @staticmethod
    def unpack(raw: bytes) -> StorageInstruction:
        """Parse a serialized instruction."""
        fields: dict[str, Any] = json.loads(raw)
        for name in _BYTES:
            fields[name] = base64.b64decode(fields[name])
        return StorageInstruction(**fields)


@dataclass
class FileInstruction:
    """The front's instruction to write or read a tensor file; the client's request is appended."""

    path: str
    name: str
    room: int | None = None  # bytes that the file may have

    def pack(self, request: bytes) -> bytes:
        """Serialize the instruction and the client's request."""
        return json.dumps(asdict(self)).encode() + b"\n" + request

    @staticmethod
    def unpack(raw: bytes) -> tuple[FileInstruction, bytes]:
        """Parse a serialized instruction; return it and the client's request."""
        fields, _, request = raw.partition(b"\n")
        return FileInstruction(**json.loads(fields)), request
