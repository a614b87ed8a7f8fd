"""Worker processes: starts them, exchanges frames with them, and restarts those that end. This is the front's side.

A worker that ends loses only its own sessions; their pending and next calls are refused.
"""

import asyncio
import json
import logging
import os
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from importlib.util import find_spec
from typing import Any

from gradwire.v1 import service_pb2
from gradwire_server.common import blas
from gradwire_server.common.errors import Refusal
from gradwire_server.common.limits import Limits
from gradwire_server.worker.frames import (
    APPEND,
    CANCEL,
    CANCEL_THROUGH,
    CHUNK,
    CLOSE,
    EMPTIED,
    END_UPLOAD,
    FOR_THE_FRONT,
    GIVE,
    IN_SLOT,
    LEND,
    METHODS,
    NUMBERS,
    OPS,
    PARKED,
    READY,
    REFUSAL,
    RESULT,
    RETURN,
    TAKE,
    UPLOAD,
    Plan,
    unpacked,
)
from gradwire_server.worker.pipe import INFINITE, Frame, FrontPipe, head
from gradwire_server.worker.slots import Keys, Slots
from gradwire_server.workers.worker_pool import Entry, LentRing, OpenUpload, Worker

START_SECONDS = 120.0
_KILL_SECONDS = 2.0
_AGAIN_SECONDS = 1.0  # between attempts to restart a worker
_SOCKET_BYTES = 1 << 20
_AHEAD = 2  # chunks of a download that are fetched ahead of sending
_KINDS = {method: kind for kind, method in enumerate(METHODS)}
VISIBLE = "CUDA_VISIBLE_DEVICES"

log = logging.getLogger("gradwire.server")


def worker_count(asked: int) -> int:
    """Number of worker processes: `asked`, or for -1 one per GPU, or without GPUs one per core."""
    return asked if asked >= 0 else len(gpus()) or blas.cores()


def gpus() -> list[str]:
    """Names of the GPUs, as in CUDA_VISIBLE_DEVICES."""
    if find_spec("cupy") is None:  # no GPUs without CuPy; the front need not load the engine
        return []
    from gradwire_engine.core.device import CPU, available

    count = sum(name != CPU for name in available())
    named = [each for each in os.environ.get(VISIBLE, "").split(",") if each]
    return named[:count] or [str(place) for place in range(count)]


