"""Bulk transfer with a worker process: bytes lie in buffers of shared memory; the control pipe names the buffers."""

import asyncio
import json
import os
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable

from gradwire.v1 import service_pb2
from gradwire_server.common.errors import Refusal
from gradwire_server.worker.chunk_buffers import ChunkBuffers
from gradwire_server.worker.frames import (
    APPEND,
    CHUNK,
    END_UPLOAD,
    IN_BUFFER,
    LEND_RING,
    READ_RING,
    RETURN_RING,
    UPLOAD,
    WRITE_RING,
)
from gradwire_server.worker_pool.bulk_transfer import BulkTransfer, LentRing, OpenUpload
from gradwire_server.worker_pool.control_pipe import ControlPipe
from gradwire_server.worker_pool.free_buffers import FreeBuffers
from gradwire_server.worker_pool.session_entry import SessionEntry
from gradwire_server.worker_pool.worker import Worker

_AHEAD = 2  # chunks of a download that are fetched ahead of sending


class ProcessTransfers(BulkTransfer[Worker]):
    """Copies between the front's messages and buffers. `descriptor` is their memory, which the process inherits."""

    def __init__(
        self,
        call: Callable[[SessionEntry[Worker], str, bytes], Awaitable[bytes]],
        control: ControlPipe,
        chunk_bytes: int,
    ) -> None:
        super().__init__(call)
        self._control = control
        self.descriptor = ChunkBuffers.file(chunk_bytes)
        self._buffers = ChunkBuffers(chunk_bytes, self.descriptor)
        self._free_buffers = FreeBuffers(self._buffers.count)

    def restart(self) -> None:
        """Take all buffers back, for a new process."""
        self._free_buffers = FreeBuffers(self._buffers.count)

    def buffer_freed(self, buffer: int) -> None:
        """Take a buffer back whose bytes the process has read."""
        self._free_buffers.release(buffer)

    def end(self, reason: Refusal) -> None:
        """Refuse whoever waits for a buffer: the process has ended."""
        self._free_buffers.end(reason)

    def close(self) -> None:
        """Close the buffers' memory."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1

    async def _begin(self, upload: OpenUpload[Worker], start: service_pb2.UploadStart) -> None:
        ticket = upload.ticket = self._control.ticket()
        # Registered before the call: the process may end after its answer, before this coroutine continues.
        self._control.pending[ticket] = upload
        try:
            await super()._begin(upload, start)
            if upload.failure is not None:
                raise upload.failure
        except BaseException:
            self._control.pending.pop(ticket, None)
            raise
        fields = {"transfer_id": upload.transfer_id, "attempt": upload.attempt, "offset": upload.offset}
        self._control.send(UPLOAD, upload.number, ticket, json.dumps(fields).encode())

    async def append(self, upload: OpenUpload[Worker], data: memoryview) -> None:
        """Copy an upload's next bytes into a buffer that the worker reads; waits for a free buffer, not the worker."""
        buffer = await self._free_buffers.acquire()
        if upload.failure is not None:
            self._free_buffers.release(buffer)
            raise upload.failure
        size = data.nbytes
        self._buffers.memory(buffer, size)[:] = data.cast("B")
        self._control.send(APPEND, upload.number, upload.ticket, IN_BUFFER.pack(buffer, size))
        upload.sent = True

    async def end_upload(self, upload: OpenUpload[Worker]) -> int:
        """Bytes that the upload has, once all sent ones have arrived."""
        if upload.failure is not None:
            raise upload.failure
        ticket, upload.ticket = upload.ticket, 0
        frame = await self._control.request(END_UPLOAD, upload.number, ticket)
        return frame.number if upload.sent else upload.received

    def leave_upload(self, upload: OpenUpload[Worker]) -> None:
        """Tell the worker to drop the upload's call, unless `end_upload` or the process's end ended it."""
        if upload.ticket:
            self._control.pending.pop(upload.ticket, None)
            self._control.send(END_UPLOAD, upload.number, upload.ticket)

    async def chunks(self, entry: SessionEntry[Worker], transfer_id: str, offset: int) -> AsyncGenerator[bytes, None]:
        """Parts of a download; fetches _AHEAD parts while earlier ones are sent."""
        message, size, total = await self._chunk(entry, transfer_id, offset)
        ahead: deque[asyncio.Future[tuple[bytes, int, int]]] = deque()
        try:
            while True:
                offset += size
                while len(ahead) < _AHEAD and (following := offset + len(ahead) * size) < total:
                    ahead.append(asyncio.ensure_future(self._chunk(entry, transfer_id, following)))
                yield message
                if not ahead:
                    break
                message, size, total = await ahead.popleft()
        finally:
            for unwanted in ahead:
                if not unwanted.cancel() and not unwanted.cancelled():
                    unwanted.exception()  # retrieved, so asyncio logs nothing; another error came first

    async def _chunk(self, entry: SessionEntry[Worker], transfer_id: str, offset: int) -> tuple[bytes, int, int]:
        """A part of a download: the message, its payload's bytes, and the transfer's total bytes."""
        buffer = await self._free_buffers.acquire()
        # Shielded: after a cancel the buffer stays in use until the worker has answered.
        return await asyncio.shield(self._fetch(entry, transfer_id, offset, buffer, self._free_buffers))

    async def _fetch(
        self, entry: SessionEntry[Worker], transfer_id: str, offset: int, buffer: int, free_buffers: FreeBuffers
    ) -> tuple[bytes, int, int]:
        try:
            frame = await self._control.request_json(
                CHUNK, entry.number, transfer_id=transfer_id, offset=offset, buffer=buffer
            )
            size, start = int.from_bytes(frame.body[:8], "little"), frame.body[8:]
            return b"".join((start, self._buffers.memory(buffer, size))), size, frame.number
        finally:
            free_buffers.release(buffer)

    async def lend_ring(self, entry: SessionEntry[Worker], nonce: str) -> LentRing[Worker]:
        """Lend a ring for one call; the worker creates it."""
        ticket = self._control.ticket()
        try:
            frame = await self._control.request(LEND_RING, entry.number, ticket, json.dumps({"nonce": nonce}).encode())
        except asyncio.CancelledError:  # the call is over, but the worker still lends the ring
            self._control.send(RETURN_RING, entry.number, ticket)
            raise
        return LentRing(entry, ring=ticket, **json.loads(frame.body))

    def return_ring(self, lent_ring: LentRing[Worker], clean: bool) -> None:
        """Return a ring after its call."""
        self._control.send(RETURN_RING, lent_ring.entry.number, lent_ring.ring, b"clean" if clean else b"")

    async def read_ring(
        self, upload: OpenUpload[Worker], lent_ring: LentRing[Worker], ring_offset: int, size: int
    ) -> None:
        """Receive an upload's next bytes from a ring."""
        if upload.failure is not None:
            raise upload.failure
        fields = {"upload": upload.ticket, "ring": lent_ring.ring, "ring_offset": ring_offset, "size": size}
        await self._control.request_json(READ_RING, upload.number, **fields)
        upload.sent = True

    async def write_ring(
        self, entry: SessionEntry[Worker], transfer_id: str, offset: int, lent_ring: LentRing[Worker], ring_offset: int
    ) -> tuple[int, int]:
        """Write a download's next piece into a ring."""
        fields = {"transfer_id": transfer_id, "offset": offset, "ring": lent_ring.ring, "ring_offset": ring_offset}
        frame = await self._control.request_json(WRITE_RING, entry.number, **fields)
        return int.from_bytes(frame.body, "little"), frame.number
