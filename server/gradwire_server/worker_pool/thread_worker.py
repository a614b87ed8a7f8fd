"""`ThreadWorker`: a worker that is a thread of this process, as in the embedded server."""

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from gradwire.v1 import service_pb2
from gradwire_engine.compile.fusion.fused import OPTIONS
from gradwire_engine.compile.fusion.team_code import make_team
from gradwire_engine.core.device import cupy, limit_pools
from gradwire_engine.core.threads import POOL
from gradwire_server.common import blas
from gradwire_server.common.limits import Limits, cap_process
from gradwire_server.common.shared_counters import SharedCounters
from gradwire_server.session.session import PendingCall
from gradwire_server.storage.checkpointer import Checkpointer
from gradwire_server.storage.configured import snapshot_store
from gradwire_server.worker.compute_thread import ComputeThread
from gradwire_server.worker.runtime import Runtime
from gradwire_server.worker_pool.session_entry import SessionEntry
from gradwire_server.worker_pool.thread_transfers import ThreadTransfers
from gradwire_server.worker_pool.worker import Load, StorageOptions, Worker, WorkerEvents


class ThreadWorker(Worker):
    """A thread of this process. With `owns_process` it sets the process's limits and collects its garbage."""

    def __init__(
        self,
        load: Load,
        events: WorkerEvents,
        limits: Limits,
        counters: SharedCounters,
        owns_process: bool = False,
        counts: bool = False,
    ) -> None:
        super().__init__(0, load, events)
        self.runtime = Runtime(limits, counters, counts=counts)
        self._transfers = ThreadTransfers(self.call, self.runtime)
        self.owns_process = owns_process
        self._before: tuple[Any, int] | None = None
        self._at_once: dict[int, Callable[[bytes], bool]] = {}  # by ticket
        self._written: deque[tuple[int, bytes]] = deque()  # tickets and answers that the event loop does not know yet
        self._compute: ComputeThread
        self._loop: asyncio.AbstractEventLoop

    @property
    def transfers(self) -> ThreadTransfers:
        """The large tensors of its sessions."""
        return self._transfers

    async def start(self, storage: StorageOptions | None) -> service_pb2.ServerInfoResponse:
        """Start the thread. With `owns_process`, set what the whole process has: plans' compilation, memory, pools."""
        self._loop = asyncio.get_running_loop()
        if self.owns_process:
            self._before = OPTIONS.mode, POOL.threads
            OPTIONS.mode, POOL.threads = self.runtime.limits.jit, blas.threads()
            POOL.is_beside_client = POOL.threads >= blas.cores()
            POOL.make_team = None if OPTIONS.mode == "off" or POOL.team is not None else make_team
            if cupy() is None:
                cap_process(self.runtime.limits.max_bytes)
            limit_pools()
        if storage is not None:
            self.runtime.use_checkpointer(Checkpointer(storage.logs, snapshot_store(storage.store)))
        self.runtime.use_groups(self._group)
        self._compute = ComputeThread(
            self.runtime, self._answer, self._park, collects=self.owns_process, idle=self._tell_written
        )
        self.alive = True
        return self.runtime.describe()

    async def stop(self, grace: float) -> None:
        """End the thread, waiting for the grace at most. The process computes as before its start."""
        self.alive = False
        self.flush()
        await self._loop.run_in_executor(None, self._compute.stop, grace)
        if self._before is not None:
            OPTIONS.mode, POOL.threads = self._before
            POOL.make_team, POOL.is_beside_client = None, False
        await self._loop.run_in_executor(None, self.runtime.tensor_files.stop)
        if self.runtime.checkpointer is not None:
            await self._loop.run_in_executor(None, self.runtime.checkpointer.stop, grace)

    def send(self, method: str, number: int, raw: bytes, ticket: int, deadline: float | None) -> None:
        """Queue a call for the thread. While that wakes up, take the answers that it has written before."""
        written = len(self._written)
        self._compute.submit(method, number, raw, ticket, deadline)
        while written and self._written:  # an answer may let a further call be sent, which takes the others
            self.answered(*self._written.popleft(), None)
            written -= 1

    def answer_at_once(self, ticket: int, write: Callable[[bytes], bool]) -> None:
        """Let the computing thread call `write` with the answer, before the event loop gets it.

        If `write` returns True, the event loop is not woken for the answer. It gets it when it is awake anyway: with
        the next call or answer, or when the thread has been idle for a moment.
        """
        self._at_once[ticket] = write

    def _answer(self, call: PendingCall, result: bytes, failure: Exception | None) -> None:
        write = self._at_once.pop(call.ticket, None)
        if write is not None and failure is None and write(result):
            self._written.append((call.ticket, result))
            if call.hold is not None:  # this is not the computing thread: later answers may wait for this one
                self._tell_written()
            return
        with suppress(RuntimeError):  # the loop is closed: the computation outlived the server's grace
            self._loop.call_soon_threadsafe(self._answered, call.ticket, result, failure)

    def _tell_written(self) -> None:
        """Let the event loop know of the answers that the thread has written."""
        if self._written:
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self.settle)

    def settle(self) -> None:
        """Take the answers that the thread has written, in their order."""
        while self._written:
            self.answered(*self._written.popleft(), None)

    def _answered(self, ticket: int, result: bytes, failure: Exception | None) -> None:
        self.settle()
        self.answered(ticket, result, failure)

    def _park(self, call: PendingCall) -> None:
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self.parked, call.ticket)

    def _group(self, number: int, raw: bytes) -> None:
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self.events.grouped, self, number, raw)

    def cancel(self, entry: SessionEntry[Worker], through: tuple[int, int] | None = None) -> None:
        """Cancel the session's running and waiting calls, or a writer's commands."""
        if through is None:
            self.runtime.cancel(entry.number, self.last_ticket)
        else:
            self.runtime.cancel_through(entry.number, *through)

    def close(self, entry: SessionEntry[Worker]) -> None:
        """Cancel the session's running calls and refuse waiting ones."""
        self.runtime.close(entry.number, self.last_ticket)

    async def query(self, question: str, **about: Any) -> bytes:
        """Answer a question on the event loop."""
        return self.runtime.query(question, about)
