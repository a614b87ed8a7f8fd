"""Local calls: makes a unary call at a server's second Unix socket, without gRPC.

A channel of gRPC and its first call take 7 ms, and a small program's session needs two calls. The second socket is a
file beside the first one, named `.local` after it (server: rpc/local_streams.py). It exists only if calls need no
credentials. If it cannot be opened, or ends without an answer, the call goes by gRPC.
"""

from __future__ import annotations

import contextlib
import select
import socket
import time
from collections.abc import Callable

import grpc

from gradwire._base.errors import GradwireError, make_error
from gradwire._transport.credentials import Credentials
from gradwire._transport.local import LAST, LENGTH, PREFIX, NotLocal, connected, status_of, wanted
from gradwire._transport.status import error_of_status
from gradwire.v1 import errors_pb2 as pb

#: The methods that a server answers there.
METHODS = frozenset(("OpenSession", "CloseSession", "KeepAlive", "ServerInfo", "ListOps"))
_UNIX = "unix:"
_ABSOLUTE = "unix:/"  # a relative path would change with the program's folder
_SUFFIX = ".local"
_PIECE = 64 << 10  # bytes read at once


def may_call(address: str, credentials: Credentials) -> bool:
    """Whether a server at `address` may have such a socket."""
    return address.startswith(_ABSOLUTE) and not credentials.tls and not credentials.metadata and wanted()


class Refused(Exception):
    """The server refused a call, or did not answer in time. `error` tells why."""

    def __init__(self, error: GradwireError) -> None:
        super().__init__(str(error))
        self.error = error


class LocalAnswer:
    """The answer to come of a call, with what transport.result_of needs of gRPC's futures."""

    def __init__(self, address: str, method: str, request: bytes, timeout: float | None, closed: Callable[[], bool]):
        """Send a request. `closed` tells whether the caller's transport was closed. Raises NotLocal."""
        self._address = address
        self._closed = closed
        self._ends = None if timeout is None else time.monotonic() + timeout
        self._data = bytearray()
        path = address.removeprefix(_UNIX).removeprefix("//") + _SUFFIX
        try:
            self._socket = connected(path)
        except OSError as error:  # no such file, or no listener
            raise NotLocal(str(error)) from None
        try:
            message = b"".join(LENGTH.pack(len(part)) + part for part in (method.encode(), request))
            if self._socket.send(message, socket.MSG_NOSIGNAL) != len(message):
                raise NotLocal("the request is too long")
        except OSError as error:
            self.cancel()
            raise NotLocal(str(error)) from None
        except BaseException:
            self.cancel()
            raise
        self._poll = select.poll()
        self._poll.register(self._socket, select.POLLIN)

    def result(self, timeout: float) -> bytes:
        """The answer. Raises grpc.FutureTimeoutError after `timeout` seconds.

        Raises Refused, and NotLocal if the connection ended without an answer. Raises grpc.FutureCancelledError if the
        transport was closed.
        """
        ends = time.monotonic() + timeout
        while (found := self._message()) is None:
            if self._closed():
                raise grpc.FutureCancelledError
            now = time.monotonic()
            if self._ends is not None and now >= self._ends:
                text = f"the server at {self._address} did not answer in time"
                raise Refused(make_error(pb.REASON_DEADLINE_EXCEEDED, text, 4, {"address": self._address}))
            if not self._poll.poll(max(0.0, ends - now) * 1000):
                raise grpc.FutureTimeoutError
            with contextlib.suppress(BlockingIOError):
                self._receive()
        self.cancel()
        return found

    def _receive(self) -> None:
        try:
            data = self._socket.recv(_PIECE)
        except ConnectionError:
            data = b""
        if not data:
            raise NotLocal("the server closed the connection")
        self._data += data

    def _message(self) -> bytes | None:
        """The server's message, if it has come. Raises Refused if it is a status, and NotLocal for an empty one."""
        data = self._data
        if len(data) < PREFIX:
            return None
        length = LENGTH.unpack_from(data)[0]
        if len(data) < PREFIX + (length & ~LAST):
            return None
        message = bytes(data[PREFIX : PREFIX + (length & ~LAST)])
        if not length & LAST:
            return message
        if not message:
            raise NotLocal("the server ended the connection")
        raise Refused(error_of_status(*status_of(message), self._address)[0])

    def cancel(self) -> None:
        """Close the connection. The server then cancels the call, unless it was answered."""
        self._socket.close()
