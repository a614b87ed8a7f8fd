"""The chunks of an upload whose calls break."""

from collections.abc import Iterator
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import grpc

from gradwire._transport.bulk import Bulk
from gradwire.v1 import service_pb2

MOST = 10_000  # bytes of a message that arrives


class Transport:
    """A server behind a connection that breaks at large messages."""

    patience, address = 30.0, "a"

    def __init__(self) -> None:
        self.received = bytearray()
        self.sizes: list[int] = []

    def start_stream(self, kind: str, method: str, requests: Iterator[bytes]) -> "Future[bytes]":
        answer: Future[bytes] = Future()
        for raw in requests:
            part = service_pb2.UploadRequest.FromString(raw)
            if len(part.data) > MOST:
                answer.set_exception(grpc.RpcError())
                return answer
            self.received += part.data
            self.sizes.append(len(part.data))
        told = service_pb2.UploadResponse(transfer_id="t", received_bytes=len(self.received))
        answer.set_result(told.SerializeToString())
        return answer

    def explain(self, error: Exception) -> Any:
        return SimpleNamespace(reason="UNAVAILABLE")

    def leave(self, address: str, error: Any) -> None:
        """There is no other server."""

    def sleep_handling_signals(self, seconds: float) -> None:
        """The connection is there at once."""


def test_an_upload_whose_chunks_do_not_arrive_sends_smaller_ones() -> None:
    transport = Transport()
    opened = service_pb2.OpenSessionResponse(session_id="s", limits=service_pb2.Limits(chunk_bytes=1 << 20))
    data = bytes(range(256)) * 1000
    bulk = Bulk(transport, opened)  # type: ignore[arg-type]
    assert bulk.upload(memoryview(data)) == "t"
    assert transport.received == data
    assert max(transport.sizes) == 8192
