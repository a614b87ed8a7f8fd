"""Transport: makes gRPC calls and raises typed errors. bulk.py transfers the chunks of large tensors.

Batches are sent as bytes on a `Link`, because the session serializes them itself. Rare calls use the generated
messages. Ctrl-C can interrupt every wait in this module. With several addresses, a call that does not reach its server
is repeated at the next one (servers.py).
"""

from __future__ import annotations

import contextlib
import logging
import random
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import grpc
from google.protobuf.message import Message

from gradwire._base.errors import GradwireError, make_error
from gradwire._base.signals import defer_exception, deliver, interrupted, wake_on_signal
from gradwire._base.version import __version__
from gradwire._transport.credentials import Credentials
from gradwire._transport.link import Link, open_call
from gradwire._transport.local import LocalCall, NotLocal, wanted
from gradwire._transport.local_calls import METHODS, LocalAnswer, Refused, may_call
from gradwire._transport.servers import Servers
from gradwire._transport.status import error_of_call
from gradwire._transport.tracing import traceparent
from gradwire.v1 import errors_pb2

PROTOCOL = 1
_SERVICE = "/gradwire.v1.AutogradService/"
_UNIMPLEMENTED = grpc.StatusCode.UNIMPLEMENTED.value[0]
_MESSAGE_BYTES = 256 << 20
_OPTIONS = [
    ("grpc.max_receive_message_length", _MESSAGE_BYTES),
    ("grpc.max_send_message_length", _MESSAGE_BYTES),
    # Pings detect a dead peer, so every wait ends.
    ("grpc.keepalive_time_ms", 15_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.max_pings_without_data", 0),
    # Sessions retry by their own patience, so gRPC's waits between attempts must be short.
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    ("grpc.min_reconnect_backoff_ms", 5_000),
]
# Seconds between retries of a call that did not reach the server: about 3 s in total.
_RETRY_WAITS = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6)
_LONGEST_WAIT = 2.0
# Consecutive local streams that the server may reject before the next stream uses gRPC.
_MOST_REJECTED = 2
# Changes of the server within so many seconds of another one are not worth a warning: a session looks for its server.
_QUIET_SECONDS = 10.0
_M = TypeVar("_M", bound=Message)
#: Seconds between checks for pending signals during a wait.
SIGNAL_CHECK_SECONDS = 0.05
#: Seconds that a wait ended by a handler continues, to learn whether the command was executed.
OUTCOME_WAIT_SECONDS = 0.7
# What ends a call without a result: gRPC's errors, and those of a call without gRPC.
_NO_RESULT = (grpc.FutureTimeoutError, grpc.RpcError, grpc.FutureCancelledError, Refused, NotLocal)
_log = logging.getLogger("gradwire")


