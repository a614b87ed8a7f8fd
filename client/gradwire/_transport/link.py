"""A link: one attempt at the stream that carries a session's batches.

The thread that waits for an answer reads the stream itself. grpc's public stream needs two more threads: one takes
requests from an iterator, one delivers events. Both wake the waiting thread. With them a round trip takes about 1.3
times as long, and 1.5 times the client's CPU time (`python -m benchmarks tricks`). So a link drives the call through
grpc's lower layer, as grpc's blocking unary calls do. `_CythonCall` contains all uses of that layer. The layer is
private to grpc and may change. If it differs from the expected one, links use the slower public stream (`_PublicCall`).

A broken link is not repaired. The session opens the next link and resends the unanswered batches.
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
from gradwire._base.signals import Interrupted, interrupted, wake_on_signal
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
# Statuses of a broken connection, if they carry no reason of the contract.
_BREAKS = frozenset(
    (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.UNKNOWN, grpc.StatusCode.INTERNAL, grpc.StatusCode.CANCELLED)
)
# Seconds that an attach defers signals. Otherwise frequent signals would prevent every attach.
_ATTACH_SECONDS = 0.5
# A message without effect on the server: an acknowledgement of seq 0.
_NO_OP = wire.stream_acknowledge(0)
# Errors that show an unexpected lower layer.
_UNEXPECTED_API = (AttributeError, TypeError)


class LinkBroken(Exception):
    """The connection ended; another link may succeed. `error` is the error to raise if none does."""

    def __init__(self, error: GradwireError) -> None:
        super().__init__(str(error))
        self.error = error


class StreamCall(Protocol):
    """A stream whose waiting thread takes the events, one thread at a time. Any thread may call `send`."""

    messages: deque[bytes]
    #: Whether sent messages leave without a thread that takes events.
    sends_in_background: bool
    #: The final status code, details and trailers; None while the stream is open.
    status: tuple[grpc.StatusCode, str, Any] | None

    @property
    def sending(self) -> bool:
        """Whether a message is not sent yet."""

    def send(self, message: bytes) -> None:
        """Send a message after the earlier messages."""

    def request_message(self) -> None:
        """Request a message, unless a request is pending."""

    def take_event(self) -> None:
        """Wait for an event, or for a pending signal."""

    def cancel(self) -> None:
        """Cancel the stream. Its last events follow soon."""

    def drain(self) -> None:
        """Take the last events of an ended call, which frees it."""


class _CythonCall:
    """A stream on grpc's lower layer: operations are started, and their completions are events.

    At most one send and one receive are in flight.
    """

    sends_in_background = True

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
        self._no_op_sent = False
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

    def request_message(self) -> None:
        if not self._receiving:
            with self._lock:
                self._receiving = self._start(cygrpc.ReceiveMessageOperation(0))

    def take_event(self) -> None:
        try:
            with wake_on_signal(self._wake), wake_on_signal(self._end, delayed=True):
                event = self._call.next_event()
            with self._lock:
                self._no_op_sent = False
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
    def idle(self) -> bool:
        """Whether no operation is in flight, so no event can arrive."""
        return not self._pending

    def cancel(self) -> None:
        self._call.cancel(grpc.StatusCode.CANCELLED.value[0], "given up")

    def _wake(self) -> None:
        """Send a message without effect: only an event ends a wait, and its completion is one."""
        with self._lock:
            if not self._no_op_sent and not self._sending:
                self._no_op_sent = self._sending = self._start(cygrpc.SendMessageOperation(_NO_OP, 0))

    def _end(self) -> None:
        """Cancel the call if the server accepts no message. The session opens another link."""
        with contextlib.suppress(ValueError):  # it has ended
            self.cancel()

    def drain(self) -> None:
        while not self.idle:
            self.take_event()

    def abandon(self) -> None:
        """Cancel the call without reading its events, whose form is unknown."""
        with contextlib.suppress(ValueError, *_UNEXPECTED_API):
            self.cancel()
        self._pending = 0
        self.status = (grpc.StatusCode.CANCELLED, "given up", ())


class _PublicCall:
    """A stream on grpc's public API, whose threads take requests from a queue and deliver the answers."""

    sends_in_background = True

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

    def request_message(self) -> None:
        """Do nothing: answers arrive without a request, at most one per in-flight batch."""

    def take_event(self) -> None:
        with wake_on_signal(self._wake):
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
            with self._lock:  # gRPC requests the next message after it sent this one
                self._unsent -= 1
            self._events.put(None)

    def _read(self) -> None:
        call = self._call
        try:
            for message in call:
                self.messages.append(message)
                self._events.put(None)
        except grpc.RpcError:
            pass  # `status` holds the error
        finally:
            self._requests.put(None)
            self.status = (call.code(), call.details() or "", call.trailing_metadata() or ())
            self._events.put(None)


_cython_works = cygrpc is not None


def open_call(channel: grpc.Channel, headers: _Headers) -> StreamCall:
    """Open a gRPC stream. Raises ValueError if the channel is closed."""
    if _cython_works:
        try:
            return _CythonCall(channel, headers)
        except _UNEXPECTED_API:
            _use_public_api()
    return _PublicCall(channel, headers)


