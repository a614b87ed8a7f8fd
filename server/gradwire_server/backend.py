"""Where sessions live, as the front sees it: `SessionBackend`, and the one that keeps them in this process.

The front hands over serialized requests and gets serialized responses. A backend keeps the calls of a session in
order and raises `Refusal` for what is refused, nothing else.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Protocol, TypeVar

from gradwire.v1 import service_pb2
from gradwire_engine.device import cupy
from gradwire_server.batch import OutOfOrder
from gradwire_server.compute import ComputeThread
from gradwire_server.host import Host
from gradwire_server.limits import Limits, cap_process
from gradwire_server.rings import Ring
from gradwire_server.session import Pending, Session
from gradwire_server.wire import peek_run

_SWEEP_SECONDS = 1.0
T = TypeVar("T")


class SessionBackend(Protocol):
    """Sessions somewhere. Every method may raise Refusal."""

    limits: Limits

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

    async def call(self, method: str, session_id: str, raw: bytes, deadline: float | None) -> bytes:
        """Apply a command or a batch, in the session's order. `deadline` is by time.monotonic()."""

    async def begin_upload(self, session_id: str, start: service_pb2.UploadStart) -> Any:
        """Begin an upload or go on with one; what `append` is to be given, with `transfer_id`."""

    async def append(self, arrival: Any, data: memoryview) -> None:
        """Take an upload's next bytes."""

    async def chunk(self, session_id: str, transfer_id: str, offset: int) -> tuple[bytes, int]:
        """A serialized DownloadResponse, and where the next one begins, 0 after the last."""

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


