"""Local streams: carry Stream's messages over a Unix socket, for clients of the server's machine and user.

In a small round trip gRPC costs several times what the computing costs. A client on the same machine needs none of
gRPC's features. So Stream's messages also travel raw, each after its length: four bytes, little-endian. The server's
last message has the highest bit of its length set, and is the stream's google.rpc.Status. Stream (stream.py) defines
the behaviour; a connection takes the place of gRPC's context.

The socket has a name in Linux's abstract namespace and no file, so nothing is left behind. Access depends on the
connecting process's user, which the kernel reports. The name is no secret: every process in the network namespace can
list it. A server with authentication or TLS has no local streams.
"""

import asyncio
import logging
import os
import secrets
import socket
import struct
import threading
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc

from gradwire_server.common.errors import Refusal
from gradwire_server.common.limits import MIB
from gradwire_server.rpc.stream import ImmediateTransport, Stream

if TYPE_CHECKING:
    from gradwire_server.rpc.service import Front

_LENGTH = struct.Struct("<I")
_LAST = 1 << 31
_PREFIX = _LENGTH.size
_CREDENTIALS = struct.Struct("iII")  # process, user, group
# Most bytes of a message that another thread sends. The kernel takes so few as a whole or not at all.
_MOST_FROM_THREAD = 16 << 10
# Bytes read at once, and while a large message arrives. Python reserves them before each read, and a reservation
# above malloc's threshold of 128 KiB costs ten times a small message's read.
_SMALL_PIECE, _LARGE_PIECE = 64 << 10, 256 << 10
# Most bytes of unread messages; beyond it the socket is not read.
_MOST_UNREAD = MIB
# Counted for each message beside its bytes, so a flood of empty messages is bounded too.
_MESSAGE_COST = 64
_ADDRESS_BYTES = 108
_BACKLOG = 128  # connections that wait to be accepted
_AT_ONCE = 4  # accepted per pass of the event loop
# Connections that do not read the last message are aborted after this.
_CLOSE_SECONDS = 10.0
_CALL_SECONDS = 30.0  # after which a connection without a call is aborted
_CALLS_SUFFIX = ".local"  # of the file of the socket for calls, after that of gRPC's socket

log = logging.getLogger("gradwire.server")


class LocalStreams:
    """The listening sockets and their connections."""

    def __init__(self, front: "Front") -> None:
        self.front = front
        self.connections: set[Connection] = set()
        self._servers: list[asyncio.Server] = []
        self._file: tuple[Path, os.stat_result] | None = None  # of the socket for calls, and what it was when made

    async def start(self) -> str:
        """Start listening; the socket's name. Empty if the system has no such sockets; clients then use gRPC."""
        if not hasattr(socket, "SO_PEERCRED"):  # not Linux
            return ""
        name = f"gradwire-{secrets.token_hex(16)}"
        address = f"\0{name}".encode()
        try:
            # Node pads an address with zeros, which makes another one of it.
            for each in (address, address.ljust(_ADDRESS_BYTES, b"\0")):
                self._servers.append(await self._listen(each, Connection))
        except OSError as error:
            self._close()
            log.warning("no local streams", extra={"error": str(error)})
            return ""
        return name

    async def start_calls(self, path: Path) -> None:
        """Answer calls at a socket beside `path`, this server's socket for gRPC, if the system tells who connects."""
        if not hasattr(socket, "SO_PEERCRED"):  # not Linux
            return
        file = path.with_name(path.name + _CALLS_SUFFIX)
        try:
            if file.is_socket():  # of a server that was killed
                file.unlink(missing_ok=True)
            self._servers.append(await self._listen(bytes(file), CallConnection))
            self._file = file, file.lstat()
        except OSError as error:  # for example, the path is too long: clients use gRPC
            log.info("no local calls", extra={"error": str(error)})

    async def _listen(self, address: bytes, kind: "type[Connection]") -> asyncio.Server:
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            if address[0]:  # a file's path, which Linux makes with the socket's mode
                os.fchmod(listening.fileno(), 0o600)
            listening.bind(address)
            loop = asyncio.get_running_loop()
            server = await loop.create_unix_server(lambda: kind(self), sock=listening, backlog=_AT_ONCE)
            listening.listen(_BACKLOG)
        except OSError:
            listening.close()
            raise
        return server

    def _close(self) -> None:
        for each in self._servers:
            each.close()
        self._servers.clear()
        if self._file is not None:
            self._remove(*self._file)
            self._file = None

    @staticmethod
    def _remove(file: Path, made: os.stat_result) -> None:
        """Remove this server's file. Another server may have replaced it, and one that may not be removed stays."""
        with suppress(OSError):
            if os.path.samestat(file.lstat(), made):
                file.unlink()

    async def stop(self, grace: float) -> None:
        """Stop listening. Abort connections that have not read their stream's end within the grace."""
        self._close()
        for connection in self.connections:
            connection.end_calls()
        closed = [connection.closed for connection in self.connections]
        if closed:
            await asyncio.wait(closed, timeout=grace)
        for connection in tuple(self.connections):
            connection.leave()

    def accepts(self, transport: Any) -> bool:
        """Whether a connection is of this process's user and within the limit of connections."""
        raw = transport.get_extra_info("socket").getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        user = _CREDENTIALS.unpack(raw)[1]
        return user == os.geteuid() and len(self.connections) < self.front.backend.limits.max_connections


