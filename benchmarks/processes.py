"""The processes a benchmark needs: a server as users start it, bare peers, clients that compute when told."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any

WAIT_SECONDS = 60
# A server divides the cores among its workers itself, unless the environment says otherwise.
THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")


@contextmanager
def process(*arguments: str, own_threads: bool = False) -> Iterator[subprocess.Popen[str]]:
    """A Python process with its stdin and stdout as text; ended by closing its stdin, else by a signal."""
    environment = {name: value for name, value in os.environ.items() if own_threads is False or name not in THREADS}
    line = [sys.executable, *arguments]
    started = subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
    try:
        yield started
    finally:
        pipe(started.stdin).close()
        started.terminate()
        try:
            started.wait(WAIT_SECONDS)
        except subprocess.TimeoutExpired:
            started.kill()
            started.wait()
        pipe(started.stdout).close()


def pipe(stream: IO[str] | None) -> IO[str]:
    """A stream that is there, since it was asked for."""
    assert stream is not None
    return stream


def tell(started: subprocess.Popen[str], line: str) -> None:
    """Send a process a line."""
    pipe(started.stdin).write(line + "\n")
    pipe(started.stdin).flush()


def hear(started: subprocess.Popen[str]) -> str:
    """A line that a process prints. Raises SystemExit where it ended instead."""
    line = pipe(started.stdout).readline().strip()
    if not line:
        raise SystemExit(f"{started.args} ended with {started.wait()} before it answered")
    return line


@contextmanager
def served(*flags: str) -> Iterator[tuple[str, int]]:
    """`gradwire serve` on a free port of the loopback: its address and process id."""
    line = ("-m", "gradwire_server", "--port=0", "--log-format=json", "--log-level=warning", *flags)
    with process(*line, own_threads=True) as started:
        said: dict[str, Any] = json.loads(hear(started))
        yield str(said["address"]), started.pid


@contextmanager
def bare() -> Iterator[str]:
    """The bare gRPC peer: its address."""
    with process("-m", "benchmarks.bare") as started:
        yield hear(started)


@contextmanager
def client(workload: str, address: str = "", *, compiled: bool = False) -> Iterator[subprocess.Popen[str]]:
    """A client with a session of its own, or without an address NumPy, ready to run `workload`: benchmarks.client."""
    flags = [*([f"--address={address}"] if address else []), *(["--compiled"] if compiled else [])]
    with process("-m", "benchmarks.client", workload, *flags) as started:
        assert hear(started) == "ready"
        yield started
