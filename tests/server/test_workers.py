"""Worker processes: who is where, what passes a computation by, and what the end of one takes with it."""

import asyncio
import itertools
import os
import signal
import socket
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import psutil
import pytest

from gradwire.v1 import commands_pb2 as c
from gradwire.v1 import errors_pb2, service_pb2, snapshots_pb2, types_pb2
from gradwire_server.common.errors import Refusal
from gradwire_server.common.shared_counters import SharedCounters
from gradwire_server.registry.process_backend import WorkersBackend
from gradwire_server.registry.session_catalog import SessionCatalog
from gradwire_server.rpc.server import Server
from gradwire_server.session.session import PendingCall, Session
from gradwire_server.storage.instructions import StorageInstruction
from gradwire_server.worker.chunk_buffers import ChunkBuffers
from gradwire_server.worker.frames import METHODS, NUMBER, RESULT, packed, unpacked
from gradwire_server.worker.pipe import HEAD, Frame, FrameParser, head
from gradwire_server.worker.runtime import Runtime
from gradwire_server.worker.scheduler import Scheduler
from gradwire_server.worker_pool import process_worker as workers
from gradwire_server.worker_pool.free_buffers import FreeBuffers
from gradwire_server.worker_pool.front_pipe import FrontPipe
from tests.server.harness import (
    LIMITS,
    WAIT,
    Id,
    Remote,
    Running,
    command,
    op,
    payload,
    refused,
    running,
    until,
    upload_parts,
)
from tests.server.test_process import connected, opened, process, ready

BACKENDS = [2]


def worker_of(server: Running, session: Remote) -> psutil.Process:
    """The process that holds a session."""
    return psutil.Process(server.backend.registry.entries[session.id].worker.pid)


@pytest.fixture
def pair(server: Running) -> Iterator[tuple[Remote, Remote]]:
    """Two sessions of two workers."""
    one, two = server.open(), server.open()
    one.create([1.0])  # a session at work draws no other to it
    yield one, two
    one.close()
    two.close()


def wait_for(server: Running) -> None:
    """Until every worker runs."""
    until(lambda: all(worker.alive for worker in server.backend.workers))


def test_the_front_is_told_of_frames_and_of_the_end() -> None:
    async def exchange() -> None:
        ours, theirs = socket.socketpair()
        received: list[Frame] = []
        lost = asyncio.Event()
        FrontPipe(ours, received.append, lost.set)
        theirs.sendall(head(4, 1, 3, 7) + b"body")
        theirs.close()
        await asyncio.wait_for(lost.wait(), 60)
        assert [(each.number, each.ticket, bytes(each.body)) for each in received] == [(3, 7, b"body")]

    asyncio.run(exchange())


def test_a_worker_loads_neither_grpc_nor_asyncio() -> None:
    code = "import sys, gradwire_server.worker.main; assert not {'grpc', 'asyncio', 'ssl'} & set(sys.modules)"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment)


def test_sessions_are_spread_over_the_workers(server: Running, pair: tuple[Remote, Remote]) -> None:
    assert len({worker_of(server, session).pid for session in pair} | {os.getpid()}) == 3
    info = server.stub.ServerInfo(service_pb2.ServerInfoRequest())
    assert (info.build["workers"], info.sessions) == ("2", 2)
    assert info.bytes == pair[0].describe().bytes == 4


def test_a_killed_worker_is_missed_though_another_process_holds_its_pipes(monkeypatch: pytest.MonkeyPatch) -> None:
    pair, kept = workers._pair, list[socket.socket]()

    def held() -> tuple[socket.socket, socket.socket]:
        ours, theirs = pair()
        kept.append(theirs.dup())  # as a child would that the worker has started
        return ours, theirs

    monkeypatch.setattr(workers, "_pair", held)
    with running(1) as server:
        session = server.open()
        worker_of(server, session).kill()
        until(lambda: session.id not in server.backend.registry.entries)
        wait_for(server)
        server.open().close()
        for each in kept:
            each.close()


