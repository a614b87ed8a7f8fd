"""Workers: `Worker`, the front's view of a thread (thread_worker.py) or process (process_worker.py) that computes.

The front sends calls in order and receives their answers. A worker gets only a few calls of each session at a time,
enough to keep it busy. The front keeps the others back, by session. So a session with thousands of calls, or megabytes,
does not delay other sessions.
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
# Most calls of one session that its worker has at once, and their bytes. One call may be larger than that.
MOST_HANDED = 16
MOST_HANDED_BYTES = 2 * MIB


class Load:
    """Number of workers with work. The number in the shared counters falls slowly, since BLAS threads follow it."""

    def __init__(self, counters: SharedCounters) -> None:
        self.counters = counters
        self._running = self._peak = 0

    def began(self) -> None:
        """Count an idle worker that got work."""
        self._running += 1
        if self._running > self._peak:
            self._peak = self._running
            if self._peak > self.counters.runnable:
                self.counters.runnable = self._peak

    def ended(self) -> None:
        """Count a worker that became idle."""
        self._running -= 1

    def tick(self) -> None:
        """Publish the peak since the last tick, and begin a new one."""
        self.counters.runnable = max(1, self._peak)
        self._peak = self._running


@dataclass(slots=True)
class OpenUpload(Arrival):
    """An upload's call: its session and its progress."""

    entry: Entry
    received: int  # bytes when the call began; kept current by a thread worker
    ticket: int = 0
    sent: bool = False
    failure: Refusal | None = None


@dataclass(slots=True)
class LentRing:
    """A ring lent to a call: where the client finds it, and `ring`, the worker's handle."""

    entry: Entry
    pid: int
    fd: int
    name: str
    nbytes: int
    piece: int
    ring: Any


@dataclass(frozen=True, slots=True)
class Events:
    """Callbacks of a worker for its calls and its end; the backend provides them."""

    begun: "Callable[[Entry, int, str, bytes], None]"  # a call was submitted: ticket, method, request
    finished: "Callable[[Entry, int], None]"  # a call was answered
    takes_back: "Callable[[Entry], None]"  # evict a session: its memory is unusable, its files are complete
    lost: "Callable[[Worker, str], tuple[int, Refusal]]"  # a worker ended, and why: sessions lost, refusal


