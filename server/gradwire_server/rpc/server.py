"""Server: runs the front, the health service and reflection on one grpc.aio server, and drains it."""

import asyncio
import errno
import logging
import socket
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from gradwire_server.auth.interceptor import AuthInterceptor
from gradwire_server.auth.tls import Tls
from gradwire_server.auth.tokens import Tokens
from gradwire_server.common.allocator import MESSAGES, give_back, keep_freed
from gradwire_server.common.errors import Refusal
from gradwire_server.common.limits import Limits
from gradwire_server.registry.interface import SessionBackend
from gradwire_server.rpc.local_streams import LocalStreams
from gradwire_server.rpc.service import SERVICE, Front

if TYPE_CHECKING:
    from gradwire_server.rpc.traces import Traces

# gRPC refuses a message over its own cap without our error details. So its cap is this many times ours, and the front
# refuses what lies between.
_SLACK = 4
_FINISHING_SECONDS = 0.05  # between checks for sessions whose backward waits for its client
_PING_SECONDS = 10
_MOST_EARLY_PINGS = 3
_METADATA_BYTES = 8 << 10  # most bytes of a call's metadata
# Bytes that gRPC reads ahead for each call; its default is megabytes. A message that the front waits for is read whole,
# so transfers are no slower.
_AHEAD_BYTES = 512 << 10

_UNIX = "unix:"

log = logging.getLogger("gradwire.server")


class Server:
    """A server at an address, "host:port" or "unix:path", until `drain`."""

    def __init__(
        self,
        backend: SessionBackend,
        tokens: Tokens | None = None,
        tls: Tls | None = None,
        traces: "Traces | None" = None,
        local: bool = True,
    ) -> None:
        """With `tokens`, or a `tls` that requires clients' certificates, calls need a principal.

        Without tokens and TLS, clients of the same machine and user get local streams, unless `local` is false.
        """
        self.backend = backend
        self.tls = tls
        self.tokens = tokens
        self.front = Front(backend, traces)
        self.health = health.aio.HealthServicer()
        self.interceptor: AuthInterceptor | None = None
        self.local = LocalStreams(self.front) if local and tokens is None and tls is None else None
        self._server: grpc.aio.Server

    async def start(self, address: str, private: str = "") -> str:
        """Start serving; the address with the chosen port. Raises OSError if the address cannot be bound.

        `private` is the path of a Unix socket for a process of this server. It is not encrypted, and its calls are
        authenticated like all others.
        """
        _check_free(address)
        keep_freed(MESSAGES)
        await self.backend.start()
        certificates = self.tls is not None and self.tls.client_ca is not None
        if self.tokens or certificates:
            self.interceptor = AuthInterceptor(self.tokens, certificates, self.health.Check, self.backend.stop_work)
            self.interceptor.watch()
        gates = [] if self.interceptor is None else [self.interceptor]
        self._server = grpc.aio.server(
            interceptors=gates,
            options=_options(self.backend.limits),
            maximum_concurrent_rpcs=self.backend.limits.max_calls,
        )
        self._server.add_generic_rpc_handlers((self.front.handlers(),))
        health_pb2_grpc.add_HealthServicer_to_server(self.health, self._server)
        reflection.enable_server_reflection((SERVICE, health.SERVICE_NAME, reflection.SERVICE_NAME), self._server)
        try:
            if self.tls is None:
                port = self._server.add_insecure_port(address)
            else:
                port = self._server.add_secure_port(address, self.tls.credentials())
            if private:
                self._server.add_insecure_port(f"unix:{private}")
        except RuntimeError as error:
            if self.interceptor is not None:
                await self.interceptor.stop()
            await self.backend.stop(0)
            raise OSError(f"cannot listen at {address}") from error
        await self._server.start()
        if self.local is not None:
            self.backend.local_stream = await self.local.start()
            if address.startswith(_UNIX):
                await self.local.start_calls(Path(address.removeprefix(_UNIX)).absolute())
        for name in ("", SERVICE):
            await self.health.set(name, health_pb2.HealthCheckResponse.SERVING)
        give_back(0)  # what imports have freed
        return address if address.startswith("unix:") else f"{address.rpartition(':')[0]}:{port}"

    async def drain(self, grace: float) -> int:
        """Refuse new work, let running work finish within the grace, and end.

        Returns how many sessions are lost because they could not be stored.
        """
        await self.health.enter_graceful_shutdown()
        self.front.finishing = await self.backend.unstorable_sessions()
        self.front.draining = True
        self.backend.begin_drain()
        log.info("draining", extra={"active": self.front.active, "waiting": len(self.front.finishing)})
        with suppress(asyncio.TimeoutError):
            await asyncio.wait_for(
                asyncio.gather(self.backend.hand_over(self.front.finishing), self._finished()), grace
            )
        self.front.finishing = frozenset()
        lost = await self.backend.stop(grace)
        if self.interceptor is not None:
            await self.interceptor.stop()
        self.front.streams.end(Refusal("UNAVAILABLE", "the server is shutting down"))
        ends = [self._server.stop(min(grace, 1.0))]
        if self.local is not None:
            ends.append(self.local.stop(min(grace, 1.0)))
        await asyncio.gather(*ends)
        log.info("stopped")
        return lost

    async def _finished(self) -> None:
        """Wait until no call is being answered and no backward waits for its client."""
        while True:
            await self.front.idle.wait()
            self.front.finishing = await self.backend.unstorable_sessions()
            if not self.front.finishing and self.front.idle.is_set():
                return
            await asyncio.sleep(_FINISHING_SECONDS)


