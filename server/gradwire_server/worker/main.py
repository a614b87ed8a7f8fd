"""A worker process: `python -m gradwire_server.worker.main`, started and ended by the front.

The process inherits two sockets and the shared counters' file. The main thread computes; it blocks on the call
pipe, so a call needs no thread switch. The control thread serves the control pipe: cancellation, uploads and
downloads, which must not wait for a computation. When the front ends, both sockets close and the process exits.
"""

import json
import logging
import math
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterable
from typing import Any, TypeVar

import numpy as np

from gradwire_engine.backends.openblas import openblas
from gradwire_engine.compile.fusion.fused import OPTIONS
from gradwire_engine.compile.fusion.team_code import make_team
from gradwire_engine.core.device import cupy, limit_pools
from gradwire_engine.core.threads import POOL
from gradwire_server.common import blas
from gradwire_server.common.allocator import RESULTS, give_back, keep_freed
from gradwire_server.common.errors import Refusal, extend
from gradwire_server.common.limits import cap_process
from gradwire_server.common.logging import configure
from gradwire_server.common.shared_counters import SharedCounters
from gradwire_server.session.session import PendingCall
from gradwire_server.storage.checkpointer import Checkpointer
from gradwire_server.storage.configured import snapshot_store
from gradwire_server.worker.broken_gpu import GpuWatch
from gradwire_server.worker.chunk_buffers import ChunkBuffers
from gradwire_server.worker.compute_thread import Collector
from gradwire_server.worker.frames import (
    APPEND,
    BUFFER_FREE,
    CANCEL,
    CANCEL_THROUGH,
    CHUNK,
    CLOSE,
    END_UPLOAD,
    GROUP,
    IGNORED_SIGNALS,
    IN_BUFFER,
    LEND_RING,
    METHODS,
    PARKED,
    QUERY,
    READ_RING,
    READY,
    REFUSAL,
    RESULT,
    RETURN_RING,
    UPLOAD,
    WRITE_RING,
    UploadCall,
    WorkerParameters,
    packed,
)
from gradwire_server.worker.pipe import HEAD, BlockingPipe, head
from gradwire_server.worker.process_end import end_process
from gradwire_server.worker.rings import Ring
from gradwire_server.worker.runtime import Runtime
from gradwire_server.worker.scheduler import Scheduler, run_scheduler

T = TypeVar("T")
_LAST_SECONDS = 1.0
_MAX_FORKS = 2  # ops in forks at once

log = logging.getLogger("gradwire.server")


def main(arguments: list[str]) -> None:
    """Work until the front ends."""
    parameters = WorkerParameters.of(arguments[0])
    for number in IGNORED_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, IGNORED_SIGNALS)
    configure(parameters.log_format, parameters.log_level)
    sys.setswitchinterval(0.001)
    keep_freed(RESULTS)
    OPTIONS.mode = parameters.limits.jit
    POOL.make_team = None if OPTIONS.mode == "off" else make_team
    _use_threads(blas.threads())
    if cupy() is None:
        cap_process(parameters.limits.max_bytes)
    limit_pools()
    checkpointer = Checkpointer(parameters.logs, snapshot_store(parameters.store)) if parameters.stores else None
    runtime = Runtime(
        parameters.limits,
        SharedCounters(parameters.workers, parameters.counters),
        parameters.index,
        parameters.counts,
        checkpointer,
    )
    control = socket.socket(fileno=parameters.control)
    buffers = ChunkBuffers(parameters.limits.chunk_bytes, parameters.buffers)
    threading.Thread(target=_control, args=(runtime, control, buffers), name="gradwire-control", daemon=True).start()
    calls = CallPipe(runtime, socket.socket(fileno=parameters.calls))
    runtime.use_groups(calls.send_group)
    calls.ready()
    give_back(0)  # what imports have freed
    collect, follow = Collector(), blas.Follower(parameters.cores, _use_threads, openblas())

    watch = GpuWatch()
    if cupy() is not None:
        extend(watch.refusal, dict)

    def before_slice() -> None:
        watch.end_if_broken()
        collect()
        follow(runtime.counters.runnable)

    # A fork cannot return results in GPU memory, and GPU calls return before their kernels end.
    run_scheduler(
        Scheduler(runtime, calls.answer, calls.park), calls, before_slice, max_forks=_MAX_FORKS if cupy() is None else 0
    )
    runtime.tensor_files.stop()
    if checkpointer is not None:
        checkpointer.stop(_LAST_SECONDS)


