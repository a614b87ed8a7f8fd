"""The process that `gradwire cluster start` and `join` become: it watches this machine's node, and ends it."""

import importlib.util
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import gradwire
from gradwire_server.cluster.watch import Watch
from tests.ports import free_port
from tests.server.harness import until
from tests.server.machines import actor_of, head_at, processes, server_of, session_of, start_machine

needs_ray = pytest.mark.skipif(
    importlib.util.find_spec("ray") is None, reason="Ray is not installed: pip install 'gradwire[cluster]'"
)


class _Ray:
    """Stands for Ray's processes of a machine."""

    def __init__(self) -> None:
        self.alive, self.stopped = True, 0

    def stop(self) -> None:
        self.stopped += 1


class _Actor:
    """Stands for a node's actor: listens at the path, and answers `stop` as the actor does."""

    def __init__(self, control: Path) -> None:
        self.control, self.asked, self.connected = control, list[Any](), threading.Event()
        control.unlink(missing_ok=True)
        self.listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.listening.bind(str(control))
        self.listening.listen()
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        self.connection, _ = self.listening.accept()
        self.connected.set()
        line = self.connection.makefile("r").readline()
        if line:
            self.asked.append(json.loads(line))
            self.control.unlink()
            self.connection.sendall(b'{"ended": true}\n')
            self.end()

    def end(self) -> None:
        """End as a killed process does: the socket's file stays."""
        self.connection.shutdown(socket.SHUT_RDWR)
        self.connection.close()
        self.listening.close()


Watching = Callable[[], tuple[Watch, _Ray, "threading.Thread", list[int]]]


@pytest.fixture
def control(tmp_path: Path) -> Path:
    return tmp_path / "node"


@pytest.fixture
def watching(control: Path) -> Iterator[Watching]:
    """Starts a watch in a thread: the watch, Ray's stand-in, the thread and the list that gets the exit status."""
    started: list[tuple[Watch, threading.Thread]] = []

    def start() -> tuple[Watch, _Ray, threading.Thread, list[int]]:
        ray, status = _Ray(), list[int]()
        watch = Watch("a:1", ray, str(control))  # type: ignore[arg-type]
        thread = threading.Thread(target=lambda: status.append(watch.run()))
        started.append((watch, thread))
        thread.start()
        return watch, ray, thread, status

    yield start
    for watch, thread in started:
        if thread.is_alive():
            watch.wake()
        thread.join(100)


def test_a_signal_lets_the_node_store_its_sessions_and_ends_ray(
    control: Path, watching: Watching, capsys: pytest.CaptureFixture[str]
) -> None:
    actor = _Actor(control)
    watch, ray, thread, status = watching()
    assert actor.connected.wait(100) and not ray.stopped
    watch.wake()
    thread.join(100)
    assert (status, ray.stopped, actor.asked) == ([0], 1, [{"stop": 30.0}])
    assert capsys.readouterr().out == "a:1 has ended\n"


def test_an_actor_that_was_killed_is_waited_for_and_one_that_was_drained_is_not(
    control: Path, watching: Watching
) -> None:
    actor = _Actor(control)
    _, ray, thread, status = watching()
    assert actor.connected.wait(100)
    actor.end()
    time.sleep(0.5)  # meanwhile Ray starts another one
    assert thread.is_alive()
    again = _Actor(control)
    assert again.connected.wait(100)
    control.unlink()  # as the actor does when its node ends
    again.end()
    thread.join(100)
    assert (status, ray.stopped) == ([0], 1)


def test_ray_s_end_is_told(control: Path, watching: Watching, capsys: pytest.CaptureFixture[str]) -> None:
    actor = _Actor(control)
    _, ray, thread, status = watching()
    assert actor.connected.wait(100)
    ray.alive = False
    thread.join(100)
    assert (status, ray.stopped) == ([1], 1)
    assert "Ray has ended on this machine, and with it the node a:1" in capsys.readouterr().err


def test_a_signal_while_no_actor_answers_ends_ray(control: Path, watching: Watching) -> None:
    control.touch()  # left behind by one that was killed
    watch, ray, thread, status = watching()
    time.sleep(0.3)
    assert thread.is_alive()
    watch.wake()
    thread.join(100)
    assert (status, ray.stopped) == ([0], 1)


