"""Where sessions live, as the front sees it: `SessionBackend`, and `Backend`, which gives each session to a worker.

The front hands over serialized requests and gets serialized responses. A backend keeps the calls of a session in
order and raises `Refusal` for what is refused, nothing else. A worker is a thread (here) or a process (workers.py);
what both are to the front is `Worker`.
"""

import asyncio
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from gradwire.v1 import service_pb2, snapshots_pb2
from gradwire_engine import REGISTRY
from gradwire_engine.device import cupy
from gradwire_server.arguments import schemas
from gradwire_server.compute import ComputeThread
from gradwire_server.directory import PROTOCOL, Directory
from gradwire_server.directory import Entry as EntryOf
from gradwire_server.errors import Refusal
from gradwire_server.files import Files
from gradwire_server.host import KEEP, NUMBER, OPENED, UPLOAD_BEGUN, Arrival, Host
from gradwire_server.keeper import Keeper
from gradwire_server.keeping import Keeping
from gradwire_server.ledger import Ledger
from gradwire_server.limits import Limits, cap_process
from gradwire_server.principals import CALLER
from gradwire_server.rings import Ring, machine
from gradwire_server.session import Pending
from gradwire_server.shares import Places
from gradwire_server.shelf import Shelf
from gradwire_server.wire import peek_run

_SWEEP_SECONDS = 1.0
_NUMBERS_SECONDS = 2.0  # for a worker to tell what it holds
_MOST_LISTED = 1000  # sessions of a page
_NUMBER_DIGITS = 18
Entry: TypeAlias = "EntryOf[Worker]"


class SessionBackend(Protocol):
    """Sessions somewhere. Every method may raise Refusal."""

    limits: Limits
    files: Files

    async def start(self) -> None:
        """Begin to take calls."""

    async def stop(self, grace: float) -> None:
        """Cancel what still runs and end."""

    async def open_session(self, request: service_pb2.OpenSessionRequest) -> service_pb2.OpenSessionResponse:
        """Open a session or attach to one."""

    async def close_session(self, session_id: str) -> int:
        """End a session; bytes freed."""

    async def keep_alive(self, session_id: str) -> service_pb2.KeepAliveResponse:
        """Renew a lease, past whatever is computing."""

    async def cancel(self, request: service_pb2.CancelRequest) -> service_pb2.CancelResponse:
        """Stop what is computing."""

    def call(self, method: str, session_id: str, raw: bytes, deadline: float | None) -> "asyncio.Future[bytes]":
        """Hand a command or a batch over, to be applied in the session's order. `deadline` is by time.monotonic()."""

    def when_answered(self, then: Callable[[], None]) -> None:
        """Call this whenever a request was answered."""

    def check_traffic(self, session_id: str, size: int) -> None:
        """Whether another request of so many bytes may be handed over now."""

    def is_full(self, session_id: str) -> bool:
        """Whether a session's stream is not to be read for now, since enough of its bytes wait for answers."""

    async def begin_upload(self, session_id: str, start: service_pb2.UploadStart) -> Any:
        """Begin an upload or go on with one; what `append` is to be given, with `transfer_id`."""

    async def append(self, arrival: Any, data: memoryview) -> None:
        """Take an upload's next bytes. A refusal may come with a later call."""

    async def end_upload(self, arrival: Any) -> int:
        """No more bytes come by this call; how many the upload has by now."""

    async def keep_upload(self, arrival: Any) -> None:
        """All bytes of an upload are here: where what is acknowledged is stored, they are too."""

    def leave_upload(self, arrival: Any) -> None:
        """The upload's call is over, however it went."""

    def chunks(self, session_id: str, transfer_id: str, offset: int) -> AsyncGenerator[bytes, None]:
        """Serialized DownloadResponses, from an offset on to the transfer's end."""

    async def finish_download(self, session_id: str, transfer_id: str, received: bool = False) -> None:
        """A download was sent to its end; `received` if it is known to have arrived."""

    async def lend_ring(self, session_id: str, nonce: str) -> Any:
        """Shared memory for one call: with pid, fd, name, nbytes and piece."""

    async def return_ring(self, session_id: str, ring: Any, clean: bool) -> None:
        """The call has ended; `clean` if its client is known to have done with the ring."""

    async def take(self, arrival: Any, ring: Any, place: int, size: int) -> None:
        """Take an upload's next bytes out of a ring."""

    async def give(self, session_id: str, transfer_id: str, offset: int, ring: Any, place: int) -> tuple[int, int]:
        """Put a download's next piece into a ring; its size, and where the next one begins, 0 after the last."""

    async def server_info(self) -> service_pb2.ServerInfoResponse:
        """What the server is."""

    async def list_ops(self, prefix: str) -> bytes:
        """The ops, serialized."""

    async def list_sessions(self, request: service_pb2.ListSessionsRequest) -> service_pb2.ListSessionsResponse:
        """Everybody's sessions, a page of them."""

    async def end_session(self, number: int) -> int:
        """End anybody's session; bytes freed."""

    async def save_session(self, request: snapshots_pb2.SaveSessionRequest, raw: bytes) -> bytes:
        """Store a session, under a name or for itself; a serialized SaveSessionResponse."""

    async def restore_session(
        self, request: snapshots_pb2.RestoreSessionRequest, raw: bytes
    ) -> service_pb2.RestoreSessionResponse:
        """Open a session that begins as a named snapshot."""

    async def list_snapshots(self) -> snapshots_pb2.ListSnapshotsResponse:
        """The caller's named snapshots."""

    async def delete_snapshot(self, name: str) -> int:
        """Delete a named snapshot of the caller's; bytes freed."""


