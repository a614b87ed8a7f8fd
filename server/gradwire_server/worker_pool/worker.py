"""Worker: the front's view of a thread (thread_worker.py) or process (process_worker.py) that computes.

The front sends calls in order and receives their answers. A worker gets only a few calls of each session at a time,
enough to keep it busy. The front keeps the others back, by session. So a session with thousands of calls, or megabytes,
does not delay other sessions.
"""

from __future__ import annotations

import asyncio
import json
import logging
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from gradwire.v1 import service_pb2
from gradwire_server.common.errors import Refusal
from gradwire_server.common.limits import MIB
from gradwire_server.common.shared_counters import SharedCounters
from gradwire_server.worker.frames import RESTORE_SESSION
from gradwire_server.worker_pool.bulk_transfer import BulkTransfer
from gradwire_server.worker_pool.session_entry import SessionEntry

# Most calls of one session that its worker has at once, and their bytes. One call may be larger than that.
MAX_SENT_CALLS = 16
MAX_SENT_BYTES = 2 * MIB

#: Called on the event loop with an answered call's future, at once; the future's own callbacks run later.
Answered: TypeAlias = Callable[["asyncio.Future[bytes]"], None]

log = logging.getLogger("gradwire.server")


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


@dataclass(frozen=True, slots=True)
class WorkerEvents:
    """Callbacks of a worker for its calls and its end; the backend provides them."""

    begun: Callable[[SessionEntry[Worker], int, str, bytes], None]  # a call was submitted: ticket, method, request
    finished: Callable[[SessionEntry[Worker], int], None]  # a call was answered
    evict: Callable[[SessionEntry[Worker]], None]  # evict a session: its memory is unusable, its files are complete
    grouped: Callable[[Worker, int, bytes], None]  # a message about groups: session number, message
    moved: Callable[[SessionEntry[Worker]], None]  # another server owns a session: free its memory
    lost: Callable[[Worker, str], tuple[int, Refusal]]  # a worker ended, and why: sessions lost, refusal


@dataclass(frozen=True, slots=True)
class StorageOptions:
    """How a worker stores its sessions. `lock`: descriptor that the storing process keeps open."""

    lock: int
    logs: bool
    store: str  # the setting that names the snapshot store


#: An unanswered call's future, session and bytes, and what is called when it is answered.
_Unanswered: TypeAlias = "tuple[asyncio.Future[bytes], SessionEntry[Worker], int, Answered | None]"


