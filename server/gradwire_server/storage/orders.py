"""Orders: what the front tells a worker of a session, a snapshot or a file that is to be stored or read."""

from __future__ import annotations

import base64
import json
from dataclasses import asdict, dataclass
from typing import Any

LATER = "later"  # of a refusal: what could not be stored now can be when a backward is through
_BYTES = ("head", "request", "home_head")


@dataclass
class Order:
    """What the front tells of a session, or of a snapshot, that is to be stored or was."""

    folder: str = ""  # where from or to, if not the session's own
    head: bytes = b""  # a SnapshotHead without what only the worker knows
    room: int | None = None  # bytes that the principal has left
    request: bytes = b""  # the client's
    last: bool = False  # whether the session ends here
    place: int = 0  # of the principal in the shared counters
    owner: int = 0  # a number that stands for the principal
    home: str = ""  # the session's own folder, and its head
    home_head: bytes = b""

    def pack(self) -> bytes:
        """As bytes."""
        told = dict(self.__dict__)
        for name in _BYTES:
            told[name] = base64.b64encode(told[name]).decode()
        return json.dumps(told).encode()

    @staticmethod
    def unpack(raw: bytes) -> Order:
        """Of bytes."""
        told: dict[str, Any] = json.loads(raw)
        for name in _BYTES:
            told[name] = base64.b64decode(told[name])
        return Order(**told)


@dataclass
class FileOrder:
    """What the front tells of a file; the client's request goes with it."""

    path: str
    name: str
    room: int | None = None  # bytes that it may have

    def pack(self, request: bytes) -> bytes:
        """As bytes."""
        return json.dumps(asdict(self)).encode() + b"\n" + request

    @staticmethod
    def unpack(raw: bytes) -> tuple[FileOrder, bytes]:
        """Of bytes."""
        told, _, request = raw.partition(b"\n")
        return FileOrder(**json.loads(told)), request
