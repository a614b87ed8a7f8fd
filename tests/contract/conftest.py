"""Live servers for the contract tests: child processes, on ports the system chooses, ended with the test."""

import queue
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TextIO

import pytest

START_SECONDS = 60
STOP_SECONDS = 30
READY = re.compile(r"listening on ([\w.:\[\]-]+:\d+)")


class Server:
    """A server process that has said that it listens, and where."""

    def __init__(self, process: "subprocess.Popen[str]", address: str) -> None:
        self.process = process
        self.address = address

    def stop(self) -> int:
        """Asks it to end by SIGTERM and returns its exit status."""
        self.process.terminate()
        return self.process.wait(STOP_SECONDS)


Launch = Callable[..., Server]


def _forward(stream: TextIO, lines: "queue.SimpleQueue[str | None]") -> None:
    """Keeps reading, so that the server never blocks on a full pipe; None marks the end."""
    for line in stream:
        lines.put(line)
    lines.put(None)


@contextmanager
def _running(command: Sequence[str], env: Mapping[str, str] | None = None, cwd: Path | None = None) -> Iterator[Server]:
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env, cwd=cwd)
    assert process.stdout is not None
    lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
    reader = threading.Thread(target=_forward, args=(process.stdout, lines), daemon=True)
    reader.start()
    said: list[str] = []
    try:
        while True:
            try:
                line = lines.get(timeout=START_SECONDS)
            except queue.Empty:
                raise AssertionError(f"{command} did not listen within {START_SECONDS} s:\n{''.join(said)}") from None
            if line is None:
                raise AssertionError(f"{command} ended before it listened:\n{''.join(said)}")
            said.append(line)
            if found := READY.search(line):
                break
        yield Server(process, found[1])
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        reader.join()
        process.stdout.close()


@pytest.fixture
def launch() -> Iterator[Launch]:
    """Starts `command` as a server and waits until it listens; what a test starts ends with it."""
    with ExitStack() as running:
        yield lambda *args, **kwargs: running.enter_context(_running(*args, **kwargs))


@pytest.fixture(scope="module")
def server_address() -> Iterator[str]:
    """A server that the tests of a module share."""
    with _running([sys.executable, "-m", "gradwire_server", "--port", "0"]) as server:
        yield server.address