def _check_free(address: str) -> None:
    """Check that a port can be bound. Raises OSError with the reason, which gRPC would only log."""
    host, _, port = address.rpartition(":")
    if address.startswith("unix:") or port in ("", "0"):
        return
    host = host.strip("[]")
    failed: list[OSError] = []
    try:
        found = socket.getaddrinfo(host or None, int(port), type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for family, kind, protocol, _, target in found:
            try:
                with socket.socket(family, kind, protocol) as trying:
                    trying.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                    trying.bind(target)
                    trying.listen(1)
            except OSError as error:
                failed.append(error)
        # The system may lack an address's family. gRPC would skip an address that is in use.
        taken = [error for error in failed if error.errno == errno.EADDRINUSE]
        if taken or len(failed) == len(found):
            raise (taken or failed)[0]
    except OSError as error:
        hint = (
            "; --port names another one, and --port=0 takes one that is free" if error.errno == errno.EADDRINUSE else ""
        )
        raise OSError(f"cannot listen at {address}: {error.strerror or error}{hint}") from None


def _options(limits: Limits) -> list[tuple[str, int]]:
    return [
        ("grpc.max_receive_message_length", _SLACK * limits.max_message_bytes),
        ("grpc.max_send_message_length", _SLACK * limits.max_message_bytes),
        # Bounds for callers that are not authenticated yet.
        ("grpc.max_allowed_incoming_connections", limits.max_connections),
        ("grpc.max_concurrent_streams", limits.max_connection_calls),
        ("grpc.server_handshake_timeout_ms", int(limits.handshake_seconds * 1000)),
        ("grpc.max_connection_idle_ms", int(limits.idle_connection_seconds * 1000)),
        ("grpc.max_metadata_size", _METADATA_BYTES),
        ("grpc.absolute_max_metadata_size", 2 * _METADATA_BYTES),
        ("grpc.http2.bdp_probe", 0),
        ("grpc.http2.lookahead_bytes", _AHEAD_BYTES),
        # Clients may ping without calls; gRPC closes the connections of those that ping more often than this.
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.min_ping_interval_without_data_ms", _PING_SECONDS * 1000),
        ("grpc.http2.min_recv_ping_interval_without_data_ms", _PING_SECONDS * 1000),
        ("grpc.http2.max_ping_strikes", _MOST_EARLY_PINGS),
        ("grpc.keepalive_time_ms", 60_000),
        ("grpc.keepalive_timeout_ms", 20_000),
        ("grpc.so_reuseport", 0),
    ]
