"""A proxy that disturbs connections: it cuts them at any byte, and delays and duplicates bytes.

It can also deliver the last bytes of a cut connection after the next connection has begun.
"""

import contextlib
import random
import socket
import struct
import threading
import time

_CHUNK = 4096


class FaultyProxy:
    """Forwards connections at `address` to a server's address, "unix:/path", "host:port" or "\0abstract name".

    A cut comes after a number of bytes drawn between one and
    `most_bytes`, counted over both directions. Without `most_bytes` connections are not disturbed.
    """

    def __init__(
        self, target: str, seed: int, most_bytes: int = 0, abstract: bool = False, twin_every: int = 0
    ) -> None:
        """With `abstract` it listens at a Unix socket with a name alone, else at a TCP port.

        Each `twin_every`-th connection is duplicated: the server gets all its bytes on a second one too. Zero
        duplicates none. A count, not a coin: a run of few connections has its duplicates for certain.
        """
        self.twin_every = twin_every
        self.doubled = 0
        self.target = target
        self.random = random.Random(seed)
        self.most_bytes = most_bytes
        #: If set, the next connection alone is cut after so many bytes.
        self.budget: int | None = None
        self.connections = self.cuts = self.late = 0
        self._lock = threading.Lock()
        if abstract:
            self.address = f"\0gradwire-faulty-{random.SystemRandom().getrandbits(64):x}"
            self._listener = socket.socket(socket.AF_UNIX)
            self._listener.bind(self.address)
            self._listener.listen()
        else:
            self._listener = socket.create_server(("127.0.0.1", 0))
            self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._open: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self._start(self._accept)

    def stop(self) -> None:
        """Refuse connections from now on, end those there are, and leave no thread."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut_all()
        for thread in self._threads:
            thread.join(30)

    def cut_all(self) -> None:
        """End all connections at once."""
        with self._lock:
            sockets = list(self._open)
        for each in sockets:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def _start(self, function, *args) -> None:
        thread = threading.Thread(target=function, args=args, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            with self._lock:
                self.connections += 1
                budget = [self.random.randint(1, self.most_bytes)] if self.most_bytes else None
                if self.budget is not None:
                    budget, self.budget = [self.budget], None
                lateness = self.random.choice((0.0, 0.0, 0.02, 0.2)) if self.most_bytes else 0.0
                slowness = self.random.choice((0.0, 0.0, 0.0, 0.002)) if self.most_bytes else 0.0
            try:
                server = self._connect()
                doubles = self.twin_every and self.connections % self.twin_every == 0
                twin = self._connect() if doubles else None
            except OSError:
                client.close()
                continue
            if client.family != socket.AF_UNIX:
                client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._lock:
                self._open |= {client, server} if twin is None else {client, server, twin}
                self.doubled += twin is not None
            if twin is not None:
                self._start(self._ignore, twin)
            self._start(self._forward, client, server, budget, lateness, slowness, twin)
            self._start(self._forward, server, client, budget, 0.0, slowness)

    def _connect(self) -> socket.socket:
        if self.target.startswith(("unix:", "\0")):
            server = socket.socket(socket.AF_UNIX)
            server.connect(self.target.removeprefix("unix:"))
            return server
        host, _, port = self.target.rpartition(":")
        return socket.create_connection((host, int(port)))

    def _ignore(self, source: socket.socket) -> None:
        """Discard the server's answers on a duplicated connection."""
        with contextlib.suppress(OSError):
            while source.recv(_CHUNK):
                pass
        source.close()
        with self._lock:
            self._open.discard(source)

    def _forward(
        self,
        source: socket.socket,
        sink: socket.socket,
        budget: "list[int] | None",
        lateness: float,
        slowness: float,
        twin: "socket.socket | None" = None,
    ) -> None:
        """Move bytes one way. `lateness` is how long after a cut those on their way still arrive."""
        with contextlib.suppress(OSError):
            while data := source.recv(_CHUNK):
                if slowness:
                    time.sleep(slowness)
                if budget is not None:
                    with self._lock:
                        passing = max(0, min(len(data), budget[0]))
                        budget[0] -= len(data)
                    if passing < len(data):
                        self._cut(source, sink, data, passing, lateness)
                        break
                sink.sendall(data)
                if twin is not None:
                    with contextlib.suppress(OSError):  # the server may have ended it
                        twin.sendall(data)
        for each in (source, sink, *([] if twin is None else [twin])):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            with self._lock:
                self._open.discard(each)

    def _cut(self, source: socket.socket, sink: socket.socket, data: bytes, passing: int, lateness: float) -> None:
        with self._lock:
            self.cuts += 1
            abrupt = self.random.random() < 0.5
        if not lateness:
            sink.sendall(data[:passing])
            if abrupt:  # as a crash does: what the kernel still holds is lost, and the peer gets a reset
                sink.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                sink.shutdown(socket.SHUT_RD)  # the other direction's thread may wait there, and would keep it open
                sink.close()
            return
        # The sender believes the connection dead, while all that it sent arrives late.
        self.late += 1
        source.shutdown(socket.SHUT_RDWR)
        time.sleep(lateness)
        sink.sendall(data)
        time.sleep(0.05)
