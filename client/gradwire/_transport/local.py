"""Local stream: a stream over a Unix socket to a server of the same machine and user, faster than gRPC.

The server sends the socket's name when a session is opened. OpenSessionResponse.local_stream documents the message
format. The client accepts the socket only if the kernel confirms that a process of this user listens. If the socket
cannot be opened, streams use gRPC.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import struct
import threading
import time
import weakref
from collections import deque
from typing import Any

import grpc

from gradwire._base.signals import wake_on_signal
from gradwire._transport.wire import Details

#: The length before each message, its bytes, and the bit in it that marks the server's last message.
LENGTH = struct.Struct("<I")
PREFIX = LENGTH.size
LAST = 1 << 31
_CREDENTIALS = struct.Struct("iII")  # process, user, group
# Bytes read at once, and while a large message arrives. Python reserves them before each read, and a reservation
# above malloc's threshold of 128 KiB costs ten times a small message's read.
_SMALL_PIECE, _LARGE_PIECE = 64 << 10, 256 << 10
# Seconds that a wait looks for an answer before it sleeps, if there is another core for the server. A small batch is
# answered sooner than a core wakes up.
_SPIN_SECONDS = 80e-6 if hasattr(os, "sched_getaffinity") and len(os.sched_getaffinity(0)) > 1 else 0.0
_CODES = {code.value[0]: code for code in grpc.StatusCode}
_GONE = (grpc.StatusCode.UNAVAILABLE, "the connection was closed", ())


class NotLocal(Exception):
    """The socket does not exist here, or another user owns it."""


def wanted() -> bool:
    """Whether local streams are enabled. GRADWIRE_LOCAL_STREAM=0 disables them."""
    return os.environ.get("GRADWIRE_LOCAL_STREAM") != "0"


class LocalCall:
    """A local stream with the interface of link.StreamCall: the waiting thread takes the events, one thread at a time.

    Bytes that the socket does not accept at once are queued. The thread that waits for events sends them later.
    """

    sends_in_background = False

    def __init__(self, name: str) -> None:
        """Connect to the socket `name`. Raises NotLocal."""
        self._socket, self._waker = _opened(name)  # the eventfd wakes the polling thread for queued bytes
        self._free = weakref.finalize(self, _close, self._socket, self._waker)
        self._free.atexit = False  # sessions end after the atexit finalizers
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._out: deque[memoryview] = deque()
        self._poll = select.poll()
        self._poll.register(self._socket, select.POLLIN)
        self._poll.register(self._waker, select.POLLIN)
        self._partial = bytearray()
        self._closed = False
        self._cancelling: list[None] = []  # one item per thread inside `cancel`
        self.messages: deque[bytes] = deque()
        self.status: tuple[grpc.StatusCode, str, Any] | None = None

    @property
    def sending(self) -> bool:
        """Whether a message is not sent yet."""
        return bool(self._out)

    def send(self, message: bytes) -> None:
        """Send a message after the earlier messages."""
        data = memoryview(LENGTH.pack(len(message)) + message)
        with self._lock:
            if self.status is not None or self._closed:
                return
            if not self._out:
                data = data[self._put(data) :]
            if data:
                self._out.append(data)
                os.eventfd_write(self._waker, 1)

    def request_message(self) -> None:
        """Do nothing: messages arrive without a request, at most one per in-flight batch."""

    def take_event(self) -> None:
        """Wait until the socket is readable or writable, or a signal is pending."""
        try:
            with wake_on_signal(self._wake):
                self._take()
        except BaseException:
            self.cancel()
            raise

    def _wake(self) -> None:
        with self._lock:  # otherwise the descriptor could be closed and reused
            if not self._closed:
                os.eventfd_write(self._waker, 1)

    def cancel(self) -> None:
        """Shut the socket down and wake the waiting thread."""
        if self.status is None:
            self.status = (grpc.StatusCode.CANCELLED, "given up", ())
        self._cancelling.append(None)
        try:
            if not self._closed and self._pid == os.getpid():  # a forked child would end the parent's stream
                with contextlib.suppress(OSError):  # it has ended
                    self._socket.shutdown(socket.SHUT_RDWR)
        finally:
            self._cancelling.pop()

    def drain(self) -> None:
        """Close the descriptors. No thread may be waiting."""
        with self._lock:
            self._closed = True
            self._out.clear()
            if not self._cancelling:  # otherwise `cancel` could shut down a reused descriptor; the finalizer closes it
                self._free()

    def after_fork_in_child(self) -> None:
        """Close the copy in a forked child: while it is open, the server would not see the parent's end."""
        self._closed = True
        self._free()

    def has_arrived(self) -> bool:
        """Whether bytes have arrived that were not read. No other thread may be waiting."""
        return any(number != self._waker and events & select.POLLIN for number, events in self._poll.poll(0))

    def _take(self) -> None:
        if self._out:
            self._poll.modify(self._socket, select.POLLIN | select.POLLOUT)
        for number, events in self._spun() or self._poll.poll():
            if number == self._waker:
                os.eventfd_read(self._waker)
            elif events & ~select.POLLOUT:
                self._read()
            if events & select.POLLOUT:
                self._flush()

    def _spun(self) -> list[tuple[int, int]]:
        """The events that come within a moment, during which other threads and processes may run; else none."""
        poll, ends = self._poll.poll, time.perf_counter() + _SPIN_SECONDS
        while not (found := poll(0)) and time.perf_counter() < ends:
            os.sched_yield()
        return found

    def _read(self) -> None:
        try:
            data = self._socket.recv(_LARGE_PIECE if self._partial else _SMALL_PIECE)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.status = self.status or _GONE
        elif not self._partial and len(data) >= PREFIX and LENGTH.unpack_from(data)[0] == len(data) - PREFIX:
            self.messages.append(data[PREFIX:])
        else:
            self._partial += data
            self._split()

    def _split(self) -> None:
        part, position = self._partial, 0
        while len(part) - position >= PREFIX:
            size = LENGTH.unpack_from(part, position)[0]
            after = position + PREFIX + (size & ~LAST)
            if after > len(part):
                break
            with memoryview(part) as view:
                message = bytes(view[position + PREFIX : after])
            position = after
            if size & LAST:
                self.status = self.status or status_of(message)
                break
            self.messages.append(message)
        del part[:position]

    def _flush(self) -> None:
        with self._lock:
            while self._out:
                data = self._out[0]
                left = data[self._put(data) :]
                if left:
                    self._out[0] = left
                    return
                self._out.popleft()
            self._poll.modify(self._socket, select.POLLIN)

    def _put(self, data: memoryview) -> int:
        """The number of bytes sent; all on an error, which the waiting thread then finds."""
        try:
            return self._socket.send(data, socket.MSG_NOSIGNAL)
        except BlockingIOError:
            return 0
        except OSError:
            return len(data)


