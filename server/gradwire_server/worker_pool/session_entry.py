"""`SessionEntry`: the front's record of a session, with its worker and pending calls."""

import asyncio
import zlib
from collections import deque
from typing import Generic, TypeVar

from gradwire_server.auth.principals import CALLER
from gradwire_server.common.protocol import EPOCH

SHORT_ID_LENGTH = 6  # characters of a session's id that the log shows; the rest stays secret
W = TypeVar("W")


class UnansweredBytes:
    """Bytes of one principal's unanswered requests."""

    __slots__ = ("bytes",)

    def __init__(self) -> None:
        self.bytes = 0


class SessionEntry(Generic[W]):
    """The front's record of a session.

    `pending` has the unanswered requests by ticket; `inflight` counts their bytes. The worker has `sent_calls` of them,
    with `sent_bytes` bytes. The rest are in `queued_calls` (worker.py).
    """

    __slots__ = (
        "client", "epoch", "expires", "gang", "id", "inflight", "lease", "number", "opened", "owner", "pending",
        "queued_calls", "restoring", "saving", "sent_bytes", "sent_calls", "stored", "traffic", "unstored",
        "worker", "writers",
    )  # fmt: skip

    def __init__(self, session_id: str, number: int, worker: W, lease: float, now: float, client: str = "") -> None:
        self.id = session_id
        self.owner = CALLER.get().name
        self.client = client
        self.gang = ""  # the gang's key (registry/gangs.py)
        self.opened = now
        self.number = number
        self.worker = worker
        self.lease = lease
        self.expires = now + lease
        self.writers = 1
        self.epoch = EPOCH
        self.stored = False  # whether some of its state is on disk
        self.unstored = ""  # why its last save failed; empty if it did not
        self.saving = False  # whether it is being evicted
        self.restoring: asyncio.Future[bytes] | None = None
        self.pending: dict[int, tuple[str, bytes]] = {}
        self.inflight = 0
        self.sent_calls = self.sent_bytes = 0
        self.queued_calls: deque[tuple[int, str, bytes, float | None]] | None = None
        self.traffic = UnansweredBytes()

    @property
    def owner_number(self) -> int:
        """Number derived from the principal's name; 0 for none."""
        return zlib.crc32(self.owner.encode()) + 1 if self.owner else 0

    @property
    def short_id(self) -> str:
        """The part of the id that the log may show."""
        return self.id[:SHORT_ID_LENGTH]
