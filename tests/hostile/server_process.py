"""A server process for hostile clients, and the memory of its processes."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import psutil

MIB = 1 << 20


@contextmanager
def served(*arguments: str) -> Iterator[tuple[str, psutil.Process]]:
    """A server with its own processes: its address, and the front's."""
    line = [sys.executable, "-m", "gradwire_server", "--port=0", "--log-format=json", "--log-level=error", *arguments]
    started = subprocess.Popen(line, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    try:
        assert started.stdout is not None
        said = started.stdout.readline()
        assert said, "the server did not start"
        yield json.loads(said)["address"], psutil.Process(started.pid)
        started.terminate()
        assert started.wait(60) == 0, "the server did not end well"
    finally:
        started.kill()
        started.wait()
        if started.stdout is not None:
            started.stdout.close()


def resident(front: psutil.Process) -> float:
    """MiB that the server's processes have in memory."""
    return sum(each.memory_info().rss for each in (front, *front.children(recursive=True))) / MIB


def percentile(values: list[float], share: float) -> float:
    """The value that so large a share is not above."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else float("nan")
