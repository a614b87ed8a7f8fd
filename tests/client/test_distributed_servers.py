"""Ranks at several servers, which log their sessions: the same numbers as of one worker, and news of a dead server."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.client.test_distributed import (
    RANKS,
    SECONDS,
    TRAINING,
    by_gradwire,
    check_weights,
    clean,
    killed,
    of_way,
    results,
)  # fmt: skip
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


@pytest.fixture(scope="module")
def alone(servers: list[Server]) -> list[Any]:
    return by_gradwire(1, TRAINING, "plain:50", address=servers[0].address)


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
def test_ranks_at_two_servers_give_the_weights_of_one_worker(
    servers: list[Server], alone: list[Any], size: int, way: str
) -> None:
    ranks = started(servers, size, TRAINING, f"{way}:50", name=f"{size} {way}")
    said = [rank.communicate(timeout=SECONDS) for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0] * size, [err for _, err in said]
    several = results("".join("[rank] " + out.splitlines()[-1] + "\n" for out, _ in said))
    check_weights(of_way(several, way), alone, "plain")


def test_a_killed_server_tells_the_ranks_of_others_at_once(servers: list[Server]) -> None:
    ranks = started(servers, 3, str(RANKS / "waiting.py"), name="killed")
    for message in killed(ranks, lambda _: os.kill(servers[1].process.pid, signal.SIGKILL)):
        assert "rank 1 of group" in message and f"{servers[1].address} is gone" in message