class Transport:
    """Channels to a server, or to the servers of a cluster, with the caller's credentials."""

    def __init__(self, addresses: str | Sequence[str], credentials: Credentials | None = None) -> None:
        """`addresses` are one server's, or those of several servers of one cluster."""
        self.credentials = credentials = credentials or Credentials()
        self._metadata = credentials.metadata
        self._closing = threading.Event()
        #: Seconds that a server may be unreachable after its first answer.
        self.patience = 0.0
        self.servers = Servers((addresses,) if isinstance(addresses, str) else tuple(addresses), credentials, _OPTIONS)
        self._quiet_until = 0.0  # until then, changes of the server are logged for debugging only
        self._link: Link | None = None
        #: The socket name for local streams; empty for none.
        self.local_stream = ""
        self._rejected = 0  # consecutive local streams that the server did not accept
        # gRPC cancels a call without references, so the newest calls are kept here.
        self._background_calls: deque[Any] = deque(maxlen=16)

    def call(
        self,
        name: str,
        request: Message,
        answer: type[_M],
        timeout: float | None = 30.0,
        waits: Sequence[float] | None = None,
    ) -> _M:
        """Make a unary call. Retry after `waits` seconds if it did not reach the server. Raises GradwireError."""
        if self.closed:
            raise self.closed_error()
        serialize, parse = type(request).SerializeToString, answer.FromString
        for wait in self._waits() if waits is None else (*waits, None):
            address = self.address
            try:
                if (raw := self._local_answer(address, name, request, timeout)) is not None:
                    return answer.FromString(raw)
                method = self._channel.unary_unary(
                    _SERVICE + name, request_serializer=serialize, response_deserializer=parse
                )
                result: _M = result_of(method.future(request, timeout=timeout, metadata=self._headers()))
            except grpc.RpcError as error:
                self._refuse_unless_retriable(name, error_of_call(error, address), wait, address)
            except Refused as refused:
                self._refuse_unless_retriable(name, refused.error, wait, address)
            except (grpc.FutureCancelledError, ValueError):  # ValueError: another thread has just closed the channel
                raise self.closed_error() from None
            else:
                return result
            self.sleep_handling_signals((wait or 0.0) * random.uniform(0.7, 1.3))
        raise AssertionError("the last try raises")

    def _local_answer(self, address: str, name: str, request: Message, timeout: float | None) -> bytes | None:
        """The answer of a server of this machine, without gRPC; None if it must be asked by gRPC. Raises Refused.

        A request without an answer may have been executed, as one of gRPC that is repeated.
        """
        if name not in METHODS or not may_call(address, self.credentials) or traceparent():
            return None
        try:
            call = LocalAnswer(address, name, request.SerializeToString(), timeout, self._closing.is_set)
            return bytes(result_of(call))
        except NotLocal as why:
            _log.debug("%s: %s goes by gRPC: %s", address, name, why)
            return None

    def _waits(self) -> Iterator[float | None]:
        """Seconds between attempts of a call that does not reach the server, and None for the last one."""
        until = time.monotonic() + self.patience
        yield from _RETRY_WAITS
        while time.monotonic() < until:
            yield _LONGEST_WAIT
        yield None

    def _refuse_unless_retriable(self, name: str, found: GradwireError, wait: float | None, address: str) -> None:
        if name == "OpenSession" and found.code == _UNIMPLEMENTED and "address" in found.metadata:
            text = f"the server at {address} is no gradwire server, since it cannot open a session: {found}"
            found = make_error(errors_pb2.REASON_UNAVAILABLE, text, 14, found.metadata)
        if wait is None or found.reason not in ("UNAVAILABLE", "SESSION_MOVED"):
            raise found from None
        self.leave(address, found)

    @property
    def address(self) -> str:
        """The address of the server in use."""
        return self.servers.address

    @property
    def _channel(self) -> grpc.Channel:
        return self.servers.channel

    def leave(self, address: str, error: GradwireError) -> None:
        """Use another server from now on: the one that has the session, or the next if `address` was not reached.

        Does nothing if `address` is no longer in use, if it answered otherwise, or if there is no other server.
        """
        moved = error.reason == "SESSION_MOVED"
        if not moved and "address" not in error.metadata:  # a refusal of the server itself (status.py)
            return
        endpoint = error.metadata.get("endpoint", "") if moved else ""
        if self.servers.move(address, endpoint):
            self.local_stream = ""
            now = time.monotonic()
            level = logging.WARNING if now > self._quiet_until else logging.DEBUG
            self._quiet_until = now + _QUIET_SECONDS
            _log.log(level, "%s: continuing at %s: %s", address, self.address, error)

    def _headers(self) -> tuple[tuple[str, str], ...]:
        """Metadata of every call: the token and the trace."""
        parent = traceparent()
        return (*self._metadata, ("traceparent", parent)) if parent else self._metadata

    def notify(self, name: str, request: Message) -> None:
        """Make a unary call without waiting for the answer. Errors are ignored."""
        with contextlib.suppress(ValueError):  # another thread has closed the channel
            call = self._channel.unary_unary
            method: Any = call(_SERVICE + name, request_serializer=type(request).SerializeToString)
            self._background_calls.append(method.future(request, timeout=30.0, metadata=self._headers()))

    def open_link(self) -> Link:
        """Open a stream. Connection errors appear at its first use. Raises GradwireError if closed."""
        before = self._link
        if before is not None:
            before.drop()
            if before.is_local:
                self._rejected = 0 if before.attached else self._rejected + 1
        try:
            address = self.address
            call = self._local_call() or open_call(self._channel, self._metadata)
            self._link = Link(call, address)
        except ValueError:  # another thread has closed the channel
            raise self.closed_error() from None
        return self._link

    def _local_call(self) -> LocalCall | None:
        if not self.local_stream or self.closed:
            return None
        if self._rejected >= _MOST_REJECTED:  # for example, the server has too many connections
            self._rejected = 0
            return None
        try:
            return LocalCall(self.local_stream)
        except NotLocal as why:
            _log.debug("%s: the stream goes by gRPC: %s", self.address, why)
            return None

    def set_local_stream(self, name: str) -> bool:
        """Set the socket name that the server sent ("" for none). Returns whether a new local stream is possible."""
        before, self.local_stream = self.local_stream, name if wanted() else ""
        return self.local_stream not in ("", before)

    def drop_link(self) -> None:
        """Drop the newest stream and wake its waiting thread."""
        link = self._link
        if link is not None:
            link.drop()

    def call_in_background(self, name: str, request: Message, timeout: float, answered: Callable[[], object]) -> None:
        """Make a unary call without waiting. Another thread calls `answered` if the server answers."""

        def over(future: Any) -> None:
            if not future.cancelled() and future.exception() is None:
                answered()

        with contextlib.suppress(ValueError):  # another thread has closed the channel
            call = self._channel.unary_unary
            method: Any = call(_SERVICE + name, request_serializer=type(request).SerializeToString)
            future = method.future(request, timeout=timeout, metadata=self._headers())
            self._background_calls.append(future)
            future.add_done_callback(over)

    def start_stream(self, kind: str, name: str, request: Any) -> Any:
        """Call a streaming method ("stream_unary", …) whose messages are bytes. Raises GradwireError when closed."""
        try:
            method = getattr(self._channel, kind)(_SERVICE + name)
            start = method.future if kind == "stream_unary" else method
            return start(request, metadata=self._headers())
        except ValueError:  # another thread has closed the channel
            raise self.closed_error() from None

    def explain(self, error: Exception) -> GradwireError:
        """The GradwireError for an exception of gRPC."""
        if self.closed or not isinstance(error, grpc.RpcError):  # cancelled with the channel
            return self.closed_error()
        return error_of_call(error, self.address)

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._closing.is_set()

    def sleep(self, seconds: float) -> None:
        """Sleep for `seconds`, or until `close`."""
        self._closing.wait(seconds)

    def sleep_handling_signals(self, seconds: float) -> None:
        """Sleep for `seconds`, or until `close`. Signals are handled during the sleep."""
        ends = time.monotonic() + seconds
        while (left := ends - time.monotonic()) > 0 and not self.closed:
            self.sleep(min(left, SIGNAL_CHECK_SECONDS))
            deliver()

    def closed_error(self) -> GradwireError:
        """The error for a use after `close`."""
        return make_error(errors_pb2.REASON_UNAVAILABLE, "the session was closed", 14)

    def close(self) -> None:
        """Close the channel and cancel all running calls."""
        self._closing.set()
        if self._link is not None:
            self._link.drop()
        self.servers.close()