def test_a_killed_worker_takes_its_own_sessions_and_is_started_again(
    server: Running, pair: tuple[Remote, Remote]
) -> None:
    lost, kept = pair
    x, y = lost.create([1.0]), kept.create([2.0])
    worker = worker_of(server, lost)
    entry = server.backend.registry.entries[lost.id]
    worker.kill()
    until(lambda: lost.id not in server.backend.registry.entries)
    assert not entry.pending
    code, reason, _ = refused(lost.read, x)
    assert (code, reason) == ("NOT_FOUND", "SESSION_NOT_FOUND")
    with pytest.raises(Exception, match="worker process that held it was ended by signal 9"):
        lost.read(x)
    assert refused(lost.stub.KeepAlive, service_pb2.KeepAliveRequest(session_id=lost.id))[1] == "SESSION_NOT_FOUND"
    np.testing.assert_array_equal(kept.read(y), [2.0])
    wait_for(server)
    fresh = server.open()
    assert worker_of(server, fresh).pid not in (worker.pid, worker_of(server, kept).pid)
    np.testing.assert_array_equal(fresh.read(fresh.create([3.0])), [3.0])
    fresh.close()
    assert server.held() == kept.describe().bytes


def test_what_waits_for_a_killed_worker_is_told(server: Running, session: Remote) -> None:
    x = session.create([1.0])
    worker = worker_of(server, session)
    worker.suspend()
    waiting = session.stub.Op.future(op("neg", Id(x), session_id=session.id))
    transfer = ThreadPoolExecutor(1).submit(refused, session.upload, bytes(1 << 20))
    until(lambda: len(server.backend.registry.entries[session.id].pending) == 2)
    worker.kill()
    assert refused(waiting.result, WAIT)[1] == "SESSION_NOT_FOUND"
    assert transfer.result(WAIT)[1] == "SESSION_NOT_FOUND"
    wait_for(server)


class StoringWorker(Running):
    """A server with one worker process, a state directory and write-ahead logs."""

    def __init__(self, root: Path) -> None:
        self.root = root
        super().__init__(LIMITS, 1)

    async def _start(self) -> tuple[Any, Server, str]:
        backend = WorkersBackend(self.limits, 1, self.clock)
        await backend.persist_in(SessionCatalog(self.root, grace=1000.0, max_snapshots=3, max_bytes=0), True, 0.0)
        server = Server(backend)
        return backend, server, await server.start("127.0.0.1:0")

    async def end_worker_at(self, result: int, delivered: bool) -> None:
        """End the worker at its next results' `result`-th, before or after the front handles it."""
        (worker,) = self.backend.workers
        left, received = itertools.count(1), worker._received

        def handle(frame: Frame) -> None:
            ends = frame.kind == RESULT and next(left) == result
            if delivered or not ends:
                received(frame)
            if ends:
                worker._lost()

        worker._calls._received = handle


def test_a_worker_that_ends_while_it_opens_a_session_leaves_no_files(tmp_path: Path) -> None:
    server = StoringWorker(tmp_path)
    try:
        session = server.open()
        session.stub.SaveSession(snapshots_pb2.SaveSessionRequest(session_id=session.id, name="x"))
        session.close()
        opening = (server.stub.OpenSession, service_pb2.OpenSessionRequest())
        restoring = (server.stub.RestoreSession, snapshots_pb2.RestoreSessionRequest(name="x"))  # two calls
        backend = server.backend
        (worker,) = backend.workers
        for ends, ((call, request), result, delivered) in enumerate(
            [(opening, 1, False), (opening, 1, True), (restoring, 2, False), (restoring, 2, True)], 1
        ):
            server.do(server.end_worker_at(result, delivered))
            with pytest.raises(grpc.RpcError, match="was to hold the session ended; try again") as error:
                call(request)
            assert error.value.code() == grpc.StatusCode.UNAVAILABLE
            until(lambda ends=ends: worker.restarts == ends and worker.alive)  # type: ignore[misc]
            assert (len(backend.registry.entries), len(backend.persistence.catalog.stored_sessions)) == (0, 0)
            assert list((tmp_path / "sessions").iterdir()) == []
        server.open().close()
    finally:
        server.stop()