class InProcessBackend:
    """Sessions in this process, computed by one thread: one caller of BLAS at a time."""

    def __init__(self, limits: Limits, clock: Callable[[], float] = time.monotonic, owns_process: bool = False) -> None:
        self.host = Host(limits, clock)
        self.limits = self.host.limits
        self.owns_process = owns_process
        self._compute: ComputeThread
        self._sweeper: asyncio.Task[None]
        self._progress: dict[str, asyncio.Future[None]] = {}

    async def start(self) -> None:
        """Start the thread and the sweep of leases; a process of its own is held to the limits."""
        self._compute = ComputeThread(collects=self.owns_process)
        if self.owns_process and cupy() is None:
            cap_process(self.limits.max_bytes)
        self._sweeper = asyncio.create_task(self._sweep())

    async def stop(self, grace: float) -> None:
        """Cancel what still runs, free all sessions and end the thread, if it does within the grace."""
        self._sweeper.cancel()
        with suppress(asyncio.CancelledError):
            await self._sweeper
        for session_id in list(self.host.sessions):
            session = self.host.close(session_id)
            if session is not None:
                self._drop(session)
        await asyncio.get_running_loop().run_in_executor(None, self._compute.stop, grace)

    async def open_session(self, request: service_pb2.OpenSessionRequest) -> service_pb2.OpenSessionResponse:
        """Open a session or attach to one."""
        return self.host.open_session(request)

    async def close_session(self, session_id: str) -> int:
        """End a session; bytes freed. What it computes is cancelled."""
        session = self.host.close(session_id)
        return 0 if session is None else await self._drop(session)

    async def keep_alive(self, session_id: str) -> service_pb2.KeepAliveResponse:
        """Renew a lease."""
        return self.host.keep_alive(session_id)

    async def cancel(self, request: service_pb2.CancelRequest) -> service_pb2.CancelResponse:
        """Stop what is computing."""
        return self.host.cancel(request)

    async def call(self, method: str, session_id: str, raw: bytes, deadline: float | None) -> bytes:
        """Apply a command or a batch."""
        call = self.host.admit(method, session_id, raw, deadline)
        if method == "Run":
            return await self._run(call)
        return await self._compute.submit(self.host.execute, call, after=lambda: self.host.finish(call))

    async def _run(self, call: Pending) -> bytes:
        """A batch; one that came before its predecessor is parked until that one has come, for a bounded time."""
        header = peek_run(call.raw)
        if header is not None:
            call.writer, call.first_seq = header.writer, header.first_seq
        give_up = time.monotonic() + self.limits.gap_seconds
        while True:
            try:
                return await self._compute.submit(self.host.execute, call, after=lambda: self._ran(call))
            except OutOfOrder as gap:
                remaining = give_up - time.monotonic()
                if remaining <= 0 or call.session.closed:
                    raise gap.refusal from None
            if not self._ready(call):
                await self._progress_of(call, remaining)
            self.host.again(call)

    @staticmethod
    def _ready(call: Pending) -> bool:
        """Whether the batch's predecessor is applied: maybe since `execute` looked."""
        writer = call.session.writers.get(call.writer)
        return writer is not None and writer.applied + 1 >= call.first_seq

    async def _progress_of(self, call: Pending, seconds: float) -> None:
        """Wait until a batch of the call's session is applied, so long at most."""
        future = self._progress.get(call.session.id)
        if future is None:
            future = self._progress[call.session.id] = asyncio.get_running_loop().create_future()
        with suppress(asyncio.TimeoutError):
            await asyncio.wait_for(asyncio.shield(future), seconds)

    def _ran(self, call: Pending) -> None:
        self.host.finish(call)
        if call.session.id in self._progress:
            self._wake(call)

    def _wake(self, call: Pending) -> None:
        writer = call.session.writers.get(call.writer)
        if call.session.closed or (writer is not None and writer.applied >= call.first_seq):
            self._progress.pop(call.session.id).set_result(None)

    async def begin_upload(self, session_id: str, start: service_pb2.UploadStart) -> Any:
        """Begin an upload or go on with one."""
        self.host.find(session_id)
        return await self._compute.submit(self.host.begin_upload, session_id, start)

    async def append(self, arrival: Any, data: memoryview) -> None:
        """Take an upload's next bytes. A copy of one chunk is quicker than a change of threads."""
        self.host.append(arrival, data)

    async def chunk(self, session_id: str, transfer_id: str, offset: int) -> tuple[bytes, int]:
        """A part of a download."""
        return self.host.chunk(session_id, transfer_id, offset)

    async def finish_download(self, session_id: str, transfer_id: str, received: bool = False) -> None:
        """A download was sent to its end."""
        await self._compute.submit(self.host.finish_download, session_id, transfer_id, received)

    async def lend_ring(self, session_id: str, nonce: str) -> Any:
        """Shared memory for one call."""
        lent = asyncio.get_running_loop().run_in_executor(None, self.host.lend_ring, session_id, nonce)
        try:
            return await asyncio.shield(lent)
        except asyncio.CancelledError:  # the call is over; the ring comes all the same
            lent.add_done_callback(lambda done: self._return_unused(session_id, done))
            raise

    def _return_unused(self, session_id: str, lent: "asyncio.Future[Ring]") -> None:
        if lent.exception() is None:
            self.host.return_ring(session_id, lent.result(), False)

    async def return_ring(self, session_id: str, ring: Any, clean: bool) -> None:
        """The call has ended."""
        self.host.return_ring(session_id, ring, clean)

    async def take(self, arrival: Any, ring: Any, place: int, size: int) -> None:
        """Take an upload's next bytes out of a ring."""
        await self._copy(self.host.take, arrival, ring, place, size)

    async def give(self, session_id: str, transfer_id: str, offset: int, ring: Any, place: int) -> tuple[int, int]:
        """Put a download's next piece into a ring."""
        return await self._copy(self.host.give, session_id, transfer_id, offset, ring, place)

    @staticmethod
    async def _copy(function: Callable[..., T], *args: Any) -> T:
        """Megabytes at once, which neither the event loop nor the compute thread should wait for."""
        return await asyncio.get_running_loop().run_in_executor(None, function, *args)

    async def server_info(self) -> service_pb2.ServerInfoResponse:
        """What the server is."""
        return self.host.server_info()

    async def list_ops(self, prefix: str) -> bytes:
        """The ops."""
        return self.host.list_ops(prefix)

    def sweep(self) -> list[Awaitable[int]]:
        """Free the sessions whose lease ran out; one result per session: the bytes freed."""
        return [self._drop(session) for session in self.host.sweep()]

    def _drop(self, session: Session) -> "asyncio.Future[int]":
        parked = self._progress.pop(session.id, None)
        if parked is not None:
            parked.set_result(None)
        return self._compute.submit(self.host.drop, session)

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(_SWEEP_SECONDS)
            self.sweep()
            await self._compute.submit(self.host.tidy)
