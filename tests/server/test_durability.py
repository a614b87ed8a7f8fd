"""What is stored of a session comes back as it was: values, gradients, the graph, versions, random numbers, answers."""

import asyncio
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest

import gradwire
from gradwire._transport import retransmission
from gradwire.v1 import service_pb2, snapshots_pb2
from gradwire_server.common.limits import Limits
from gradwire_server.registry.session_catalog import SessionCatalog
from gradwire_server.registry.thread_backend import InProcessBackend
from gradwire_server.rpc.server import Server
from gradwire_server.storage import snapshot_files
from gradwire_server.storage.instructions import StorageInstruction
from tests.server.harness import WAIT, Clock, Running, refused, until

LIMITS = Limits(lease_seconds=60.0, max_session_bytes=1 << 30, max_bytes=1 << 30)


class Ticking(Clock):
    """A clock of which each reading is a later one. So an eviction sees a call that comes while it stores."""

    def __call__(self) -> float:
        self.now += 1e-6
        return self.now


class Storing(Running):
    """A server in this process with a state directory."""

    def __init__(self, root: Path, logs: bool = False, tokens: Any = None, **told: Any) -> None:
        self.root = root
        self.logs = logs
        self.told = {"grace": 1000.0, "max_snapshots": 3, "max_bytes": 0, **told}
        self.ended = False
        super().__init__(LIMITS, tokens=tokens)

    def stop(self) -> None:
        """Drain and end, once."""
        if not self.ended:
            self.ended = True
            super().stop()

    async def _start(self) -> tuple[Any, Server, str]:
        self.clock = Ticking()
        backend = InProcessBackend(self.limits, self.clock)
        await backend.persist_in(SessionCatalog(self.root, **self.told), self.logs, 0.0)
        server = Server(backend, *self.guards)
        return backend, server, await server.start("127.0.0.1:0")

    def put_away(self) -> None:
        """Evict all sessions to the disk; the next call of each restores it. Raises AssertionError if one cannot be."""

        async def put_away() -> None:
            directory, persistence = self.backend.registry, self.backend.persistence
            ends = time.monotonic() + WAIT
            while entries := list(directory.entries.values()):
                assert time.monotonic() < ends, "a session was not evicted"
                for entry in entries:
                    assert await persistence._save(entry, last=True), "a session cannot be stored"
                persistence.expired(entries)
                await asyncio.gather(*persistence._closing)
                if directory.entries:
                    await asyncio.sleep(0.002)  # its client was heard of meanwhile

        self.do(put_away())


@pytest.fixture
def storing(tmp_path: Path) -> Iterator[Callable[..., Storing]]:
    """Starts servers; those before have ended by then."""
    started: list[Storing] = []

    def start(**told: Any) -> Storing:
        if started:
            started[-1].stop()
        started.append(Storing(tmp_path, **told))
        return started[-1]

    yield start
    if started:
        started[-1].stop()


def saved(session: gradwire.Session, name: str = "one", **tensors: Any) -> dict[str, Any]:
    """What comes back of tensors that are saved: the same ones, in another session."""
    session.save(name, tensors)
    return gradwire.restore(name, session.address).tensors


@pytest.fixture
def session(storing: Callable[..., Storing]) -> Iterator[gradwire.Session]:
    opened = gradwire.connect(storing().address)
    yield opened
    opened.close()


def same(one: gradwire.Tensor, other: gradwire.Tensor) -> bool:
    if one.dtype != other.dtype:
        return False
    if one.dtype == gradwire.bfloat16:
        one, other = one.float(), other.float()
    return bool(one.detach().numpy().tobytes() == other.detach().numpy().tobytes())


@pytest.mark.parametrize(
    "dtype",
    ["bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64", "complex64",
     "complex128"],
)  # fmt: skip
def test_values_of_every_dtype_are_restored(session: gradwire.Session, dtype: str) -> None:
    values = gradwire.tensor([[0, 1, 2], [3, 4, 5]]).to(getattr(gradwire, dtype))
    found = saved(session, x=values, turned=values.t(), part=values[1:, ::2], empty=values[:0])
    assert same(found["x"], values)
    assert found["turned"].stride() == values.t().stride()
    assert same(found["part"], values[1:, ::2])
    assert found["empty"].shape == (0, 3)