def test_an_upload_that_outlives_its_worker_does_not_harm_the_next_one() -> None:
    with running(1) as server:
        lost = server.open()
        parts, goes_on = upload_parts(lost.id, bytes(1 << 20)), threading.Event()

        def sent() -> Iterator[service_pb2.UploadRequest]:
            yield from parts[:2]
            goes_on.wait(WAIT)
            yield parts[2]

        upload = lost.stub.Upload.future(sent())
        (worker,) = server.backend.workers
        until(lambda: worker._control.pending)
        worker_of(server, lost).kill()
        until(lambda: worker.restarts == 1 and worker.alive)
        fresh = server.open()
        y = fresh.create([2.0])
        goes_on.set()
        assert refused(upload.result, WAIT)[1] == "SESSION_NOT_FOUND"
        assert fresh.upload(bytes(1 << 18))  # the control thread serves the new process
        np.testing.assert_array_equal(fresh.read(y), [2.0])
        assert worker.restarts == 1


def test_light_calls_do_not_wait_for_a_worker(server: Running, session: Remote) -> None:
    x = session.create([1.0])
    worker = worker_of(server, session)
    worker.suspend()
    try:
        running = session.stub.Op.future(op("neg", Id(x), session_id=session.id, outputs=[2]))
        session.stub.KeepAlive(service_pb2.KeepAliveRequest(session_id=session.id), timeout=WAIT)
        server.stub.ServerInfo(service_pb2.ServerInfoRequest(), timeout=WAIT)
        server.stub.OpenSession(service_pb2.OpenSessionRequest(session_id=session.id), timeout=WAIT)
        others = [server.stub.OpenSession(service_pb2.OpenSessionRequest(), timeout=WAIT) for _ in range(4)]
        until(lambda: session.stub.Cancel(service_pb2.CancelRequest(session_id=session.id), timeout=WAIT).cancelled)
        assert not running.done()
    finally:
        worker.resume()
    failed = running.exception(WAIT)  # the cancel came in time, or the op was quicker
    assert failed is None or refused(running.result)[1] == "CANCELLED"
    for other in others:
        server.stub.CloseSession(service_pb2.CloseSessionRequest(session_id=other.session_id))


def test_cancel_reaches_a_batch_that_runs(session: Remote) -> None:
    x = session.op("zeros", [600, 600]).id
    many = []
    for _ in range(250):  # several seconds
        many.append(command(op("matmul", Id(x), Id(x), outputs=[100]), quiet=True))
        many.append(command(c.ReleaseRequest(tensors=[100]), quiet=True))
    running = session.stub.Run.future(session.batch(*many, command(op("sum", Id(x)))))
    while not running.done():
        session.stub.Cancel(service_pb2.CancelRequest(session_id=session.id))
    results = running.result(WAIT).results
    assert errors_pb2.Reason.Name(results[-1].error.reason) == "REASON_CANCELLED"
    assert results[-1].seq == 501


def test_all_workers_together_hold_as_many_bytes_as_allowed() -> None:
    with running(workers=2, max_bytes=100_000, max_session_bytes=100_000) as server:
        one, two = server.open(), server.open()
        one.create(np.zeros(15_000))
        assert worker_of(server, one) != worker_of(server, two)
        assert refused(two.create, np.zeros(15_000))[1] == "MEMORY_LIMIT"
        one.close()
        two.create(np.zeros(15_000))
        assert server.held() == 60_000


def test_a_broken_upload_leaves_nothing_behind(server: Running, session: Remote) -> None:
    assert refused(session.upload, bytes(200_000), total=1000)[1] == "PAYLOAD_SIZE"
    assert refused(session.upload, bytes(200_000), start=64 * 1024, total=1 << 18)[1] == "ARGUMENT_VALUE"
    worker = server.backend.registry.entries[session.id].worker
    until(lambda: not worker._control.pending)
    data = np.arange(50_000, dtype=np.int64)
    transfer = c.Transfer(transfer_id=session.upload(data.tobytes()), dtype=payload(data).dtype, shape=data.shape)
    made = session.stub.Create(c.CreateRequest(session_id=session.id, transfer=transfer)).tensor.id
    np.testing.assert_array_equal(session.read(made), data)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_workers_end_with_the_front(number: signal.Signals) -> None:
    with process("--port=0", "--workers=2") as started:
        address = ready(started)
        workers = psutil.Process(started.pid).children()
        with connected(address) as channel:
            sessions = [opened(channel) for _ in range(2)]
            for session in sessions:
                session.create([1.0])
            started.send_signal(number)
            started.wait(WAIT)
        assert len(workers) == 2
        assert not psutil.wait_procs(workers, timeout=WAIT)[1]


