"""Workers, as the front sees them: `Worker`, which is a thread of this process (thread_worker.py) or a process
(process_worker.py).

Calls go there in order, and their answers come back. A worker has a few calls of each session at a time, no more than
keep it busy: the others are kept back here, by session. So who sends thousands, or megabytes, stands in nobody's way.
"""

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from gradwire.v1 import service_pb2
from gradwire_server.common.errors import Refusal
from gradwire_server.common.limits import MIB
from gradwire_server.common.shared_counters import SharedCounters
from gradwire_server.worker.frames import GOES_BACK, UPLOAD_BEGUN, Arrival
from gradwire_server.workers.entry import Entry as EntryOf

Entry: TypeAlias = "EntryOf[Worker]"
# Calls of one session that its worker has at once, and their bytes, but for one that is larger by itself.
MOST_HANDED = 16
MOST_HANDED_BYTES = 2 * MIB


class Load:
    """How many workers have work. What the shared counters tells falls slowly, since BLAS's threads follow it."""

    def __init__(self, counters: SharedCounters) -> None:
        self.counters = counters
        self._running = self._peak = 0

    def began(self) -> None:
        """A worker that had no work has some."""
        self._running += 1
        if self._running > self._peak:
            self._peak = self._running
            if self._peak > self.counters.runnable:
                self.counters.runnable = self._peak

    def ended(self) -> None:
        """A worker has no more work."""
        self._running -= 1

    def tick(self) -> None:
        """Some time has passed."""
        self.counters.runnable = max(1, self._peak)
        self._peak = self._running


@dataclass(slots=True)
class OpenUpload(Arrival):
    """An upload's call, whose it is, and how it goes."""

    entry: Entry
    received: int  # what the upload had when the call began, or now where that is known at once
    ticket: int = 0
    sent: bool = False
    failure: Refusal | None = None


@dataclass(slots=True)
class LentRing:
    """A ring that a call has: where its client finds it, and the worker's own word for it."""

    entry: Entry
    pid: int
    fd: int
    name: str
    nbytes: int
    piece: int
    ring: Any


@dataclass(frozen=True, slots=True)
class Events:
    """What a worker tells of its calls and of its end; the backend says what is done then."""

    begun: "Callable[[Entry, int, str, bytes], None]"  # a call was handed over: its ticket, method and request
    finished: "Callable[[Entry, int], None]"  # a call was answered
    takes_back: "Callable[[Entry], None]"  # what a session has in memory is to be dropped and what is stored taken up
    lost: "Callable[[Worker, str], tuple[int, Refusal]]"  # a worker has ended, and why: sessions lost, what to answer


