"""Local streams: what Stream carries, over a Unix socket, for clients on the server's machine of the same user.

gRPC costs a small round trip several times what the computing does, and a client beside the server needs nothing of
what that buys. So the messages of Stream also travel as they are: each after its length, four bytes, the least
significant first. The last message of the server, after a length with the highest bit set, is the google.rpc.Status
that the stream ends with. What a stream is and does is Stream's business (stream.py), to which a connection looks like
gRPC's context.

The socket has a name and no file (Linux's abstract namespace): nothing is left behind. Who it lets in is decided by
whose process connects, as the kernel tells, not by who knows the name: all that share the network namespace may list
such names. Who asks callers for who they are has no local streams.
"""

import asyncio
import logging
import os
import secrets
import socket
import struct
from collections import deque
from typing import TYPE_CHECKING, Any

import grpc

from gradwire_server.common.errors import Refusal
from gradwire_server.common.limits import MIB
from gradwire_server.rpc.stream import Direct, Stream

if TYPE_CHECKING:
    from gradwire_server.rpc.service import Front

_LENGTH = struct.Struct("<I")
_LAST = 1 << 31
_PREFIX = _LENGTH.size
_CREDENTIALS = struct.Struct("iII")  # process, user, group
# Bytes of messages that wait for the stream to read them, beyond which the socket is not read.
_MOST_UNREAD = MIB
# What a message takes beside its bytes: a flood of empty ones must fill no memory, either.
_MESSAGE_COST = 64
_BACKLOG = 128  # connections that wait to be accepted
_AT_ONCE = 4  # that are accepted before the event loop sees to others again
# Who does not take the end of what he is sent is let go of after so long.
_CLOSE_SECONDS = 10.0

log = logging.getLogger("gradwire.server")


class LocalStreams:
    """The socket where they come in."""

    def __init__(self, front: "Front") -> None:
        self.front = front
        self.connections: set[Connection] = set()
        self._server: asyncio.Server | None = None

    async def start(self) -> str:
        """Listen; the name to connect to. Empty where the system has no such sockets: clients do without."""
        if not hasattr(socket, "SO_PEERCRED"):  # no Linux
            return ""
        name = f"gradwire-{secrets.token_hex(16)}"
        loop = asyncio.get_running_loop()
        listening: socket.socket | None = None
        try:
            listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            listening.bind(f"\0{name}")
            self._server = await loop.create_unix_server(lambda: Connection(self), sock=listening, backlog=_AT_ONCE)
            listening.listen(_BACKLOG)
        except OSError as error:
            if listening is not None:
                listening.close()
            log.warning("no local streams", extra={"error": str(error)})
            return ""
        return name

    async def stop(self, grace: float) -> None:
        """Listen no more; who has not taken the end of his stream within the grace is let go of."""
        if self._server is not None:
            self._server.close()
        closed = [connection.closed for connection in self.connections]
        if closed:
            await asyncio.wait(closed, timeout=grace)
        for connection in tuple(self.connections):
            connection.leave()

    def accepts(self, transport: Any) -> bool:
        """Whether a connection is of this process's user, and not one too many."""
        raw = transport.get_extra_info("socket").getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        user = _CREDENTIALS.unpack(raw)[1]
        return user == os.geteuid() and len(self.connections) < self.front.backend.limits.max_connections


class Connection(asyncio.Protocol, Direct):
    """One client's stream, in place of gRPC's context: `read` and `write` are as there."""

    def __init__(self, streams: LocalStreams) -> None:
        self._streams = streams
        self._most = streams.front.backend.limits.max_message_bytes + (64 << 10)  # what a batch is wrapped in
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._transport: Any = None
        self._serving: asyncio.Task[None] | None = None
        self._messages: deque[bytes] = deque()  # that came whole and were not read
        self._unread = 0  # what they take
        self._part = bytearray()  # of the one that is coming
        self._ended = False  # nothing comes after what is here
        self._failure: Refusal | None = None
        self._reader: asyncio.Future[None] | None = None
        self._room: asyncio.Future[None] | None = None
        self._held_back = False

    # What asyncio calls.

    def connection_made(self, transport: Any) -> None:
        """A client is there."""
        self._transport = transport
        if not self._streams.accepts(transport):
            transport.abort()
            return
        self._streams.connections.add(self)
        self._serving = asyncio.get_running_loop().create_task(self._serve())

    def connection_lost(self, error: Exception | None) -> None:
        """It is gone: so is its stream, as where gRPC cancels a call."""
        self._streams.connections.discard(self)
        self.closed.set_result(None)
        self._ended = True
        if self._serving is not None:
            self._serving.cancel()

    def eof_received(self) -> bool:
        """It sends no more, but may wait for answers."""
        if self._part:
            self._fail(Refusal("MALFORMED", "the stream ended inside a message"))
        self._end()
        return True

    def data_received(self, data: bytes) -> None:
        """Take messages out as they come whole. Most often there is one, and nothing else."""
        if self._ended:
            return
        if not self._part and len(data) >= _PREFIX and _LENGTH.unpack_from(data)[0] == len(data) - _PREFIX:
            self._take(data[_PREFIX:])
        else:
            self._part += data
            self._split()
        if self._unread > _MOST_UNREAD and not self._held_back:
            self._held_back = True
            self._transport.pause_reading()

    def pause_writing(self) -> None:
        """The client does not take what it is sent."""
        self._room = asyncio.get_running_loop().create_future()

    def resume_writing(self) -> None:
        """It does again."""
        room, self._room = self._room, None
        if room is not None and not room.done():
            room.set_result(None)

    # What a stream calls.

    async def read(self) -> Any:
        """The next message; grpc.aio.EOF after the last. Raises Refusal for what is no message."""
        while not self._messages:
            if self._ended:
                if self._failure is not None:
                    raise self._failure
                return grpc.aio.EOF
            self._reader = asyncio.get_running_loop().create_future()
            await self._reader
        message = self._messages.popleft()
        self._unread -= len(message) + _MESSAGE_COST
        if self._held_back and self._unread <= _MOST_UNREAD // 2:
            self._held_back = False
            self._transport.resume_reading()
        return message

    async def write(self, message: bytes) -> None:
        """Send a message, once there is room."""
        room = self._room
        if room is not None:
            await asyncio.shield(room)
        self._transport.write(_LENGTH.pack(len(message)) + message)

    def write_at_once(self, message: bytes) -> bool:
        """Send a message if there is room; tells whether there was."""
        if self._room is not None:
            return False
        self._transport.write(_LENGTH.pack(len(message)) + message)
        return True

    def invocation_metadata(self) -> tuple[()]:
        """A connection brings none; a batch may name its trace."""
        return ()

    # The connection's own.

    def leave(self) -> None:
        """Be gone."""
        self._transport.abort()

    async def _serve(self) -> None:
        front = self._streams.front
        try:
            front.admit_some("Stream")
            await Stream(front, self).serve()
        except Exception as error:  # noqa: BLE001 - becomes a status; the unforeseen is logged
            status = front.refused(error, "Stream").status().SerializeToString()
            self._transport.write(_LENGTH.pack(len(status) | _LAST) + status)
        else:
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
        part, place = self._part, 0
        while len(part) - place >= _PREFIX:
            size = _LENGTH.unpack_from(part, place)[0]
            if size > self._most:
                self._fail(Refusal("MESSAGE_TOO_LARGE", f"a message has at most {self._most} bytes, not {size}"))
                return
            after = place + _PREFIX + size
            if after > len(part):
                break
            with memoryview(part) as view:
                self._take(bytes(view[place + _PREFIX : after]))
            place = after
        del part[:place]

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
