"""Worker processes: starts them, exchanges frames with them, and restarts those that end. This is the front's side.

A worker that ends loses only its own sessions; their pending and next calls are refused.
"""

import asyncio
import logging
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from importlib.util import find_spec
from typing import Any

from gradwire.v1 import service_pb2
from gradwire_server.common import blas
from gradwire_server.common.errors import Refusal
from gradwire_server.common.limits import Limits
from gradwire_server.worker.frames import (
    CANCEL,
    CANCEL_THROUGH,
    CLOSE,
    GROUP,
    IGNORED_SIGNALS,
    METHODS,
    PARKED,
    QUERY,
    READY,
    REFUSAL,
    RESULT,
    WorkerParameters,
    unpacked,
)
from gradwire_server.worker.pipe import INFINITE, Frame, head
from gradwire_server.worker_pool.control_pipe import ControlPipe
from gradwire_server.worker_pool.front_pipe import FrontPipe
from gradwire_server.worker_pool.process_transfers import ProcessTransfers
from gradwire_server.worker_pool.session_entry import SessionEntry
from gradwire_server.worker_pool.worker import Load, StorageOptions, Worker, WorkerEvents

START_SECONDS = 120.0
_KILL_SECONDS = 2.0
_RESTART_SECONDS = 1.0  # between attempts to restart a worker
_SOCKET_BYTES = 1 << 20
_HOLD_POLL_SECONDS = 1.0  # between checks whether a computation holds the process
_KINDS = {method: kind for kind, method in enumerate(METHODS)}
VISIBLE = "CUDA_VISIBLE_DEVICES"

log = logging.getLogger("gradwire.server")


def worker_count(requested: int) -> int:
    """Number of worker processes: `requested`, or for -1 one per GPU, or without GPUs one per core."""
    return requested if requested >= 0 else len(gpus()) or blas.cores()


def gpus() -> list[str]:
    """Names of the GPUs, as in CUDA_VISIBLE_DEVICES."""
    if find_spec("cupy") is None:  # no GPUs without CuPy; the front need not load the engine
        return []
    from gradwire_engine.core.device import CPU, available

    count = sum(name != CPU for name in available())
    named = [each for each in os.environ.get(VISIBLE, "").split(",") if each]
    return named[:count] or [str(index) for index in range(count)]