def test_values_in_memory_that_was_allocated_as_another_dtype_are_restored(session: gradwire.Session) -> None:
    """NumPy finds distinct rows as elements of an own type, and what it gives is a view of those."""
    rows = gradwire.tensor([[1.0, 2.0], [3.0, 4.0], [1.0, 2.0]])
    distinct = gradwire.unique(rows, dim=0)
    assert saved(session, x=distinct)["x"].tolist() == [[1.0, 2.0], [3.0, 4.0]]


def test_a_graph_continues_in_the_restored_session(session: gradwire.Session) -> None:
    gradwire.manual_seed(1)
    x = gradwire.randn(4, 5, requires_grad=True)
    y = x.tanh()
    y.retain_grad()
    loss = (gradwire.nn.functional.dropout(y, 0.4) @ x.t()).logsumexp(0).sum()
    (first,) = gradwire.autograd.grad(loss, x, create_graph=True)
    found = saved(session, x=x, y=y, loss=loss, first=first)
    loss.backward(retain_graph=True)
    (first**2).sum().backward()
    with gradwire.current_session():
        found["loss"].backward(retain_graph=True)
        (found["first"] ** 2).sum().backward()
    assert same(found["x"].grad, x.grad)
    assert same(found["y"].grad, y.grad)


def test_a_program_may_begin_by_restoring(session: gradwire.Session) -> None:
    session.save("one", {"w": gradwire.tensor([1.0, 2.0])})
    program = f"import gradwire; print(gradwire.restore('one', {session.address!r}).tensors['w'].tolist())"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "[1.0, 2.0]\n"


def test_views_share_their_bytes_and_their_versions(session: gradwire.Session) -> None:
    base = gradwire.zeros(3, 4)
    row, leaf = base[1], gradwire.ones(4, requires_grad=True)
    row.mul_(2.0)
    base[0] = leaf * 3.0
    found = saved(session, base=base, row=row, leaf=leaf, turned=base.t())
    with gradwire.current_session():
        found["row"].add_(1.0)
        assert found["base"][1].tolist() == found["turned"][:, 1].tolist() == [1.0] * 4
        assert found["base"]._version == base._version + 1
        found["base"].sum().backward()
    assert found["leaf"].grad.tolist() == [3.0] * 4


def test_a_value_that_was_changed_since_is_still_refused(session: gradwire.Session) -> None:
    x = gradwire.ones(3, requires_grad=True)
    y = x.exp()
    loss = y.sum()
    y.detach().zero_()
    found = saved(session, loss=loss)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        found["loss"].backward()


def test_random_numbers_continue_after_a_restore(session: gradwire.Session) -> None:
    gradwire.manual_seed(3)
    gradwire.rand(5)
    restored = saved(session, x=gradwire.zeros(1))
    with restored["x"]._session:
        later = gradwire.rand(6)
    with session:
        assert same(later, gradwire.rand(6))


def test_a_deep_graph_is_stored_without_recursion(session: gradwire.Session) -> None:
    x = gradwire.ones(1, requires_grad=True)
    y = x
    for _ in range(5000):
        y = y * 1.0
    found = saved(session, x=x, y=y)
    found["y"].sum().backward()
    assert found["x"].grad.tolist() == [1.0]


def test_the_data_is_a_file_that_others_read(storing: Callable[..., Storing], tmp_path: Path) -> None:
    numpy_files = pytest.importorskip("safetensors.numpy")
    session = gradwire.connect(storing().address)
    values = np.arange(6, dtype=np.float32).reshape(2, 3)
    session.save("one", {"x": gradwire.tensor(values)})
    (path,) = (tmp_path / "snapshots" / "anyone" / "one").glob("*.safetensors")
    assert [each.tolist() for each in numpy_files.load_file(path).values()] == [values.tolist()]
    session.close()


def test_a_recurrent_layers_graph_is_restored(session: gradwire.Session) -> None:
    layer, x = gradwire.nn.GRU(3, 4, 2), gradwire.ones(3, 2, 3)
    loss = layer(x)[0].pow(2).sum()
    weights = dict(layer.named_parameters())
    session.save("one", {"loss": loss, **weights})
    loss.backward()
    restored = gradwire.restore("one", session.address)
    restored.tensors["loss"].backward()
    for name, weight in weights.items():
        assert restored.tensors[name].grad.tolist() == weight.grad.tolist()


