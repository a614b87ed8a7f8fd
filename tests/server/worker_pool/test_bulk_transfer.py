"""Bulk transfer with a worker thread and with a worker process: the same bytes arrive, and refusals do."""

import asyncio
import socket
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np
import pytest

from gradwire.v1 import commands_pb2, service_pb2
from gradwire_engine import tensor
from gradwire_server.common.errors import Refusal
from gradwire_server.common.limits import Limits
from gradwire_server.common.shared_counters import SharedCounters
from gradwire_server.storage.instructions import StorageInstruction
from gradwire_server.worker import main
from gradwire_server.worker.chunk_buffers import ChunkBuffers
from gradwire_server.worker.main import ControlServer
from gradwire_server.worker.rings import machine
from gradwire_server.worker.runtime import Runtime
from gradwire_server.worker_pool.bulk_transfer import BulkTransfer, LentRing, OpenUpload
from gradwire_server.worker_pool.control_pipe import ControlPipe
from gradwire_server.worker_pool.process_transfers import ProcessTransfers
from gradwire_server.worker_pool.session_entry import SessionEntry
from gradwire_server.worker_pool.thread_transfers import ThreadTransfers
from tests.server.harness import op

NUMBER = 1
LIMITS = Limits(chunk_bytes=1 << 12, max_inline_bytes=1 << 8).resolved()
Use = Callable[["Moved"], Awaitable[Any]]


class Moved:
    """An open session, and the transfers of its worker."""

    def __init__(self) -> None:
        self.runtime = Runtime(LIMITS, SharedCounters(1))
        self.tickets = 0
        self.entry: SessionEntry[Any] = SessionEntry("id", NUMBER, None, 60.0, 0.0)
        self.transfers: BulkTransfer[Any]
        self.do("Open", StorageInstruction().pack())

    def do(self, method: str, raw: bytes) -> bytes:
        """Execute a call. Raises Refusal."""
        self.tickets += 1
        steps = self.runtime.execute(self.runtime.make_call(method, NUMBER, raw, self.tickets, None))
        while True:
            try:
                next(steps)
            except StopIteration as done:
                answer: bytes = done.value
                return answer

    async def call(self, _entry: SessionEntry[Any], method: str, raw: bytes) -> bytes:
        return self.do(method, raw)

    def download(self, values: np.ndarray[Any, Any]) -> str:
        """A download's id, of a tensor with these values."""
        self.runtime.sessions[NUMBER].bind(1, tensor(values))
        answer = self.do("Read", commands_pb2.ReadRequest(tensor=1).SerializeToString())
        return str(commands_pb2.ReadResponse.FromString(answer).transfer.transfer_id)


async def by_thread(use: Use) -> Any:
    moved = Moved()
    moved.transfers = ThreadTransfers(moved.call, moved.runtime)
    return await use(moved)


async def by_process(use: Use) -> Any:
    """The worker's end of the control pipe is served by a thread; the memory of the buffers is shared all the same."""
    moved, pipe = Moved(), ControlPipe()
    transfers = moved.transfers = ProcessTransfers(moved.call, pipe, LIMITS.chunk_bytes)
    ours, theirs = socket.socketpair()
    lost = asyncio.Event()
    pipe.connect(ours, transfers.buffer_freed, lost.set)
    buffers = ChunkBuffers(LIMITS.chunk_bytes, transfers.descriptor)
    ended: list[BaseException] = []

    def serve() -> None:
        try:
            ControlServer(moved.runtime, theirs, buffers).serve()
        except (EOFError, OSError) as error:
            ended.append(error)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        return await use(moved)
    finally:
        pipe.close()
        ours.close()
        await asyncio.to_thread(thread.join, 10)
        theirs.close()
        transfers.close()
        assert ended, "the worker's end of the pipe did not see the front's end"


@pytest.fixture(params=[by_thread, by_process])
def played(request: pytest.FixtureRequest) -> Callable[[Use], Any]:
    return lambda use: asyncio.run(asyncio.wait_for(request.param(use), 60))


def values() -> np.ndarray[Any, Any]:
    return np.random.default_rng(5).normal(size=3000)


def start(size: int) -> service_pb2.UploadStart:
    return service_pb2.UploadStart(session_id="id", total_bytes=size)


def test_an_upload_arrives_whole_and_in_order(played: Callable[[Use], Any]) -> None:
    async def use(moved: Moved) -> tuple[int, bytes]:
        data = memoryview(values().tobytes())
        upload = await moved.transfers.begin_upload(moved.entry, start(data.nbytes))
        for offset in range(0, data.nbytes, LIMITS.chunk_bytes):
            await moved.transfers.append(upload, data[offset : offset + LIMITS.chunk_bytes])
        received = await moved.transfers.end_upload(upload)
        moved.transfers.leave_upload(upload)
        return received, bytes(moved.runtime.sessions[NUMBER].transfers.finished(upload.transfer_id).buffer)

    received, data = played(use)
    assert received == len(data)
    np.testing.assert_array_equal(np.frombuffer(data), values())


async def downloaded(moved: Moved, transfer_id: str, offset: int) -> bytes:
    parts = [part async for part in moved.transfers.chunks(moved.entry, transfer_id, offset)]
    return b"".join(service_pb2.DownloadResponse.FromString(part).data for part in parts)