class ProcessWorker(Worker):
    """A worker process. `environment` is added to this process's environment."""

    def __init__(
        self,
        index: int,
        load: Load,
        events: WorkerEvents,
        parameters: Callable[..., WorkerParameters],
        descriptor: int,
        limits: Limits,
        environment: dict[str, str],
    ) -> None:
        super().__init__(index, load, events)
        self._hold_seconds = limits.hold_seconds
        self._control = ControlPipe()
        self._transfers = ProcessTransfers(self.call, self._control, limits.chunk_bytes)
        self._parameters = parameters
        self._descriptor = descriptor
        self._environment = {**os.environ, **environment}
        self._process: subprocess.Popen[bytes]
        self._calls: FrontPipe
        self._ready: asyncio.Future[service_pb2.ServerInfoResponse]
        self._stopping = False
        self._why = ""  # why the front killed it, if it did
        self._storage: StorageOptions | None = None
        self._restarting: asyncio.Task[None] | None = None
        self._watching: asyncio.Task[None] | None = None
        self._exit = -1  # pidfd, readable when the process ends

    @property
    def transfers(self) -> ProcessTransfers:
        """The large tensors of its sessions."""
        return self._transfers

    @property
    def pid(self) -> int:
        """Id of the process."""
        return self._process.pid

    async def start(self, storage: StorageOptions | None) -> service_pb2.ServerInfoResponse:
        """Start the process; what it computes with, once it is ready. Raises OSError if it does not become ready."""
        self._storage = storage
        about = await self._launch()
        if self._hold_seconds:
            self._watching = asyncio.get_running_loop().create_task(self._watch_slices())
        return about

    async def _launch(self) -> service_pb2.ServerInfoResponse:
        loop = asyncio.get_running_loop()
        self._ready = loop.create_future()
        calls, control = _pair(), _pair()
        try:
            shared = self._transfers.descriptor
            parameters = self._parameters(self.index, calls[1].fileno(), control[1].fileno(), self._descriptor, shared)
            if self._storage is not None:
                parameters.lock, parameters.stores, parameters.logs = self._storage.lock, True, self._storage.logs
                parameters.store = self._storage.store
            # In a thread: a start would block the event loop for milliseconds.
            self._process = await loop.run_in_executor(None, self._spawn, parameters)
        finally:
            calls[1].close()
            control[1].close()
        self._calls = FrontPipe(calls[0], self._received, self._lost)
        self._control.connect(control[0], self._transfers.buffer_freed, self._lost)
        self._transfers.restart()
        self._watch_exit()
        try:
            about = await asyncio.wait_for(asyncio.shield(self._ready), START_SECONDS)
        except asyncio.TimeoutError:
            self._process.kill()
            raise OSError(f"a worker process was not ready within {START_SECONDS:.0f} s") from None
        self.alive = True
        return about

    def _spawn(self, parameters: WorkerParameters) -> subprocess.Popen[bytes]:
        # A signal to the process group must not end a child before the child ignores it. A child inherits the signals
        # that its parent's thread blocks.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, IGNORED_SIGNALS)
        try:
            return subprocess.Popen(
                [sys.executable, "-m", "gradwire_server.worker.main", parameters.text()],
                stdin=subprocess.DEVNULL,
                stdout=2,  # the front's stdout carries only the address it listens at
                pass_fds=(
                    parameters.calls,
                    parameters.control,
                    parameters.counters,
                    parameters.buffers,
                    *((parameters.lock,) if parameters.stores else ()),
                ),
                env=self._environment,
            )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    async def stop(self, grace: float) -> None:
        """Let the process finish its calls within the grace, then end it."""
        self._stopping, self.alive = True, False
        for task in (self._watching, self._restarting):
            if task is not None:
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task
        self.flush()
        if self._unanswered:
            await asyncio.wait([future for future, *_ in self._unanswered.values()], timeout=grace)
        self._unwatch_exit()
        self._calls.close()
        self._control.close()
        shutdown = Refusal("UNAVAILABLE", "the server is shutting down")
        self.lost(shutdown)
        self._control.fail(shutdown)
        self._transfers.end(shutdown)
        await asyncio.get_running_loop().run_in_executor(None, self._reap)
        self._transfers.close()

    def _reap(self) -> int:
        """Wait until the process ends, and kill it after _KILL_SECONDS; its exit status."""
        try:
            return self._process.wait(_KILL_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()

    async def _watch_slices(self) -> None:
        while True:
            await asyncio.sleep(_HOLD_POLL_SECONDS)
            self.end_if_held(time.monotonic_ns())

    def end_if_held(self, now: int) -> None:
        """Kill the process if one computation has blocked its other calls for hold_seconds; it is restarted."""
        since, most = self.load.counters.slice_start(self.index), self._hold_seconds
        if self.alive and most and since and now - since > most * 1e9:
            log.error("worker process held for too long", extra={"worker": self.index, "seconds": (now - since) / 1e9})
            self._why = f"was ended, since one call had blocked all others for {most:g} seconds"
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
        lost, refusal = self.events.lost(self, why)
        log.error("worker process ended", extra={"worker": self.index, "status": status, "sessions": lost})
        self.sessions = 0
        self.restarts += 1
        self.load.counters.forget(self.index)
        self.lost(refusal)
        self._control.fail(refusal)
        self._transfers.end(refusal)
        self._restarting = asyncio.get_running_loop().create_task(self._restart())

    async def _restart(self) -> None:
        while True:
            try:
                await self._launch()
            except OSError as error:
                log.error("worker process does not start", extra={"worker": self.index, "error": str(error)})
                await asyncio.sleep(_RESTART_SECONDS)
            else:
                log.info("worker process started again", extra={"worker": self.index})
                return

    # Calls

    def send(self, method: str, number: int, raw: bytes, ticket: int, deadline: float | None) -> None:
        """Send a call on the call pipe. It is refused if the process has ended."""
        if self._calls.closed:
            failure = Refusal("UNAVAILABLE", "the worker process has ended; try again")
            asyncio.get_running_loop().call_soon(self.answered, ticket, b"", failure)
            return
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
        elif kind == GROUP:
            self.events.grouped(self, frame.number, body)
        elif kind == READY:
            self._ready.set_result(service_pb2.ServerInfoResponse.FromString(body))

    # Control

    def cancel(self, entry: SessionEntry[Worker], through: tuple[int, int] | None = None) -> None:
        """Cancel the session's running and waiting calls, or a writer's commands."""
        if through is None:
            self._control.send(CANCEL, entry.number, self.last_ticket)
        else:
            writer, seq = through
            self._control.send(CANCEL_THROUGH, entry.number, seq, writer.to_bytes(4, "little"))

    def close(self, entry: SessionEntry[Worker]) -> None:
        """Cancel the session's running calls and refuse waiting ones."""
        self._control.send(CLOSE, entry.number, self.last_ticket)

    async def query(self, question: str, **about: Any) -> bytes:
        """Answer a question at once, on the control pipe."""
        return (await self._control.request_json(QUERY, 0, question=question, about=about)).body


def _pair() -> tuple[socket.socket, socket.socket]:
    ours, theirs = socket.socketpair()
    for end in (ours, theirs):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SOCKET_BYTES)
    return ours, theirs