def test_a_hook_is_kept_as_a_number_and_refused_where_its_python_is_not(session: gradwire.Session) -> None:
    x = gradwire.ones(2, requires_grad=True)
    y = x * 2
    y.register_hook(lambda g: g * 10)
    session.save("one", {"y": y})
    restored = gradwire.restore("one", session.address)
    with pytest.raises(NotImplementedError):
        restored.tensors["y"].sum().backward()
    y.sum().backward()
    assert x.grad.tolist() == [20.0, 20.0]


# Names, quotas, others' snapshots.


def test_snapshots_are_listed_replaced_and_deleted(session: gradwire.Session) -> None:
    x = gradwire.ones(3)
    session.save("b", {"x": x})
    session.save("a", {"x": x}, ttl=3600.0)
    x.add_(1.0)
    session.save("b", {"x": x})
    assert [each.name for each in gradwire.snapshots()] == ["a", "b"]
    assert 3500 < (gradwire.snapshots()[0].seconds_left or 0) <= 3600
    assert gradwire.snapshots()[1].seconds_left is None
    assert gradwire.restore("b", session.address).tensors["x"].tolist() == [2.0] * 3
    gradwire.delete_snapshot("b")
    assert [each.name for each in gradwire.snapshots()] == ["a"]
    with pytest.raises(RuntimeError, match="no snapshot 'b'"):
        gradwire.restore("b", session.address)


def test_a_snapshots_time_is_over_when_it_was_told(session: gradwire.Session) -> None:
    session.save("brief", ttl=0.001)
    with pytest.raises(RuntimeError, match="no snapshot 'brief'"):
        gradwire.restore("brief", session.address)


@pytest.mark.parametrize("name", ["../x", ".x", "a/b", "x" * 101, "a b"])
def test_a_name_that_is_no_name_is_refused(session: gradwire.Session, name: str) -> None:
    with pytest.raises(ValueError, match="a snapshot's name has"):
        session.save(name)


def test_number_and_bytes_of_snapshots_are_bounded(storing: Callable[..., Storing]) -> None:
    session = gradwire.connect(storing(max_snapshots=2, max_bytes=100_000).address)
    x = gradwire.zeros(10_000)
    session.save("a")
    y = gradwire.zeros(20_000)
    with pytest.raises(RuntimeError, match="are left to the principal") as caught:
        session.save("b")
    assert caught.value.reason == "SNAPSHOT_LIMIT"
    del y
    session.save("b")
    with pytest.raises(RuntimeError, match="at most 2 snapshots"):
        session.save("c")
    assert x.sum().item() == 0.0
    session.close()


def test_a_server_without_a_state_directory_says_so(server: Running) -> None:
    session = gradwire.connect(server.address)
    with pytest.raises(NotImplementedError, match="state-dir"):
        session.save("x")
    with pytest.raises(NotImplementedError, match="state-dir"):
        gradwire.snapshots()
    session.close()


# The server ends and comes back; the client does not notice.


def behind(server: Storing) -> Any:
    """A proxy before it, whose address stays."""
    from tests.client.faulty_proxy import FaultyProxy

    return FaultyProxy(server.address, 0)


@pytest.mark.parametrize("logs", [False, True])
def test_a_client_continues_after_a_restart_of_the_server(storing: Callable[..., Storing], logs: bool) -> None:
    between = behind(storing(logs=logs))
    session = gradwire.connect(between.address)
    x = gradwire.ones(3, requires_grad=True)
    y = (x * 2).exp()
    large = gradwire.from_numpy(np.arange(300_000, dtype=np.float64))
    session.sync()
    again = storing(logs=logs)
    between.target = again.address
    y.sum().backward()
    assert x.grad.tolist() == (2 * y).tolist()
    assert large[-1].item() == 299_999.0
    session.close()
    until(lambda: not list((again.root / "sessions").iterdir()))
    between.stop()


def test_a_session_whose_lease_ran_out_is_restored(storing: Callable[..., Storing]) -> None:
    server = storing()
    session = gradwire.connect(server.address)
    x = gradwire.ones(3)
    session.sync()
    for _ in range(500):  # the client may be heard of in between
        if not server.backend.registry.entries:
            break
        server.clock.now += 1000.0
        server.sweep()
        server.do(asyncio.sleep(0.02))
    assert not server.backend.registry.entries
    until(lambda: server.held() == 0)
    assert (x + 1).tolist() == [2.0] * 3
    session.close()


