"""`ThreadWorker`: a worker that is a thread of this process, as in the embedded server."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import suppress
from typing import Any

from gradwire.v1 import service_pb2
from gradwire_engine.core.device import cupy
from gradwire_server.common.limits import Limits, cap_process
from gradwire_server.common.shared_counters import SharedCounters
from gradwire_server.session.session import Pending
from gradwire_server.storage.checkpointer import Checkpointer
from gradwire_server.worker.compute import ComputeThread
from gradwire_server.worker.rings import Ring
from gradwire_server.worker.runtime import Runtime
from gradwire_server.workers.worker_pool import Entry, LentRing, OpenUpload, Worker


class ThreadWorker(Worker):
    """A thread of this process. With `owns_process` it sets the process's limits and collects its garbage."""

    def __init__(
        self, limits: Limits, counters: SharedCounters, owns_process: bool = False, counts: bool = False
    ) -> None:
        super().__init__(0)
        self.runtime = Runtime(limits, counters, counts=counts)
        self.stores = self.logs = False
        self.owns_process = owns_process
        self._compute: ComputeThread
        self._loop: asyncio.AbstractEventLoop

    async def start(self) -> service_pb2.ServerInfoResponse:
        """Start the thread. With `owns_process` and without GPUs, cap the process's memory."""
        self._loop = asyncio.get_running_loop()
        if self.owns_process and cupy() is None:
            cap_process(self.runtime.limits.max_bytes)
        if self.stores:
            self.runtime.checkpointer = Checkpointer(self.logs)
        self._compute = ComputeThread(self.runtime, self._answer, self._park, collects=self.owns_process)
        self.alive = True
        return self.runtime.describe()

    async def stop(self, grace: float) -> None:
        """End the thread, waiting for the grace at most."""
        self.alive = False
        self.flush()
        await self._loop.run_in_executor(None, self._compute.stop, grace)
        await self._loop.run_in_executor(None, self.runtime.tensor_files.stop)
        if self.runtime.checkpointer is not None:
            await self._loop.run_in_executor(None, self.runtime.checkpointer.stop, grace)

    def keep(self, lock: int, logs: bool) -> None:
        """Store sessions."""
        self.stores, self.logs = True, logs

    def _send(self, method: str, number: int, raw: bytes, ticket: int, deadline: float | None) -> None:
        self._compute.submit(method, number, raw, ticket, deadline)

    def _answer(self, call: Pending, result: bytes, failure: Exception | None) -> None:
        with suppress(RuntimeError):  # the loop is closed: the computation outlived the server's grace
            self._loop.call_soon_threadsafe(self.answered, call.ticket, result, failure)

    def _park(self, call: Pending) -> None:
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self.parked, call.ticket)

    def cancel(self, entry: Entry) -> None:
        """Cancel the session's running and waiting calls."""
        self.runtime.cancel(entry.number, self.last_ticket)

    def cancel_through(self, entry: Entry, writer: int, seq: int) -> None:
        """Cancel a writer's commands up to a seq."""
        self.runtime.cancel_through(entry.number, writer, seq)

    def close(self, entry: Entry) -> None:
        """Cancel the session's running calls and refuse waiting ones."""
        self.runtime.close(entry.number, self.last_ticket)

    async def numbers(self, first: int, last: int) -> dict[str, Any]:
        """What the worker holds and has counted."""
        return self.runtime.numbers(first, last)

    async def list_ops(self) -> bytes:
        """All ops: a serialized ListOpsResponse."""
        return self.runtime.list_ops()

    async def append(self, arrival: OpenUpload, data: memoryview) -> None:
        """Copy an upload's next bytes on the event loop: one chunk's copy is quicker than a change of threads."""
        with self.runtime.receiving(arrival, data.nbytes) as room:
            room[:] = data
        arrival.received = arrival.offset

    async def end_upload(self, arrival: OpenUpload) -> int:
        """Bytes that the upload has received."""
        return arrival.received

    async def chunks(self, entry: Entry, transfer_id: str, offset: int) -> AsyncGenerator[bytes, None]:
        """Parts of a download."""
        total = offset + 1
        while offset < total:
            with self.runtime.chunk(entry.number, transfer_id, offset) as (start, data, total):
                message = b"".join((start, data))
                offset += data.nbytes
            yield message

    async def lend_ring(self, entry: Entry, nonce: str) -> LentRing:
        """Lend a ring for one call."""
        made = self._loop.run_in_executor(None, self.runtime.lend_ring, entry.number, nonce)
        try:
            ring = await asyncio.shield(made)
        except asyncio.CancelledError:  # the call is over, but the thread still lends the ring
            made.add_done_callback(lambda done: self._return_unused(entry.number, done))
            raise
        return LentRing(entry, ring.pid, ring.fd, ring.name, ring.nbytes, ring.piece, ring)

    def _return_unused(self, number: int, made: "asyncio.Future[Ring]") -> None:
        if made.exception() is None:
            self.runtime.return_ring(number, made.result(), False)

    def return_ring(self, lent: LentRing, clean: bool) -> None:
        """Return a ring after its call."""
        self.runtime.return_ring(lent.entry.number, lent.ring, clean)

    async def take(self, arrival: OpenUpload, lent: LentRing, place: int, size: int) -> None:
        """Receive an upload's next bytes from a ring."""
        await self._loop.run_in_executor(None, self.runtime.take, arrival, lent.ring, place, size)
        arrival.received = arrival.offset

    async def give(self, entry: Entry, transfer_id: str, offset: int, lent: LentRing, place: int) -> tuple[int, int]:
        """Write a download's next piece into a ring, off the event loop: a piece has megabytes."""
        give = self.runtime.give
        return await self._loop.run_in_executor(None, give, entry.number, transfer_id, offset, lent.ring, place)
