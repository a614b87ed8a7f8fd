"""A link: one attempt at the stream that carries a session's batches.

Whoever waits for an answer reads the stream himself. grpc's public stream would put two threads in between, one that
takes requests from an iterator and one that hands out events, and wake the waiting thread for both: a round trip
costs a third less without. So a link drives the call as grpc's own blocking unary calls do, by the layer below, and
all that is known here of that layer is in `_LowerCall`. That layer is grpc's own and may change: where it is not as
expected, links use the public stream (`_PublicCall`), slower and otherwise the same.

A link that broke is not mended. The session opens the next one and sends again what was not answered.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from queue import SimpleQueue
from typing import Any, Protocol, TypeAlias

import grpc

from gradwire._base.errors import GradwireError, make_error
from gradwire._base.signals import Interrupted, interrupted, waking
from gradwire._transport import wire
from gradwire._transport.local import LocalCall
from gradwire._transport.status import error_of_status
from gradwire.v1 import errors_pb2 as pb
from gradwire.v1 import service_pb2

cygrpc: Any
try:
    from grpc._cython import cygrpc  # type: ignore[attr-defined, no-redef]
except ImportError:
    cygrpc = None

_METHOD = "/gradwire.v1.AutogradService/Stream"
_Headers: TypeAlias = Sequence[tuple[str, str]]
_CODES = {code.value[0]: code for code in grpc.StatusCode}
# Statuses that a connection's end leaves, if they carry no reason of ours.
_BREAKS = frozenset(
    (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.UNKNOWN, grpc.StatusCode.INTERNAL, grpc.StatusCode.CANCELLED)
)
# How long a signal waits for a link that is being opened: else frequent ones would let none be.
_ATTACH_SECONDS = 0.5
# A message that the server has no use for: that nothing more was received.
_NUDGE = wire.stream_acknowledge(0)
# What tells that the lower layer is not the one that is known here.
_UNLIKE = (AttributeError, TypeError)


class LinkBroken(Exception):
    """The connection ended: another link may do better. `error` is what to say if none does."""

    def __init__(self, error: GradwireError) -> None:
        super().__init__(str(error))
        self.error = error


class Call(Protocol):
    """A stream whose events are taken by who waits for them: one thread at a time. `send` is for any."""

    messages: deque[bytes]
    #: Whether what was sent goes off though nobody takes events.
    sends_alone: bool
    #: The status code, details and trailers it ended with.
    status: tuple[grpc.StatusCode, str, Any] | None

    @property
    def sending(self) -> bool:
        """Whether a message is not off yet."""

    def send(self, message: bytes) -> None:
        """Send a message once those before it are off."""

    def expect(self) -> None:
        """Ask for a message, if that was not done yet."""

    def take_event(self) -> None:
        """Wait for something to end, or for a signal that is held back."""

    def cancel(self) -> None:
        """End it; its last events come soon."""

    def drain(self) -> None:
        """Take the last events of a call that was ended, which frees it."""


class _LowerCall:
    """A stream by grpc's lower layer: operations are started, and their ends come as events to who asks for them.

    One send and one receive are under way at most.
    """

    sends_alone = True

    def __init__(self, channel: grpc.Channel, headers: _Headers) -> None:
        metadata = cygrpc.SendInitialMetadataOperation(headers, 0)
        status, initial = cygrpc.ReceiveStatusOnClientOperation(0), cygrpc.ReceiveInitialMetadataOperation(0)
        begin = (((metadata, status), None), ((initial,), None))
        lower: Any = channel
        # Raises ValueError if the channel is closed.
        self._call = lower._channel.segregated_call(0, _METHOD.encode(), None, None, None, None, begin, None)
        self._lock = threading.Lock()
        self._out: deque[bytes] = deque()
        self._pending = len(begin)
        self._sending = False
        self._receiving = False
        self._nudged = False
        self.messages: deque[bytes] = deque()
        self.status: tuple[grpc.StatusCode, str, Any] | None = None

    @property
    def sending(self) -> bool:
        return self._sending

    def send(self, message: bytes) -> None:
        with self._lock:
            if self._sending:
                self._out.append(message)
            else:
                self._sending = self._start(cygrpc.SendMessageOperation(message, 0))

    def expect(self) -> None:
        if not self._receiving:
            with self._lock:
                self._receiving = self._start(cygrpc.ReceiveMessageOperation(0))

    def take_event(self) -> None:
        try:
            with waking(self._wake), waking(self._end, patient=True):
                event = self._call.next_event()
            with self._lock:
                self._nudged = False
                self._pending -= 1
                for operation in event.batch_operations:
                    self._ended(operation)
        except BaseException:
            with self._lock:
                self._pending = 0
                self.status = self.status or (grpc.StatusCode.CANCELLED, "the wait was interrupted", ())
            raise

    def _start(self, operation: Any) -> bool:
        started = self.status is None and self._call.operate((operation,), None)
        self._pending += bool(started)
        return bool(started)

    def _ended(self, operation: Any) -> None:
        kind = operation.type()
        if kind == cygrpc.OperationType.receive_message:
            self._receiving = False
            message = operation.message()
            if message is not None:
                self.messages.append(message)
        elif kind == cygrpc.OperationType.send_message:
            self._sending = bool(self._out) and self._start(cygrpc.SendMessageOperation(self._out.popleft(), 0))
        elif kind == cygrpc.OperationType.receive_status_on_client:
            code = _CODES.get(operation.code(), grpc.StatusCode.UNKNOWN)
            self.status = (code, operation.details() or "", operation.trailing_metadata() or ())

    @property
    def over(self) -> bool:
        """Whether nothing is under way any more, so that there are no events to wait for."""
        return not self._pending

    def cancel(self) -> None:
        self._call.cancel(grpc.StatusCode.CANCELLED.value[0], "given up")

    def _wake(self) -> None:
        """Nothing ends a wait but an event: send something whose end is one."""
        with self._lock:
            if not self._nudged and not self._sending:
                self._nudged = self._sending = self._start(cygrpc.SendMessageOperation(_NUDGE, 0))

    def _end(self) -> None:
        """The server does not even take a message: end the call, and go on with another."""
        with contextlib.suppress(ValueError):  # it has ended
            self.cancel()

    def drain(self) -> None:
        while not self.over:
            self.take_event()

    def abandon(self) -> None:
        """Its events are not understood: end it without them."""
        with contextlib.suppress(ValueError, *_UNLIKE):
            self.cancel()
        self._pending = 0
        self.status = (grpc.StatusCode.CANCELLED, "given up", ())


class _PublicCall:
    """A stream by grpc's public API, whose threads take requests out of a queue and bring the answers."""

    sends_alone = True

    def __init__(self, channel: grpc.Channel, headers: _Headers) -> None:
        self._requests: SimpleQueue[bytes | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._unsent = 0
        self._events: SimpleQueue[None] = SimpleQueue()
        self.messages: deque[bytes] = deque()
        self.status: tuple[grpc.StatusCode, str, Any] | None = None
        # Raises ValueError if the channel is closed.
        method: Any = channel.stream_stream(_METHOD)
        self._call = method(self._outgoing(), metadata=headers)
        threading.Thread(target=self._read, name="gradwire-link", daemon=True).start()

    @property
    def sending(self) -> bool:
        return self._unsent > 0

    def send(self, message: bytes) -> None:
        with self._lock:
            self._unsent += 1
        self._requests.put(message)

    def expect(self) -> None:
        """Answers come unasked; there are no more of them than batches under way."""

    def take_event(self) -> None:
        with waking(self._wake):
            self._events.get()

    def _wake(self) -> None:
        self._events.put(None)

    def cancel(self) -> None:
        self._call.cancel()

    def drain(self) -> None:
        while self.status is None:
            self.take_event()

    def _outgoing(self) -> Iterator[bytes]:
        while (message := self._requests.get()) is not None:
            yield message
            with self._lock:  # the next one is asked for when this one is off
                self._unsent -= 1
            self._events.put(None)

    def _read(self) -> None:
        call = self._call
        try:
            for message in call:
                self.messages.append(message)
                self._events.put(None)
        except grpc.RpcError:
            pass  # told by `status`
        finally:
            self._requests.put(None)
            self.status = (call.code(), call.details() or "", call.trailing_metadata() or ())
            self._events.put(None)


_lower_works = cygrpc is not None


def open_call(channel: grpc.Channel, headers: _Headers) -> Call:
    """A stream by gRPC. Raises ValueError if the channel is closed."""
    if _lower_works:
        try:
            return _LowerCall(channel, headers)
        except _UNLIKE:
            _do_without_lower()
    return _PublicCall(channel, headers)


def _do_without_lower() -> None:
    global _lower_works
    _lower_works = False
    logging.getLogger("gradwire").debug("grpc %s: streams go by the public API", grpc.__version__, exc_info=True)


class Link:
    """An open stream, for one thread that sends and one that receives."""

    def __init__(self, call: Call, address: str) -> None:
        self._address = address
        self._call = call
        self._reading = threading.Lock()
        self.attached = False  # whether the server has taken it

    @property
    def is_local(self) -> bool:
        """Whether it goes without gRPC."""
        return isinstance(self._call, LocalCall)

    def attach(
        self, session_id: str, writer: int, attempt: int, epoch: int, acknowledged: int
    ) -> service_pb2.StreamResponse:
        """Say whose stream it is; the answer says where it goes on. Raises GradwireError, LinkBroken."""
        attach = service_pb2.StreamAttach(
            session_id=session_id, writer=writer, attempt=attempt, epoch=epoch, acknowledged_seq=acknowledged,
            joined_answers=True,
        )  # fmt: skip
        try:
            self.send(service_pb2.StreamRequest(attach=attach).SerializeToString())
            response = self.receive(_ATTACH_SECONDS)
        except _UNLIKE as error:  # here all of the lower layer is used for the first time
            if not isinstance(self._call, _LowerCall):
                raise
            self._call.abandon()
            _do_without_lower()
            raise LinkBroken(make_error(pb.REASON_INTERNAL, f"grpc's stream: {error}", 13)) from None
        if not response.HasField("attached"):
            raise self._unexpected(response)
        self.attached = True
        return response

    def send(self, request: bytes) -> None:
        """Send a serialized StreamRequest, or nothing if the link is broken: `receive` tells. Does not wait."""
        self._call.send(request)

    def push(self) -> None:
        """Wait until what was sent is off, but for the answers that whoever receives takes meanwhile.

        A signal that is held back ends the wait.
        """
        call = self._call
        if call.sending and self._reading.acquire(blocking=False):
            try:
                while call.sending and call.status is None and not interrupted():
                    call.expect()  # or the server, which cannot answer, would not read
                    call.take_event()
                if call.status is not None:  # whoever dropped it could not
                    call.drain()
            finally:
                self._reading.release()

    def see_off(self) -> None:
        """As `push`, if what was sent would not go off while nobody waits."""
        if not self._call.sends_alone:
            self.push()

    def acknowledge(self, seq: int) -> None:
        """Tell that all answers through `seq` have come."""
        self.send(wire.stream_acknowledge(seq))

    def receive(self, patience: float = 0.0) -> service_pb2.StreamResponse:
        """Wait for the next message. Raises GradwireError, LinkBroken.

        Raises Interrupted for a signal that is held back, unless so many seconds of `patience` are not over.
        """
        call = self._call
        began = time.monotonic() if patience else 0.0
        with self._reading:
            while not call.messages:
                if call.status is not None:
                    call.drain()
                    raise self._why(*call.status)
                if interrupted() and (not patience or time.monotonic() > patience + began):
                    raise Interrupted
                call.expect()
                call.take_event()
            data = call.messages.popleft()
        return service_pb2.StreamResponse.FromString(data)

    def receive_batch(self) -> service_pb2.StreamResponse:
        """Wait for the next answer of a batch, or of several."""
        response = self.receive()
        if not response.HasField("batch"):
            raise self._unexpected(response)
        return response

    @property
    def alive(self) -> bool:
        """Whether it is not known to be broken."""
        return self._call.status is None

    def drop(self) -> None:
        """Give it up; whoever waits for it is woken."""
        with contextlib.suppress(ValueError, *_UNLIKE):  # it has ended
            self._call.cancel()
        if self._reading.acquire(blocking=False):
            try:
                self._call.drain()
            finally:
                self._reading.release()

    def forked(self) -> None:
        """In a forked child: it is the parent's."""
        if isinstance(self._call, LocalCall):
            self._call.forked()

    def _why(self, code: grpc.StatusCode, details: str, trailers: Any) -> Exception:
        if code is grpc.StatusCode.OK:
            return LinkBroken(make_error(pb.REASON_UNAVAILABLE, "the server ended the stream", 14))
        found, named = error_of_status(code, details, trailers, self._address)
        # A stream that was taken over is one whose attach came twice: no other client has this one's writer.
        broken = found.reason in ("UNAVAILABLE", "STREAM_TAKEN") or (not named and code in _BREAKS)
        return LinkBroken(found) if broken else found

    def _unexpected(self, response: service_pb2.StreamResponse) -> GradwireError:
        which = response.WhichOneof("response")
        return make_error(pb.REASON_INTERNAL, f"the server's stream answered out of turn: {which}", 13)