class Connection(asyncio.Protocol, ImmediateTransport):
    """One client's stream, in place of gRPC's context, with the same `read` and `write`."""

    def __init__(self, streams: LocalStreams) -> None:
        self._streams = streams
        self._most = streams.front.backend.limits.max_message_bytes + (64 << 10)  # room for the message around a batch
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._transport: Any = None
        self._serving: asyncio.Task[None] | None = None
        self._messages: deque[bytes] = deque()  # complete and unread
        self._unread = 0  # their bytes and costs
        self._part = bytearray()  # of an incomplete message
        self._ended = False  # no more data is accepted
        self._failure: Refusal | None = None
        self._reader: asyncio.Future[None] | None = None
        self._room: asyncio.Future[None] | None = None
        self._reading_paused = False
        self._descriptor = -1  # of the socket, while other threads may write to it; changed with the lock
        self._descriptor_lock = threading.Lock()
        self._method = "Stream"  # that a refusal is counted for

    # Called by asyncio.

    def connection_made(self, transport: Any) -> None:
        """Accept a client, or abort the connection."""
        self._transport = transport
        if not self._streams.accepts(transport):
            transport.abort()
            return
        transport.max_size = _SMALL_PIECE
        self._streams.connections.add(self)
        self._descriptor = transport.get_extra_info("socket").fileno()
        self._serving = asyncio.get_running_loop().create_task(self._serve())

    def connection_lost(self, error: Exception | None) -> None:
        """Cancel the stream of a client that is gone, as gRPC cancels a call."""
        self._end_writes_of_threads()
        self.resume_writing()  # a task may wait for room
        self._streams.connections.discard(self)
        self.closed.set_result(None)
        self._ended = True
        if self._serving is not None:
            self._serving.cancel()

    def eof_received(self) -> bool:
        """End the messages of a client that half-closed; answers are still sent."""
        if self._part:
            self._fail(Refusal("MALFORMED", "the stream ended inside a message"))
        self._end()
        return True

    def data_received(self, data: bytes) -> None:
        """Split complete messages off. The common case is exactly one message."""
        if self._ended:
            return
        if not self._part and len(data) >= _PREFIX and _LENGTH.unpack_from(data)[0] == len(data) - _PREFIX:
            self._take(data[_PREFIX:])
        else:
            self._part += data
            self._split()
            self._transport.max_size = _LARGE_PIECE if self._part else _SMALL_PIECE
        if self._unread > _MOST_UNREAD and not self._reading_paused:
            self._reading_paused = True
            self._transport.pause_reading()

    def pause_writing(self) -> None:
        """Make `write` wait: the client does not read."""
        self._room = asyncio.get_running_loop().create_future()

    def resume_writing(self) -> None:
        """Let `write` continue: the client reads again."""
        room, self._room = self._room, None
        if room is not None and not room.done():
            room.set_result(None)

    # Called by Stream.

    async def read(self) -> Any:
        """Read the next message; grpc.aio.EOF after the last. Raises Refusal: MALFORMED, MESSAGE_TOO_LARGE."""
        while not self._messages:
            if self._ended:
                if self._failure is not None:
                    raise self._failure
                return grpc.aio.EOF
            self._reader = asyncio.get_running_loop().create_future()
            await self._reader
        message = self._messages.popleft()
        self._unread -= len(message) + _MESSAGE_COST
        if self._reading_paused and self._unread <= _MOST_UNREAD // 2:
            self._reading_paused = False
            self._transport.resume_reading()
        return message

    async def write(self, message: bytes) -> None:
        """Send a message, once there is room."""
        room = self._room
        if room is not None:
            await asyncio.shield(room)
        self._transport.write(_LENGTH.pack(len(message)) + message)

    def try_write(self, message: bytes) -> bool:
        """Send a message if there is room; whether there was."""
        if self._room is not None:
            return False
        self._transport.write(_LENGTH.pack(len(message)) + message)
        return True

    def has_sent_all(self) -> bool:
        """Whether the socket has taken all that was written, so another thread may write the next message."""
        return self._room is None and not self._transport.get_write_buffer_size()

    def write_from_thread(self, message: bytes) -> bool:
        """Send a small message from any thread; whether it was sent.

        A message that the kernel took in part is lost with the connection. The client then asks for it again.
        """
        data = _LENGTH.pack(len(message)) + message
        if len(data) > _MOST_FROM_THREAD:
            return False
        with self._descriptor_lock:
            if self._descriptor < 0:
                return False
            try:
                sent = os.write(self._descriptor, data)
            except OSError:  # it has no room, or the client is gone; the event loop sees which
                return False
            if sent < len(data):
                self._descriptor = -1
                self.closed.get_loop().call_soon_threadsafe(self.leave)
        return True

    def invocation_metadata(self) -> tuple[()]:
        """Empty: a connection has no metadata; a batch may name its trace."""
        return ()

    # Internal.

    def end_calls(self) -> None:
        """End the connection after the call that is being answered, if it is for calls. The front ends streams."""

    def leave(self) -> None:
        """Abort the connection."""
        self._transport.abort()

    def _end_writes_of_threads(self) -> None:
        """Let only the event loop write from now on: the socket is closed next, or has its last message."""
        with self._descriptor_lock:
            self._descriptor = -1

    async def _run(self) -> None:
        """Do what the connection is for. Raises Refusal."""
        await Stream(self._streams.front, self).serve()

    async def _serve(self) -> None:
        try:
            await self._run()
        except Exception as error:  # noqa: BLE001 - becomes a status; the unforeseen is logged
            status = self._streams.front.refused(error, self._method).status().SerializeToString()
            self._end_writes_of_threads()
            self._transport.write(_LENGTH.pack(len(status) | _LAST) + status)
        else:
            self._end_writes_of_threads()
            self._transport.write(_LENGTH.pack(_LAST))
        finally:
            self._end()
            self._transport.close()
            if self._transport.get_write_buffer_size():
                asyncio.get_running_loop().call_later(_CLOSE_SECONDS, self._transport.abort)

    def _take(self, message: bytes) -> None:
        if self.take is not None and self._reader is not None and self.take(message):
            return
        self._messages.append(message)
        self._unread += len(message) + _MESSAGE_COST
        self._wake()

    def _split(self) -> None:
        part, start = self._part, 0
        while len(part) - start >= _PREFIX:
            size = _LENGTH.unpack_from(part, start)[0]
            if size > self._most:
                self._fail(Refusal("MESSAGE_TOO_LARGE", f"a message has at most {self._most} bytes, not {size}"))
                return
            after = start + _PREFIX + size
            if after > len(part):
                break
            with memoryview(part) as view:
                self._take(bytes(view[start + _PREFIX : after]))
            start = after
        del part[:start]

    def _fail(self, failure: Refusal) -> None:
        self._failure = failure
        self._part.clear()
        self._end()

    def _end(self) -> None:
        self._ended = True
        self._wake()

    def _wake(self) -> None:
        reader, self._reader = self._reader, None
        if reader is not None and not reader.done():
            reader.set_result(None)


class CallConnection(Connection):
    """A connection that carries one call after the other, each a method's name and a request."""

    def end_calls(self) -> None:
        """End the connection after the call that is being answered."""
        self._end()

    async def _run(self) -> None:
        front, loop = self._streams.front, asyncio.get_running_loop()
        while True:
            silent = loop.call_later(_CALL_SECONDS, self.leave)
            try:
                name, request = await self.read(), await self.read()
            finally:
                silent.cancel()
            if request is grpc.aio.EOF:
                return
            method = name.decode("ascii", "replace")
            self._method = method if method in front.local_methods else "other"
            await self.write(await front.answer_locally(method, request))
