"""Ranks at several servers, which log their sessions: the same numbers as of one worker, and news of a dead server."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.client.test_distributed import RANKS, SECONDS, by_gradwire, clean, results
from tests.ports import free_port


class Server:
    """`gradwire serve` at a free port; `address` is also its endpoint."""

    def __init__(self, state: Path, port: int) -> None:
        self.address = f"127.0.0.1:{port}"
        flags = [f"--port={port}", f"--endpoint={self.address}", f"--state-dir={state}", "--durability=log"]
        line = [sys.executable, "-m", "gradwire", "serve", *flags, "--workers=1", "--log-level=warning"]
        self.process = subprocess.Popen(line, env=clean(), stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        assert re.search("listening on", self.process.stdout.readline())

    def stop(self) -> None:
        self.process.terminate()
        self.process.communicate(timeout=SECONDS)


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Server]]:
    state = tmp_path_factory.mktemp("state")
    started = [Server(state, free_port()) for _ in range(2)]
    yield started
    for each in started:
        each.stop()


def started(servers: list[Server], size: int, script: str, *arguments: str, name: str) -> list[subprocess.Popen[str]]:
    """The processes of ranks, each with a server of its own in turn."""
    shared = {"MASTER_ADDR": name, "WORLD_SIZE": str(size)}
    return [
        subprocess.Popen(
            [sys.executable, "-m", "gradwire", "run", script, *arguments],
            env=clean(**shared, RANK=str(rank), GRADWIRE_ADDRESS=servers[rank % len(servers)].address),
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for rank in range(size)
    ]  # fmt: skip


@pytest.mark.parametrize(("size", "way"), [(2, "sampler"), (4, "compiled")])
def test_ranks_at_two_servers_give_the_weights_of_one_worker(servers: list[Server], size: int, way: str) -> None:
    script = str(RANKS / "training.py")
    ranks = started(servers, size, script, way, "50", name=f"{size} {way}")
    said = [rank.communicate(timeout=SECONDS) for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0] * size, [err for _, err in said]
    several = results("".join("[rank] " + out.splitlines()[-1] + "\n" for out, _ in said))
    assert len({each["digest"] for each in several}) == 1
    expected = by_gradwire(1, script, "plain", "50", address=servers[0].address)[0]["weights"]
    assert several[0]["weights"] == pytest.approx(expected, rel=1e-6, abs=1e-6)


WAITING = """
import time
import torch, torch.distributed as dist
dist.init_process_group()
value = torch.ones(3)
dist.all_reduce(value)
value.tolist()
print("met", flush=True)
if dist.get_rank() == 1:
    time.sleep(100)
try:
    dist.all_reduce(value)
    value.tolist()
except dist.DistBackendError as error:
    print("told", time.time(), error.reason, error, flush=True)
"""


def test_a_killed_server_tells_the_ranks_of_others_within_a_second(servers: list[Server], tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(WAITING)
    ranks = started(servers, 3, str(tmp_path / "script.py"), name="killed")
    try:
        for rank in ranks:
            assert rank.stdout is not None
            assert rank.stdout.readline() == "met\n"
        time.sleep(0.5)  # the others wait for rank 1
        began = time.time()
        os.kill(servers[1].process.pid, signal.SIGKILL)
        for rank in (0, 2):
            word, when, reason, *message = ranks[rank].communicate(timeout=SECONDS)[0].split()
            assert (word, reason) == ("told", "GROUP_BROKEN")
            assert "rank 1 of group" in " ".join(message) and f"{servers[1].address} is gone" in " ".join(message)
            assert float(when) - began < 1.0
    finally:
        for rank in ranks:
            rank.kill()
            rank.communicate(timeout=SECONDS)