def test_a_signal_to_all_processes_is_for_the_front_alone() -> None:
    with process("--port=0", "--workers=1") as started, connected(ready(started)) as channel:
        session = opened(channel)
        x = session.create([1.0])
        (worker,) = psutil.Process(started.pid).children()
        worker.send_signal(signal.SIGTERM)
        worker.send_signal(signal.SIGINT)
        assert session.read(x) == [1.0]


@pytest.mark.parametrize(("workers", "children"), [(0, 0), (3, 3)])
def test_as_many_workers_as_asked_for(workers: int, children: int) -> None:
    with process("--port=0", env={**os.environ, "GRADWIRE_WORKERS": str(workers)}) as started:
        ready(started)
        assert len(psutil.Process(started.pid).children()) == children


# Turns and frames, without any process


class Playing:
    """A host whose turns a test plays; `done` has the answered tickets in order."""

    def __init__(self) -> None:
        self.runtime = Runtime(LIMITS.resolved(), SharedCounters(1))
        self.done: list[int] = []
        self.parked: list[PendingCall] = []
        self.failures: list[Exception | None] = []
        self.now = 0.0
        self.cost = Counter[int]()
        self.scheduler = Scheduler(
            self.runtime, self._answer, self.parked.append, seconds=1.0, slice_seconds=0.0, clock=lambda: self.now
        )
        execute = self.runtime.execute

        def execute_at_cost(call: PendingCall) -> Any:
            """Every step of a session takes a second, or what its cost is."""
            steps = execute(call)
            while True:
                self.now += self.cost[call.session.key] or 1.0
                try:
                    next(steps)
                except StopIteration as done:
                    return done.value
                yield

        self.runtime.execute = execute_at_cost  # type: ignore[method-assign]
        for number in (1, 2):
            self.open(number, 0)
        self.play()
        self.done.clear()

    def _answer(self, call: PendingCall, result: bytes, failure: Exception | None) -> None:
        self.done.append(call.ticket)
        self.failures.append(failure)

    def add(self, method: str, number: int, raw: bytes, ticket: int) -> None:
        self.scheduler.add(self.runtime.make_call(method, number, raw, ticket, None))

    def open(self, number: int, ticket: int, owner: int = 0) -> None:
        self.add("Open", number, StorageInstruction(owner=owner).pack(), ticket)

    def batch(self, number: int, ticket: int, commands: int, first: int = 1) -> None:
        zeros = [command(op("zeros", [1], outputs=[first + n])) for n in range(commands)]
        request = service_pb2.RunRequest(writer=1, first_seq=first, commands=zeros)
        self.add("Run", number, request.SerializeToString(), ticket)

    def play(self) -> None:
        while self.scheduler.runnable:
            self.scheduler.slice()


def test_a_huge_batch_does_not_starve_another_session() -> None:
    playing = Playing()
    playing.batch(1, ticket=1, commands=500)
    playing.scheduler.slice()
    playing.batch(2, ticket=2, commands=3)
    for _ in range(20):
        playing.scheduler.slice()
    assert playing.done == [2]
    playing.play()
    assert playing.done == [2, 1]
    assert not any(playing.failures)
    assert len(playing.runtime.sessions[1].store) == 500


@pytest.mark.parametrize("cancelled", [False, True])
def test_a_command_that_waits_for_a_future_takes_no_turn_until_it_is_done_or_cancelled(cancelled: bool) -> None:
    """So a plan that waits for its kernels delays no other session."""
    playing, future = Playing(), Future[None]()
    token, execute, steps = playing.runtime.sessions[1].cancel_token, playing.runtime.execute, []

    def waiting(call: PendingCall) -> Any:
        if call.session.key == 2:
            return (yield from execute(call))
        while not (future.done() or token.stopping()):
            steps.append(call.ticket)
            token.wait_for(future)
            yield
        return b""

    playing.runtime.execute = waiting  # type: ignore[method-assign]
    playing.batch(1, ticket=5, commands=1)
    playing.batch(1, ticket=6, commands=1)  # waits behind it
    playing.batch(2, ticket=7, commands=50)
    for _ in range(200):
        playing.scheduler.resume_awaiting()
        if playing.scheduler.runnable:
            playing.scheduler.slice()
    assert playing.done == [7]
    assert steps == [5]
    if cancelled:
        token.cancel_ticket = 5
    else:
        future.set_result(None)
    playing.scheduler.resume_awaiting()
    playing.play()
    assert playing.done == [7, 5, 6]
    assert not playing.scheduler.awaiting


