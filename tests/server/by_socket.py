"""A client of local streams in the plainest way, which looks like gRPC's call."""

import socket
import struct
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import grpc
from google.rpc import status_pb2

from gradwire.v1 import service_pb2

LENGTH = struct.Struct("<I")
LAST = 1 << 31
CODES = {code.value[0]: code for code in grpc.StatusCode}


def framed(message: bytes) -> bytes:
    """A message with its length before it."""
    return LENGTH.pack(len(message)) + message


class SocketError(grpc.RpcError):
    """How the stream ended."""

    def __init__(self, status: status_pb2.Status) -> None:
        self.status = status

    def code(self) -> grpc.StatusCode:
        return CODES[self.status.code]

    def details(self) -> str:
        return self.status.message

    def trailing_metadata(self) -> Any:
        return (("grpc-status-details-bin", self.status.SerializeToString()),)


class SocketCall:
    """A stream by a server's socket: responses as gRPC's stub.Stream returns them, requests by `send`."""

    def __init__(self, name: str, timeout: float = 60.0) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(timeout)
        self.socket.connect(f"\0{name}")
        self.status: status_pb2.Status | None = None

    def send(self, request: service_pb2.StreamRequest) -> None:
        with suppress(OSError):  # it has ended: what is read tells why
            self.socket.sendall(framed(request.SerializeToString()))

    def half_close(self) -> None:
        with suppress(OSError):  # it is closed
            self.socket.shutdown(socket.SHUT_WR)

    def __iter__(self) -> Iterator[service_pb2.StreamResponse]:
        return self

    def __next__(self) -> service_pb2.StreamResponse:
        length = LENGTH.unpack(self._exactly(LENGTH.size))[0]
        body = self._exactly(length & ~LAST)
        if not length & LAST:
            return service_pb2.StreamResponse.FromString(body)
        self.status = status_pb2.Status.FromString(body)
        with suppress(ConnectionResetError):  # it did not read all that it was sent
            assert self.socket.recv(1) == b"", "the server goes on after its last message"
        if self.status.code:
            raise SocketError(self.status)
        raise StopIteration

    def _exactly(self, size: int) -> bytes:
        found = b""
        while len(found) < size:
            more = self.socket.recv(size - len(found))
            if not more:
                raise EOFError("the server closed the socket without a status")
            found += more
        return found

    def code(self) -> grpc.StatusCode:
        assert self.status is not None
        return CODES[self.status.code]

    def cancel(self) -> None:
        self.socket.close()