class Load:
    """How many workers have work. What the ledger tells falls slowly, since BLAS's threads follow it."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self._running = self._peak = 0

    def began(self) -> None:
        """A worker that had no work has some."""
        self._running += 1
        if self._running > self._peak:
            self._peak = self._running
            if self._peak > self.ledger.runnable:
                self.ledger.runnable = self._peak

    def ended(self) -> None:
        """A worker has no more work."""
        self._running -= 1

    def tick(self) -> None:
        """Some time has passed."""
        self.ledger.runnable = max(1, self._peak)
        self._peak = self._running


@dataclass(slots=True)
class Sending(Arrival):
    """An upload's call, whose it is, and how it goes."""

    entry: Entry
    received: int  # what the upload had when the call began, or now where that is known at once
    ticket: int = 0
    sent: bool = False
    failure: Refusal | None = None


@dataclass(slots=True)
class Lent:
    """A ring that a call has: where its client finds it, and the worker's own word for it."""

    entry: Entry
    pid: int
    fd: int
    name: str
    nbytes: int
    piece: int
    ring: Any


class Worker(ABC):
    """Where sessions compute, as the front sees it: calls go there in order, and their answers come back."""

    def __init__(self, slot: int) -> None:
        self.slot = slot
        self.alive = False
        self.sessions = 0
        self.restarts = 0
        self.active = 0  # sessions that were called lately, as of the last sweep, and those opened since
        self.load: Load
        self.directory: Directory[Worker]
        self.backend: Backend
        self._ticket = 0
        self._waiting: dict[int, tuple[asyncio.Future[bytes], Entry]] = {}
        self._told: dict[int, asyncio.Future[None]] = {}
        self._orders: dict[int, asyncio.Future[bytes]] = {}

    def call(self, entry: Entry, method: str, raw: bytes, deadline: float | None = None) -> "asyncio.Future[bytes]":
        """Apply a call after all that were handed over before it; the answer. Until then the session cannot expire."""
        future = asyncio.get_running_loop().create_future()
        self._ticket = ticket = self._ticket + 1
        if not self._waiting:
            self.load.began()
        self._waiting[ticket] = (future, entry)
        self.directory.begin(entry, ticket, method, raw)
        self._send(method, entry.number, raw, ticket, deadline)
        return future

    def tell(self, method: str, number: int, raw: bytes) -> "asyncio.Future[None]":
        """Apply a call that has no answer; done when it is applied, or the worker has ended."""
        self._ticket = ticket = self._ticket + 1
        self._told[ticket] = future = asyncio.get_running_loop().create_future()
        self._send(method, number, raw, ticket, None)
        return future

    def ask(self, method: str, number: int, raw: bytes) -> "asyncio.Future[bytes]":
        """As `call`, for what is the server's own business: it renews no lease and is no work of the session's."""
        self._ticket = ticket = self._ticket + 1
        self._orders[ticket] = future = asyncio.get_running_loop().create_future()
        self._send(method, number, raw, ticket, None)
        return future

    def lost(self, failure: Refusal) -> None:
        """Nothing answers any more."""
        for ticket in (*self._waiting, *self._told, *self._orders):
            self.answered(ticket, b"", failure)

    def answered(self, ticket: int, result: bytes, failure: Exception | None) -> None:
        """The answer to a call has come."""
        waiting = self._waiting.pop(ticket, None)
        if waiting is None:
            order = self._orders.pop(ticket, None)
            if order is not None:
                _settle(order, result, failure)
                return
            told = self._told.pop(ticket, None)
            if told is not None and not told.done():
                told.set_result(None)
            return
        future, entry = waiting
        if not self._waiting:
            self.load.ended()
        self.directory.finish(entry, ticket)
        _settle(future, result, failure)

    @property
    def last_ticket(self) -> int:
        """Of the calls handed over so far."""
        return self._ticket

    @abstractmethod
    async def start(self) -> service_pb2.ServerInfoResponse:
        """Begin; what the worker computes with."""

    @abstractmethod
    async def stop(self, grace: float) -> None:
        """End, after what was handed over if that is done within the grace."""

    @abstractmethod
    def _send(self, method: str, number: int, raw: bytes, ticket: int, deadline: float | None) -> None: ...

    @abstractmethod
    def keep(self, lock: int, logs: bool) -> None:
        """Before `start`: store sessions; `lock` is to be held by whoever does."""

    @abstractmethod
    def cancel(self, entry: Entry) -> None:
        """Stop what the session has begun or waiting."""

    @abstractmethod
    def cancel_through(self, entry: Entry, writer: int, seq: int) -> None:
        """Stop a writer's commands up to a seq."""

    @abstractmethod
    def name(self, entry: Entry) -> None:
        """Tell what the log may show of a session, and whose it is."""

    @abstractmethod
    async def numbers(self, first: int, last: int) -> dict[str, Any]:
        """What Host.numbers tells."""

    @abstractmethod
    def close(self, entry: Entry) -> None:
        """Stop what the session computes and refuse what waits; "Drop" follows."""

    async def begin_upload(self, entry: Entry, start: service_pb2.UploadStart) -> Sending:
        """Begin an upload or go on with one."""
        answer = await self.call(entry, "BeginUpload", start.SerializeToString())
        received, taker = UPLOAD_BEGUN.unpack_from(answer)
        transfer_id = answer[UPLOAD_BEGUN.size :].decode()
        return Sending(entry.number, transfer_id, taker, start.offset, entry, received)

    @abstractmethod
    async def append(self, arrival: Sending, data: memoryview) -> None:
        """Take an upload's next bytes."""

    @abstractmethod
    async def end_upload(self, arrival: Sending) -> int:
        """No more bytes come by this call; how many the upload has."""

    def leave_upload(self, arrival: Sending) -> None:  # noqa: B027 - not every worker keeps anything of it
        """The upload's call is over, however it went."""

    @abstractmethod
    def chunks(self, entry: Entry, transfer_id: str, offset: int) -> AsyncGenerator[bytes, None]:
        """A download's parts."""

    @abstractmethod
    async def lend_ring(self, entry: Entry, nonce: str) -> Lent:
        """A ring for one call."""

    @abstractmethod
    def return_ring(self, lent: Lent, clean: bool) -> None:
        """The call has ended."""

    @abstractmethod
    async def take(self, arrival: Sending, lent: Lent, place: int, size: int) -> None:
        """Take an upload's next bytes out of a ring."""

    @abstractmethod
    async def give(self, entry: Entry, transfer_id: str, offset: int, lent: Lent, place: int) -> tuple[int, int]:
        """Put a download's next piece into a ring; its size, and where the next one begins."""