def _held(rollup: Path) -> int:
    """Resident KiB of a process."""
    found = re.search(r"^Rss:\s+(\d+) kB", rollup.read_text(), re.MULTILINE)
    assert found is not None
    return int(found[1])


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[tuple[list["subprocess.Popen[str]"], list[str], int]]:
    """The processes of a first and a joined node, and their endpoints, and Ray's port."""
    ports = [free_port() for _ in range(3)]
    shared = [f"--state-dir={tmp_path}/state", f"--folder={tmp_path}"]
    server = ["--", "--workers=1", "--log-level=warning"]
    nodes = [start_machine("start", f"--port={ports[0]}", f"--ray-port={ports[2]}", *shared, *server)]
    try:
        nodes.append(start_machine("join", f"127.0.0.1:{ports[2]}", f"--port={ports[1]}", *shared, *server))
        yield nodes, [f"127.0.0.1:{port}" for port in ports[:2]], ports[2]
    finally:
        for each in reversed(nodes):
            each.terminate()
            each.communicate(timeout=100)


@needs_ray
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_joined_node_is_light_starts_again_and_ends_by_a_signal(
    machines: tuple[list["subprocess.Popen[str]"], list[str], int],
) -> None:
    (head, joined), (first, endpoint), _ = machines
    rollup = Path(f"/proc/{joined.pid}/smaps_rollup")
    until(lambda: _held(rollup) < 30 << 10, "the command to become a watch")  # with Ray it had 90 MiB
    killed = actor_of(endpoint)
    os.kill(killed, signal.SIGKILL)
    until(lambda: actor_of(endpoint) not in (0, killed), "Ray to start the actor again")
    assert joined.poll() is None
    time.sleep(2)  # until the watch has found the new one
    joined.send_signal(signal.SIGTERM)
    said = joined.communicate(timeout=100)[0]
    assert (joined.returncode, said.splitlines()[-1]) == (0, f"{endpoint} has ended")
    assert not actor_of(endpoint) and head.poll() is None
    shown = subprocess.run(
        [sys.executable, "-m", "gradwire", "top", "--once", "--interval=0.1", first],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "COLUMNS": "200"},
        capture_output=True, text=True, timeout=100, check=True,
    ).stdout  # fmt: skip
    assert re.findall(r"^node (\S+)", shown, re.MULTILINE) == [first]


@needs_ray
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_nothing_is_left_of_a_machine_whose_ray_or_watch_was_killed(
    tmp_path: Path, machines: tuple[list["subprocess.Popen[str]"], list[str], int]
) -> None:
    nodes, (first, endpoint), port = machines
    for name in (b"raylet/raylet", b"ray::DashboardAgent", b""):  # "" is the watch
        session, watch = session_of(actor_of(endpoint)), nodes[1]
        folders = [word for pid, words in processes() if session_of(pid) == session for word in words]
        (folder,) = {found[0] for word in folders if (found := re.search(rb"/tmp/gw-ray-\w+", word))}
        found = [pid for pid, words in processes() if session_of(pid) == session and name in words[0]]
        os.kill(found[0] if name else watch.pid, signal.SIGKILL)
        until(lambda session=session: not [1 for pid, _ in processes() if session_of(pid) == session], "all to end")
        watch.communicate(timeout=100)
        until(lambda: not server_of(endpoint), "the server's end")
        until(lambda folder=folder: not Path(folder.decode()).exists(), "the folder's end")
        if name:
            assert watch.returncode == 1
            shared = (f"--state-dir={tmp_path}/state", f"--folder={tmp_path}", "--", "--workers=1")
            nodes[1] = start_machine("join", f"127.0.0.1:{port}", f"--port={endpoint.rpartition(':')[2]}", *shared)
            time.sleep(3)  # until the watch has found its node
    with gradwire.connect(first) as opened, opened:
        assert gradwire.ones(2).sum().item() == 2


@needs_ray
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_nodes_serve_and_hand_their_sessions_over_without_ray_s_head(
    machines: tuple[list["subprocess.Popen[str]"], list[str], int],
) -> None:
    (_, joined), (first, endpoint), port = machines
    sessions = [gradwire.connect(first) for _ in range(4)]
    held = []
    for each in sessions:
        with each:
            held.append(gradwire.ones(3))
    assert {each.address for each in sessions} == {first, endpoint}
    os.kill(head_at(port), signal.SIGKILL)  # nothing of it is stored, so it is lost for good
    time.sleep(2)
    for each in (first, endpoint):
        with gradwire.connect(each) as opened, opened:
            assert gradwire.ones(2).sum().item() == 2
    joined.send_signal(signal.SIGTERM)
    said = joined.communicate(timeout=200)[0]
    assert joined.returncode == 0 and f"{endpoint} has ended" in said.splitlines()
    for session, one in zip(sessions, held, strict=True):
        with session:
            assert (one + 1).tolist() == [2, 2, 2]
        assert session.address == first
        session.close()