class ProcessWorker(Worker):
    """A worker process. `environment` is added to this process's environment."""

    def __init__(
        self, slot: int, plan: Callable[..., Plan], descriptor: int, limits: Limits, environment: dict[str, str]
    ) -> None:
        super().__init__(slot)
        self._hold_seconds = limits.hold_seconds
        self._shared = Slots.file(limits.chunk_bytes)
        self._slots = Slots(limits.chunk_bytes, self._shared)
        self._keys = Keys(self._slots.count)
        self._plan = plan
        self._descriptor = descriptor
        self._environment = {**os.environ, **environment}
        self._process: subprocess.Popen[bytes]
        self._calls: FrontPipe
        self._control: FrontPipe
        self._ready: asyncio.Future[service_pb2.ServerInfoResponse]
        self._asked: dict[int, asyncio.Future[Frame] | OpenUpload] = {}
        self._stopping = False
        self._why = ""  # why the front killed it, if it did
        self._lock = -1
        self._logs = False
        self._restarting: asyncio.Task[None] | None = None
        self._exit = -1  # pidfd, readable when the process ends

    def keep(self, lock: int, logs: bool) -> None:
        """Have the process store sessions."""
        self._lock, self._logs = lock, logs

    @property
    def pid(self) -> int:
        """Id of the process."""
        return self._process.pid

    async def start(self) -> service_pb2.ServerInfoResponse:
        """Start the process; what it computes with, once it is ready. Raises OSError if it does not become ready."""
        loop = asyncio.get_running_loop()
        self._ready = loop.create_future()
        calls, control = _pair(), _pair()
        try:
            plan = self._plan(self.slot, calls[1].fileno(), control[1].fileno(), self._descriptor, self._shared)
            plan.lock, plan.stores, plan.logs = self._lock, self._lock >= 0, self._logs
            # In a thread: a start would block the event loop for milliseconds.
            self._process = await loop.run_in_executor(None, self._spawn, plan)
        finally:
            calls[1].close()
            control[1].close()
        self._calls = FrontPipe(calls[0], self._received, self._lost)
        self._control = FrontPipe(control[0], self._controlled, self._lost)
        self._keys = Keys(self._slots.count)
        self._watch_exit()
        try:
            about = await asyncio.wait_for(asyncio.shield(self._ready), START_SECONDS)
        except asyncio.TimeoutError:
            self._process.kill()
            raise OSError(f"a worker process was not ready within {START_SECONDS:.0f} s") from None
        self.alive = True
        return about

    def _spawn(self, plan: Plan) -> subprocess.Popen[bytes]:
        # A signal to the process group must not end a child before the child ignores it. A child inherits the signals
        # that its parent's thread blocks.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, FOR_THE_FRONT)
        try:
            return subprocess.Popen(
                [sys.executable, "-m", "gradwire_server.worker.main", plan.text()],
                stdin=subprocess.DEVNULL,
                stdout=2,  # the front's stdout carries only the address it listens at
                pass_fds=(plan.calls, plan.control, plan.counters, plan.slots, *((plan.lock,) if plan.stores else ())),
                env=self._environment,
            )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    async def stop(self, grace: float) -> None:
        """Let the process finish its calls within the grace, then end it."""
        self._stopping, self.alive = True, False
        if self._restarting is not None:
            self._restarting.cancel()
            with suppress(asyncio.CancelledError):
                await self._restarting
        self.flush()
        if self._waiting:
            await asyncio.wait([future for future, *_ in self._waiting.values()], timeout=grace)
        self._unwatch_exit()
        self._calls.close()
        self._control.close()
        self._keys.end(Refusal("UNAVAILABLE", "the server is shutting down"))
        await asyncio.get_running_loop().run_in_executor(None, self._reap)
        if self._shared >= 0:
            os.close(self._shared)
            self._shared = -1

    def _reap(self) -> int:
        """Wait until the process ends, and kill it after _KILL_SECONDS; its exit status."""
        try:
            return self._process.wait(_KILL_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()

    def end_if_held(self, now: int) -> None:
        """Kill the process if one computation has blocked its other calls for hold_seconds; it is restarted."""
        since, most = self.load.counters.since(self.slot), self._hold_seconds
        if self.alive and most and since and now - since > most * 1e9:
            log.error("worker process held for too long", extra={"worker": self.slot, "seconds": (now - since) / 1e9})
            self._why = f"was ended, since one call had kept it from all others for {most:g} seconds"
            self._process.kill()

    def _watch_exit(self) -> None:
        """Watch for the process's end by pidfd: its own child may keep the pipes open."""
        with suppress(OSError):  # no pidfds in the kernel, or no descriptor left: the pipes' end still shows
            self._exit = os.pidfd_open(self._process.pid)
            asyncio.get_running_loop().add_reader(self._exit, self._exited)

    def _unwatch_exit(self) -> None:
        if self._exit >= 0:
            asyncio.get_running_loop().remove_reader(self._exit)
            os.close(self._exit)
            self._exit = -1

    def _exited(self) -> None:
        """Handle the process's end, after the frames it had sent."""
        self._unwatch_exit()
        control, calls = self._control, self._calls
        control.drain()
        calls.drain()
        if not calls.closed:  # else a pipe's end was handled already
            self._lost()

    def _lost(self) -> None:
        """Handle the unexpected end of the process or of one of its pipes: refuse its calls, and restart it."""
        if self._stopping:
            return
        self.alive = False
        self._unwatch_exit()
        self._calls.close()
        self._control.close()
        self._process.kill()
        status = self._process.wait()
        how = f"was ended by signal {-status}" if status < 0 else f"ended with status {status}"
        how, self._why = self._why or how, ""
        why = f"the worker process that held it {how}"
        if not self._ready.done():
            self._ready.set_exception(OSError(f"a worker process {how} before it was ready"))
            return
        lost, gone = self.events.lost(self, why)
        log.error("worker process ended", extra={"worker": self.slot, "status": status, "sessions": lost})
        self.sessions = 0
        self.restarts += 1
        self.load.counters.forget(self.slot)
        self.lost(gone)
        for asked in self._asked.values():
            if isinstance(asked, OpenUpload):
                asked.failure = gone
            elif not asked.done():
                asked.set_exception(gone)
        self._asked.clear()
        self._keys.end(gone)
        self._restarting = asyncio.get_running_loop().create_task(self._restart())

    async def _restart(self) -> None:
        while True:
            try:
                await self.start()
            except OSError as error:
                log.error("worker process does not start", extra={"worker": self.slot, "error": str(error)})
                await asyncio.sleep(_AGAIN_SECONDS)
            else:
                log.info("worker process started again", extra={"worker": self.slot})
                return

    # Calls

    def _send(self, method: str, number: int, raw: bytes, ticket: int, deadline: float | None) -> None:
        limit = INFINITE if deadline is None else deadline
        self._calls.send(head(len(raw), _KINDS[method], number, ticket, limit, time.monotonic()), raw)

    def _received(self, frame: Frame) -> None:
        kind, ticket, body = frame.kind, frame.ticket, frame.body
        if kind == RESULT:
            self.answered(ticket, body, None)
        elif kind == REFUSAL:
            self.answered(ticket, b"", unpacked(body))
        elif kind == PARKED:
            self.parked(ticket)
        elif kind == READY:
            self._ready.set_result(service_pb2.ServerInfoResponse.FromString(body))

    # Control

    def cancel(self, entry: Entry) -> None:
        """Cancel the session's running and waiting calls."""
        self._control.send(head(0, CANCEL, entry.number, self.last_ticket))

    def cancel_through(self, entry: Entry, writer: int, seq: int) -> None:
        """Cancel a writer's commands up to a seq."""
        body = writer.to_bytes(4, "little")
        self._control.send(head(len(body), CANCEL_THROUGH, entry.number, seq), body)

    def close(self, entry: Entry) -> None:
        """Cancel the session's running calls and refuse waiting ones."""
        self._control.send(head(0, CLOSE, entry.number, self.last_ticket))

    def _controlled(self, frame: Frame) -> None:
        if frame.kind == EMPTIED:
            self._keys.give_back(frame.number)
            return
        asked = self._asked.get(frame.ticket)
        if asked is None:
            return
        if isinstance(asked, OpenUpload):
            asked.failure = unpacked(frame.body)
        elif not asked.done():
            if frame.kind == REFUSAL:
                asked.set_exception(unpacked(frame.body))
            else:
                asked.set_result(frame)

    async def _ask(self, kind: int, number: int, ticket: int, body: bytes) -> Frame:
        future: asyncio.Future[Frame] = asyncio.get_running_loop().create_future()
        self._asked[ticket] = future
        try:
            self._control.send(head(len(body), kind, number, ticket), body)
            return await future
        finally:
            self._asked.pop(ticket, None)

    async def _ask_for(self, kind: int, number: int, **told: Any) -> Frame:
        return await self._ask(kind, number, self._next(), json.dumps(told).encode())

    def _next(self) -> int:
        self._ticket += 1
        return self._ticket

    async def numbers(self, first: int, last: int) -> dict[str, Any]:
        """What the worker holds and has counted, without waiting for its computations."""
        frame = await self._ask_for(NUMBERS, 0, first=first, last=last)
        told: dict[str, Any] = json.loads(frame.body)
        told["sessions"] = {int(number): each for number, each in told["sessions"].items()}
        return told

    async def list_ops(self) -> bytes:
        """All ops: a serialized ListOpsResponse."""
        return (await self._ask_for(OPS, 0)).body

    # Transfers

    async def begin_upload(self, entry: Entry, start: service_pb2.UploadStart) -> OpenUpload:
        """Begin or resume an upload."""
        arrival = await super().begin_upload(entry, start)
        arrival.ticket = self._next()
        self._asked[arrival.ticket] = arrival
        told = {"transfer_id": arrival.transfer_id, "taker": arrival.taker, "offset": arrival.offset}
        body = json.dumps(told).encode()
        self._control.send(head(len(body), UPLOAD, entry.number, arrival.ticket), body)
        return arrival

    async def append(self, arrival: OpenUpload, data: memoryview) -> None:
        """Copy an upload's next bytes into a slot that the worker reads; waits for a free slot, not for the worker."""
        slot = await self._keys.take()
        if arrival.failure is not None:
            self._keys.give_back(slot)
            raise arrival.failure
        size = data.nbytes
        self._slots.put(slot, data)
        self._control.send(head(IN_SLOT.size, APPEND, arrival.number, arrival.ticket), IN_SLOT.pack(slot, size))
        arrival.sent = True

    async def end_upload(self, arrival: OpenUpload) -> int:
        """Bytes that the upload has, once all sent ones have arrived."""
        if arrival.failure is not None:
            raise arrival.failure
        ticket, arrival.ticket = arrival.ticket, 0
        frame = await self._ask(END_UPLOAD, arrival.number, ticket, b"")
        return frame.number if arrival.sent else arrival.received

    def leave_upload(self, arrival: OpenUpload) -> None:
        """Tell the worker to drop the upload's call, unless `end_upload` ended it."""
        if arrival.ticket:
            self._asked.pop(arrival.ticket, None)
            self._control.send(head(0, END_UPLOAD, arrival.number, arrival.ticket))

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
            frame = await self._ask_for(CHUNK, entry.number, transfer_id=transfer_id, offset=offset, slot=slot)
            size, start = int.from_bytes(frame.body[:8], "little"), frame.body[8:]
            return b"".join((start, self._slots.memory(slot, size))), size, frame.number
        finally:
            keys.give_back(slot)

    async def lend_ring(self, entry: Entry, nonce: str) -> LentRing:
        """Lend a ring for one call; the worker creates it."""
        ticket = self._next()
        try:
            frame = await self._ask(LEND, entry.number, ticket, json.dumps({"nonce": nonce}).encode())
        except asyncio.CancelledError:  # the call is over, but the worker still lends the ring
            self._control.send(head(0, RETURN, entry.number, ticket))
            raise
        return LentRing(entry, ring=ticket, **json.loads(frame.body))

    def return_ring(self, lent: LentRing, clean: bool) -> None:
        """Return a ring after its call."""
        body = b"clean" if clean else b""
        self._control.send(head(len(body), RETURN, lent.entry.number, lent.ring), body)

    async def take(self, arrival: OpenUpload, lent: LentRing, place: int, size: int) -> None:
        """Receive an upload's next bytes from a ring."""
        told = {"arrival": arrival.ticket, "ring": lent.ring, "place": place, "size": size}
        await self._ask_for(TAKE, arrival.number, **told)
        arrival.sent = True

    async def give(self, entry: Entry, transfer_id: str, offset: int, lent: LentRing, place: int) -> tuple[int, int]:
        """Write a download's next piece into a ring."""
        told = {"transfer_id": transfer_id, "offset": offset, "ring": lent.ring, "place": place}
        frame = await self._ask_for(GIVE, entry.number, **told)
        return int.from_bytes(frame.body, "little"), frame.number


def _pair() -> tuple[socket.socket, socket.socket]:
    ours, theirs = socket.socketpair()
    for end in (ours, theirs):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SOCKET_BYTES)
    return ours, theirs