class StreamInterrupted(grpc.RpcError):
    """A signal ended a stream, and its handler returned normally."""


def stream_messages(call: Any) -> Iterator[Any]:
    """The messages of a stream, with signals handled between them.

    During a long wait for a message, a signal cancels the call. Raises StreamInterrupted for that, else grpc.RpcError.
    """
    while True:
        deliver()
        try:
            with wake_on_signal(call.cancel, delayed=True):
                raw = next(call)
        except StopIteration:
            return
        except grpc.RpcError:
            if interrupted():
                deliver()
                raise StreamInterrupted from None
            raise
        yield raw


def result_of(future: Any) -> Any:
    """The result of a call, with signals handled during the wait.

    An exception of a handler cancels the call, unless the answer arrives within OUTCOME_WAIT_SECONDS. Then the answer
    is returned, and the exception is raised after the gradwire call.
    """
    try:
        while True:
            with contextlib.suppress(grpc.FutureTimeoutError):
                return future.result(SIGNAL_CHECK_SECONDS)
            try:
                deliver()
            except BaseException as error:
                with contextlib.suppress(*_NO_RESULT):
                    found = future.result(OUTCOME_WAIT_SECONDS)
                    defer_exception(error)
                    return found
                raise
    except BaseException:
        future.cancel()
        raise


def client_name() -> str:
    """The client's name in the server's log."""
    return f"gradwire-python/{__version__}"