class Worker(ABC):
    """A place where sessions compute. Gets calls in order and returns their answers.

    Large tensors take another way: `transfers` (bulk_transfer.py). Only the worker writes its attributes.
    """

    def __init__(self, index: int, load: Load, events: WorkerEvents) -> None:
        self.index = index
        self.load = load
        self.events = events
        self.alive = False
        self.sessions = 0
        self.restarts = 0
        self.active = 0  # active sessions at the last sweep, and those opened since
        self._ticket = 0
        self._unanswered: dict[int, _Unanswered] = {}  # by ticket
        self._parked: set[int] = set()  # tickets of calls that wait in the worker for an earlier seq
        self._notifications: dict[int, tuple[asyncio.Future[None], str, int]] = {}  # by ticket, with method and session
        self._requests: dict[int, asyncio.Future[bytes]] = {}

    def add_session(self) -> None:
        """Count a session that was opened or restored here."""
        self.sessions += 1
        self.active += 1

    def remove_session(self) -> None:
        """Count a session that leaves."""
        self.sessions -= 1

    def count_active(self, active: int) -> None:
        """Note the number of active sessions."""
        self.active = active

    def call(
        self,
        entry: SessionEntry[Worker],
        method: str,
        raw: bytes,
        deadline: float | None = None,
        at_once: Callable[[bytes], bool] | None = None,
        then: Answered | None = None,
    ) -> asyncio.Future[bytes]:
        """Submit a call in its session's order; its answer. A session with unanswered calls cannot expire.

        A worker that is a thread calls `at_once` there, with the answer of a call that succeeded. `then` is called on
        the event loop when the call is answered.
        """
        future = asyncio.get_running_loop().create_future()
        self._ticket = ticket = self._ticket + 1
        if not self._unanswered:
            self.load.began()
        size = len(raw)
        self._unanswered[ticket] = (future, entry, size, then)
        self.events.begun(entry, ticket, method, raw)
        if entry.queued_calls is None and _has_room(entry, size):
            entry.sent_calls += 1
            entry.sent_bytes += size
            if at_once is not None:
                self.answer_at_once(ticket, at_once)
            self.send(method, entry.number, raw, ticket, deadline)
        else:
            if entry.queued_calls is None:
                entry.queued_calls = deque()
            entry.queued_calls.append((ticket, method, raw, deadline))
        return future

    def answer_at_once(self, ticket: int, write: Callable[[bytes], bool]) -> None:  # noqa: B027 - a process never does
        """Call `write` with a call's answer as soon as it is computed, if that is in this process.

        It returns whether it has written the answer.
        """

    def _count_done(self, entry: SessionEntry[Worker], size: int) -> None:
        """Count a call that the worker is done with, and send queued calls while there is room."""
        entry.sent_calls -= 1
        entry.sent_bytes -= size
        if entry.queued_calls is not None:
            self._send_queued(entry, everything=False)

    def _send_queued(self, entry: SessionEntry[Worker], everything: bool) -> None:
        queued = entry.queued_calls
        while queued and (everything or _has_room(entry, len(queued[0][2]))):
            ticket, method, raw, deadline = queued.popleft()
            entry.sent_calls += 1
            entry.sent_bytes += len(raw)
            self.send(method, entry.number, raw, ticket, deadline)
        if not queued:
            entry.queued_calls = None

    def parked(self, ticket: int) -> None:
        """Record that a call waits in the worker for an earlier seq, which may be queued here."""
        unanswered = self._unanswered.get(ticket)
        if unanswered is not None and ticket not in self._parked:
            self._parked.add(ticket)
            self._count_done(unanswered[1], unanswered[2])

    def flush(self) -> None:
        """Send all queued calls, before the worker ends."""
        for _, entry, *_ in list(self._unanswered.values()):
            if entry.queued_calls is not None:
                self._send_queued(entry, everything=True)

    def notify(self, method: str, number: int, raw: bytes) -> asyncio.Future[None]:
        """Send a call without an answer; done when it is applied or the worker has ended. The log has its failure."""
        self._ticket = ticket = self._ticket + 1
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._notifications[ticket] = (future, method, number)
        self.send(method, number, raw, ticket, None)
        return future

    def tell(self, method: str, raw: bytes) -> None:
        """Send a call that is not answered. The worker's log has its failure."""
        self.send(method, 0, raw, 0, None)

    def request(self, method: str, number: int, raw: bytes) -> asyncio.Future[bytes]:
        """As `call`, for the server's own requests: neither renews the lease nor counts as session work."""
        self._ticket = ticket = self._ticket + 1
        self._requests[ticket] = future = asyncio.get_running_loop().create_future()
        self.send(method, number, raw, ticket, None)
        return future

    def lost(self, failure: Refusal) -> None:
        """Fail all calls: the worker has ended."""
        for ticket in (*self._unanswered, *self._requests):
            self.answered(ticket, b"", failure)
        for ticket in tuple(self._notifications):
            self.answered(ticket, b"", None)  # no failure of the call: the log has the worker's end

    def answered(self, ticket: int, result: bytes, failure: Exception | None) -> None:
        """Deliver the answer to a call."""
        unanswered = self._unanswered.pop(ticket, None)
        if unanswered is None:
            request = self._requests.pop(ticket, None)
            if request is not None:
                _resolve(request, result, failure)
                return
            notification = self._notifications.pop(ticket, None)
            if notification is not None:
                self._applied(*notification, failure)
            return
        future, entry, size, then = unanswered
        if isinstance(failure, Refusal) and RESTORE_SESSION in failure.metadata:
            self.events.evict(entry)
        elif isinstance(failure, Refusal) and failure.reason == "SESSION_MOVED":
            self.events.moved(entry)
        if not self._unanswered:
            self.load.ended()
        self.events.finished(entry, ticket)
        if ticket in self._parked:
            self._parked.discard(ticket)
        else:
            self._count_done(entry, size)
        _resolve(future, result, failure)
        if then is not None:
            then(future)

    def _applied(self, done: asyncio.Future[None], method: str, number: int, failure: Exception | None) -> None:
        if failure is not None:
            log.error("worker call failed", extra={"method": method, "number": number, "error": str(failure)})
        if not done.done():
            done.set_result(None)

    @property
    def last_ticket(self) -> int:
        """Ticket of the last call."""
        return self._ticket

    async def usage_report(self, first: int, last: int) -> dict[str, Any]:
        """What the worker holds and has counted: Runtime.usage_report of the sessions numbered `first` to `last`."""
        report: dict[str, Any] = json.loads(await self.query("usage_report", first=first, last=last))
        report["sessions"] = {int(number): each for number, each in report["sessions"].items()}
        return report

    async def list_ops(self) -> bytes:
        """All ops: a serialized ListOpsResponse."""
        return await self.query("list_ops")

    @property
    @abstractmethod
    def transfers(self) -> BulkTransfer[Worker]:
        """The large tensors of its sessions."""

    @abstractmethod
    async def start(self, storage: StorageOptions | None) -> service_pb2.ServerInfoResponse:
        """Start the worker; what it computes with. `storage` of None: it stores no sessions."""

    @abstractmethod
    async def stop(self, grace: float) -> None:
        """Finish the submitted calls within the grace, and end."""

    @abstractmethod
    def send(self, method: str, number: int, raw: bytes, ticket: int, deadline: float | None) -> None:
        """Pass a call of session `number` on. The worker reports the answer to `answered`, by the ticket."""

    @abstractmethod
    def cancel(self, entry: SessionEntry[Worker], through: tuple[int, int] | None = None) -> None:
        """Cancel the session's running and waiting calls, or only a writer's commands `through` (writer, seq)."""

    @abstractmethod
    def close(self, entry: SessionEntry[Worker]) -> None:
        """Cancel the session's running calls and refuse waiting ones; "Drop" follows."""

    @abstractmethod
    async def query(self, question: str, **about: Any) -> bytes:
        """Answer a question of Runtime.query at once, without waiting for computations."""


def _has_room(entry: SessionEntry[Worker], size: int) -> bool:
    """Whether the worker may get another call of `size` bytes from a session."""
    sent_calls = entry.sent_calls
    return not sent_calls or (sent_calls < MAX_SENT_CALLS and entry.sent_bytes + size <= MAX_SENT_BYTES)


def _resolve(future: asyncio.Future[bytes], result: bytes, failure: Exception | None) -> None:
    if future.done():  # the waiting call was cancelled
        return
    if failure is None:
        future.set_result(result)
    else:
        future.set_exception(failure)
