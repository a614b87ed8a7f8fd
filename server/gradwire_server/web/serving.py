"""Serving: listens, and runs a gateway on uvicorn until it is told to end."""

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable
from pathlib import Path

import uvicorn

from gradwire_server.web.application import application
from gradwire_server.web.counters import WebCounters
from gradwire_server.web.gateway import Gateway
from gradwire_server.web.options import GatewayOptions
from gradwire_server.web.protocols import protocols

_SWEEP_SECONDS = 2.0
_BACKLOG = 512

log = logging.getLogger("gradwire.web")


class Certificate:
    """The gateway's certificate. Changed files are used by later handshakes, if they fit together."""

    def __init__(self, cert: str, key: str) -> None:
        """Raises OSError, ssl.SSLError."""
        self._cert, self._key = Path(cert), Path(key)
        self._stamp = self._stat()
        self.context = self._load()

    def follow(self) -> None:
        """Take changed files over."""
        try:
            stamp = self._stat()
            if stamp != self._stamp:
                self._stamp = stamp
                self._load()  # an error leaves the context as it is
                self.context.load_cert_chain(self._cert, self._key, password="")
                log.info("certificate read", extra={"path": str(self._cert)})
        except (OSError, ssl.SSLError) as error:
            log.error("certificate cannot be used, the previous one stays in force: %s", error)

    def _stat(self) -> list[tuple[int, int, int]]:
        found = [path.stat() for path in (self._cert, self._key)]
        return [(each.st_mtime_ns, each.st_ino, each.st_size) for each in found]

    def _load(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.load_cert_chain(self._cert, self._key, password="")
        return context


class _Server(uvicorn.Server):
    """uvicorn's server, whose signals are the caller's."""

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        await self._serve(sockets)


async def serve(
    options: GatewayOptions,
    listening: socket.socket,
    ended: asyncio.Event,
    started: Callable[[Gateway], object] = lambda gateway: None,
    counters: WebCounters | None = None,
) -> None:
    """Serve at a listening socket until `ended`. Calls `started` with the gateway. Counts in `counters`.

    Raises OSError, ssl.SSLError for unusable certificates.
    """
    logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)  # its lines are of clients' faults
    gateway = Gateway(options, counters)
    gateway.counters.begin()
    certificate = Certificate(options.tls_cert, options.tls_key) if options.tls_cert else None
    http, websocket = protocols(options, gateway.counters)
    config = uvicorn.Config(
        application(gateway),
        http=http,
        ws=websocket,
        ws_max_size=options.max_message_bytes,
        ws_per_message_deflate=False,
        loop="asyncio",
        lifespan="off",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        backlog=_BACKLOG,
        timeout_keep_alive=options.keep_alive_seconds,
        timeout_graceful_shutdown=max(1, int(options.grace_seconds)),
        h11_max_incomplete_event_size=options.max_header_bytes,
    )
    config.load()
    if certificate is not None:
        config.ssl = certificate.context
    server = _Server(config)
    running = asyncio.create_task(server.serve([listening]))
    started(gateway)
    try:
        await _until(ended, running, gateway, certificate)
    finally:
        server.should_exit = True
        await running
        await gateway.close()


async def _until(
    ended: asyncio.Event, running: "asyncio.Task[None]", gateway: Gateway, certificate: Certificate | None
) -> None:
    """Wait until the end; sweep meanwhile."""
    waiting = asyncio.create_task(ended.wait())
    try:
        while not (ended.is_set() or running.done()):
            await asyncio.wait((waiting, running), timeout=_SWEEP_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            await gateway.sweep()
            if certificate is not None:
                certificate.follow()
    finally:
        waiting.cancel()
