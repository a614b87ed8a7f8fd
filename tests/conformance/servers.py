"""Servers for tests of connections: one with TLS and tokens, and one whose sessions move away.

README.md names the variables by which a runner finds them.
"""

import json
import queue
from collections.abc import Callable, Iterator
from concurrent import futures
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc

from benchmarks.processes import hear, process
from gradwire.v1 import errors_pb2, service_pb2, snapshots_pb2
from gradwire_server.auth.tokens import make
from tests.certificates import Authority

SERVE = ("-m", "gradwire_server", "--port=0", "--log-format=json", "--log-level=warning")
STREAM = "/gradwire.v1.AutogradService/Stream"
ANSWERS = 3  # messages of a stream before its session moves: attached, and two batches


@contextmanager
def secure(folder: Path) -> Iterator[dict[str, str]]:
    """A server with a certificate for 127.0.0.1 and a token: the variables that tell of it."""
    authority, other = Authority(folder), Authority(folder, "other")
    certificate, key = authority.issue("localhost")
    token, line = make("alice")
    (folder / "tokens").write_text(line + "\n")
    (folder / "tokens").chmod(0o600)
    flags = (f"--tls-cert={certificate}", f"--tls-key={key}", f"--token-file={folder / 'tokens'}")
    with process(*SERVE, *flags) as started:
        yield {
            "GRADWIRE_SECURE": json.loads(hear(started))["address"],
            "GRADWIRE_SECURE_CA": str(authority.path),
            "GRADWIRE_SECURE_OTHER_CA": str(other.path),
            "GRADWIRE_SECURE_TOKEN": token,
        }


@contextmanager
def moving(target: str) -> Iterator[str]:
    """A server that passes calls on to `target`, until it says of a session that it has moved there: its address."""
    with grpc.insecure_channel(target) as channel, futures.ThreadPoolExecutor(16) as threads:
        server = grpc.server(threads)
        server.add_generic_rpc_handlers([_Moving(channel, target)])
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        try:
            yield f"127.0.0.1:{port}"
        finally:
            server.stop(0).wait()


class _Moving(grpc.GenericRpcHandler):
    """Passes unary calls and streams on. Sessions move after some answers of their first stream.

    As a server of a cluster may, it names the other one for sessions from snapshots. Clients have to follow.
    """

    def __init__(self, channel: grpc.Channel, target: str) -> None:
        self._channel, self._target = channel, target
        self._moved: set[str] = set()

    def service(self, details: grpc.HandlerCallDetails) -> "grpc.RpcMethodHandler[Any, Any]":
        method = details.method
        if method == STREAM:
            return grpc.stream_stream_rpc_method_handler(self._stream)
        if method.endswith(("/Upload", "/Download")):
            return grpc.stream_stream_rpc_method_handler(lambda requests, context: self._refuse(context))
        return grpc.unary_unary_rpc_method_handler(lambda request, context: self._unary(method, request, context))

    def _unary(self, method: str, request: bytes, context: grpc.ServicerContext) -> bytes:
        # The session is the first field of every request, except OpenSession's, which has another text there.
        if service_pb2.KeepAliveRequest.FromString(request).session_id in self._moved:
            self._refuse(context)
        if method.endswith("/RestoreSession"):
            if not snapshots_pb2.RestoreSessionRequest.FromString(request).follows_endpoint:
                context.abort(grpc.StatusCode.FAILED_PRECONDITION, "this server opens no session from a snapshot")
            opened = service_pb2.OpenSessionResponse(endpoint=self._target)
            return service_pb2.RestoreSessionResponse(session=opened).SerializeToString()
        try:
            call: Callable[[bytes], bytes] = self._channel.unary_unary(method)
            return call(request)
        except grpc.RpcError as error:
            context.set_trailing_metadata(error.trailing_metadata())
            context.abort(error.code(), error.details())

    def _stream(self, requests: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
        first = next(requests)
        session = service_pb2.StreamRequest.FromString(first).attach.session_id
        if session in self._moved:
            self._refuse(context)
        passed: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        passed.put(first)
        answers = self._channel.stream_stream(STREAM)(iter(passed.get, None))
        for _ in range(ANSWERS):
            yield next(answers)
            if (request := next(requests, None)) is None:
                break
            passed.put(request)
        answers.cancel()
        passed.put(None)
        self._moved.add(session)
        self._refuse(context)

    def _refuse(self, context: grpc.ServicerContext) -> Any:
        message = f"the session is at {self._target}"
        told = errors_pb2.Error(
            reason=errors_pb2.REASON_SESSION_MOVED,
            code=grpc.StatusCode.UNAVAILABLE.value[0],
            message=message,
            metadata={"endpoint": self._target},
        )
        context.set_trailing_metadata((("gradwire-error-bin", told.SerializeToString()),))
        context.abort(grpc.StatusCode.UNAVAILABLE, message)
