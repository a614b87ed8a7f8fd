"""Counters: what a gateway has accepted, refused, received and sent, in memory that the server's metrics read.

The gateway writes each number whole and is the only writer, so there is no lock. The memory outlives a gateway that
crashed, so its successor continues the counts. Imports nothing of the extra.
"""

import mmap
import os
import tempfile

from gradwire_server.common.errors import CODES

#: What a request was for. A WebSocket is a request.
KINDS = ("call", "stream", "upload", "download", "page", "login", "handover", "training", "health")
CONNECTIONS, STREAMS = "connections", "streams"  # open now
ACCEPTED, OVER_LIMIT = "accepted", "over_limit"  # connections
RECEIVED, SENT = "received", "sent"  # bytes
_REQUEST, _REFUSAL = "request ", "refusal "
_NAMES = (
    *(CONNECTIONS, STREAMS, ACCEPTED, OVER_LIMIT, RECEIVED, SENT),
    *(_REQUEST + kind for kind in KINDS),
    *(_REFUSAL + reason for reason in CODES),
)
_PLACES = {name: place for place, name in enumerate(_NAMES)}
_SIZE = 8


class WebCounters:
    """The numbers of one gateway: private to this process, or shared by the file's descriptor."""

    def __init__(self, descriptor: int | None = None) -> None:
        self._memory = mmap.mmap(-1 if descriptor is None else descriptor, len(_NAMES) * _SIZE)
        self._numbers = memoryview(self._memory).cast("Q")

    @staticmethod
    def file() -> int:
        """Create an unnamed file for the numbers; its descriptor."""
        with tempfile.TemporaryFile() as file:
            file.truncate(len(_NAMES) * _SIZE)
            return os.dup(file.fileno())

    def add(self, name: str, count: int = 1) -> None:
        """Add to a number; a negative count for what is open no more."""
        self._numbers[_PLACES[name]] += count

    def add_request(self, kind: str) -> None:
        """Count a request of one of KINDS."""
        self.add(_REQUEST + kind)

    def add_refusal(self, reason: str) -> None:
        """Count a refusal of the gateway itself, by its reason."""
        self.add(_REFUSAL + reason)

    def begin(self) -> None:
        """Note that a gateway starts: nothing is open, whatever the one before it had open when it crashed."""
        for name in (CONNECTIONS, STREAMS):
            self._numbers[_PLACES[name]] = 0

    def __getitem__(self, name: str) -> int:
        return self._numbers[_PLACES[name]]

    def requests(self) -> dict[str, int]:
        """Requests by kind."""
        return {kind: self[_REQUEST + kind] for kind in KINDS}

    def refusals(self) -> dict[str, int]:
        """Refusals by reason, without those that there were not."""
        return {reason: count for reason in CODES if (count := self[_REFUSAL + reason])}