def _opened(name: str) -> tuple[socket.socket, int]:
    if not hasattr(os, "eventfd"):  # not Linux
        raise NotLocal("the system has no such sockets")
    made: socket.socket | None = None
    try:
        made = _connected(name)
        return made, os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
    except OSError as error:  # no listener, or no free descriptor
        if made is not None:
            made.close()
        raise NotLocal(str(error)) from None


def _connected(name: str) -> socket.socket:
    return connected(f"\0{name}")


def connected(address: str) -> socket.socket:
    """A connection to a process of this user. Raises OSError, NotLocal."""
    if not hasattr(socket, "SO_PEERCRED"):  # not Linux
        raise NotLocal("the system does not tell whose process listens")
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        made.setblocking(False)
        made.connect(address)
        user = _CREDENTIALS.unpack(made.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))[1]
        if user != os.geteuid():
            raise NotLocal(f"it is user {user}'s")
    except BaseException:
        made.close()
        raise
    return made


def _close(connection: socket.socket, waker: int) -> None:
    connection.close()
    os.close(waker)


def status_of(raw: bytes) -> tuple[grpc.StatusCode, str, Any]:
    """The status, details and trailers that a server's last message tells."""
    if not raw:
        return (grpc.StatusCode.OK, "", ())
    details = Details(raw)
    code = _CODES.get(details.code, grpc.StatusCode.UNKNOWN)
    return (code, details.message, (("grpc-status-details-bin", raw),))