def _use_public_api() -> None:
    global _cython_works
    _cython_works = False
    logging.getLogger("gradwire").debug("grpc %s: streams go by the public API", grpc.__version__, exc_info=True)


class Link:
    """An open stream for one sending and one receiving thread."""

    def __init__(self, call: StreamCall, address: str) -> None:
        self.address = address
        self._call = call
        self._reading = threading.Lock()
        self.attached = False  # whether the server accepted the attach

    @property
    def is_local(self) -> bool:
        """Whether the stream is a local stream, without gRPC."""
        return isinstance(self._call, LocalCall)

    def attach(
        self, session_id: str, writer: int, attempt: int, epoch: int, acknowledged: int
    ) -> service_pb2.StreamResponse:
        """Attach the stream to a session and writer. Returns the server's answer. Raises GradwireError, LinkBroken."""
        attach = service_pb2.StreamAttach(
            session_id=session_id, writer=writer, attempt=attempt, epoch=epoch, acknowledged_seq=acknowledged,
            joined_answers=True,
        )  # fmt: skip
        try:
            self.send(service_pb2.StreamRequest(attach=attach).SerializeToString())
            response = self.receive(_ATTACH_SECONDS)
        except _UNEXPECTED_API as error:  # the attach is the first use of the whole lower layer
            if not isinstance(self._call, _CythonCall):
                raise
            self._call.abandon()
            _use_public_api()
            raise LinkBroken(make_error(pb.REASON_INTERNAL, f"grpc's stream: {error}", 13)) from None
        if not response.HasField("attached"):
            raise self._unexpected(response)
        self.attached = True
        return response

    def send(self, request: bytes) -> None:
        """Send a serialized StreamRequest without waiting. A broken link sends nothing; `receive` reports it."""
        self._call.send(request)

    def wait_sent(self) -> None:
        """Wait until all sent messages have left. Return at once if another thread is receiving.

        A pending signal ends the wait.
        """
        call = self._call
        if call.sending and self._reading.acquire(blocking=False):
            try:
                while call.sending and call.status is None and not interrupted():
                    call.request_message()  # a server that cannot answer does not read
                    call.take_event()
                if call.status is not None:  # `drop` could not drain while this thread was reading
                    call.drain()
            finally:
                self._reading.release()

    def finish_sending(self) -> None:
        """Like `wait_sent`, but only if messages do not leave without a waiting thread."""
        if not self._call.sends_in_background:
            self.wait_sent()

    def acknowledge(self, seq: int) -> None:
        """Tell the server that all answers through `seq` arrived."""
        self.send(wire.stream_acknowledge(seq))

    def receive(self, patience: float = 0.0) -> service_pb2.StreamResponse:
        """Wait for the next message. Raises GradwireError, LinkBroken.

        Raises Interrupted for a pending signal, but not within the first `patience` seconds.
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
                call.request_message()
                call.take_event()
            data = call.messages.popleft()
        return service_pb2.StreamResponse.FromString(data)

    def receive_batch(self) -> service_pb2.StreamResponse:
        """Wait for the next answer, which covers one or several batches."""
        response = self.receive()
        if not response.HasField("batch"):
            raise self._unexpected(response)
        return response

    def has_answer(self) -> bool:
        """Whether an answer has begun to arrive. Of gRPC's streams, only what was read is known."""
        call = self._call
        if call.messages:
            return True
        if not isinstance(call, LocalCall) or not self._reading.acquire(blocking=False):
            return False
        try:
            return call.status is None and call.has_arrived()
        finally:
            self._reading.release()

    @property
    def alive(self) -> bool:
        """Whether the link is not known to be broken."""
        return self._call.status is None

    def drop(self) -> None:
        """Cancel the link and wake its waiting thread."""
        with contextlib.suppress(ValueError, *_UNEXPECTED_API):  # it has ended
            self._call.cancel()
        if self._reading.acquire(blocking=False):
            try:
                self._call.drain()
            finally:
                self._reading.release()

    def after_fork_in_child(self) -> None:
        """Leave the link to the parent, in a forked child."""
        if isinstance(self._call, LocalCall):
            self._call.after_fork_in_child()

    def _why(self, code: grpc.StatusCode, details: str, trailers: Any) -> Exception:
        if code is grpc.StatusCode.OK:
            return LinkBroken(make_error(pb.REASON_UNAVAILABLE, "the server ended the stream", 14))
        found, named = error_of_status(code, details, trailers, self.address)
        # STREAM_TAKEN means that this client attached twice: no other client has its writer.
        broken = found.reason in ("UNAVAILABLE", "STREAM_TAKEN") or (not named and code in _BREAKS)
        return LinkBroken(found) if broken else found

    def _unexpected(self, response: service_pb2.StreamResponse) -> GradwireError:
        which = response.WhichOneof("response")
        return make_error(pb.REASON_INTERNAL, f"the server's stream answered out of turn: {which}", 13)
