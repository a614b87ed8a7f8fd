"""A TCP proxy that breaks each connection after a given number of bytes, in either direction."""

import socket
import struct
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress

_RESET = struct.pack("ii", 1, 0)  # SO_LINGER of 0 seconds: closing resets the connection


class CuttingProxy:
    """Listens at `address` and passes on to a target, "host:port" or "unix:path", until `cuts` says to break.

    Each connection takes the next number of `cuts`, and is cut after that many bytes. Without a further number it is
    not cut. `broken` counts the cut connections.
    """

    def __init__(self, target: str, cuts: Iterable[int]) -> None:
        self.target = target
        self.cuts = iter(cuts)
        self.broken = 0
        self._lock = threading.Lock()
        self._sockets: set[socket.socket] = set()
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listening.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listening.accept()
            except OSError:  # closed
                return
            _Connection(self, near, self._connect()).start()

    def _connect(self) -> socket.socket:
        if self.target.startswith("unix:"):
            far = socket.socket(socket.AF_UNIX)
            far.connect(self.target.removeprefix("unix:"))
            return far
        host, _, port = self.target.rpartition(":")
        return socket.create_connection((host, int(port)))

    def take_cut(self) -> int | None:
        """The number of the next connection."""
        with self._lock:
            return next(self.cuts, None)

    def hold(self, *sockets: socket.socket) -> None:
        """Remember what is to be closed at the end."""
        self._sockets.update(sockets)

    def close(self) -> None:
        """End it and all connections."""
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        for each in tuple(self._sockets):
            _drop(each)


class _Connection:
    def __init__(self, proxy: CuttingProxy, near: socket.socket, far: socket.socket) -> None:
        self.proxy, self.near, self.far = proxy, near, far
        self.left = proxy.take_cut()
        self.lock = threading.Lock()
        proxy.hold(near, far)

    def start(self) -> None:
        for source, sink in ((self.near, self.far), (self.far, self.near)):
            threading.Thread(target=self._pass, args=(source, sink), daemon=True).start()

    def _pass(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                if not self._may_pass(len(data)):
                    break
                sink.sendall(data)
        _drop(source)
        _drop(sink)

    def _may_pass(self, count: int) -> bool:
        with self.lock:
            if self.left is None:
                return True
            was, self.left = self.left, self.left - count
            if was > 0 >= self.left:
                self.proxy.broken += 1
            return self.left > 0


def _drop(end: socket.socket) -> None:
    with suppress(OSError):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    with suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
    with suppress(OSError):
        end.close()


@contextmanager
def cutting(target: str, cuts: Iterable[int]) -> Iterator[CuttingProxy]:
    """A proxy that ends with the block."""
    proxy = CuttingProxy(target, cuts)
    try:
        yield proxy
    finally:
        proxy.close()
