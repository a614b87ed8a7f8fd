"""Ray's head with a storage: it is started again where it was, and no call fails. Without Ray, its parts."""

import errno
import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner

import gradwire
from gradwire_server.cluster import cli, head, watch
from gradwire_server.cluster.checks import CheckFailed, check_head_storage
from gradwire_server.cluster.cli import cluster
from gradwire_server.cluster.head import HeadKeeper
from gradwire_server.cluster.head_storage import PASSWORD, HeadStorage, RedisRecord, StorageError
from gradwire_server.cluster.ray_session import RaySession
from tests.client.sharing import train
from tests.ports import free_port
from tests.server.harness import running, until
from tests.server.machines import actor_of, head_at, kill_machine, parent_of, processes, start_machine

needs_ray = pytest.mark.skipif(
    importlib.util.find_spec("ray") is None, reason="Ray is not installed: pip install 'gradwire[cluster]'"
)
SECRET = "a secret of Redis"


# With Ray.


@pytest.fixture(scope="module")
def undisturbed() -> str:
    """The hash of the training at a server that is no part of a cluster."""
    with running() as server:
        return train(server.address, 40)


@contextmanager
def redis(folder: Path) -> Iterator[tuple[int, "subprocess.Popen[bytes]"]]:
    """A Redis server with a password: its port, and its process."""
    if shutil.which("redis-server") is None:
        pytest.skip("redis-server is not installed")
    port = free_port()
    process = subprocess.Popen(
        ["redis-server", f"--port {port}", "--bind 127.0.0.1", f'--requirepass "{SECRET}"', f"--dir {folder}"],
        stdout=subprocess.DEVNULL,
    )
    try:
        until(lambda: _listens(port), "Redis")
        yield port, process
    finally:
        process.kill()
        process.wait(60)


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


class Machines:
    """A first machine, whose Ray's head has a storage, and others that join it."""

    def __init__(self, folder: Path, storage: str, count: int = 2) -> None:
        self._ray_port, *ports = [free_port() for _ in range(1 + count)]
        self._shared = [f"--state-dir={folder}/state", f"--folder={folder}"]
        self._storage = storage
        self.endpoints = [f"127.0.0.1:{port}" for port in ports]
        self.commands: list[subprocess.Popen[str]] = []

    def start_all(self) -> None:
        """Start all."""
        for index in range(len(self.endpoints)):
            self.commands.append(self.start(index))

    def start(self, index: int) -> "subprocess.Popen[str]":
        """Start or join one."""
        role = ["start", f"--ray-port={self._ray_port}", f"--head-storage={self._storage}"]
        if index:
            role = ["join", f"127.0.0.1:{self._ray_port}"]
        port = self.endpoints[index].rpartition(":")[2]
        return start_machine(*role, f"--port={port}", *self._shared, "--", "--workers=1", "--log-level=warning")

    def head(self) -> int:
        """Process id of Ray's head; 0 without one."""
        return head_at(self._ray_port)

    def kill(self, index: int) -> None:
        """Kill all processes of one."""
        kill_machine(self.commands[index], self.endpoints[index])

    def end(self) -> None:
        """End all by a signal."""
        for each in reversed(self.commands):
            each.terminate()
            each.communicate(timeout=100)


@contextmanager
def machines(folder: Path, storage: str) -> Iterator[Machines]:
    made = Machines(folder, storage)
    try:
        made.start_all()
        yield made
    finally:
        made.end()


def both_get_sessions(endpoints: list[str]) -> bool:
    """Whether sessions that are opened at one address are spread: the Director places them."""
    opened = [gradwire.connect(endpoints[0]) for _ in range(4)]
    found = {each.address for each in opened}
    for each in opened:
        each.close()
    return found == set(endpoints)


