"""What connections may take before authentication: raw HTTP/2 from sockets, most of it malformed.

After each of them the server answers other clients as before.
"""

import contextlib
import random
import socket
import struct
import time
from collections.abc import Iterator

import grpc
import psutil
import pytest

from gradwire.v1 import service_pb2 as s
from tests.server.harness import Running, running, until

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RESET, SETTINGS, PING, GOAWAY, CONTINUATION = 0, 1, 3, 4, 6, 7, 9
END_HEADERS, END_STREAM = 4, 1
INITIAL_WINDOW_SIZE = 4  # among SETTINGS
HANDSHAKE_SECONDS = 1.0
CONNECTIONS = 8


@pytest.fixture(scope="module")
def strict() -> Iterator[Running]:
    with running(
        0, handshake_seconds=HANDSHAKE_SECONDS, max_connections=CONNECTIONS, idle_connection_seconds=1.0, max_calls=4
    ) as started:
        yield started
        assert started.stub.ServerInfo(s.ServerInfoRequest(), timeout=30).sessions == 0


def frame(kind: int, flags: int, stream: int, body: bytes = b"") -> bytes:
    """An HTTP/2 frame."""
    return struct.pack(">I", len(body))[1:] + struct.pack(">BBI", kind, flags, stream) + body


def literal(name: str, value: str) -> bytes:
    """A header, without compression."""
    return b"\x00" + b"".join(_prefixed(len(text)) + text.encode() for text in (name, value))


def _prefixed(size: int) -> bytes:
    if size < 127:
        return bytes((size,))
    size -= 127
    made = [127]
    while size >= 128:
        made.append(size % 128 + 128)
        size //= 128
    return bytes((*made, size))


def call(method: str = "OpenSession", **more: str) -> bytes:
    """A call's headers."""
    fields = {
        ":method": "POST",
        ":scheme": "http",
        ":path": f"/gradwire.v1.AutogradService/{method}",
        ":authority": "x",
        "content-type": "application/grpc",
        "te": "trailers",
        **more,
    }
    return b"".join(literal(name, value) for name, value in fields.items())


class Raw:
    """A connection that speaks HTTP/2 by hand."""

    def __init__(self, server: Running, preface: bool = True) -> None:
        host, _, port = server.address.rpartition(":")
        self.sock = socket.create_connection((host, int(port)), timeout=20)
        if preface:
            self.send(PREFACE + frame(SETTINGS, 0, 0))

    def send(self, data: bytes) -> None:
        """Send, also into a connection that is closed by now."""
        with contextlib.suppress(ConnectionError):
            self.sock.sendall(data)

    def ends(self, within: float) -> bytes:
        """What comes until the server closes; it must do so within that time."""
        self.sock.settimeout(within)
        found = b""
        with contextlib.suppress(ConnectionError):
            while more := self.sock.recv(1 << 16):
                found += more
        return found


@contextlib.contextmanager
def raw(server: Running, preface: bool = True) -> Iterator[Raw]:
    made = Raw(server, preface)
    try:
        yield made
    finally:
        made.sock.close()


def serves(server: Running) -> None:
    """Somebody else is answered, on a connection of his own."""
    ends = time.monotonic() + 60
    while True:  # the connections before may not have gone yet
        with grpc.insecure_channel(server.address, [("grpc.use_local_subchannel_pool", 1)]) as channel:
            info = channel.unary_unary("/gradwire.v1.AutogradService/ServerInfo")
            try:
                return info(b"", timeout=10)
            except grpc.RpcError:
                if time.monotonic() > ends:
                    raise
                time.sleep(0.1)


