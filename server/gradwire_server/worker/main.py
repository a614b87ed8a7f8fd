"""A worker process: `python -m gradwire_server.worker.main`, started and ended by the front.

The process inherits two sockets and the shared counters' file. The main thread computes; it blocks on the first socket
for calls, so a call needs no thread switch. The control thread serves the second socket: cancellation, uploads and
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

from gradwire_engine.core.device import cupy, limit_pools
from gradwire_server.common import blas
from gradwire_server.common.errors import Refusal, extend
from gradwire_server.common.limits import cap_process
from gradwire_server.common.logging import configure
from gradwire_server.common.shared_counters import SharedCounters
from gradwire_server.session.session import Pending
from gradwire_server.storage.checkpointer import Checkpointer
from gradwire_server.worker.broken_gpu import GpuWatch
from gradwire_server.worker.compute import Collector
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
    PARKED,
    QUERY,
    READY,
    REFUSAL,
    RESULT,
    RETURN,
    TAKE,
    UPLOAD,
    Arrival,
    Plan,
    packed,
)
from gradwire_server.worker.pipe import HEAD, BlockingPipe, head
from gradwire_server.worker.rings import Ring
from gradwire_server.worker.runtime import Runtime
from gradwire_server.worker.scheduler import Scheduler, work
from gradwire_server.worker.slots import Slots

T = TypeVar("T")
_LAST_SECONDS = 1.0
_APART = 2  # ops computed apart at once

log = logging.getLogger("gradwire.server")


def main(arguments: list[str]) -> None:
    """Work until the front ends."""
    plan = Plan.of(arguments[0])
    for number in FOR_THE_FRONT:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, FOR_THE_FRONT)
    configure(plan.log_format, plan.log_level)
    sys.setswitchinterval(0.001)
    if cupy() is None:
        cap_process(plan.limits.max_bytes)
    limit_pools()
    checkpointer = Checkpointer(plan.logs) if plan.stores else None
    host = Runtime(plan.limits, SharedCounters(plan.workers, plan.counters), plan.slot, plan.counts, checkpointer)
    control = socket.socket(fileno=plan.control)
    slots = Slots(plan.limits.chunk_bytes, plan.slots)
    threading.Thread(target=_control, args=(host, control, slots), name="gradwire-control", daemon=True).start()
    calls = Calls(host, socket.socket(fileno=plan.calls))
    calls.ready()
    collect, follow = Collector(), blas.Follower(plan.cores)

    watch = GpuWatch()
    if cupy() is not None:
        extend(watch.refusal, dict)

    def before() -> None:
        watch.end_if_broken()
        collect()
        follow(host.counters.runnable)

    # A fork cannot return results in GPU memory, and GPU calls return before their kernels end.
    work(Scheduler(host, calls.answer, calls.park), calls, before, apart=_APART if cupy() is None else 0)
    host.tensor_files.stop()
    if checkpointer is not None:
        checkpointer.stop(_LAST_SECONDS)


class Calls:
    """The first pipe: receives calls, sends answers."""

    def __init__(self, host: Runtime, sock: socket.socket) -> None:
        self.runtime = host
        self.pipe = BlockingPipe(sock)
        self._sending = threading.Lock()  # the checkpointer's threads also answer

    def ready(self) -> None:
        """Report that the worker is ready, with its devices and dtypes."""
        about = self.runtime.describe().SerializeToString()
        self.pipe.send(head(len(about), READY), about)

    def take(self, timeout: float | None) -> Iterable[Pending] | None:
        """Receive calls."""
        frames = self.pipe.take(timeout)
        if frames is None:
            return None
        begin = self.runtime.begin
        return [
            begin(METHODS[kind], number, body, ticket, None if math.isinf(deadline) else deadline, sent)
            for kind, number, ticket, deadline, sent, body in frames
        ]

    def waits(self) -> bool:
        """Whether the socket has data to read."""
        return self.pipe.waits()

    def answer(self, call: Pending, result: bytes, failure: Exception | None) -> None:
        """Send a call's answer."""
        kind = RESULT
        if failure is not None:
            kind, result = REFUSAL, packed(failure)
        self._send(kind, call, result)

    def park(self, call: Pending) -> None:
        """Report that a call waits for its predecessor."""
        self._send(PARKED, call, b"")

    def _send(self, kind: int, call: Pending, body: bytes) -> None:
        try:
            with self._sending:
                self.pipe.send(head(len(body), kind, 0, call.ticket), body)
        except OSError:
            os._exit(0)  # the front has ended


