"""FrontPipe: the front's end of a pair of sockets to a worker process (worker/pipe.py). Workers do not use asyncio."""

import asyncio
import socket
from collections import deque
from collections.abc import Callable

from gradwire_server.worker.pipe import Frame, FrameParser, Part


class FrontPipe:
    """The front's end, on the event loop. Calls `received` with each frame, and `lost` once at the pipe's end."""

    def __init__(self, sock: socket.socket, received: Callable[[Frame], None], lost: Callable[[], None]) -> None:
        sock.setblocking(False)
        self._sock = sock
        self._received = received
        self._lost: Callable[[], None] | None = lost
        self._parser = FrameParser()
        self._unsent: deque[memoryview] = deque()
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(sock, self._readable)

    @property
    def closed(self) -> bool:
        """Whether the socket is closed."""
        return self._sock.fileno() < 0

    def send(self, *parts: Part) -> None:
        """Send a frame, its head and its body; bytes that the socket does not accept at once are sent later."""
        if self._lost is None:
            return
        if not self._unsent:
            try:
                sent = self._sock.sendmsg(parts)
            except BlockingIOError:
                sent = 0
            except OSError:
                self._end()
                return
            for part in parts:
                if sent < len(part):
                    self._unsent.append(memoryview(part)[sent:])
                sent = max(0, sent - len(part))
            if self._unsent:
                self._loop.add_writer(self._sock, self._writable)
        else:
            self._unsent.extend(memoryview(part) for part in parts)

    def close(self) -> None:
        """Close the socket; `lost` is not called."""
        self._lost = None
        self._end()

    def drain(self) -> None:
        """Receive until the socket has no more data."""
        while self._lost is not None and self._readable():
            pass

    def _readable(self) -> bool:
        """Receive once; return whether there was data."""
        try:
            count = self._sock.recv_into(self._parser.room())
        except BlockingIOError:
            return False
        except OSError:
            count = 0
        if not count:
            self._end()
            return False
        for frame in self._parser.filled(count):
            self._received(frame)
        return True

    def _writable(self) -> None:
        unsent = self._unsent
        try:
            while unsent:
                sent = self._sock.send(unsent[0])
                if sent < len(unsent[0]):
                    unsent[0] = unsent[0][sent:]
                else:
                    unsent.popleft()
        except BlockingIOError:
            return
        except OSError:
            self._end()
            return
        self._loop.remove_writer(self._sock)

    def _end(self) -> None:
        if self._sock.fileno() >= 0:
            self._loop.remove_reader(self._sock)
            self._loop.remove_writer(self._sock)
            self._sock.close()
        self._unsent.clear()
        if self._lost is not None:
            lost, self._lost = self._lost, None
            lost()