def test_a_session_whose_lease_ran_out_is_there_before_the_next_sweep_too(storing: Callable[..., Storing]) -> None:
    server = storing()
    session = gradwire.connect(server.address)
    x = gradwire.ones(3)
    session.sync()
    server.clock.now += 1000.0
    assert (x + 1).tolist() == [2.0] * 3
    server.sweep()
    assert (x + 1).tolist() == [2.0] * 3
    session.close()


def test_a_session_whose_worker_ends_while_it_is_evicted_stays_there(
    storing: Callable[..., Storing], monkeypatch: pytest.MonkeyPatch
) -> None:
    server = storing()
    session = gradwire.connect(server.address)
    x = gradwire.ones(3)
    session.sync()
    (entry,) = server.backend.registry.entries.values()
    persistence = server.backend.persistence
    put, begun, opened = persistence.catalog.put, threading.Event(), threading.Event()

    def slow(*args: Any, **named: Any) -> bool:
        if threading.current_thread() is not server.thread:
            begun.set()
            assert opened.wait(WAIT)
        return bool(put(*args, **named))

    monkeypatch.setattr(persistence.catalog, "put", slow)

    def overdue() -> bool:
        server.clock.now += 1000.0  # again: an answer that arrived since then has renewed the lease
        server.sweep()
        return begun.is_set()

    until(overdue)

    async def lose() -> None:
        server.backend.lost(entry.worker, "its worker process ended")

    server.do(lose())
    opened.set()
    until(lambda: not persistence._closing)
    assert (x + 1).tolist() == [2.0] * 3
    session.close()


def test_a_session_is_evicted_once_however_long_that_takes(
    storing: Callable[..., Storing], monkeypatch: pytest.MonkeyPatch
) -> None:
    server = storing()
    session = gradwire.connect(server.address)
    x = gradwire.ones(3)
    session.sync()
    persistence = server.backend.persistence
    put, calls, opened = persistence.catalog.put, [0], threading.Event()

    def slow(*args: Any, **named: Any) -> bool:
        calls[0] += 1
        assert opened.wait(WAIT)
        return bool(put(*args, **named))

    def overdue() -> int:
        server.clock.now += 1000.0
        server.sweep()
        return calls[0]

    monkeypatch.setattr(persistence.catalog, "put", slow)
    until(overdue)
    for _ in range(5):  # as the server does every second, while the disk is slow
        overdue()
        server.do(asyncio.sleep(0.05))
    opened.set()
    until(lambda: not persistence._closing)
    assert calls == [1]
    assert (x + 1).tolist() == [2.0] * 3
    session.close()


def test_a_stored_session_is_another_principals_no_more_than_a_living_one(storing: Callable[..., Storing]) -> None:
    server = storing()
    session = gradwire.connect(server.address)
    session.save()
    kept = server.root / "sessions"
    (folder,) = kept.iterdir()
    assert session.session_id not in folder.name
    assert all(session.session_id.encode() not in path.read_bytes() for path in folder.iterdir())
    request = service_pb2.KeepAliveRequest(session_id="x" * 43)
    assert refused(server.stub.KeepAlive, request)[1] == "SESSION_NOT_FOUND"
    session.close()


# What a disk can do.