def _control(host: Runtime, sock: socket.socket, slots: Slots) -> None:
    """Serve the second pipe; when it ends, the front has ended."""
    status = 1
    try:
        Control(host, sock, slots).serve()
    except (OSError, EOFError):
        # The compute thread also sees the front's end, but a long computation must not outlive the front.
        time.sleep(_LAST_SECONDS)
        status = 0
    except Exception:
        log.exception("control thread failed")
    finally:
        os._exit(status)  # without this thread, the front's questions would have no answer


class Control:
    """The second pipe. Its frames refer to chunks in slots.

    A frame may have the ticket of an upload or ring of the process that this one replaced. It is refused.
    """

    def __init__(self, host: Runtime, sock: socket.socket, slots: Slots) -> None:
        self.runtime = host
        self.sock = sock
        self.slots = slots
        self._head = bytearray(HEAD.size)
        self._arrivals: dict[int, Arrival] = {}
        self._rings: dict[int, Ring] = {}
        self._failed: set[int] = set()  # tickets of failed arrivals, whose later chunks are discarded

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
            self._append(ticket, *IN_SLOT.unpack(body))
        elif kind == UPLOAD:
            told = json.loads(body)
            self._arrivals[ticket] = Arrival(number, told["transfer_id"], told["taker"], told["offset"])
        elif kind == END_UPLOAD:
            self._end_upload(ticket)
        elif kind == RETURN:
            ring = self._rings.pop(ticket, None)
            if ring is not None:
                self.runtime.return_ring(number, ring, body == b"clean")
        else:
            try:
                self._serve(kind, number, ticket, json.loads(body))
            except Refusal as refusal:
                self._answer(REFUSAL, ticket, 0, packed(refusal))

    def _serve(self, kind: int, number: int, ticket: int, told: dict[str, Any]) -> None:
        """Answer a request about transfers or rings, or a query. Raises Refusal."""
        if kind == CHUNK:
            with self.runtime.chunk(number, told["transfer_id"], told["offset"]) as (start, data, total):
                self.slots.put(told["slot"], data)
                size = data.nbytes
            self._answer(RESULT, ticket, total, size.to_bytes(8, "little"), start)
        elif kind == LEND:
            ring = self._rings[ticket] = self.runtime.lend_ring(number, told["nonce"])
            about = {name: getattr(ring, name) for name in ("pid", "fd", "name", "nbytes", "piece")}
            self._answer(RESULT, ticket, 0, json.dumps(about).encode())
        elif kind == TAKE:
            arrival, ring = _known(self._arrivals, told["arrival"]), _known(self._rings, told["ring"])
            self.runtime.take(arrival, ring, told["place"], told["size"])
            self._answer(RESULT, ticket, 0)
        elif kind == QUERY:
            self._answer(RESULT, ticket, 0, self.runtime.query(told["question"], told["about"]))
        elif kind == GIVE:
            ring = _known(self._rings, told["ring"])
            size, following = self.runtime.give(number, told["transfer_id"], told["offset"], ring, told["place"])
            self._answer(RESULT, ticket, following, size.to_bytes(8, "little"))

    def _append(self, ticket: int, slot: int, size: int) -> None:
        if ticket not in self._failed:
            try:
                with self.runtime.receiving(_known(self._arrivals, ticket), size) as room:
                    self.slots.move(slot, room)
            except Refusal as refusal:
                if ticket in self._arrivals:
                    self._failed.add(ticket)
                self._answer(REFUSAL, ticket, 0, packed(refusal))
        self._answer(EMPTIED, 0, slot)

    def _end_upload(self, ticket: int) -> None:
        try:
            arrival = _known(self._arrivals, ticket)
        except Refusal as refusal:
            self._answer(REFUSAL, ticket, 0, packed(refusal))
            return
        del self._arrivals[ticket]
        if ticket not in self._failed:  # else the failure was answered
            self._answer(RESULT, ticket, arrival.offset)
        self._failed.discard(ticket)

    def _answer(self, kind: int, ticket: int, number: int, *parts: bytes) -> None:
        self.sock.sendall(b"".join((head(sum(len(part) for part in parts), kind, number, ticket), *parts)))


def _known(by_ticket: dict[int, T], ticket: int) -> T:
    """The upload or ring with that ticket. Raises Refusal: UNAVAILABLE, if it was an ended process's."""
    try:
        return by_ticket[ticket]
    except KeyError:
        raise Refusal("UNAVAILABLE", "the worker process of this transfer ended; begin the transfer again") from None


if __name__ == "__main__":
    main(sys.argv[1:])
