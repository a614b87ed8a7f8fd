"""Bulk transfer with a worker thread: bytes are copied in this process."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable

from gradwire_server.worker.rings import Ring
from gradwire_server.worker.runtime import Runtime
from gradwire_server.worker_pool.bulk_transfer import BulkTransfer, LentRing, OpenUpload
from gradwire_server.worker_pool.session_entry import SessionEntry
from gradwire_server.worker_pool.worker import Worker


class ThreadTransfers(BulkTransfer[Worker]):
    """Copies between the front's messages and the runtime's transfers."""

    def __init__(self, call: Callable[[SessionEntry[Worker], str, bytes], Awaitable[bytes]], runtime: Runtime) -> None:
        super().__init__(call)
        self._runtime = runtime

    async def append(self, upload: OpenUpload[Worker], data: memoryview) -> None:
        """Copy an upload's next bytes on the event loop: one chunk's copy is quicker than a change of threads."""
        with self._runtime.receiving(upload, data.nbytes) as room:
            room[:] = data
        upload.received = upload.offset

    async def end_upload(self, upload: OpenUpload[Worker]) -> int:
        """Bytes that the upload has received."""
        return upload.received

    def leave_upload(self, upload: OpenUpload[Worker]) -> None:
        """Do nothing: the thread keeps nothing of an upload's call."""

    async def chunks(self, entry: SessionEntry[Worker], transfer_id: str, offset: int) -> AsyncGenerator[bytes, None]:
        """Parts of a download."""
        total = offset + 1
        while offset < total:
            with self._runtime.chunk(entry.number, transfer_id, offset) as (start, data, total):
                message = b"".join((start, data))
                offset += data.nbytes
            yield message

    async def lend_ring(self, entry: SessionEntry[Worker], nonce: str) -> LentRing[Worker]:
        """Lend a ring for one call."""
        made = asyncio.get_running_loop().run_in_executor(None, self._runtime.lend_ring, entry.number, nonce)
        try:
            ring = await asyncio.shield(made)
        except asyncio.CancelledError:  # the call is over, but the thread still lends the ring
            made.add_done_callback(lambda done: self._return_unused(entry.number, done))
            raise
        return LentRing(entry, ring.pid, ring.fd, ring.name, ring.nbytes, ring.piece, ring)

    def _return_unused(self, number: int, made: "asyncio.Future[Ring]") -> None:
        if made.exception() is None:
            self._runtime.return_ring(number, made.result(), False)

    def return_ring(self, lent_ring: LentRing[Worker], clean: bool) -> None:
        """Return a ring after its call."""
        self._runtime.return_ring(lent_ring.entry.number, lent_ring.ring, clean)

    async def read_ring(
        self, upload: OpenUpload[Worker], lent_ring: LentRing[Worker], ring_offset: int, size: int
    ) -> None:
        """Receive an upload's next bytes from a ring."""
        await asyncio.get_running_loop().run_in_executor(
            None, self._runtime.read_ring, upload, lent_ring.ring, ring_offset, size
        )
        upload.received = upload.offset

    async def write_ring(
        self, entry: SessionEntry[Worker], transfer_id: str, offset: int, lent_ring: LentRing[Worker], ring_offset: int
    ) -> tuple[int, int]:
        """Write a download's next piece into a ring, off the event loop: a piece has megabytes."""
        write_ring = self._runtime.write_ring
        return await asyncio.get_running_loop().run_in_executor(
            None, write_ring, entry.number, transfer_id, offset, lent_ring.ring, ring_offset
        )