class Worker(ABC):
    """A place where sessions compute. Gets calls in order and returns their answers."""

    def __init__(self, slot: int) -> None:
        self.slot = slot
        self.alive = False
        self.sessions = 0
        self.restarts = 0
        self.active = 0  # active sessions at the last sweep, and those opened since
        self.load: Load
        self.events: Events
        self._ticket = 0
        self._waiting: dict[int, tuple[asyncio.Future[bytes], Entry, int]] = {}  # by ticket: future, session, bytes
        self._parked: set[int] = set()  # tickets of calls that wait in the worker for an earlier seq
        self._told: dict[int, asyncio.Future[None]] = {}
        self._orders: dict[int, asyncio.Future[bytes]] = {}

    def call(self, entry: Entry, method: str, raw: bytes, deadline: float | None = None) -> "asyncio.Future[bytes]":
        """Submit a call in its session's order; its answer. A session with unanswered calls cannot expire."""
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
        """Count a call that the worker is done with, and send kept-back calls while there is room."""
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
        """Record that a call waits in the worker for an earlier seq, which may be kept back here."""
        waiting = self._waiting.get(ticket)
        if waiting is not None and ticket not in self._parked:
            self._parked.add(ticket)
            self._took(waiting[1], waiting[2])

    def flush(self) -> None:
        """Send all kept-back calls, before the worker ends."""
        for _, entry, _ in list(self._waiting.values()):
            if entry.kept_back is not None:
                self._hand_over(entry, everything=True)

    def tell(self, method: str, number: int, raw: bytes) -> "asyncio.Future[None]":
        """Send a call without an answer; done when it is applied or the worker has ended."""
        self._ticket = ticket = self._ticket + 1
        self._told[ticket] = future = asyncio.get_running_loop().create_future()
        self._send(method, number, raw, ticket, None)
        return future

    def ask(self, method: str, number: int, raw: bytes) -> "asyncio.Future[bytes]":
        """As `call`, for the server's own orders: neither renews the lease nor counts as session work."""
        self._ticket = ticket = self._ticket + 1
        self._orders[ticket] = future = asyncio.get_running_loop().create_future()
        self._send(method, number, raw, ticket, None)
        return future

    def lost(self, failure: Refusal) -> None:
        """Fail all calls: the worker has ended."""
        for ticket in (*self._waiting, *self._told, *self._orders):
            self.answered(ticket, b"", failure)

    def answered(self, ticket: int, result: bytes, failure: Exception | None) -> None:
        """Deliver the answer to a call."""
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
        """Ticket of the last call."""
        return self._ticket

    @abstractmethod
    async def start(self) -> service_pb2.ServerInfoResponse:
        """Start the worker; what it computes with."""

    @abstractmethod
    async def stop(self, grace: float) -> None:
        """Finish the submitted calls within the grace, and end."""

    @abstractmethod
    def _send(self, method: str, number: int, raw: bytes, ticket: int, deadline: float | None) -> None: ...

    @abstractmethod
    def keep(self, lock: int, logs: bool) -> None:
        """Store sessions. Call before `start`. `lock`: descriptor that the storing process keeps open."""

    @abstractmethod
    def cancel(self, entry: Entry) -> None:
        """Cancel the session's running and waiting calls."""

    @abstractmethod
    def cancel_through(self, entry: Entry, writer: int, seq: int) -> None:
        """Cancel a writer's commands up to a seq."""

    @abstractmethod
    async def numbers(self, first: int, last: int) -> dict[str, Any]:
        """The result of Runtime.numbers."""

    @abstractmethod
    async def list_ops(self) -> bytes:
        """The result of Runtime.list_ops."""

    @abstractmethod
    def close(self, entry: Entry) -> None:
        """Cancel the session's running calls and refuse waiting ones; "Drop" follows."""

    def end_if_held(self, now: int) -> None:  # noqa: B027 - a thread cannot be ended
        """End the worker if one computation has blocked its other calls for too long. `now`: time.monotonic_ns()."""

    async def begin_upload(self, entry: Entry, start: service_pb2.UploadStart) -> OpenUpload:
        """Begin or resume an upload."""
        answer = await self.call(entry, "BeginUpload", start.SerializeToString())
        received, taker = UPLOAD_BEGUN.unpack_from(answer)
        transfer_id = answer[UPLOAD_BEGUN.size :].decode()
        return OpenUpload(entry.number, transfer_id, taker, start.offset, entry, received)

    @abstractmethod
    async def append(self, arrival: OpenUpload, data: memoryview) -> None:
        """Receive an upload's next bytes."""

    @abstractmethod
    async def end_upload(self, arrival: OpenUpload) -> int:
        """End this call's part of an upload; bytes received so far."""

    def leave_upload(self, arrival: OpenUpload) -> None:  # noqa: B027 - not every worker keeps anything of it
        """Release an upload's call, successful or not."""

    @abstractmethod
    def chunks(self, entry: Entry, transfer_id: str, offset: int) -> AsyncGenerator[bytes, None]:
        """Parts of a download."""

    @abstractmethod
    async def lend_ring(self, entry: Entry, nonce: str) -> LentRing:
        """Lend a ring for one call."""

    @abstractmethod
    def return_ring(self, lent: LentRing, clean: bool) -> None:
        """Return a ring after its call."""

    @abstractmethod
    async def take(self, arrival: OpenUpload, lent: LentRing, place: int, size: int) -> None:
        """Receive an upload's next bytes from a ring."""

    @abstractmethod
    async def give(self, entry: Entry, transfer_id: str, offset: int, lent: LentRing, place: int) -> tuple[int, int]:
        """Write a download's next piece into a ring; its size, and the next piece's offset, 0 after the last."""


def _has_room(entry: Entry, size: int) -> bool:
    """Whether the worker may get another call of `size` bytes from a session."""
    handed = entry.handed
    return not handed or (handed < MOST_HANDED and entry.handed_bytes + size <= MOST_HANDED_BYTES)


def _settle(future: "asyncio.Future[bytes]", result: bytes, failure: Exception | None) -> None:
    if future.done():  # the waiting call was cancelled
        return
    if failure is None:
        future.set_result(result)
    else:
        future.set_exception(failure)