class Worker(ABC):
    """Where sessions compute, as the front sees it: calls go there in order, and their answers come back."""

    def __init__(self, slot: int) -> None:
        self.slot = slot
        self.alive = False
        self.sessions = 0
        self.restarts = 0
        self.active = 0  # sessions that were called lately, as of the last sweep, and those opened since
        self.load: Load
        self.events: Events
        self._ticket = 0
        self._waiting: dict[int, tuple[asyncio.Future[bytes], Entry, int]] = {}  # with the call's size
        self._parked: set[int] = set()  # of those: they wait in the worker for one that comes later
        self._told: dict[int, asyncio.Future[None]] = {}
        self._orders: dict[int, asyncio.Future[bytes]] = {}

    def call(self, entry: Entry, method: str, raw: bytes, deadline: float | None = None) -> "asyncio.Future[bytes]":
        """Apply a call after all of its session before it; the answer. Until then the session cannot expire."""
        future = asyncio.get_running_loop().create_future()
        self._ticket = ticket = self._ticket + 1
        if not self._waiting:
            self.load.began()
        size = len(raw)
        self._waiting[ticket] = (future, entry, size)
        self.events.begun(entry, ticket, method, raw)
        if entry.kept_back is None and _has_room(entry, size):
            entry.handed += 1
            entry.handed_bytes += size
            self._send(method, entry.number, raw, ticket, deadline)
        else:
            if entry.kept_back is None:
                entry.kept_back = deque()
            entry.kept_back.append((ticket, method, raw, deadline))
        return future

    def _took(self, entry: Entry, size: int) -> None:
        """The worker has done with a call: hand over what was kept back, as far as there is room now."""
        entry.handed -= 1
        entry.handed_bytes -= size
        if entry.kept_back is not None:
            self._hand_over(entry, everything=False)

    def _hand_over(self, entry: Entry, everything: bool) -> None:
        kept = entry.kept_back
        while kept and (everything or _has_room(entry, len(kept[0][2]))):
            ticket, method, raw, deadline = kept.popleft()
            entry.handed += 1
            entry.handed_bytes += len(raw)
            self._send(method, entry.number, raw, ticket, deadline)
        if not kept:
            entry.kept_back = None

    def parked(self, ticket: int) -> None:
        """A call waits in the worker for one before it that has not come, which may be among those kept back."""
        waiting = self._waiting.get(ticket)
        if waiting is not None and ticket not in self._parked:
            self._parked.add(ticket)
            self._took(waiting[1], waiting[2])

    def flush(self) -> None:
        """Hand over all that is kept back: the worker is to end when it has done it."""
        for _, entry, _ in list(self._waiting.values()):
            if entry.kept_back is not None:
                self._hand_over(entry, everything=True)

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
        future, entry, size = waiting
        if isinstance(failure, Refusal) and GOES_BACK in failure.metadata:
            self.events.takes_back(entry)
        if not self._waiting:
            self.load.ended()
        self.events.finished(entry, ticket)
        if ticket in self._parked:
            self._parked.discard(ticket)
        else:
            self._took(entry, size)
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
        """What Runtime.numbers tells."""

    @abstractmethod
    async def list_ops(self) -> bytes:
        """What Runtime.list_ops tells."""

    @abstractmethod
    def close(self, entry: Entry) -> None:
        """Stop what the session computes and refuse what waits; "Drop" follows."""

    def end_if_held(self, now: int) -> None:  # noqa: B027 - a thread cannot be ended
        """End the worker if what it computes has kept it from all calls for too long; `now` is time.monotonic_ns()."""

    async def begin_upload(self, entry: Entry, start: service_pb2.UploadStart) -> OpenUpload:
        """Begin an upload or go on with one."""
        answer = await self.call(entry, "BeginUpload", start.SerializeToString())
        received, taker = UPLOAD_BEGUN.unpack_from(answer)
        transfer_id = answer[UPLOAD_BEGUN.size :].decode()
        return OpenUpload(entry.number, transfer_id, taker, start.offset, entry, received)

    @abstractmethod
    async def append(self, arrival: OpenUpload, data: memoryview) -> None:
        """Take an upload's next bytes."""

    @abstractmethod
    async def end_upload(self, arrival: OpenUpload) -> int:
        """No more bytes come by this call; how many the upload has."""

    def leave_upload(self, arrival: OpenUpload) -> None:  # noqa: B027 - not every worker keeps anything of it
        """The upload's call is over, however it went."""

    @abstractmethod
    def chunks(self, entry: Entry, transfer_id: str, offset: int) -> AsyncGenerator[bytes, None]:
        """A download's parts."""

    @abstractmethod
    async def lend_ring(self, entry: Entry, nonce: str) -> LentRing:
        """A ring for one call."""

    @abstractmethod
    def return_ring(self, lent: LentRing, clean: bool) -> None:
        """The call has ended."""

    @abstractmethod
    async def take(self, arrival: OpenUpload, lent: LentRing, place: int, size: int) -> None:
        """Take an upload's next bytes out of a ring."""

    @abstractmethod
    async def give(self, entry: Entry, transfer_id: str, offset: int, lent: LentRing, place: int) -> tuple[int, int]:
        """Put a download's next piece into a ring; its size, and where the next one begins."""


def _has_room(entry: Entry, size: int) -> bool:
    """Whether a session's worker may have another call of so many bytes."""
    handed = entry.handed
    return not handed or (handed < MOST_HANDED and entry.handed_bytes + size <= MOST_HANDED_BYTES)


def _settle(future: "asyncio.Future[bytes]", result: bytes, failure: Exception | None) -> None:
    if future.done():  # its waiter has gone
        return
    if failure is None:
        future.set_result(result)
    else:
        future.set_exception(failure)