@needs_ray
@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", ["directory", "redis"])
def test_no_call_fails_while_ray_s_head_is_killed_and_started_again(
    kind: str, tmp_path: Path, undisturbed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if kind == "directory":
        _kill_the_head(tmp_path, f"{tmp_path}/head", undisturbed)
        return
    monkeypatch.setenv(PASSWORD, SECRET)
    with redis(tmp_path) as (port, _):
        _kill_the_head(tmp_path, f"redis://127.0.0.1:{port}", undisturbed)


def _kill_the_head(folder: Path, storage: str, undisturbed: str) -> None:
    with machines(folder, storage) as cluster:
        heads = [cluster.head()]
        failed: list[Exception] = []
        done = threading.Event()

        def open_sessions() -> None:
            while not done.is_set():
                try:
                    with gradwire.connect(cluster.endpoints[0]) as session:
                        session.close()
                except Exception as error:  # noqa: BLE001 - none may fail; asserted below
                    failed.append(error)

        def disturb(step: int) -> None:
            if step in (10, 25):
                os.kill(heads[-1], signal.SIGKILL)
                until(lambda: cluster.head() not in (0, heads[-1]), "another head")
                heads.append(cluster.head())

        opening = threading.Thread(target=open_sessions)
        opening.start()
        try:
            assert train(",".join(cluster.endpoints), 40, disturb) == undisturbed
        finally:
            done.set()
            opening.join(100)
        assert not failed and len(heads) == 3
        assert both_get_sessions(cluster.endpoints)
        # The new head knows the actors: it starts one again.
        killed = actor_of(cluster.endpoints[1])
        os.kill(killed, signal.SIGKILL)
        until(lambda: actor_of(cluster.endpoints[1]) not in (0, killed), "Ray to start the actor again")


@needs_ray
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_lost_machines_start_again_the_first_one_too(tmp_path: Path, undisturbed: str) -> None:
    with machines(tmp_path, f"{tmp_path}/head") as cluster:

        def disturb(step: int) -> None:
            if step == 10:
                cluster.kill(0)
            elif step == 20:  # the other one runs on, and joins by itself
                cluster.commands[0] = cluster.start(0)
            elif step == 30:
                cluster.kill(1)
                cluster.commands[1] = cluster.start(1)

        assert train(",".join(cluster.endpoints), 40, disturb) == undisturbed
        until(lambda: both_get_sessions(cluster.endpoints), "the Director")


@needs_ray
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_nodes_serve_while_the_head_s_storage_is_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PASSWORD, SECRET)
    with redis(tmp_path) as (port, server), machines(tmp_path, f"redis://127.0.0.1:{port}") as cluster:
        session = gradwire.connect(cluster.endpoints[0])
        with session:
            held = gradwire.ones(3)
            server.kill()
            server.wait(60)
            if head := cluster.head():
                os.kill(head, signal.SIGKILL)
            for _ in range(5):
                assert (held + 1).tolist() == [2, 2, 2]
                time.sleep(0.3)
            with gradwire.connect(cluster.endpoints[1]) as opened, opened:
                assert gradwire.ones(2).sum().item() == 2
            assert (held + 1).tolist() == [2, 2, 2]
        session.close()


# Without Ray.


def test_a_storage_is_a_directory_or_redis() -> None:
    assert HeadStorage.of("/var/head").environment("name") == {
        "RAY_gcs_storage": "rocksdb",
        "RAY_gcs_storage_path": "/var/head",
    }
    found = HeadStorage.of("rediss://admin@[::1]:7000", "secret")
    assert found.environment("name") == {
        "RAY_REDIS_ADDRESS": "rediss://[::1]:7000",
        "RAY_external_storage_namespace": "name",
    }
    assert found.arguments() == ["--redis-username=admin", "--redis-password=secret"]
    assert HeadStorage.of("redis://there").environment("n")["RAY_REDIS_ADDRESS"] == "redis://there:6379"
    for wrong, why in {
        "here": "no absolute path", "http://a:1": r"redis://\[USER@\]HOST", "redis://": r"redis://\[USER@\]HOST",
        "redis://a:x": "cannot be read", "redis://u:secret@a:1": PASSWORD,
    }.items():  # fmt: skip
        with pytest.raises(StorageError, match=why) as error:
            HeadStorage.of(wrong)
        assert "secret" not in str(error.value)


def answering(*lines: bytes) -> str:
    """Address of a server that answers each command by the next of these lines, to one client."""
    listening = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with listening, listening.accept()[0] as connection:
            for line in lines:
                connection.recv(1 << 12)
                connection.sendall(line)

    threading.Thread(target=serve, daemon=True).start()
    return f"redis://127.0.0.1:{listening.getsockname()[1]}"


def test_redis_is_asked_before_ray_starts() -> None:
    HeadStorage.of(answering(b"+PONG\r\n")).check_redis()
    HeadStorage.of(answering(b"+OK\r\n", b"+PONG\r\n"), "secret").check_redis()
    with pytest.raises(StorageError, match=rf"refuses: NOAUTH needed\. Is {PASSWORD} right"):
        HeadStorage.of(answering(b"-NOAUTH needed\r\n")).check_redis()
    for other in (b"HTTP/1.1 400 Bad Request\r\n", b"", b"+" * 5000):
        with pytest.raises(StorageError, match="does not answer as Redis does"):
            HeadStorage.of(answering(other)).check_redis()
    with pytest.raises(StorageError, match=r"127\.0\.0\.1:1 cannot be reached: Connection refused"):
        HeadStorage.of("redis://127.0.0.1:1").check_redis()


