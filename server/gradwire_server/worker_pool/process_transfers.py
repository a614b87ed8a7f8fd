"""Bulk transfer with a worker process: bytes lie in slots of shared memory, and the control pipe tells where."""

import asyncio
import json
import os
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable

from gradwire.v1 import service_pb2
from gradwire_server.common.errors import Refusal
from gradwire_server.worker.frames import APPEND, CHUNK, END_UPLOAD, GIVE, IN_SLOT, LEND, RETURN, TAKE, UPLOAD
from gradwire_server.worker.slots import Keys, Slots
from gradwire_server.worker_pool.bulk_transfer import BulkTransfer, LentRing, OpenUpload
from gradwire_server.worker_pool.control_pipe import ControlPipe
from gradwire_server.worker_pool.worker import Entry, Worker

_AHEAD = 2  # chunks of a download that are fetched ahead of sending


class ProcessTransfers(BulkTransfer[Worker]):
    """Copies between the front's messages and slots. `descriptor` is the slots' memory, which the process inherits."""

    def __init__(
        self, call: Callable[[Entry, str, bytes], Awaitable[bytes]], control: ControlPipe, chunk_bytes: int
    ) -> None:
        super().__init__(call)
        self._control = control
        self.descriptor = Slots.file(chunk_bytes)
        self._slots = Slots(chunk_bytes, self.descriptor)
        self._keys = Keys(self._slots.count)

    def restart(self) -> None:
        """Take all slots back, for a new process."""
        self._keys = Keys(self._slots.count)

    def emptied(self, slot: int) -> None:
        """Take a slot back whose bytes the process has read."""
        self._keys.give_back(slot)

    def end(self, reason: Refusal) -> None:
        """Refuse whoever waits for a slot: the process has ended."""
        self._keys.end(reason)

    def close(self) -> None:
        """Close the slots' memory."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1

    async def _begin(self, arrival: OpenUpload[Worker], start: service_pb2.UploadStart) -> None:
        ticket = arrival.ticket = self._control.ticket()
        # Registered before the call: the process may end after its answer, before this coroutine continues.
        self._control.asked[ticket] = arrival
        try:
            await super()._begin(arrival, start)
            if arrival.failure is not None:
                raise arrival.failure
        except BaseException:
            self._control.asked.pop(ticket, None)
            raise
        told = {"transfer_id": arrival.transfer_id, "taker": arrival.taker, "offset": arrival.offset}
        self._control.send(UPLOAD, arrival.number, ticket, json.dumps(told).encode())

    async def append(self, arrival: OpenUpload[Worker], data: memoryview) -> None:
        """Copy an upload's next bytes into a slot that the worker reads; waits for a free slot, not for the worker."""
        slot = await self._keys.take()
        if arrival.failure is not None:
            self._keys.give_back(slot)
            raise arrival.failure
        size = data.nbytes
        self._slots.put(slot, data)
        self._control.send(APPEND, arrival.number, arrival.ticket, IN_SLOT.pack(slot, size))
        arrival.sent = True

    async def end_upload(self, arrival: OpenUpload[Worker]) -> int:
        """Bytes that the upload has, once all sent ones have arrived."""
        if arrival.failure is not None:
            raise arrival.failure
        ticket, arrival.ticket = arrival.ticket, 0
        frame = await self._control.ask(END_UPLOAD, arrival.number, ticket)
        return frame.number if arrival.sent else arrival.received

    def leave_upload(self, arrival: OpenUpload[Worker]) -> None:
        """Tell the worker to drop the upload's call, unless `end_upload` or the process's end ended it."""
        if arrival.ticket:
            self._control.asked.pop(arrival.ticket, None)
            self._control.send(END_UPLOAD, arrival.number, arrival.ticket)

    async def chunks(self, entry: Entry, transfer_id: str, offset: int) -> AsyncGenerator[bytes, None]:
        """Parts of a download; fetches _AHEAD parts while earlier ones are sent."""
        message, size, total = await self._chunk(entry, transfer_id, offset)
        ahead: deque[asyncio.Future[tuple[bytes, int, int]]] = deque()
        try:
            while True:
                offset += size
                while len(ahead) < _AHEAD and (place := offset + len(ahead) * size) < total:
                    ahead.append(asyncio.ensure_future(self._chunk(entry, transfer_id, place)))
                yield message
                if not ahead:
                    break
                message, size, total = await ahead.popleft()
        finally:
            for unwanted in ahead:
                if not unwanted.cancel() and not unwanted.cancelled():
                    unwanted.exception()  # retrieved, so asyncio logs nothing; another error came first

    async def _chunk(self, entry: Entry, transfer_id: str, offset: int) -> tuple[bytes, int, int]:
        """A part of a download: the message, its payload's bytes, and the transfer's total bytes."""
        slot = await self._keys.take()
        # Shielded: after a cancel the slot stays in use until the worker has answered.
        return await asyncio.shield(self._fetch(entry, transfer_id, offset, slot, self._keys))

    async def _fetch(
        self, entry: Entry, transfer_id: str, offset: int, slot: int, keys: Keys
    ) -> tuple[bytes, int, int]:
        try:
            frame = await self._control.ask_for(CHUNK, entry.number, transfer_id=transfer_id, offset=offset, slot=slot)
            size, start = int.from_bytes(frame.body[:8], "little"), frame.body[8:]
            return b"".join((start, self._slots.memory(slot, size))), size, frame.number
        finally:
            keys.give_back(slot)

    async def lend_ring(self, entry: Entry, nonce: str) -> LentRing[Worker]:
        """Lend a ring for one call; the worker creates it."""
        ticket = self._control.ticket()
        try:
            frame = await self._control.ask(LEND, entry.number, ticket, json.dumps({"nonce": nonce}).encode())
        except asyncio.CancelledError:  # the call is over, but the worker still lends the ring
            self._control.send(RETURN, entry.number, ticket)
            raise
        return LentRing(entry, ring=ticket, **json.loads(frame.body))

    def return_ring(self, lent: LentRing[Worker], clean: bool) -> None:
        """Return a ring after its call."""
        self._control.send(RETURN, lent.entry.number, lent.ring, b"clean" if clean else b"")

    async def take(self, arrival: OpenUpload[Worker], lent: LentRing[Worker], place: int, size: int) -> None:
        """Receive an upload's next bytes from a ring."""
        if arrival.failure is not None:
            raise arrival.failure
        told = {"arrival": arrival.ticket, "ring": lent.ring, "place": place, "size": size}
        await self._control.ask_for(TAKE, arrival.number, **told)
        arrival.sent = True

    async def give(
        self, entry: Entry, transfer_id: str, offset: int, lent: LentRing[Worker], place: int
    ) -> tuple[int, int]:
        """Write a download's next piece into a ring."""
        told = {"transfer_id": transfer_id, "offset": offset, "ring": lent.ring, "place": place}
        frame = await self._control.ask_for(GIVE, entry.number, **told)
        return int.from_bytes(frame.body, "little"), frame.number