def test_a_download_gives_the_tensor_from_any_offset(played: Callable[[Use], Any]) -> None:
    async def use(moved: Moved) -> list[bytes]:
        transfer_id = moved.download(values())
        return [await downloaded(moved, transfer_id, offset) for offset in (0, 8000)]

    whole, rest = played(use)
    assert whole == values().tobytes()
    assert rest == whole[8000:]


def test_what_is_not_there_is_refused_by_name(played: Callable[[Use], Any]) -> None:
    async def use(moved: Moved) -> None:
        with pytest.raises(Refusal, match="'nothing'") as refusal:
            await anext(moved.transfers.chunks(moved.entry, "nothing", 0))
        assert refusal.value.reason == "TRANSFER_NOT_FOUND"
        with pytest.raises(Refusal, match="nonce"):
            await moved.transfers.lend_ring(moved.entry, "?")
        moved.do("Op", op("ones", [2], outputs=[9]).SerializeToString())  # the session works on
        assert moved.runtime.sessions[NUMBER].tensor(9).array.tolist() == [1.0, 1.0]

    played(use)


def test_an_upload_that_is_longer_than_told_fails(played: Callable[[Use], Any]) -> None:
    async def use(moved: Moved) -> str:
        upload = await moved.transfers.begin_upload(moved.entry, start(8))

        async def send() -> None:
            await moved.transfers.append(upload, memoryview(bytes(16)))
            await moved.transfers.end_upload(upload)

        with pytest.raises(Refusal) as refusal:
            await send()
        moved.transfers.leave_upload(upload)
        return refusal.value.reason

    assert played(use) == "PAYLOAD_SIZE"


@pytest.mark.skipif(not machine(), reason="this machine has no shared memory between processes")
def test_a_ring_carries_an_upload_and_a_download(played: Callable[[Use], Any]) -> None:
    async def use(moved: Moved) -> tuple[bytes, int, int]:
        transfers, runtime = moved.transfers, moved.runtime
        lent = await transfers.lend_ring(moved.entry, "nonce123")
        transfer_id = moved.download(values())
        size, following = await transfers.write_ring(moved.entry, transfer_id, 0, lent, 0)
        upload = await transfers.begin_upload(moved.entry, start(size))
        await transfers.read_ring(upload, lent, 0, size)
        received = await transfers.end_upload(upload)
        transfers.leave_upload(upload)
        transfers.return_ring(lent, clean=True)
        data = bytes(runtime.sessions[NUMBER].transfers.finished(upload.transfer_id).buffer)
        return data, received, following

    data, received, following = played(use)
    assert (len(data), following) == (received, 0)
    np.testing.assert_array_equal(np.frombuffer(data), values())


def test_a_worker_refuses_the_tickets_of_an_ended_process() -> None:
    async def use(moved: Moved) -> list[str]:
        transfers = moved.transfers
        assert isinstance(transfers, ProcessTransfers)
        entry = moved.entry
        stale: OpenUpload[Any] = OpenUpload(NUMBER, "t", 1, 0, entry, 0, ticket=77)
        lent: LentRing[Any] = LentRing(entry, 0, 0, "", 1 << 13, 1 << 12, ring=78)
        transfers.leave_upload(stale)
        for _ in range(2 * transfers._buffers.count):  # the worker returns each buffer
            await transfers.append(stale, memoryview(bytes(8)))
        transfers.return_ring(lent, clean=False)
        upload = await transfers.begin_upload(entry, start(8))
        reasons = []
        for answer in (
            transfers.end_upload(stale),
            transfers.read_ring(upload, lent, 0, 8),
            transfers.write_ring(entry, "t", 0, lent, 0),
        ):
            with pytest.raises(Refusal) as refusal:
                await answer
            reasons.append(refusal.value.reason)
        await transfers.append(upload, memoryview(bytes(8)))  # the worker serves the live transfers
        assert await transfers.end_upload(upload) == 8
        return reasons

    assert asyncio.run(asyncio.wait_for(by_process(use), 60)) == ["UNAVAILABLE"] * 3


def test_a_process_that_ends_after_it_began_an_upload_is_seen() -> None:
    async def use(moved: Moved) -> str:
        transfers = moved.transfers
        assert isinstance(transfers, ProcessTransfers)

        async def call(entry: SessionEntry[Any], method: str, raw: bytes) -> bytes:
            answer = moved.do(method, raw)
            transfers._control.fail(Refusal("SESSION_NOT_FOUND", "it ended"))  # before begin_upload continues
            return answer

        transfers._call = call
        with pytest.raises(Refusal, match="it ended") as refusal:
            await transfers.begin_upload(moved.entry, start(8))
        assert not transfers._control.pending
        return refusal.value.reason

    assert asyncio.run(asyncio.wait_for(by_process(use), 60)) == "SESSION_NOT_FOUND"


@pytest.mark.parametrize(("error", "status", "lines"), [(EOFError(), 0, 0), (KeyError(7), 1, 1)])
def test_a_failure_of_the_control_thread_is_logged_and_shows_in_the_status(
    error: Exception, status: int, lines: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def serve(self: ControlServer) -> None:
        raise error

    ends: list[int] = []
    monkeypatch.setattr(ControlServer, "serve", serve)
    monkeypatch.setattr(main.os, "_exit", ends.append)
    monkeypatch.setattr(main, "_LAST_SECONDS", 0.0)
    anything: Any = None
    main._control(anything, anything, anything)
    assert ends == [status]
    assert [record.exc_info is not None for record in caplog.records] == [True] * lines