class ThreadWorker(Worker):
    """A thread of this process. `owns_process` lets it set the process's limits and collect its garbage."""

    def __init__(self, limits: Limits, ledger: Ledger, owns_process: bool = False, counts: bool = False) -> None:
        super().__init__(0)
        self.host = Host(limits, ledger, counts=counts)
        self.stores = self.logs = False
        self.owns_process = owns_process
        self._compute: ComputeThread
        self._loop: asyncio.AbstractEventLoop

    async def start(self) -> service_pb2.ServerInfoResponse:
        """Start the thread; a process of its own is held to the limits."""
        self._loop = asyncio.get_running_loop()
        if self.owns_process and cupy() is None:
            cap_process(self.host.limits.max_bytes)
        if self.stores:
            self.host.keeper = Keeper(self.logs)
        self._compute = ComputeThread(self.host, self._answer, collects=self.owns_process)
        self.alive = True
        return self.host.describe()

    async def stop(self, grace: float) -> None:
        """End the thread, if it does within the grace."""
        self.alive = False
        await self._loop.run_in_executor(None, self._compute.stop, grace)
        await self._loop.run_in_executor(None, self.host.filer.stop)
        if self.host.keeper is not None:
            await self._loop.run_in_executor(None, self.host.keeper.stop, grace)

    def keep(self, lock: int, logs: bool) -> None:
        """Store sessions."""
        self.stores, self.logs = True, logs

    def _send(self, method: str, number: int, raw: bytes, ticket: int, deadline: float | None) -> None:
        self._compute.submit(method, number, raw, ticket, deadline)

    def _answer(self, call: Pending, result: bytes, failure: Exception | None) -> None:
        with suppress(RuntimeError):  # the loop is closed: the server did not wait for a computation that went on
            self._loop.call_soon_threadsafe(self.answered, call.ticket, result, failure)

    def cancel(self, entry: Entry) -> None:
        """Stop what the session has begun or waiting."""
        self.host.cancel(entry.number, self.last_ticket)

    def cancel_through(self, entry: Entry, writer: int, seq: int) -> None:
        """Stop a writer's commands up to a seq."""
        self.host.cancel_through(entry.number, writer, seq)

    def close(self, entry: Entry) -> None:
        """Stop what the session computes."""
        self.host.close(entry.number, self.last_ticket)

    def name(self, entry: Entry) -> None:
        """Tell what the log may show of a session, and whose it is."""
        self.host.name(entry.number, entry.shown, entry.owner)

    async def numbers(self, first: int, last: int) -> dict[str, Any]:
        """What the host holds and has counted."""
        return self.host.numbers(first, last)

    async def append(self, arrival: Sending, data: memoryview) -> None:
        """Take an upload's next bytes. A copy of one chunk is quicker than a change of threads."""
        with self.host.receiving(arrival, data.nbytes) as room:
            room[:] = data
        arrival.received = arrival.offset

    async def end_upload(self, arrival: Sending) -> int:
        """How many bytes the upload has."""
        return arrival.received

    async def chunks(self, entry: Entry, transfer_id: str, offset: int) -> AsyncGenerator[bytes, None]:
        """A download's parts."""
        total = offset + 1
        while offset < total:
            with self.host.chunk(entry.number, transfer_id, offset) as (start, data, total):
                message = b"".join((start, data))
                offset += data.nbytes
            yield message

    async def lend_ring(self, entry: Entry, nonce: str) -> Lent:
        """A ring for one call."""
        made = self._loop.run_in_executor(None, self.host.lend_ring, entry.number, nonce)
        try:
            ring = await asyncio.shield(made)
        except asyncio.CancelledError:  # the call is over; the ring comes all the same
            made.add_done_callback(lambda done: self._return_unused(entry.number, done))
            raise
        return Lent(entry, ring.pid, ring.fd, ring.name, ring.nbytes, ring.piece, ring)

    def _return_unused(self, number: int, made: "asyncio.Future[Ring]") -> None:
        if made.exception() is None:
            self.host.return_ring(number, made.result(), False)

    def return_ring(self, lent: Lent, clean: bool) -> None:
        """The call has ended."""
        self.host.return_ring(lent.entry.number, lent.ring, clean)

    async def take(self, arrival: Sending, lent: Lent, place: int, size: int) -> None:
        """Take an upload's next bytes out of a ring."""
        await self._loop.run_in_executor(None, self.host.take, arrival, lent.ring, place, size)
        arrival.received = arrival.offset

    async def give(self, entry: Entry, transfer_id: str, offset: int, lent: Lent, place: int) -> tuple[int, int]:
        """Put a download's next piece into a ring: megabytes at once, which the event loop should not wait for."""
        give = self.host.give
        return await self._loop.run_in_executor(None, give, entry.number, transfer_id, offset, lent.ring, place)