def damage(path: Path, how: str) -> None:
    raw = bytearray(path.read_bytes())
    if how == "cut":
        raw = raw[: len(raw) // 2]
    elif how == "emptied":
        raw.clear()
    else:
        raw[len(raw) * 2 // 3] ^= 1
    path.write_bytes(bytes(raw))


@pytest.mark.parametrize("how", ["cut", "emptied", "flipped"])
@pytest.mark.parametrize("ending", [snapshot_files.SESSION, snapshot_files.DATA])
def test_a_damaged_file_is_refused_by_name_and_the_others_load(
    storing: Callable[..., Storing], tmp_path: Path, ending: str, how: str
) -> None:
    session = gradwire.connect(storing().address)
    x = gradwire.rand(1000)
    session.save("bad", {"x": x})
    session.save("good", {"x": x})
    (path,) = (tmp_path / "snapshots" / "anyone" / "bad").glob(f"*{ending}")
    damage(path, how)
    with pytest.raises(RuntimeError, match=path.name.replace(".", r"\.")) as caught:
        gradwire.restore("bad", session.address)
    assert caught.value.reason == "SNAPSHOT_DAMAGED"
    assert same(gradwire.restore("good", session.address).tensors["x"], x)
    session.close()


def test_of_stored_sessions_a_damaged_one_keeps_no_other_from_coming_back(
    storing: Callable[..., Storing], tmp_path: Path
) -> None:
    between = behind(storing())
    sessions = [gradwire.connect(between.address) for _ in range(3)]
    tensors = []
    for number, session in enumerate(sessions):
        with session:
            tensors.append(gradwire.full((10,), float(number)))
        session.save()
    broken = snapshot_files.generations(tmp_path / "sessions" / _digest(sessions[1]), snapshot_files.SESSION)
    storing()
    damage(tmp_path / "sessions" / _digest(sessions[1]) / f"{broken[-1]}{snapshot_files.SESSION}", "flipped")
    between.target = storing().address
    for number in (0, 2):
        assert tensors[number].tolist() == [float(number)] * 10
    with pytest.raises(RuntimeError, match=rf"{broken[-1]}\.session is damaged") as caught:
        tensors[1].tolist()
    assert caught.value.reason == "SNAPSHOT_DAMAGED"
    for session in sessions:
        session.close()
    between.stop()


def _digest(session: gradwire.Session) -> str:
    from gradwire_server.registry.session_catalog import digest_of

    return digest_of(session.session_id).hex()


@pytest.mark.parametrize("number", [28, 30])  # ENOSPC, EROFS
def test_a_disk_that_cannot_be_written_is_said_and_harms_nothing(
    storing: Callable[..., Storing], monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    session = gradwire.connect(storing().address)
    x = gradwire.rand(1000, requires_grad=True)
    y = (x * 2).sum()
    real, failing = os.write, [True]

    def write(descriptor: int, data: Any) -> int:
        if failing[0] and os.path.realpath(f"/proc/self/fd/{descriptor}").endswith(
            (snapshot_files.DATA, ".session.new")
        ):
            raise OSError(number, os.strerror(number))
        return real(descriptor, data)

    monkeypatch.setattr(snapshot_files.os, "write", write)
    with pytest.raises(OSError, match=os.strerror(number)) as caught:
        session.save("x")
    assert caught.value.reason == "STORAGE"  # type: ignore[attr-defined]
    y.backward()
    assert x.grad.tolist() == [2.0] * 1000
    failing[0] = False
    session.save("x")
    session.close()


def test_a_log_that_cannot_be_written_lets_nothing_be_acknowledged_and_loses_nothing(
    storing: Callable[..., Storing], monkeypatch: pytest.MonkeyPatch
) -> None:
    session = gradwire.connect(storing(logs=True).address)
    x = gradwire.zeros(1)
    session.sync()
    real, failures = os.fdatasync, [5]

    def fdatasync(descriptor: int) -> None:
        if failures[0]:
            failures[0] -= 1
            raise OSError(28, os.strerror(28))
        real(descriptor)

    monkeypatch.setattr(snapshot_files.os, "fdatasync", fdatasync)
    monkeypatch.setattr(retransmission, "_FIRST_BACKOFF", 0.002)  # of a session that is told to try again
    for _ in range(20):
        x += 1.0
    assert x.item() == 20.0  # it was tried again until there was room
    assert not failures[0]
    session.close()


def test_two_servers_do_not_share_a_state_directory(
    storing: Callable[..., Storing], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storing()
    monkeypatch.setattr("gradwire_server.registry.session_catalog._LOCK_SECONDS", 0.1)
    with pytest.raises(OSError, match="another server holds the state directory"):
        SessionCatalog(tmp_path, 1.0, 1, 0).open()


# A client that has more than what is restored.


def test_a_session_that_was_rolled_back_is_not_gone_on_with(storing: Callable[..., Storing], tmp_path: Path) -> None:
    """The server is not killed here, but its directory is put back to what it was."""
    import shutil

    between = behind(storing())
    session = gradwire.connect(between.address)
    x = gradwire.zeros(1)
    x += 1.0
    session.save()
    shutil.copytree(tmp_path / "sessions", tmp_path / "before")
    x += 1.0
    assert x.item() == 2.0
    stopped = storing()
    stopped.stop()
    shutil.rmtree(tmp_path / "sessions")
    shutil.copytree(tmp_path / "before", tmp_path / "sessions")
    between.target = storing().address
    with pytest.raises(RuntimeError, match="no longer has this session") as caught:
        (x + 1).item()
    assert caught.value.reason == "EPOCH_MISMATCH"
    session.close()
    between.stop()


def test_files_are_marked_as_behind_once_a_stored_session_applies_a_command(
    storing: Callable[..., Storing], tmp_path: Path
) -> None:
    """So that a restart gives it a new epoch, which tells clients that share it that something may be lost."""
    server = storing()
    session = gradwire.connect(server.address)
    x = gradwire.zeros(1)
    session.sync()
    (entry,) = server.backend.registry.entries.values()

    async def store() -> None:
        await entry.worker.request("Save", entry.number, StorageInstruction(last=True).pack())

    for _ in range(2):
        server.do(store())
        assert not list(tmp_path.glob("sessions/*/running"))
        x += 1.0
        session.sync()
        assert len(list(tmp_path.glob("sessions/*/running"))) == 1
    session.close()


def test_what_was_answered_before_is_answered_again_after_a_restart(storing: Callable[..., Storing]) -> None:
    server = storing()
    session = server.open()
    x = session.create([1.0])
    answer = session.op("add", gradwire_id(x), 1.0)
    raw = service_pb2.RunRequest(session_id=session.id, writer=1, first_seq=1)
    raw.commands.add().manual_seed.seed = 5
    first = server.stub.Run(raw)
    again = storing()
    assert again.stub.Run(raw).results == first.results
    assert answer.id


def gradwire_id(number: int) -> Any:
    from tests.server.harness import Id

    return Id(number)


# The log.


def test_a_crash_at_any_step_of_a_commit_leaves_the_generation_before_or_the_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Crash(BaseException):
        pass

    def write(folder: Path, generation: int, fails_at: int) -> bool:
        """Write a generation; whether the crash came."""
        calls = [0]

        def counted(real: Any) -> Any:
            def call(*args: Any, **named: Any) -> Any:
                calls[0] += 1
                if calls[0] == fails_at:
                    raise Crash
                return real(*args, **named)

            return call

        state = snapshots_pb2.SessionState(next_id=generation)
        writing = snapshot_files.SnapshotFileWriter(
            folder, generation, snapshots_pb2.SnapshotHead(format=snapshot_files.FORMAT), state
        )
        with monkeypatch.context() as patched:
            for name in ("open", "write", "fsync", "replace"):
                patched.setattr(snapshot_files.os, name, counted(getattr(os, name)))
            patched.setattr(Path, "unlink", counted(Path.unlink))
            try:
                for _ in writing.data([], None):
                    pass
                writing.commit()
            except Crash:
                return True
        return False

    points = 0
    while True:
        points += 1
        folder = tmp_path / str(points)
        assert not write(folder, 1, 0)
        crashed = write(folder, 2, points)
        found = snapshot_files.head_of(folder)
        assert found is not None
        _, state = snapshot_files.read_state(folder, found[0])
        assert state.next_id == found[0]
        assert crashed or found[0] == 2
        if not crashed:
            break
    assert points > 10


def test_a_head_of_another_format_is_refused(tmp_path: Path) -> None:
    head = snapshots_pb2.SnapshotHead()
    writing = snapshot_files.SnapshotFileWriter(tmp_path, 1, head, snapshots_pb2.SessionState())
    for _ in writing.data([], None):
        pass
    head.format = 99
    writing.commit()
    with pytest.raises(Exception, match="format 99"):
        snapshot_files.head_of(tmp_path)


def test_no_status_of_a_save_is_a_surprise(storing: Callable[..., Storing]) -> None:
    server = storing()
    session = server.open()
    request = snapshots_pb2.SaveSessionRequest(session_id=session.id, name="x")
    request.tensors.add(name="t", id=12345)
    assert refused(server.stub.SaveSession, request)[:2] == ("NOT_FOUND", "TENSOR_NOT_FOUND")
    with pytest.raises(grpc.RpcError):
        server.stub.RestoreSession(snapshots_pb2.RestoreSessionRequest(name=""))


@pytest.mark.parametrize("look", ["whole", "turned"])
def test_a_view_an_item_of_which_was_written_is_stored(session: gradwire.Session, look: str) -> None:
    w = gradwire.ones(4, requires_grad=True)
    y = w * 1
    view = y[:] if look == "whole" else y.t()
    view[1] = 1.5
    found = saved(session, w=w, y=y, view=view)
    with gradwire.current_session():
        (found["view"] * 2).sum().backward()
    assert found["y"].tolist() == found["view"].tolist() == [1.0, 1.5, 1.0, 1.0]
    assert found["w"].grad.tolist() == [2.0, 0.0, 2.0, 2.0]
