"""`Entry`: a session as the front knows it, which has a worker and calls there."""

import asyncio
import zlib
from collections import deque
from typing import Generic, TypeVar

from gradwire_server.auth.principals import CALLER
from gradwire_server.common.protocol import EPOCH

ID_SHOWN = 6  # characters of a session's id that the log shows; the rest stays secret
W = TypeVar("W")


class Traffic:
    """Bytes of one principal's requests that are not answered yet."""

    __slots__ = ("bytes",)

    def __init__(self) -> None:
        self.bytes = 0


class Entry(Generic[W]):
    """A session as the front knows it. `pending` has the requests that are not answered, by ticket, and `inflight`
    counts their bytes. `handed` of them, of so many bytes, the worker has; the rest are kept back (worker_pool.py)."""

    __slots__ = (
        "client", "epoch", "expires", "handed", "handed_bytes", "id", "inflight", "kept_back", "lease", "number",
        "opened", "owner", "pending", "restoring", "saving", "stored", "traffic", "unstored", "worker", "writers",
    )  # fmt: skip

    def __init__(self, session_id: str, number: int, worker: W, lease: float, now: float, client: str = "") -> None:
        self.id = session_id
        self.owner = CALLER.get().name
        self.client = client
        self.opened = now
        self.number = number
        self.worker = worker
        self.lease = lease
        self.expires = now + lease
        self.writers = 1
        self.epoch = EPOCH
        self.stored = False  # whether there is something of it on disk
        self.unstored = ""  # why it could not be stored when that was tried last, if so
        self.saving = False  # whether it is stored because its lease ran out
        self.restoring: asyncio.Future[bytes] | None = None
        self.pending: dict[int, tuple[str, bytes]] = {}
        self.inflight = 0
        self.handed = self.handed_bytes = 0
        self.kept_back: deque[tuple[int, str, bytes, float | None]] | None = None
        self.traffic = Traffic()

    @property
    def owner_number(self) -> int:
        """Stands for its principal; 0 for none."""
        return zlib.crc32(self.owner.encode()) + 1 if self.owner else 0

    @property
    def shown(self) -> str:
        """As much of the id as the log may show."""
        return self.id[:ID_SHOWN]