def test_an_answer_does_not_wait_for_the_release_that_ends_its_batch() -> None:
    playing = Playing()
    store = playing.runtime.sessions[1].store
    held: list[list[int]] = []
    playing.scheduler.answer = lambda call, result, failure: held.append(list(store))

    def run(first: int, *commands: service_pb2.Command) -> None:
        request = service_pb2.RunRequest(writer=1, first_seq=first, commands=commands)
        playing.add("Run", 1, request.SerializeToString(), first)
        playing.play()

    release = service_pb2.Command(release=c.ReleaseRequest(tensors=[1]), quiet=True)
    run(1, command(op("zeros", [4], outputs=[1])), release)
    assert held == [[1]]
    assert not store
    assert playing.runtime.counters.total() == 0
    run(3, command(op("zeros", [4], outputs=[1])), release, command(op("zeros", [4], outputs=[2])))
    assert held == [[1], [2]]
    run(6, service_pb2.Command(release=c.ReleaseRequest(tensors=[2]), quiet=True))
    assert held == [[1], [2], []]  # it is all that this one is about


def test_a_sessions_calls_keep_their_order_over_turns() -> None:
    playing = Playing()
    playing.batch(1, ticket=1, commands=10)
    playing.batch(1, ticket=2, commands=1, first=11)
    playing.batch(2, ticket=3, commands=10)
    playing.play()
    assert playing.done == [1, 3, 2]


def test_a_light_session_computes_between_two_slices_of_a_long_turn() -> None:
    playing = Playing()
    playing.scheduler.seconds = 1000.0
    for number in (1, 2):
        playing.runtime.sessions[number].schedule.used = 1000.0
    playing.batch(1, ticket=1, commands=50)
    playing.batch(2, ticket=2, commands=2)
    playing.scheduler.slice()
    playing.runtime.sessions[2].schedule.used = 0.0
    playing.open(3, 3)
    for _ in range(8):
        playing.scheduler.slice()
    assert playing.done == [3]
    playing.play()
    assert playing.done == [3, 1, 2]


def test_light_sessions_that_come_together_do_not_wait_for_as_many_slices_of_a_heavy_one() -> None:
    playing = Playing()
    playing.scheduler.seconds = 1000.0
    playing.runtime.sessions[1].schedule.used = 1000.0
    playing.batch(1, ticket=1, commands=50)
    playing.scheduler.slice()
    for number in range(10, 30):
        playing.open(number, number)
    playing.scheduler.slice_seconds = 1.0  # and each of them takes a second
    slices = 0
    while playing.scheduler.light_queue:
        playing.scheduler.slice()
        slices += 1
    assert [ticket for ticket in playing.done if ticket != 1] == list(range(10, 30))
    assert slices <= 20 + 20 // 5


def test_a_step_of_several_calls_waits_for_a_slice_before_each_and_for_no_turn() -> None:
    """Each call comes when the one before is answered, as a training loop's do: the session stays light."""
    playing = Playing()
    playing.scheduler.seconds = 1000.0
    playing.runtime.sessions[1].schedule.used = 1000.0
    playing.batch(1, ticket=1, commands=500)
    playing.cost[2] = 0.001  # type: ignore[assignment]
    for ticket in range(2, 12):
        playing.scheduler.slice()
        playing.batch(2, ticket=ticket, commands=1, first=ticket - 1)
        for _ in range(3):
            playing.scheduler.slice()
        assert playing.done[-1:] == [ticket]
    playing.cost[2] = 1
    playing.batch(2, ticket=12, commands=50, first=11)
    for _ in range(200):
        playing.scheduler.slice()
    assert 12 not in playing.done  # who computes as much as others takes turns with them


def test_light_sessions_do_not_starve_a_heavy_one() -> None:
    playing = Playing()
    playing.runtime.sessions[1].schedule.used = 1000.0
    playing.batch(1, ticket=1, commands=5)
    for ticket in range(2, 30):
        playing.runtime.sessions[2].schedule.used = 0.0
        playing.add("Attach", 2, NUMBER.pack(ticket), ticket)
        playing.scheduler.slice()
        if 1 in playing.done:
            break
    assert playing.done[-1] == 1
    assert 2 <= len(playing.done) <= 12


