"""Signals at any moment, to the front, a worker or all: every process ends, and no file is left."""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import grpc
import numpy as np
import psutil
import pytest

from gradwire.v1 import service_pb2 as s
from gradwire_server.registry.session_catalog import SessionCatalog
from tests.server.harness import WAIT, Id, command, op, until
from tests.server.test_process import SERVE, connected, opened, process, ready

SHARED = Path("/dev/shm")


@pytest.fixture
def marked(tmp_path: Path) -> Iterator[dict[str, str]]:
    """An environment by which the processes of a test are known; none is to be left, nor a file of theirs."""
    mark = f"GRADWIRE_TEST_{os.getpid()}_{random.getrandbits(60)}"
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    before = set(SHARED.iterdir()) if SHARED.is_dir() else set()
    yield {**os.environ, mark: "1", "TMPDIR": str(temporary)}
    ends = time.monotonic() + WAIT
    while left := list(marked_by(mark)):
        assert time.monotonic() < ends, left
        time.sleep(0.05)
    assert not list(temporary.iterdir())
    if SHARED.is_dir():
        assert not [path for path in set(SHARED.iterdir()) - before if "gradwire" in path.name]


def marked_by(mark: str) -> Iterator[psutil.Process]:
    """Processes whose environment has a name."""
    for each in psutil.process_iter():
        try:
            if mark in each.environ() and each.status() != psutil.STATUS_ZOMBIE:
                yield each
        except psutil.Error:
            continue


FLAGS = ("--port=0", "--workers=2")


def opens(channel: grpc.Channel) -> bool:
    """Whether a session can be opened; else it is to be tried again."""
    try:
        opened(channel).close()
    except grpc.RpcError as error:
        if error.code() != grpc.StatusCode.UNAVAILABLE:
            raise
        return False
    return True


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL], ids=lambda each: each.name)
@pytest.mark.parametrize("moment", ["import", "worker"])
def test_a_signal_to_all_while_the_server_starts_leaves_nothing(
    marked: dict[str, str], number: signal.Signals, moment: str
) -> None:
    line = [*SERVE, *FLAGS, "--grace-seconds=2"]
    with subprocess.Popen(
        line, env=marked, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as started:
        front = psutil.Process(started.pid)
        if moment == "import":
            time.sleep(0.1)
        else:  # a worker has begun, and knows of no signal yet
            until(front.children)
        os.killpg(started.pid, number)
        _, errors = started.communicate(timeout=WAIT)
    if moment == "import":  # Python's own end, before the server could see to it
        assert started.returncode in (0, 1, -number)
    else:
        assert started.returncode == (-number if number == signal.SIGKILL else 0), errors
        assert "before it was ready" not in errors and "ended by signal" not in errors, errors


@pytest.mark.parametrize("whom", ["front", "worker"])
def test_kill_9_while_it_computes_and_transfers_leaves_nothing(
    marked: dict[str, str], tmp_path: Path, whom: str
) -> None:
    flags = (*FLAGS, f"--state-dir={tmp_path / 'state'}", "--durability=log")
    with process(*flags, env=marked) as started, connected(ready(started)) as channel:
        session = opened(channel)
        session.op("ones", [1000, 1000], outputs=[1])
        start = s.UploadStart(session_id=session.id, total_bytes=1 << 20)
        ring = session.stub.Share(iter([s.ShareRequest(session_id=session.id, nonce="nonce123", upload=start)]))
        assert next(ring).ring.bytes
        many = [command(op("matmul", Id(1), Id(1), outputs=[100 + n])) for n in range(30)]
        busy = session.stub.Run.future(session.batch(*many))
        front = psutil.Process(started.pid)
        workers = front.children()
        assert len(workers) == 2
        time.sleep(0.2)
        for each in {"front": [front], "worker": workers}[whom]:
            each.kill()
        if whom == "worker":  # others are started in their place, which end with the server
            until(lambda: opens(channel))
            other = opened(channel)
            assert np.all(other.read(other.op("ones", [2]).id) == 1.0)
            started.terminate()
        started.wait(WAIT)
        busy.cancel()
    again = SessionCatalog(tmp_path / "state", 1.0, 1, 0)
    again.open()  # the lock was let go of, by the workers too, and what was stored can be read
    again.close()


def test_an_embedded_server_that_is_killed_leaves_nothing_when_its_client_ends(marked: dict[str, str]) -> None:
    code = """
import os
import gradwire
x = gradwire.ones(3)
x.tolist()
os.kill(gradwire.current_session()._embedded._process.pid, 9)
"""
    ended = subprocess.run([sys.executable, "-c", code], env=marked, capture_output=True, text=True, timeout=WAIT)
    assert ended.returncode == 0, ended.stderr