def test_a_real_redis_is_asked_with_its_password(tmp_path: Path) -> None:
    with redis(tmp_path) as (port, _):
        HeadStorage.of(f"redis://default@127.0.0.1:{port}", SECRET).check_redis()
        for password in ("", "wrong"):
            with pytest.raises(StorageError, match=r"refuses: (NOAUTH|WRONGPASS)"):
                HeadStorage.of(f"redis://127.0.0.1:{port}", password).check_redis()


def test_a_head_s_address_is_kept_in_redis_for_each_cluster(tmp_path: Path) -> None:
    with redis(tmp_path) as (port, _):
        storage = HeadStorage.of(f"redis://127.0.0.1:{port}", SECRET)
        record, other = RedisRecord(storage, "one"), RedisRecord(storage, "two")
        assert (record.read(), record.swap("a:1"), record.swap("b:1"), record.read()) == ("", "", "a:1", "b:1")
        assert other.read() == ""
    with pytest.raises(StorageError, match="cannot be reached"):
        record.read()


def test_a_head_s_directory_is_one_cluster_s(tmp_path: Path) -> None:
    for name in ("first", "second"):
        (tmp_path / name).write_text(name)
    storage = HeadStorage.of(f"{tmp_path}/head")
    for _ in range(2):
        check_head_storage(storage, tmp_path / "first")
    with pytest.raises(CheckFailed, match="is another cluster's"):
        check_head_storage(storage, tmp_path / "second")
    with pytest.raises(CheckFailed, match="cannot be written: Not a directory"):
        check_head_storage(HeadStorage.of(f"{tmp_path}/first/head"), tmp_path / "first")
    with pytest.raises(StorageError, match="use a newer one, or Redis"):
        storage.check_used()
    (tmp_path / "head" / "session_name").touch()
    storage.check_used()


def test_the_command_tells_what_is_wrong_with_a_storage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli, "find_spec", lambda name: object())
    for storage, status, why in (
        ("here", 2, "no absolute path"),
        ("redis://127.0.0.1:1", 1, "Redis at 127.0.0.1:1 cannot be reached"),
    ):
        command = ["start", f"--state-dir={tmp_path}/state", f"--folder={tmp_path}", f"--head-storage={storage}"]
        done = CliRunner().invoke(cluster, command)
        assert (done.exit_code, why in done.output) == (status, True), done.output


def test_a_session_of_ray_is_ended_whole(tmp_path: Path) -> None:
    folder = tmp_path / "ray"
    folder.mkdir()
    leader = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
    session = RaySession(leader.pid, str(folder))
    assert not session.alive and not session.is_known and not session.head()
    session.stop()
    assert leader.wait(60) == -signal.SIGKILL
    assert not folder.exists()


def test_a_head_that_ends_is_started_again_with_its_environment(tmp_path: Path) -> None:
    word = f"gradwire-{os.getpid()}"
    code = f"import os, time; open({str(tmp_path / 'said')!r}, 'a').write(os.environ['WORD']); time.sleep(600)"
    first = subprocess.Popen([sys.executable, "-c", code, word], env={**os.environ, "WORD": "x"})

    def started() -> list[int]:
        found = [pid for pid, words in processes() if word.encode() in words]
        return [pid for pid in found if parent_of(pid) == os.getpid()]

    until(lambda: (tmp_path / "said").exists(), "the first one")
    keeper = HeadKeeper(first.pid)
    keeper.start()
    first.kill()
    first.wait(60)
    until(lambda: (tmp_path / "said").read_text() == "xx", "the second one")
    os.kill(started()[0], signal.SIGKILL)
    until(lambda: (tmp_path / "said").read_text() == "xxx", "the third one")
    keeper.stop()
    time.sleep(0.5)
    assert not started()
    with pytest.raises(OSError):
        HeadKeeper(first.pid)


def test_a_head_that_cannot_be_started_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    tries: list[list[bytes]] = []

    def refuse(command: list[bytes], environment: dict[bytes, bytes]) -> "subprocess.Popen[bytes]":
        tries.append(command)
        raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))

    monkeypatch.setattr(head, "_run", refuse)
    first = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    keeper = HeadKeeper(first.pid)
    keeper.start()
    first.kill()
    first.wait(60)
    until(lambda: len(tries) == 3, "the third try")
    keeper.stop()


def test_a_watch_whose_head_has_ended_ends_ray(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait(60)
    leader = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
    assert watch.main("a:1", str(leader.pid), str(tmp_path / "ray"), str(tmp_path / "node"), str(ended.pid)) == 1
    assert "head has ended" in capsys.readouterr().err
    assert leader.wait(60) == -signal.SIGKILL
