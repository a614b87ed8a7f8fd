"""Peer links: connections between the servers of a shared directory, for groups whose ranks have several servers.

A connection begins with a challenge: the accepting server sends a random number, the other one its HMAC by the secret
in the directory (group_homes.py). With TLS, the accepting server proves the certificate whose hash is in its address.
Then a *link* carries messages, one JSON object per line, and a *transfer* values: a line that asks, a line that
answers, and bytes.
"""

import asyncio
import hashlib
import hmac
import json
import logging
import secrets
import socket
import ssl
import struct
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from gradwire_server.common.errors import Refusal
from gradwire_server.registry.group_homes import Address

VERSION = 1
LINK, TRANSFER = "link", "transfer"
_LINE_BYTES = 1 << 20
_HANDSHAKE_SECONDS = 5.0
_GREETING_BYTES = 4096
_MOST_HANDSHAKES = 64  # connections that have not proved the secret yet
_SILENT_SECONDS = 10  # without a byte, until a transfer fails
_BEAT_SECONDS = 0.5
_MOST_SILENT_BEATS = 10  # without a message of the other server, which sends one each beat
_MOST_QUEUED = 8 << 20  # bytes that the other server has not taken

log = logging.getLogger("gradwire.server")
Receive = Callable[["Link", dict[str, Any]], None]
Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def encoded(message: dict[str, Any]) -> bytes:
    """A message as a line."""
    return json.dumps(message).encode() + b"\n"


async def read_message(reader: asyncio.StreamReader, most: int = _LINE_BYTES) -> dict[str, Any]:
    """The next line's message. Raises OSError at the end of the connection; ValueError, also for a longer line.

    The reader itself holds no more than a greeting, so a line is put together from parts.
    """
    line = bytearray()
    while not line.endswith(b"\n"):
        try:
            line += await reader.readuntil(b"\n")
        except asyncio.LimitOverrunError as overrun:
            line += await reader.readexactly(overrun.consumed)
        except asyncio.IncompleteReadError:
            raise ConnectionResetError("the connection ended") from None
        if len(line) > most:
            raise ValueError(f"a line has more than {most} bytes")
    try:
        message = json.loads(line)
    except RecursionError:
        raise ValueError("a message is nested too deeply") from None
    if not isinstance(message, dict):
        raise ValueError("a message is to be an object")
    return message


class Link:
    """A connection that carries messages both ways, until one of the servers is gone."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, peer: Address) -> None:
        self.peer = peer
        self._reader = reader
        self._writer = writer
        self._silent = 0  # own beats since the last message
        self._beating = asyncio.create_task(self._beat())

    def send(self, **message: Any) -> None:
        """Send a message. A server that does not take its messages counts as gone."""
        if self._writer.transport.get_write_buffer_size() > _MOST_QUEUED:
            self.close()
        elif not self._writer.is_closing():
            self._writer.write(encoded(message))

    def is_closing(self) -> bool:
        """Whether the connection has ended or is about to."""
        return self._writer.is_closing()

    async def run(self, receive: Receive) -> None:
        """Call `receive` for each message, until the connection ends. Raises what `receive` raises."""
        try:
            while (message := await self._next()) is not None:
                self._silent = 0
                if message:
                    receive(self, message)
        finally:
            self.close()

    async def _next(self) -> dict[str, Any] | None:
        """The next message; None at the connection's end."""
        try:
            return await read_message(self._reader)
        except (OSError, ValueError) as error:
            log.info("link to %s ended: %s", self.peer.endpoint, error)
            return None

    def close(self) -> None:
        """End the connection; `run` returns."""
        self._beating.cancel()
        self._writer.transport.abort()

    async def _beat(self) -> None:
        # Counted in own beats: a front that was stalled does not blame the others.
        while self._silent < _MOST_SILENT_BEATS:
            self.send()
            self._silent += 1
            await asyncio.sleep(_BEAT_SECONDS)
        log.warning("server %s is silent", self.peer.endpoint)
        self._writer.transport.abort()


