"""Frame transport: sends frames between the front and a worker process over a pair of connected sockets.

A frame is a head of fixed size (bytes of the body, kind, session number, ticket, deadline, sent) and an opaque body.
Either side may send at any time, so a frame need not answer another.
"""

import select
import socket
import struct
from typing import NamedTuple

HEAD = struct.Struct("<QIxxxxQQdd")
INFINITE = float("inf")
_BUFFER = 1 << 18
_SMALL = 1 << 14
_MOST_READS = 64  # before received frames are returned
Part = bytes | memoryview


class Frame(NamedTuple):
    """A received frame: `number` of a session, `ticket` of a call, times by time.monotonic().

    That clock is the same in all processes of a machine. `deadline` is infinite for none.
    """

    kind: int
    number: int
    ticket: int
    deadline: float
    sent: float
    body: bytes


def head(
    size: int, kind: int, number: int = 0, ticket: int = 0, deadline: float = INFINITE, sent: float = 0.0
) -> bytes:
    """Pack a frame's head, for a body of `size` bytes."""
    return HEAD.pack(size, kind, number, ticket, deadline, sent)


class FrameParser:
    """Parses frames: the caller reads bytes into `room`, then calls `filled`."""

    def __init__(self) -> None:
        self._buffer = memoryview(bytearray(_BUFFER))
        self._start = self._end = 0
        self._large: bytearray | None = None  # the body of a frame larger than the buffer
        self._got = 0
        self._head: tuple[int, int, int, float, float] = (0, 0, 0, 0.0, 0.0)

    def room(self) -> memoryview:
        """Memory for the next bytes."""
        if self._large is not None:
            return memoryview(self._large)[self._got :]
        return self._buffer[self._end :]

    def filled(self, count: int) -> list[Frame]:
        """Parse `count` bytes read into `room`; return the completed frames."""
        if self._large is not None:
            self._got += count
            if self._got < len(self._large):
                return []
            body, self._large = bytes(self._large), None
            return [Frame(*self._head, body)]
        self._end += count
        return self._frames()

    def _frames(self) -> list[Frame]:
        found: list[Frame] = []
        start, end, buffer = self._start, self._end, self._buffer
        while end - start >= HEAD.size:
            size, kind, number, ticket, deadline, sent = HEAD.unpack_from(buffer, start)
            begin = start + HEAD.size
            if begin + size > end:
                if HEAD.size + size > _BUFFER:
                    self._large = bytearray(size)
                    self._got = end - begin
                    self._large[: self._got] = buffer[begin:end]
                    self._head = (kind, number, ticket, deadline, sent)
                    start = end
                break
            start = begin + size
            found.append(Frame(kind, number, ticket, deadline, sent, bytes(buffer[begin:start])))
        if start == end:
            start = end = 0
        elif start:  # move an incomplete frame to the front, where the rest of it fits
            rest = end - start
            buffer[:rest] = bytes(buffer[start:end])
            start, end = 0, rest
        self._start, self._end = start, end
        return found


class BlockingPipe:
    """The worker's end. One thread at a time may call `take`, and one `send`."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(True)
        self.sock = sock
        self._parser = FrameParser()
        self._poll = select.poll()
        self._poll.register(sock, select.POLLIN)

    def take(self, timeout: float | None) -> list[Frame] | None:
        """Receive frames; wait for one up to `timeout` seconds, None without limit. None at the pipe's end."""
        if timeout and not self._poll.poll(timeout * 1000 + 1):
            return []
        flags = 0 if timeout is None else socket.MSG_DONTWAIT
        frames: list[Frame] = []
        reads = 0
        while not frames or reads < _MOST_READS:
            room = self._parser.room()
            try:
                count = self.sock.recv_into(room, 0, flags)
            except BlockingIOError:
                return frames
            except OSError:
                return frames or None
            if not count:
                return frames or None
            frames += self._parser.filled(count)
            if frames:
                if count < len(room):
                    return frames
                flags = socket.MSG_DONTWAIT  # the socket may hold more: the complete frames must not wait for it
            reads += 1
        return frames

    def has_data(self) -> bool:
        """Whether the socket has data to read."""
        return bool(self._poll.poll(0))

    def send(self, start: bytes, *parts: Part) -> None:
        """Send a frame: its head and its body in parts. Raises OSError if the other end is closed."""
        size = sum(len(part) for part in parts)
        if size <= _SMALL:
            self.sock.sendall(b"".join((start, *parts)))
            return
        self.sock.sendall(start)
        for part in parts:
            self.sock.sendall(part)