@pytest.mark.parametrize("says", [b"", b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00\x01", PREFACE[:10], PREFACE])
def test_who_does_not_come_to_the_point_is_sent_away(strict: Running, says: bytes) -> None:
    with raw(strict, preface=False) as connection:
        connection.send(says)
        connection.ends(within=HANDSHAKE_SECONDS + 30)
        serves(strict)


def test_a_connection_without_calls_is_closed(strict: Running) -> None:
    with raw(strict) as connection:
        assert connection.ends(within=60)


def closed(connection: Raw) -> bool:
    """Whether the server has closed it by now."""
    try:
        return connection.sock.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) == b""
    except BlockingIOError:
        return False
    except ConnectionError:
        return True


def test_connections_are_capped() -> None:
    # With so much time for a handshake, whoever is sent away is one too many.
    with running(0, handshake_seconds=300.0, max_connections=CONNECTIONS) as server:
        with contextlib.ExitStack() as stack:
            many = [stack.enter_context(raw(server, preface=False)) for _ in range(3 * CONNECTIONS)]
            until(lambda: sum(map(closed, many)) >= 2 * CONNECTIONS)
            assert sum(map(closed, many)) == 2 * CONNECTIONS
        serves(server)


def test_a_flood_of_pings_ends_the_connection(strict: Running) -> None:
    with raw(strict) as connection:
        connection.send(frame(PING, 0, 0, bytes(8)) * 10_000)
        told = connection.ends(within=60)
    assert b"too_many_pings" in told
    serves(strict)


def test_a_call_has_half_a_mebibyte_on_its_way_that_nobody_reads(strict: Running) -> None:
    with raw(strict) as connection:
        connection.sock.settimeout(30)
        start = connection.sock.recv(9, socket.MSG_WAITALL)
        size, kind = int.from_bytes(start[:3], "big"), start[3]
        assert kind == SETTINGS
        told = dict(struct.iter_unpack(">HI", connection.sock.recv(size, socket.MSG_WAITALL)))
    assert told[INITIAL_WINDOW_SIZE] == 1 << 19


def test_huge_metadata_is_refused(strict: Running) -> None:
    stub = strict.stub
    with pytest.raises(grpc.RpcError) as refused:
        stub.ServerInfo(s.ServerInfoRequest(), metadata=(("filler", "x" * 100_000),), timeout=30)
    assert refused.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
    with raw(strict) as connection:
        block = call(filler="y" * 10_000) + literal("more", "z" * 1_000_000)
        connection.send(frame(HEADERS, 0, 1, block[:16_000]))
        for place in range(16_000, len(block), 16_000):
            connection.send(frame(CONTINUATION, 0, 1, block[place : place + 16_000]))
        serves(strict)


def test_headers_without_an_end_are_not_kept(strict: Running) -> None:
    before = psutil.Process().memory_info().rss
    with raw(strict) as connection:
        connection.sock.settimeout(5)
        connection.send(frame(HEADERS, 0, 1, call()))
        part = frame(CONTINUATION, 0, 1, literal("a", "b" * 1000) * 12)
        with contextlib.suppress(OSError):
            for _ in range(16_000):  # 192 MB, if the server took it all in
                connection.sock.sendall(part)
        serves(strict)
    assert psutil.Process().memory_info().rss - before < 128 << 20


def test_calls_that_are_begun_and_reset_leave_nothing(strict: Running) -> None:
    with raw(strict) as connection:
        for stream in range(1, 4_001, 2):
            connection.send(frame(HEADERS, END_HEADERS, stream, call()) + frame(RESET, 0, stream, struct.pack(">I", 8)))
        serves(strict)
        strict.settle()


def test_calls_that_never_send_their_message_are_capped_and_end_with_the_connection(strict: Running) -> None:
    with raw(strict) as connection:
        for stream in range(1, 101, 2):
            connection.send(frame(HEADERS, END_HEADERS, stream, call("Upload")))
        until(lambda: strict.server.front.active == strict.limits.max_calls)
        time.sleep(0.2)  # no more are taken
        assert strict.server.front.active <= strict.limits.max_calls
    strict.settle()
    serves(strict)


@pytest.mark.parametrize("seed", range(3))
def test_noise_instead_of_frames_is_survived(strict: Running, seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(40):
        with raw(strict) as connection:
            for _ in range(chance.randrange(1, 10)):
                body = chance.randbytes(chance.randrange(0, 200))
                connection.send(frame(chance.randrange(0, 12), chance.randrange(256), chance.randrange(0, 9), body))
    serves(strict)
    strict.settle()