def _use_threads(number: int) -> None:
    """Set the threads of large loops and convolutions."""
    POOL.threads = number


class CallPipe:
    """The worker's end of the call pipe: receives calls, sends answers."""

    def __init__(self, runtime: Runtime, sock: socket.socket) -> None:
        self.runtime = runtime
        self.pipe = BlockingPipe(sock)
        self._sending = threading.Lock()  # the checkpointer's threads also answer

    def ready(self) -> None:
        """Report that the worker is ready, with its devices and dtypes."""
        about = self.runtime.describe().SerializeToString()
        self.pipe.send(head(len(about), READY), about)

    def take(self, timeout: float | None) -> Iterable[PendingCall] | None:
        """Receive calls."""
        frames = self.pipe.take(timeout)
        if frames is None:
            return None
        make_call = self.runtime.make_call
        return [
            make_call(METHODS[kind], number, body, ticket, None if math.isinf(deadline) else deadline, sent)
            for kind, number, ticket, deadline, sent, body in frames
        ]

    def has_calls(self) -> bool:
        """Whether the socket has data to read."""
        return self.pipe.has_data()

    def answer(self, call: PendingCall, result: bytes, failure: Exception | None) -> None:
        """Send a call's answer."""
        kind = RESULT
        if failure is not None:
            kind, result = REFUSAL, packed(failure)
        self._send(kind, call, result)

    def park(self, call: PendingCall) -> None:
        """Report that a call waits for its predecessor."""
        self._send(PARKED, call, b"")

    def send_group(self, number: int, body: bytes) -> None:
        """Send a message about a group of sessions (group_channel.py)."""
        self._send_frame(head(len(body), GROUP, number), body)

    def _send(self, kind: int, call: PendingCall, body: bytes) -> None:
        self._send_frame(head(len(body), kind, 0, call.ticket), body)

    def _send_frame(self, start: bytes, body: bytes) -> None:
        try:
            with self._sending:
                self.pipe.send(start, body)
        except OSError:
            os._exit(0)  # the front has ended


def _control(runtime: Runtime, sock: socket.socket, buffers: ChunkBuffers) -> None:
    """Serve the control pipe; when it ends, the front has ended."""
    status = 1
    try:
        ControlServer(runtime, sock, buffers).serve()
    except (OSError, EOFError):
        # The compute thread also sees the front's end, but a long computation must not outlive the front.
        time.sleep(_LAST_SECONDS)
        status = 0
    except Exception:
        log.exception("control thread failed")
    finally:
        os._exit(status)  # without this thread, the front's questions would have no answer