def shares(playing: Playing, sessions: int, slices: int) -> Counter[int]:
    """How long each of so many sessions computes, that all have more to do than there are slices."""
    spent: Counter[int] = Counter()
    for _ in range(slices):
        before = playing.now
        applied = {number: each.writers[1].applied for number, each in playing.runtime.sessions.items()}
        playing.scheduler.slice()
        for number, each in playing.runtime.sessions.items():
            if each.writers[1].applied != applied[number]:
                spent[number] += round(playing.now - before)
    return spent


def test_sessions_compute_as_long_as_others_however_long_their_commands_are() -> None:
    playing = Playing()
    for number in (1, 2):
        playing.batch(number, ticket=number, commands=500)
    playing.cost[1] = 20
    spent = shares(playing, 2, 300)
    assert abs(spent[1] - spent[2]) <= 20


def test_sessions_of_one_principal_share_its_turn() -> None:
    playing = Playing()
    for number in (3, 4, 5, 6):
        playing.open(number, 0, owner=7)
    playing.open(7, 0, owner=8)
    playing.play()
    for number in (3, 4, 5, 6, 7):
        playing.batch(number, ticket=number, commands=500)
    spent = shares(playing, 5, 400)
    assert abs(spent[7] - sum(spent[number] for number in (3, 4, 5, 6))) <= 20


def test_who_computed_alone_owes_nobody_anything() -> None:
    playing = Playing()
    playing.cost[1] = 1000
    playing.batch(1, ticket=1, commands=50)
    for _ in range(20):
        playing.scheduler.slice()
    playing.cost[1] = 1
    playing.batch(2, ticket=2, commands=100)
    spent = shares(playing, 2, 40)
    assert spent[1] >= 15


def test_a_session_closed_between_turns_answers_all_it_was_asked() -> None:
    playing = Playing()
    playing.batch(1, ticket=1, commands=10)
    playing.batch(1, ticket=2, commands=1, first=11)
    playing.scheduler.slice()
    playing.batch(1, ticket=3, commands=1, first=20)
    playing.runtime.close(1, ticket=3)
    playing.add("Drop", 1, b"", 4)
    playing.play()
    assert playing.done == [1, 2, 3, 4]
    assert playing.runtime.sessions.keys() == {2}
    assert playing.runtime.counters.total() == 0


def test_a_cancel_that_comes_before_its_session_is_opened_counts() -> None:
    playing = Playing()
    playing.runtime.cancel(3, ticket=7)
    playing.open(3, 6)
    playing.batch(3, ticket=7, commands=1)
    playing.batch(3, ticket=8, commands=1, first=2)
    playing.play()
    assert playing.runtime.sessions[3].store.keys() == {2}
    playing.add("Drop", 3, b"", 9)
    playing.play()
    playing.runtime.cancel(3, ticket=10)
    assert 3 not in playing.runtime._cancel_tokens


@pytest.mark.parametrize("step", [1, 7, 31, 100_000, 1 << 20])
def test_frames_are_put_together_however_the_bytes_come(step: int) -> None:
    bodies = [b"", b"a", bytes(1000), os.urandom(1 << 18), b"", os.urandom((1 << 18) + 5), b"last"]
    if step < 100:
        bodies = [body[:3000] for body in bodies]
    stream = b"".join(head(len(body), place, place * 2, place * 3) + body for place, body in enumerate(bodies))
    parser, found = FrameParser(), []
    place = 0
    while place < len(stream):
        room = parser.room()
        piece = stream[place : place + min(step, len(room))]
        room[: len(piece)] = piece
        found += parser.filled(len(piece))
        place += len(piece)
    assert [frame.body for frame in found] == bodies
    assert [(frame.kind, frame.number, frame.ticket) for frame in found] == [(n, 2 * n, 3 * n) for n in range(7)]
    assert HEAD.size % 8 == 0
    assert len(METHODS) < 256


def test_a_refusal_arrives_as_it_was() -> None:
    sent = Refusal("SHAPE", "so not", root_seq=7, shape=(1, 2), reason_given="é")
    got = unpacked(packed(sent))
    assert (got.reason, got.message, got.metadata, got.root_seq) == ("SHAPE", "so not", sent.metadata, 7)
    assert got.code == sent.code


