"""Shared memory: what clients of the same machine get, and what a bad one among them cannot do."""

import mmap
import os
import queue
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
import pytest

from gradwire.v1 import commands_pb2 as c
from gradwire.v1 import service_pb2, types_pb2
from gradwire_server.worker import rings
from tests.server.harness import MIB, Id, Remote, refused, running

BACKENDS = [0, 1]

pytestmark = pytest.mark.skipif(not rings.machine(), reason="the system has no shared memory to offer")
VALUES = np.random.default_rng(0).standard_normal(5 * MIB // 4 + 3).astype(np.float32)  # 5 MiB and a bit
DATA = VALUES.view(np.uint8)


class Call:
    """A call of Share, message by message."""

    def __init__(self, session: Remote, nonce: str = "nonce12345", **transfer: Any) -> None:
        self.messages: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.messages.put(service_pb2.ShareRequest(session_id=session.id, nonce=nonce, **transfer))
        self.answers = session.stub.Share(iter(self.messages.get, None))

    def next(self) -> service_pb2.ShareResponse:
        return next(self.answers)

    def ring(self) -> np.ndarray:
        """The ring that the server lends."""
        self.lent = self.next()
        handle = self.open()
        mapped = mmap.mmap(handle, self.lent.ring.bytes)
        os.close(handle)
        return np.frombuffer(mapped, np.uint8)

    def open(self) -> int:
        return os.open(f"/proc/{self.lent.ring.pid}/fd/{self.lent.ring.fd}", os.O_RDWR)

    def moved(self, to: int) -> None:
        self.messages.put(service_pb2.ShareRequest(moved=to))

    def end(self) -> None:
        """End the call from this side; the server's end of it."""
        self.messages.put(None)
        assert list(self.answers) == []

    def refusal(self) -> tuple[str, str]:
        self.messages.put(None)
        return refused(lambda: list(self.answers))[:2]


@contextmanager
def calling(session: Remote, **fields: Any) -> Iterator[Call]:
    call = Call(session, **fields)
    try:
        yield call
    finally:
        call.messages.put(None)
        call.answers.cancel()


def upload_of(total: int, **fields: Any) -> service_pb2.UploadStart:
    return service_pb2.UploadStart(total_bytes=total, **fields)


def upload(session: Remote, nonce: str = "nonce12345") -> str:
    with calling(session, nonce=nonce, upload=upload_of(DATA.nbytes)) as call:
        ring = call.ring()
        for place in range(0, DATA.nbytes, len(ring) // 2):
            piece = DATA[place : place + len(ring) // 2]
            ring[place % len(ring) :][: piece.nbytes] = piece
            call.moved(place + piece.nbytes)
            assert call.next().moved == place + piece.nbytes
        call.end()
        return call.lent.transfer_id


def create(session: Remote, transfer_id: str) -> int:
    transfer = c.Transfer(transfer_id=transfer_id, dtype=types_pb2.DTYPE_FLOAT32, shape=VALUES.shape)
    return session.stub.Create(c.CreateRequest(session_id=session.id, transfer=transfer)).tensor.id


def test_bytes_go_both_ways_through_one_ring(session: Remote) -> None:
    made = create(session, upload(session))
    np.testing.assert_array_equal(session.read(made), VALUES)
    transfer = session.stub.Read(c.ReadRequest(session_id=session.id, tensor=made)).transfer
    got = np.empty_like(DATA)
    with calling(session, download=service_pb2.DownloadRequest(transfer_id=transfer.transfer_id)) as call:
        ring, taken = call.ring(), 0
        assert call.lent.ring.name == "nonce12345"
        while taken < got.nbytes:
            given = call.next().moved
            got[taken:given] = ring[taken % len(ring) :][: given - taken]
            call.moved(taken := given)
        call.end()
    np.testing.assert_array_equal(got, DATA)
    assert session.describe().bytes == DATA.nbytes  # what has arrived is forgotten


def test_what_was_begun_in_shared_memory_is_gone_on_with_without_it(session: Remote) -> None:
    half = 4 * MIB
    with calling(session, upload=upload_of(DATA.nbytes)) as call:
        ring = call.ring()
        ring[:half] = DATA[:half]
        call.moved(half)
        assert call.next().moved == half
        transfer_id = call.lent.transfer_id
    session.upload(DATA.tobytes(), start=half, transfer_id=transfer_id)
    np.testing.assert_array_equal(session.read(create(session, transfer_id)), VALUES)


@pytest.mark.parametrize("size", [0, 4 * MIB + 1, 1 << 62])
def test_a_position_that_cannot_be_is_refused(session: Remote, size: int) -> None:
    with calling(session, upload=upload_of(8 * MIB)) as call:
        call.ring()
        call.moved(size)
        assert call.refusal() == ("INVALID_ARGUMENT", "ARGUMENT_VALUE")
    with calling(session, upload=upload_of(1000)) as call:
        call.ring()
        call.moved(1001)
        assert call.refusal()[1] == "PAYLOAD_SIZE"


def test_a_bad_beginning_is_refused(session: Remote) -> None:
    assert Call(session).refusal()[1] == "MALFORMED"
    assert Call(session, nonce="../../etc", upload=upload_of(1000)).refusal()[1] == "ARGUMENT_VALUE"
    assert Call(session, upload=upload_of(1 << 40)).refusal()[1] == "PAYLOAD_SIZE"
    unknown = service_pb2.DownloadRequest(transfer_id="unknown")
    with calling(session, download=unknown) as call:
        call.next()
        assert call.refusal()[1] == "TRANSFER_NOT_FOUND"


def test_a_ring_cannot_be_shrunk_grown_or_sealed_by_a_client(session: Remote) -> None:
    import fcntl

    with calling(session, upload=upload_of(DATA.nbytes)) as call:
        ring = call.ring()
        handle = call.open()
        for size in (0, len(ring) - 1, len(ring) + 1):
            with pytest.raises(PermissionError):
                os.ftruncate(handle, size)
        with pytest.raises(PermissionError):
            fcntl.fcntl(handle, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE)
        os.close(handle)


def test_a_ring_whose_call_broke_is_not_lent_again(session: Remote) -> None:
    with calling(session, upload=upload_of(DATA.nbytes)) as call:
        call.ring()
        call.end()  # as an upload's does whose client was killed
    with calling(session, upload=upload_of(DATA.nbytes)) as call:
        call.ring()
        broken = call.lent.ring.name
    with calling(session, nonce="another12345", upload=upload_of(DATA.nbytes)) as call:
        call.ring()
        assert call.lent.ring.name == "another12345" != broken


def is_open(name: str) -> bool:
    """Whether this process has the ring of that name open."""
    for descriptor in os.listdir("/proc/self/fd"):
        with suppress(OSError):  # closed meanwhile, by another thread
            if f"gradwire-{name}" in os.readlink(f"/proc/self/fd/{descriptor}"):
                return True
    return False


def test_rings_are_few_and_go_when_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    with running(max_shared_bytes=rings.RING_BYTES) as server:
        session, other = server.open(), server.open()
        held = server.backend.runtime.rings
        with calling(session, upload=upload_of(DATA.nbytes)) as call:
            call.ring()
            assert Call(other, upload=upload_of(DATA.nbytes)).refusal() == ("UNIMPLEMENTED", "NOT_SUPPORTED")
        server.settle()
        upload(other, "kept12345")  # once the first is given back, there is room again
        assert held.bytes == rings.RING_BYTES
        assert is_open("kept12345")
        server.do(server.tidy())
        assert held.bytes == rings.RING_BYTES
        monkeypatch.setattr(rings, "IDLE_SECONDS", 0.0)
        server.do(server.tidy())
        assert held.bytes == 0
        assert not is_open("kept12345")
    with running(max_shared_bytes=0) as server:
        assert server.open().opened.machine == ""


def test_commands_of_another_session_pass_a_transfer_that_stands_still(session: Remote, server: Any) -> None:
    other = server.open()
    with calling(session, upload=upload_of(DATA.nbytes)) as call:
        call.ring()
        x = other.create([1.0, 2.0])
        assert other.read(other.op("sum", Id(x)).id) == 3.0


def test_odd_bools_are_refused_after_they_are_copied(session: Remote) -> None:
    with calling(session, upload=upload_of(3 * MIB)) as call:
        ring = call.ring()
        ring[: 3 * MIB] = 2
        call.moved(3 * MIB)
        call.next()
        call.end()
        transfer = c.Transfer(transfer_id=call.lent.transfer_id, dtype=types_pb2.DTYPE_BOOL, shape=[3 * MIB])
    assert (
        refused(session.stub.Create, c.CreateRequest(session_id=session.id, transfer=transfer))[1] == "ARGUMENT_VALUE"
    )


def test_a_killed_client_leaves_nothing() -> None:
    with running(max_tensor_bytes=1 << 30, max_session_bytes=1 << 30, max_bytes=1 << 30) as server:
        script = (
            "import gradwire, numpy as np, os, signal\n"
            "def stop(kind, done, total):\n"
            "    if done > total // 2: os.kill(os.getpid(), signal.SIGKILL)\n"
            f"gradwire.connect({server.address!r})\n"
            "with gradwire.progress(stop): gradwire.tensor(np.ones(64 << 20, np.uint8))\n"
        )
        ended = subprocess.run([sys.executable, "-c", script], timeout=200, check=False)
        assert ended.returncode == -signal.SIGKILL
        assert not [name for name in os.listdir("/dev/shm") if "gradwire" in name]
        server.settle()
        assert server.backend.runtime.rings.bytes == 0