class ControlServer:
    """The worker's end of the control pipe. Its frames refer to chunks in buffers.

    A frame may have the ticket of an upload or ring of the process that this one replaced. It is refused.
    """

    def __init__(self, runtime: Runtime, sock: socket.socket, buffers: ChunkBuffers) -> None:
        self.runtime = runtime
        self.sock = sock
        self.buffers = buffers
        self._head = bytearray(HEAD.size)
        self._uploads: dict[int, UploadCall] = {}
        self._rings: dict[int, Ring] = {}
        self._failed: set[int] = set()  # tickets of failed uploads, whose later chunks are discarded

    def serve(self) -> None:
        """Serve frames until the pipe ends. Raises EOFError, OSError."""
        while True:
            self._fill(memoryview(self._head))
            size, kind, number, ticket, *_ = HEAD.unpack(self._head)
            body = bytearray(size)
            self._fill(memoryview(body))
            self._handle(kind, number, ticket, bytes(body))

    def _fill(self, room: memoryview) -> None:
        while room:
            count = self.sock.recv_into(room, 0, socket.MSG_WAITALL)
            if not count:
                raise EOFError
            room = room[count:]

    def _handle(self, kind: int, number: int, ticket: int, body: bytes) -> None:
        if kind == CANCEL:
            self.runtime.cancel(number, ticket)
        elif kind == CLOSE:
            self.runtime.close(number, ticket)
        elif kind == CANCEL_THROUGH:
            self.runtime.cancel_through(number, int.from_bytes(body, "little"), ticket)
        elif kind == APPEND:
            self._append(ticket, *IN_BUFFER.unpack(body))
        elif kind == UPLOAD:
            fields = json.loads(body)
            self._uploads[ticket] = UploadCall(number, fields["transfer_id"], fields["attempt"], fields["offset"])
        elif kind == END_UPLOAD:
            self._end_upload(ticket)
        elif kind == RETURN_RING:
            ring = self._rings.pop(ticket, None)
            if ring is not None:
                self.runtime.return_ring(number, ring, body == b"clean")
        else:
            try:
                self._serve(kind, number, ticket, json.loads(body))
            except Refusal as refusal:
                self._answer(REFUSAL, ticket, 0, packed(refusal))

    def _serve(self, kind: int, number: int, ticket: int, fields: dict[str, Any]) -> None:
        """Answer a request about transfers or rings, or a query. Raises Refusal."""
        if kind == CHUNK:
            with self.runtime.chunk(number, fields["transfer_id"], fields["offset"]) as (start, data, total):
                size = data.nbytes
                _copy(data, self.buffers.memory(fields["buffer"], size))
            self._answer(RESULT, ticket, total, size.to_bytes(8, "little"), start)
        elif kind == LEND_RING:
            ring = self._rings[ticket] = self.runtime.lend_ring(number, fields["nonce"])
            about = {name: getattr(ring, name) for name in ("pid", "fd", "name", "nbytes", "piece")}
            self._answer(RESULT, ticket, 0, json.dumps(about).encode())
        elif kind == READ_RING:
            upload, ring = _known(self._uploads, fields["upload"]), _known(self._rings, fields["ring"])
            self.runtime.read_ring(upload, ring, fields["ring_offset"], fields["size"])
            self._answer(RESULT, ticket, 0)
        elif kind == QUERY:
            self._answer(RESULT, ticket, 0, self.runtime.query(fields["question"], fields["about"]))
        elif kind == WRITE_RING:
            ring = _known(self._rings, fields["ring"])
            size, following = self.runtime.write_ring(
                number, fields["transfer_id"], fields["offset"], ring, fields["ring_offset"]
            )
            self._answer(RESULT, ticket, following, size.to_bytes(8, "little"))

    def _append(self, ticket: int, buffer: int, size: int) -> None:
        if ticket not in self._failed:
            try:
                with self.runtime.receiving(_known(self._uploads, ticket), size) as room:
                    _copy(self.buffers.memory(buffer, size), room)
            except Refusal as refusal:
                if ticket in self._uploads:
                    self._failed.add(ticket)
                self._answer(REFUSAL, ticket, 0, packed(refusal))
        self._answer(BUFFER_FREE, 0, buffer)

    def _end_upload(self, ticket: int) -> None:
        try:
            upload = _known(self._uploads, ticket)
        except Refusal as refusal:
            self._answer(REFUSAL, ticket, 0, packed(refusal))
            return
        del self._uploads[ticket]
        if ticket not in self._failed:  # else the failure was answered
            self._answer(RESULT, ticket, upload.offset)
        self._failed.discard(ticket)

    def _answer(self, kind: int, ticket: int, number: int, *parts: bytes) -> None:
        self.sock.sendall(b"".join((head(sum(len(part) for part in parts), kind, number, ticket), *parts)))


def _copy(data: memoryview, room: memoryview) -> None:
    """Copy bytes, and let other threads compute meanwhile."""
    np.frombuffer(room, np.uint8)[:] = np.frombuffer(data, np.uint8)


def _known(by_ticket: dict[int, T], ticket: int) -> T:
    """The upload or ring with that ticket. Raises Refusal: UNAVAILABLE, if it was an ended process's."""
    try:
        return by_ticket[ticket]
    except KeyError:
        raise Refusal("UNAVAILABLE", "the worker process of this transfer ended; begin the transfer again") from None


if __name__ == "__main__":
    main(sys.argv[1:])
    end_process()