def test_slots_go_to_who_waits_first_and_none_is_lost_with_who_left() -> None:
    async def story() -> None:
        buffers = FreeBuffers(1)
        slot = await buffers.acquire()
        left, first, second = (asyncio.ensure_future(buffers.acquire()) for _ in range(3))
        await asyncio.sleep(0)
        left.cancel()
        buffers.release(slot)
        assert await first == slot and not second.done()
        buffers.release(slot)
        second.cancel()  # after it was given the slot, before it could take it
        with pytest.raises(asyncio.CancelledError):
            await second
        assert await buffers.acquire() == slot
        waiter = asyncio.ensure_future(buffers.acquire())
        await asyncio.sleep(0)
        buffers.end(Refusal("UNAVAILABLE", "gone"))
        for wait in (waiter, buffers.acquire()):
            with pytest.raises(Refusal, match="gone"):
                await wait

    asyncio.run(story())


def test_a_slot_holds_a_chunk_of_any_size_and_two_processes_see_it() -> None:
    for size in (5000, 1 << 20, 7 << 20):
        descriptor = ChunkBuffers.file(size)
        ours, theirs = ChunkBuffers(size, descriptor), ChunkBuffers(size, descriptor)
        os.close(descriptor)
        assert 2 <= ours.count <= 8
        data = os.urandom(size)
        ours.memory(ours.count - 1, size)[:] = data
        assert theirs.memory(ours.count - 1, size - 1) == data[:-1]
        assert bytes(theirs.memory(0, size)) == bytes(size)


def test_more_transfers_at_once_than_slots_all_arrive(server: Running) -> None:
    session = server.open()
    values = [np.random.default_rng(seed).standard_normal(100_003).astype(np.float32) for seed in range(12)]

    def there_and_back(each: np.ndarray) -> np.ndarray:
        transfer = c.Transfer(
            transfer_id=session.upload(each.tobytes()), dtype=types_pb2.DTYPE_FLOAT32, shape=each.shape
        )
        request = c.CreateRequest(session_id=session.id, transfer=transfer)
        return session.read(session.stub.Create(request).tensor.id)

    with ThreadPoolExecutor(len(values)) as pool:
        for sent, came in zip(values, pool.map(there_and_back, values), strict=True):
            np.testing.assert_array_equal(sent, came)
    session.close()


def test_a_session_that_is_about_to_be_opened_is_not_told_to_be_closed() -> None:
    playing = Playing()
    runtime, new = playing.runtime, 3
    with pytest.raises(Refusal, match="no transfer yet") as early, runtime.chunk(new, "x", 0):
        pass
    assert early.value.reason == "TRANSFER_NOT_FOUND"
    runtime.return_ring(new, runtime.lend_ring(new, "nonce123"), clean=False)
    playing.open(new, 0)
    playing.add("Drop", new, b"", 0)
    playing.play()
    with pytest.raises(Refusal, match="was closed") as late, runtime.chunk(new, "x", 0):
        pass
    assert late.value.reason == "SESSION_NOT_FOUND"


def test_a_session_that_is_being_opened_is_not_told_to_be_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    runtime, new, refusals = Runtime(LIMITS.resolved(), SharedCounters(1)), 1, list[Refusal]()

    def look() -> None:
        runtime.return_ring(new, runtime.lend_ring(new, "nonce123"), clean=False)
        with pytest.raises(Refusal) as refusal, runtime.chunk(new, "x", 0):
            pass
        refusals.append(refusal.value)

    class Opening(Session):
        def __init__(self, *args: Any) -> None:
            look()  # as the control thread may
            super().__init__(*args)

    class Entering(dict[int, Session]):
        def __setitem__(self, number: int, session: Session) -> None:
            look()
            super().__setitem__(number, session)
            look()

        def get(self, number: int, default: Any = None) -> Any:
            """What was there before the compute thread entered the session."""
            found = super().get(number, default)
            if found is None and enters:
                enters.pop()
                runtime.make_call("Open", new, StorageInstruction().pack(), 1, None)
            return found

    enters = [True]
    monkeypatch.setattr("gradwire_server.worker.runtime.Session", Opening)
    runtime.sessions = Entering()
    look()
    assert [refusal.reason for refusal in refusals] == ["TRANSFER_NOT_FOUND"] * 4
