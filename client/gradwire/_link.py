"""A link: one attempt at the stream that carries a session's batches. Bytes go out without waiting, and come in to
whoever waits for them, on his own thread: a thread in between would cost every answer two more wake-ups.

A link that broke is not mended. The session opens the next one and sends again what was not answered.
"""

from __future__ import annotations

import queue
from collections.abc import Iterator
from typing import Any

import grpc

from gradwire import _wire
from gradwire._errors import GradwireError, make_error
from gradwire.v1 import errors_pb2 as pb
from gradwire.v1 import service_pb2

# Statuses that a connection's end leaves, if they carry no reason of ours.
_BREAKS = frozenset(
    (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.UNKNOWN, grpc.StatusCode.INTERNAL, grpc.StatusCode.CANCELLED)
)


class LinkBroken(Exception):
    """The connection ended: another link may do better. `error` is what to say if none does."""

    def __init__(self, error: GradwireError) -> None:
        super().__init__(str(error))
        self.error = error


class Link:
    """An open stream. `receive` is for one thread at a time."""

    def __init__(self, method: Any, address: str) -> None:
        self._address = address
        self._out: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        requests: Iterator[bytes] = iter(self._out.get, None)
        self._call = method(requests)

    def attach(
        self, session_id: str, writer: int, attempt: int, epoch: int, acknowledged: int
    ) -> service_pb2.StreamResponse:
        """Say whose stream it is; the answer says where it goes on. Raises GradwireError, LinkBroken."""
        attach = service_pb2.StreamAttach(
            session_id=session_id, writer=writer, attempt=attempt, epoch=epoch, acknowledged_seq=acknowledged
        )
        self.send(service_pb2.StreamRequest(attach=attach).SerializeToString())
        response = self.receive()
        if not response.HasField("attached"):
            raise self._unexpected(response)
        return response

    def send(self, request: bytes) -> None:
        """Send a serialized StreamRequest, or nothing if the link is broken: `receive` tells."""
        self._out.put(request)

    def acknowledge(self, seq: int) -> None:
        """Tell that all answers through `seq` have come."""
        self.send(_wire.stream_acknowledge(seq))

    def receive(self) -> service_pb2.StreamResponse:
        """Wait for the next message. Raises GradwireError, LinkBroken.

        A wait that was interrupted has left the stream in the middle of a message; it must be dropped then.
        """
        try:
            data: bytes = next(self._call)
        except StopIteration:
            raise LinkBroken(make_error(pb.REASON_UNAVAILABLE, "the server ended the stream", 14)) from None
        except grpc.RpcError as error:
            raise self._why(error) from None
        return service_pb2.StreamResponse.FromString(data)

    def receive_batch(self) -> tuple[service_pb2.RunResponse, int]:
        """Wait for the next batch's answer; with it the bytes of credit that came since the last."""
        response = self.receive()
        if not response.HasField("batch"):
            raise self._unexpected(response)
        return response.batch, response.credit_bytes

    @property
    def alive(self) -> bool:
        """Whether it is not known to be broken."""
        return bool(self._call.is_active())

    def drop(self) -> None:
        """Give it up; whoever waits for it is woken."""
        self._call.cancel()
        self._out.put(None)

    def _why(self, error: grpc.RpcError) -> Exception:
        from gradwire._transport import to_error

        found = to_error(error, self._address)
        # A refusal of ours names its reason; what has none comes from the connection.
        plain = "address" in found.metadata
        broken = found.reason == "UNAVAILABLE" or (plain and isinstance(error, grpc.Call) and error.code() in _BREAKS)
        return LinkBroken(found) if broken else found

    def _unexpected(self, response: service_pb2.StreamResponse) -> GradwireError:
        which = response.WhichOneof("response")
        return make_error(pb.REASON_INTERNAL, f"the server's stream answered out of turn: {which}", 13)