class Peers:
    """This server's listening port for other servers, and connections to them."""

    def __init__(self, endpoint: str, bind: str, files: tuple[Path, Path] | None) -> None:
        """`files` are those of the TLS certificate and key."""
        self._bind = bind
        self._files = files
        self.endpoint = endpoint
        self._key = b""
        self._server: asyncio.Server
        self._unproved = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self.address = Address(endpoint, "", 0)

    async def start(self, key: bytes, accepted: Callable[[Link], Awaitable[None]], serve: Serve) -> None:
        """Listen. `accepted` runs a link, and `serve` answers a transfer's requests. Raises OSError, ssl.SSLError."""
        self._key = key
        context, certificate = None, ""
        if self._files is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*self._files)
            certificate = _digest(ssl.PEM_cert_to_DER_cert(_first_certificate(self._files[0].read_text())))

        def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.create_task(self._take(reader, writer, accepted, serve))
            self._tasks.add(task)

            def ended(task: asyncio.Task[None]) -> None:
                self._tasks.discard(task)
                writer.transport.abort()
                if not task.cancelled() and (error := task.exception()) is not None:
                    log.error("a connection of another server failed", exc_info=error)

            task.add_done_callback(ended)

        listening = await asyncio.get_running_loop().run_in_executor(None, _listening, self._bind)
        self._server = await asyncio.start_server(take, sock=listening, limit=_GREETING_BYTES, ssl=context)
        port = listening.getsockname()[1]
        host = self.endpoint.rpartition(":")[0].strip("[]")
        self.address = Address(self.endpoint, host, port, certificate)

    async def stop(self) -> None:
        """Close the port and all connections that were accepted."""
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _take(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        accepted: Callable[[Link], Awaitable[None]],
        serve: Serve,
    ) -> None:
        if self._unproved >= _MOST_HANDSHAKES:
            return
        self._unproved += 1
        try:
            nonce = secrets.token_hex(16)
            writer.write(encoded({"version": VERSION, "nonce": nonce}))
            hello = await asyncio.wait_for(read_message(reader, _GREETING_BYTES), _HANDSHAKE_SECONDS)
            proof = _proof(self._key, nonce, str(hello["kind"]))
            if not hmac.compare_digest(str(hello["proof"]).encode(), proof.encode()):
                log.warning(
                    "a connection without the servers' secret", extra={"last": writer.get_extra_info("peername")}
                )
                return
            peer = Address(**hello["address"])
        except (OSError, asyncio.TimeoutError, ValueError, KeyError, TypeError) as error:
            log.info("a server's connection cannot be used: %r", error)
            return
        finally:
            self._unproved -= 1
        if hello["kind"] != TRANSFER:
            await accepted(Link(reader, writer, peer))
            return
        with suppress(OSError, ValueError, KeyError, TypeError):
            await serve(reader, writer)

    async def connect(self, peer: Address, kind: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A connection to another server. Raises OSError; Refusal if it is not the one that the directory names."""
        try:
            return await asyncio.wait_for(self._connect(peer, kind), _HANDSHAKE_SECONDS)
        except (asyncio.TimeoutError, ValueError, KeyError) as error:
            raise ConnectionError(f"server {peer.endpoint} does not answer at {peer.host}:{peer.port}") from error

    async def _connect(self, peer: Address, kind: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        context = _context() if peer.certificate else None
        reader, writer = await asyncio.open_connection(peer.host, peer.port, limit=_GREETING_BYTES, ssl=context)
        try:
            greeting = await read_message(reader, _GREETING_BYTES)
            writer.write(encoded(self._hello(peer, kind, greeting, writer.get_extra_info("ssl_object"))))
        except BaseException:
            writer.transport.abort()
            raise
        return reader, writer

    def connect_blocking(self, peer: Address, kind: str) -> socket.socket:
        """The same for a thread. Raises OSError, Refusal.

        Reading raises BlockingIOError or, with TLS, TimeoutError after _SILENT_SECONDS without a byte.
        """
        connection = socket.create_connection((peer.host, peer.port), _HANDSHAKE_SECONDS)
        try:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if peer.certificate:
                connection = _context().wrap_socket(connection)
            line, until = b"", time.monotonic() + _HANDSHAKE_SECONDS
            while not line.endswith(b"\n") and len(line) < _GREETING_BYTES and (byte := connection.recv(1)):
                line += byte
                if time.monotonic() > until:  # the socket's own limit holds for each byte
                    raise ValueError("the greeting takes too long")
            connection.sendall(encoded(self._hello(peer, kind, json.loads(line), connection)))
            for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
                connection.setsockopt(socket.SOL_SOCKET, option, struct.pack("ll", _SILENT_SECONDS, 0))
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            # The kernel's limit does not end a read of TLS. Without TLS, Python's would end MSG_WAITALL.
            connection.settimeout(_SILENT_SECONDS if peer.certificate else None)
        except (ValueError, KeyError) as error:
            connection.close()
            raise ConnectionError(f"server {peer.endpoint} does not answer at {peer.host}:{peer.port}") from error
        except BaseException:
            connection.close()
            raise
        return connection

    def _hello(self, peer: Address, kind: str, greeting: dict[str, Any], secured: Any) -> dict[str, Any]:
        """The answer to a greeting. Raises Refusal if it is not the server that the directory names; KeyError."""
        if peer.certificate and _digest(secured.getpeercert(True)) != peer.certificate:
            raise Refusal("UNAVAILABLE", f"another server than {peer.endpoint} answers at its address")
        if greeting.get("version") != VERSION:
            what = f"server {peer.endpoint} speaks version {greeting.get('version')} of the servers' protocol"
            raise Refusal("NOT_SUPPORTED", f"{what}, and this one version {VERSION}")
        proof = _proof(self._key, str(greeting["nonce"]), kind)
        return {"kind": kind, "proof": proof, "address": vars(self.address)}


def _listening(host: str) -> socket.socket:
    """A socket at a free port of a host; for :: also of IPv4, as gRPC does. Raises OSError."""
    if host == "::" and socket.has_dualstack_ipv6():
        return socket.create_server((host, 0), family=socket.AF_INET6, dualstack_ipv6=True)
    family, _, _, _, address = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    return socket.create_server(address[:2], family=family)


def _context() -> ssl.SSLContext:
    """TLS whose certificate is checked by its hash."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def _first_certificate(text: str) -> str:
    """The server's own certificate in a file: before those of its authorities, and maybe after its key."""
    begin, end = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"
    start = text.index(begin)
    return text[start : text.index(end, start) + len(end)]


def _digest(certificate: bytes) -> str:
    return hashlib.sha256(certificate).hexdigest()


def _proof(key: bytes, nonce: str, kind: str) -> str:
    return hmac.new(key, f"{nonce} {kind}".encode(), hashlib.sha256).hexdigest()
