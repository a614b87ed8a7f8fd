"""Bulk transfer: how the front moves large tensors to and from a worker, past the worker's calls.

Uploads arrive in chunks, downloads leave in chunks. A client of the same machine may use a ring of shared memory for
both. A worker has one `BulkTransfer`; thread_transfers.py and process_transfers.py implement it.
"""

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from gradwire.v1 import service_pb2
from gradwire_server.common.errors import Refusal
from gradwire_server.worker.frames import UPLOAD_BEGUN, UploadCall
from gradwire_server.worker_pool.session_entry import SessionEntry

W = TypeVar("W")


@dataclass(slots=True)
class OpenUpload(UploadCall, Generic[W]):
    """An upload's call: its session and its progress."""

    entry: SessionEntry[W]
    received: int  # bytes when the call began; kept current by a thread worker
    ticket: int = 0  # 0 if the worker has not begun or has ended the upload's call
    sent: bool = False
    failure: Refusal | None = None


@dataclass(slots=True)
class LentRing(Generic[W]):
    """A ring lent to a call: where the client finds it, and `ring`, the worker's handle."""

    entry: SessionEntry[W]
    pid: int
    fd: int
    name: str
    nbytes: int
    piece: int
    ring: Any


class BulkTransfer(ABC, Generic[W]):
    """The large tensors of one worker's sessions. Every method may raise Refusal."""

    def __init__(self, call: Callable[[SessionEntry[W], str, bytes], Awaitable[bytes]]) -> None:
        """`call` submits a call in its session's order: session, method, request."""
        self._call = call

    async def begin_upload(self, entry: SessionEntry[W], start: service_pb2.UploadStart) -> OpenUpload[W]:
        """Begin or resume an upload."""
        upload = OpenUpload(entry.number, start.transfer_id, 0, start.offset, entry, 0)
        await self._begin(upload, start)
        return upload

    async def _begin(self, upload: OpenUpload[W], start: service_pb2.UploadStart) -> None:
        answer = await self._call(upload.entry, "BeginUpload", start.SerializeToString())
        upload.received, upload.attempt = UPLOAD_BEGUN.unpack_from(answer)
        upload.transfer_id = answer[UPLOAD_BEGUN.size :].decode()

    @abstractmethod
    async def append(self, upload: OpenUpload[W], data: memoryview) -> None:
        """Receive an upload's next bytes."""

    @abstractmethod
    async def end_upload(self, upload: OpenUpload[W]) -> int:
        """End this call's part of an upload; bytes received so far."""

    @abstractmethod
    def leave_upload(self, upload: OpenUpload[W]) -> None:
        """Release an upload's call, successful or not."""

    @abstractmethod
    def chunks(self, entry: SessionEntry[W], transfer_id: str, offset: int) -> AsyncGenerator[bytes, None]:
        """Parts of a download."""

    @abstractmethod
    async def lend_ring(self, entry: SessionEntry[W], nonce: str) -> LentRing[W]:
        """Lend a ring for one call."""

    @abstractmethod
    def return_ring(self, lent_ring: LentRing[W], clean: bool) -> None:
        """Return a ring after its call; `clean` if the client no longer uses it."""

    @abstractmethod
    async def read_ring(self, upload: OpenUpload[W], lent_ring: LentRing[W], ring_offset: int, size: int) -> None:
        """Receive an upload's next bytes from a ring."""

    @abstractmethod
    async def write_ring(
        self, entry: SessionEntry[W], transfer_id: str, offset: int, lent_ring: LentRing[W], ring_offset: int
    ) -> tuple[int, int]:
        """Write a download's next piece into a ring; its size, and the next piece's offset, 0 after the last."""
