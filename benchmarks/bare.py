"""What gRPC itself costs from Python: an echo over a stream, and bytes in chunks either way. Nothing is parsed or kept.

`python -m benchmarks.bare` is the server's process; `Peer` is the client.
"""

from __future__ import annotations

import queue
import sys
from collections.abc import Iterator
from concurrent import futures
from typing import Any

import grpc

CHUNK = 1 << 20
MESSAGE = b"\0" * 64  # about what a tiny op and a read take
_OPTIONS = [("grpc.max_receive_message_length", 8 << 20), ("grpc.max_send_message_length", 8 << 20)]


def _echo(requests: Iterator[bytes], _: grpc.ServicerContext) -> Iterator[bytes]:
    yield from requests


def _receive(requests: Iterator[bytes], _: grpc.ServicerContext) -> bytes:
    return str(sum(map(len, requests))).encode()


def _send(request: bytes, _: grpc.ServicerContext) -> Iterator[bytes]:
    data = memoryview(bytes(int(request)))
    for begin in range(0, data.nbytes, CHUNK):
        yield bytes(data[begin : begin + CHUNK])  # cut out of something larger, as an upload's are


def serve() -> None:
    """Serve until stdin ends."""
    server = grpc.server(futures.ThreadPoolExecutor(4), options=_OPTIONS)
    handlers = {
        "Echo": grpc.stream_stream_rpc_method_handler(_echo),
        "Receive": grpc.stream_unary_rpc_method_handler(_receive),
        "Send": grpc.unary_stream_rpc_method_handler(_send),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("Bare", handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    print(f"127.0.0.1:{port}", flush=True)
    sys.stdin.read()
    server.stop(0).wait()


class Peer:
    """The client of a bare server."""

    def __init__(self, address: str) -> None:
        self._channel = grpc.insecure_channel(address, options=_OPTIONS)
        self._queue: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._answers: Any = self._channel.stream_stream("/Bare/Echo")(iter(self._queue.get, None))

    def echo(self) -> bytes:
        """A small message there and back, on a stream that is open."""
        self._queue.put(MESSAGE)
        answer: bytes = next(self._answers)
        return answer

    def upload(self, data: memoryview) -> int:
        """Send bytes in chunks; the answer is how many arrived."""
        chunks = (bytes(data[begin : begin + CHUNK]) for begin in range(0, data.nbytes, CHUNK))
        return int(self._channel.stream_unary("/Bare/Receive")(chunks))

    def download(self, size: int) -> int:
        """Receive so many bytes in chunks."""
        return sum(map(len, self._channel.unary_stream("/Bare/Send")(str(size).encode())))

    def close(self) -> None:
        """End the stream."""
        self._queue.put(None)
        self._channel.close()


if __name__ == "__main__":
    serve()