class Backend:
    """Sessions with workers. Leases, writers' numbers and the table of who is where are kept here."""

    def __init__(
        self, limits: Limits, workers: Sequence[Worker], ledger: Ledger, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.limits = limits
        self.workers = workers
        self.ledger = ledger
        self.places = Places(limits, ledger)
        self.load = Load(ledger)
        self.keeping: Keeping | None = None
        self.directory: Directory[Worker] = Directory(limits, clock)
        self.files = Files(self.directory)
        self._about: service_pb2.ServerInfoResponse
        self._sweeper: asyncio.Task[None]
        self._ops = b""
        for worker in workers:
            worker.load, worker.directory, worker.backend = self.load, self.directory, self
        self.directory.entered = lambda entry: entry.worker.name(entry)

    async def keep_in(self, shelf: Shelf, logs: bool, every: float) -> None:
        """Before `start`: let sessions be stored in a directory. Raises OSError if it is not to be had."""
        await asyncio.get_running_loop().run_in_executor(None, shelf.open)
        self.keeping = Keeping(self, shelf, logs, every)
        for worker in self.workers:
            worker.keep(shelf.lock, logs)

    async def start(self) -> None:
        """Start the workers and the sweep of leases."""
        self._about = (await asyncio.gather(*(worker.start() for worker in self.workers)))[0]
        self._sweeper = asyncio.create_task(self._sweep())
        if self.keeping is not None:
            await self.keeping.start()

    async def stop(self, grace: float) -> None:
        """Cancel what still runs, store what is to be kept, free all sessions and end the workers within the grace."""
        self._sweeper.cancel()
        with suppress(asyncio.CancelledError):
            await self._sweeper
        if self.keeping is not None:
            await self.keeping.stop(grace)
        for entry in self.directory.empty():
            if entry.worker.alive:
                self.drop(entry, KEEP if self.keeping is not None else b"")
        await asyncio.gather(*(worker.stop(grace) for worker in self.workers))
        if self.keeping is not None:
            self.keeping.shelf.close()

    async def open_session(self, request: service_pb2.OpenSessionRequest) -> service_pb2.OpenSessionResponse:
        """Open a session or attach a writer. Raises Refusal: PROTOCOL_VERSION, SESSION_LIMIT, SESSION_NOT_FOUND."""
        least, most = request.min_protocol or 1, request.max_protocol or max(1, request.min_protocol)
        if not least <= PROTOCOL <= most:
            raise Refusal(
                "PROTOCOL_VERSION",
                f"the server speaks protocol {PROTOCOL}, the client {least} to {most}",
                min_protocol=PROTOCOL,
                max_protocol=PROTOCOL,
            )
        if request.session_id:
            found = self.directory.find(request.session_id)
            if found.restoring is not None:
                await asyncio.wait((found.restoring,))
            entry = self.directory.attach(request.session_id)
            if self.keeping is None:
                entry.worker.tell("Attach", entry.number, NUMBER.pack(entry.writers))
            else:
                await self.keeping.attached(entry)
        else:
            place = self.places.of(CALLER.get().name, self.directory.has_sessions)
            entry = self.directory.open(request, self.place_session)
            entry.worker.sessions += 1
            entry.worker.active += 1
            if self.keeping is None:
                entry.worker.tell("Open", entry.number, OPENED.pack(place, entry.owner_number))
            else:
                await self._open_kept(self.keeping, entry, place)
        return self.opened(entry)

    async def _open_kept(self, keeping: Keeping, entry: Entry, place: int) -> None:
        try:
            await keeping.opened(entry, place)
        except BaseException:
            if self.directory.entries.get(entry.id) is entry:
                self.directory.remove(entry)
                self.drop(entry)
            raise

    def opened(self, entry: Entry) -> service_pb2.OpenSessionResponse:
        """What a client is told of its session, as its last writer."""
        return service_pb2.OpenSessionResponse(
            session_id=entry.id,
            writer=entry.writers,
            epoch=entry.epoch,
            lease_ms=int(entry.lease * 1000),
            expires_unix_ms=_unix_ms(entry.lease),
            protocol=PROTOCOL,
            limits=self.limits.message(),
            machine=machine() if self.limits.max_shared_bytes else "",
        )

    def place_session(self) -> Worker:
        """Where a new session goes: the worker with the fewest sessions at work, sessions, bytes."""
        alive = [worker for worker in self.workers if worker.alive]
        if not alive:
            raise Refusal("UNAVAILABLE", "the server's worker processes are being started; try again")
        return min(alive, key=lambda each: (each.active, each.sessions, self.ledger.bytes(each.slot)))

    async def close_session(self, session_id: str) -> int:
        """End a session; bytes freed. What it computes is cancelled."""
        entry = self.directory.close(session_id)
        if entry is None and self.keeping is not None:
            await self.keeping.close(session_id)
        return 0 if entry is None else await self.drop(entry)

    async def keep_alive(self, session_id: str) -> service_pb2.KeepAliveResponse:
        """Renew a lease."""
        entry = self.directory.find(session_id)
        return service_pb2.KeepAliveResponse(
            lease_ms=int(entry.lease * 1000), epoch=entry.epoch, expires_unix_ms=_unix_ms(entry.lease)
        )

    async def cancel(self, request: service_pb2.CancelRequest) -> service_pb2.CancelResponse:
        """Stop what a session computes; tells whether that was anything."""
        entry = self.directory.find(request.session_id)
        if not request.through_seq:
            entry.worker.cancel(entry)
            return service_pb2.CancelResponse(cancelled=bool(entry.pending))
        if not 1 <= request.writer <= entry.writers:
            raise Refusal(
                "ARGUMENT_VALUE",
                f"the session has no writer {request.writer}; OpenSession gives one",
                argument="writer",
            )
        entry.worker.cancel_through(entry, request.writer, request.through_seq)
        runs = [peek_run(raw) for method, raw in entry.pending.values() if method == "Run"]
        return service_pb2.CancelResponse(
            cancelled=any(
                run is None or (run.writer == request.writer and run.first_seq <= request.through_seq) for run in runs
            )
        )

    def call(self, method: str, session_id: str, raw: bytes, deadline: float | None) -> "asyncio.Future[bytes]":
        """Hand a command or a batch over."""
        entry = self.directory.find(session_id)
        return entry.worker.call(entry, method, raw, deadline)

    def when_answered(self, then: Callable[[], None]) -> None:
        """Call this whenever a request was answered."""
        self.directory.answered = then

    def check_traffic(self, session_id: str, size: int) -> None:
        """Whether another request may be handed over. Raises Refusal: TRAFFIC_LIMIT."""
        self.directory.check_traffic(session_id, size)

    def is_full(self, session_id: str) -> bool:
        """Whether a session's stream is not to be read for now."""
        return self.directory.is_full(session_id)

    async def begin_upload(self, session_id: str, start: service_pb2.UploadStart) -> Sending:
        """Begin an upload or go on with one."""
        entry = self.directory.find(session_id)
        return await entry.worker.begin_upload(entry, start)

    async def append(self, arrival: Sending, data: memoryview) -> None:
        """Take an upload's next bytes. Raises Refusal: ARGUMENT_VALUE, PAYLOAD_SIZE, MESSAGE_TOO_LARGE."""
        self.directory.find(arrival.entry.id)
        if data.nbytes > self.limits.chunk_bytes:
            limit = self.limits.chunk_bytes
            raise Refusal("MESSAGE_TOO_LARGE", f"a chunk has at most {limit} bytes, not {data.nbytes}", limit=limit)
        await arrival.entry.worker.append(arrival, data)

    async def end_upload(self, arrival: Sending) -> int:
        """How many bytes the upload has."""
        received = await arrival.entry.worker.end_upload(arrival)
        await self.keep_upload(arrival)
        return received

    async def keep_upload(self, arrival: Sending) -> None:
        """Have the bytes of an upload that is whole stored, where all that is acknowledged is."""
        if self.keeping is not None and self.keeping.logs:
            await arrival.entry.worker.call(arrival.entry, "KeepUpload", arrival.transfer_id.encode())

    def leave_upload(self, arrival: Sending) -> None:
        """The upload's call is over."""
        arrival.entry.worker.leave_upload(arrival)

    async def chunks(self, session_id: str, transfer_id: str, offset: int) -> AsyncGenerator[bytes, None]:
        """A download's parts. The session is asked for at each, so a transfer keeps it and does not outlive it."""
        entry = self.directory.find(session_id)
        async with aclosing(entry.worker.chunks(entry, transfer_id, offset)) as parts:
            async for message in parts:
                self.directory.find(session_id)
                yield message

    async def finish_download(self, session_id: str, transfer_id: str, received: bool = False) -> None:
        """A download was sent to its end."""
        entry = self.directory.entries.get(session_id)
        if entry is not None:
            await entry.worker.call(entry, "FinishDownload", bytes((received,)) + transfer_id.encode())

    async def lend_ring(self, session_id: str, nonce: str) -> "Lent":
        """Shared memory for one call."""
        entry = self.directory.find(session_id)
        return await entry.worker.lend_ring(entry, nonce)

    async def return_ring(self, session_id: str, ring: "Lent", clean: bool) -> None:
        """The call has ended."""
        ring.entry.worker.return_ring(ring, clean)

    async def take(self, arrival: Sending, ring: "Lent", place: int, size: int) -> None:
        """Take an upload's next bytes out of a ring."""
        self.directory.find(arrival.entry.id)
        await arrival.entry.worker.take(arrival, ring, place, size)

    async def give(self, session_id: str, transfer_id: str, offset: int, ring: "Lent", place: int) -> tuple[int, int]:
        """Put a download's next piece into a ring."""
        entry = self.directory.find(session_id)
        return await entry.worker.give(entry, transfer_id, offset, ring, place)

    async def server_info(self) -> service_pb2.ServerInfoResponse:
        """What the server is and allows."""
        info = service_pb2.ServerInfoResponse()
        info.CopyFrom(self._about)
        info.min_protocol = info.max_protocol = PROTOCOL
        info.limits.CopyFrom(self.limits.message())
        info.sessions = len(self.directory.entries)
        info.bytes = self.ledger.total()
        return info

    async def list_ops(self, prefix: str) -> bytes:
        """The ops whose names begin so, serialized."""
        if not self._ops:
            self._ops = schemas(REGISTRY).SerializeToString()
        if not prefix:
            return self._ops
        ops = service_pb2.ListOpsResponse.FromString(self._ops).ops
        return service_pb2.ListOpsResponse(ops=[op for op in ops if op.name.startswith(prefix)]).SerializeToString()

    async def list_sessions(self, request: service_pb2.ListSessionsRequest) -> service_pb2.ListSessionsResponse:
        """Everybody's sessions, a page of them. Raises Refusal: ARGUMENT_VALUE."""
        after = request.page_token or "0"
        if not after.isdecimal() or len(after) > _NUMBER_DIGITS:
            raise Refusal("ARGUMENT_VALUE", "page_token is to be one that a response had", argument="page_token")
        most = min(request.page_size or _MOST_LISTED, _MOST_LISTED)
        found = self.directory.listed(int(after), request.principal, most + 1)
        now = self.directory.clock()
        held: dict[int, list[Any]] = {}
        for told in (await self.numbers(found[0].number, found[-1].number) if found else {}).values():
            held.update(told["sessions"])
        page = [
            service_pb2.SessionSummary(
                **_held(held.get(entry.number)),
                number=entry.number,
                principal=entry.owner,
                client=entry.client,
                age_ms=int((now - entry.opened) * 1000),
                lease_left_ms=max(0, int((entry.expires - now) * 1000)),
                writers=entry.writers,
                pending=len(entry.pending),
                worker=entry.worker.slot,
            )
            for entry in found[:most]
        ]
        more = str(page[-1].number) if len(found) > most else ""
        return service_pb2.ListSessionsResponse(sessions=page, next_page_token=more)

    async def numbers(self, first: int, last: int) -> dict[int, dict[str, Any]]:
        """By worker what Host.numbers tells of sessions with numbers from first to last; without those that do not."""

        async def ask(worker: Worker) -> dict[str, Any] | None:
            try:
                return await asyncio.wait_for(worker.numbers(first, last), _NUMBERS_SECONDS)
            except (Refusal, asyncio.TimeoutError):  # it has ended, or is being started
                return None

        alive = [worker for worker in self.workers if worker.alive]
        answers = await asyncio.gather(*map(ask, alive))
        return {worker.slot: told for worker, told in zip(alive, answers, strict=True) if told is not None}

    async def end_session(self, number: int) -> int:
        """End anybody's session; bytes freed. What it computes is cancelled. Raises Refusal: SESSION_NOT_FOUND."""
        return await self.drop(self.directory.end(number))

    def sweep(self) -> "list[asyncio.Future[int]]":
        """Free the sessions whose lease ran out; one result per session: the bytes freed."""
        if self.keeping is not None:
            self.keeping.expired(self.directory.overdue())
            return []
        return [self.drop(entry) for entry in self.directory.sweep()]

    def drop(self, entry: Entry, how: bytes = b"") -> "asyncio.Future[int]":
        """Free what a session that was taken out holds; how many bytes that was."""
        entry.worker.sessions -= 1
        entry.worker.close(entry)
        return asyncio.ensure_future(_freed(entry.worker.call(entry, "Drop", how)))

    def lost(self, worker: Worker, why: str) -> tuple[int, Refusal]:
        """A worker has ended: how many sessions it took with it, and what to say to those who wait for it."""
        lost = self.directory.lost(worker, why)
        if self.keeping is not None:
            gone = self.keeping.lost(lost, why)
            if len(gone) < len(lost):
                return len(gone), Refusal("UNAVAILABLE", f"{why}; its stored sessions come back, try again")
        return len(lost), Refusal("SESSION_NOT_FOUND", f"the session is gone: {why}")

    def stores(self) -> "Keeping":
        """Where sessions are stored. Raises Refusal: NOT_SUPPORTED."""
        if self.keeping is None:
            raise Refusal("NOT_SUPPORTED", "the server keeps no sessions: it has no --state-dir")
        return self.keeping

    async def save_session(self, request: snapshots_pb2.SaveSessionRequest, raw: bytes) -> bytes:
        """Store a session, under a name or for itself."""
        entry = self.directory.find(request.session_id)
        return await self.stores().save(entry, request, raw)

    async def restore_session(
        self, request: snapshots_pb2.RestoreSessionRequest, raw: bytes
    ) -> service_pb2.RestoreSessionResponse:
        """Open a session that begins as a named snapshot."""
        return await self.stores().restore(request, raw)

    async def list_snapshots(self) -> snapshots_pb2.ListSnapshotsResponse:
        """The caller's named snapshots."""
        return await self.stores().listed()

    async def delete_snapshot(self, name: str) -> int:
        """Delete a named snapshot of the caller's; bytes freed."""
        return await self.stores().delete(name)

    def tidy(self) -> "list[asyncio.Future[None]]":
        """Have all workers count anew what they hold, and drop what was abandoned."""
        return [worker.tell("Tidy", 0, b"") for worker in self.workers if worker.alive]

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(_SWEEP_SECONDS)
            self.load.tick()
            self.sweep()
            active = Counter(self.directory.active())
            for worker in self.workers:
                worker.active = active[worker]
            self.tidy()


def _held(told: list[Any] | None) -> dict[str, int]:
    """What a session's worker tells of it, as fields of SessionSummary; nothing if it does not."""
    if told is None:
        return {}
    held, tensors, commands, computed = told
    return {"bytes": held, "tensors": tensors, "commands": commands, "compute_us": int(computed * 1e6)}


def _unix_ms(seconds: float) -> int:
    """So many seconds from now, as others' clocks have it."""
    return int((time.time() + seconds) * 1000)


def _settle(future: "asyncio.Future[bytes]", result: bytes, failure: Exception | None) -> None:
    if future.done():  # its waiter has gone
        return
    if failure is None:
        future.set_result(result)
    else:
        future.set_exception(failure)


async def _freed(answer: "asyncio.Future[bytes]") -> int:
    try:
        freed: int = NUMBER.unpack(await answer)[0]
    except Refusal:  # the worker has ended, and everything with it
        return 0
    return freed


class InProcessBackend(Backend):
    """Sessions in this process, computed by one thread: one caller of BLAS at a time."""

    def __init__(
        self,
        limits: Limits,
        clock: Callable[[], float] = time.monotonic,
        owns_process: bool = False,
        counts: bool = False,
    ) -> None:
        """With `counts` the worker counts what the metrics tell."""
        resolved = limits.resolved()
        ledger = Ledger(1)
        worker = ThreadWorker(resolved, ledger, owns_process, counts)
        self.host = worker.host
        super().__init__(resolved, [worker], ledger, clock)
