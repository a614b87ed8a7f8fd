"""`gradwire run --nproc N`: starts the ranks of a distributed program, with one server for all of them.

Each rank is a process of its own, with RANK, LOCAL_RANK, WORLD_SIZE and others of torchrun's variables. Lines of their
output begin with the rank. If one rank fails, the others are ended, and its exit status is the command's. With
`--max-restarts` all ranks start again instead, as torchrun's do: from the program's own checkpoint, if it has one.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from typing import IO

from gradwire._transport.embedded import EmbeddedServer

_POLL_SECONDS = 0.05
_GRACE_SECONDS = 10.0  # between SIGTERM and SIGKILL
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_lock = threading.Lock()


def launch(ranks: int, script: Sequence[str], restarts: int = 0) -> int:
    """Run `gradwire run *script` as `ranks` processes. The exit status of the first that fails, else 0.

    After a failure all ranks start again, at most `restarts` times, in new groups. A server of ours is replaced, too.
    """
    received: list[int] = []
    before = {number: signal.signal(number, lambda number, _: received.append(number)) for number in _SIGNALS}
    run_id = os.environ.get("GRADWIRE_RUN_ID") or secrets.token_hex(8)
    try:
        for attempt in range(restarts + 1):
            left = restarts - attempt
            environment = _environment(ranks, run_id, attempt, restarts)
            status = _launch_once(ranks, script, environment, received, f"restarted; {left} left" if left else "ended")
            if not status or received:
                break
        return status
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _environment(ranks: int, run_id: str, attempt: int, restarts: int) -> dict[str, str]:
    environment = dict(os.environ)
    environment.setdefault("MASTER_ADDR", "127.0.0.1")
    environment.setdefault("MASTER_PORT", str(_free_port()))
    environment.setdefault("PYTHONUNBUFFERED", "1")
    return environment | {
        "WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(ranks), "GROUP_RANK": "0", "NODE_RANK": "0",
        "GRADWIRE_RUN_ID": f"{run_id}.{attempt}" if attempt else run_id,  # ranks that still end are in other groups
        "TORCHELASTIC_RESTART_COUNT": str(attempt), "TORCHELASTIC_MAX_RESTARTS": str(restarts),
    }  # fmt: skip


def _launch_once(ranks: int, script: Sequence[str], environment: dict[str, str], received: list[int], then: str) -> int:
    server = None
    if not environment.get("GRADWIRE_ADDRESS"):
        server = EmbeddedServer(min(ranks, os.cpu_count() or 1))
        environment["GRADWIRE_ADDRESS"] = server.address
    processes: list[subprocess.Popen[bytes]] = []
    try:
        processes.extend(_start(rank, script, environment) for rank in range(ranks))
        readers = [_Forwarding(rank, process) for rank, process in enumerate(processes)]
        status = _wait(processes, received, then)
        if status:
            _end(processes)  # their last lines come before those of the next start
        for reader in readers:
            reader.join(1.0)
        return status
    finally:
        _end(processes)
        if server is not None:
            server.stop()


def _start(rank: int, script: Sequence[str], environment: dict[str, str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "gradwire", "run", *script],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**environment, "RANK": str(rank), "LOCAL_RANK": str(rank)},
        start_new_session=True,  # a Ctrl-C of the terminal comes from here, to all at once
    )


def _free_port() -> int:
    """A port that was free: it only names the run, as nothing listens there."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


class _Forwarding:
    """Threads that copy a rank's lines to this process's output."""

    def __init__(self, rank: int, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None and process.stderr is not None
        pairs = ((process.stdout, sys.stdout.buffer), (process.stderr, sys.stderr.buffer))
        self._threads = [
            threading.Thread(target=_forward, args=(rank, source, target), daemon=True) for source, target in pairs
        ]
        for thread in self._threads:
            thread.start()

    def join(self, seconds: float) -> None:
        """Wait until the output has ended."""
        for thread in self._threads:
            thread.join(seconds)


def _forward(rank: int, source: IO[bytes], target: IO[bytes]) -> None:
    prefix = f"[rank{rank}] ".encode()
    for line in source:
        with _lock:
            target.write(prefix + (line if line.endswith(b"\n") else line + b"\n"))
            target.flush()


def _wait(processes: Sequence[subprocess.Popen[bytes]], received: list[int], then: str) -> int:
    """Wait until all ranks have ended, or one has failed, or a signal comes; the exit status."""
    while True:
        statuses = [process.poll() for process in processes]
        for rank, status in enumerate(statuses):
            if status:
                how = f"was ended by signal {-status}" if status < 0 else f"failed with exit status {status}"
                _signal_groups(processes, statuses)
                told = "the other ranks are ended" if then == "ended" else f"all ranks are {then}"
                print(f"gradwire run: rank {rank} {how}; {told}", file=sys.stderr, flush=True)
                return 128 - status if status < 0 else status
        if all(status == 0 for status in statuses):
            return 0
        if received:
            return 128 + received[0]
        time.sleep(_POLL_SECONDS)


def _signal_groups(processes: Sequence[subprocess.Popen[bytes]], statuses: Sequence[int | None]) -> None:
    """End what the ranks have left that failed just now. Later, their numbers may be those of other processes."""
    for process, status in zip(processes, statuses, strict=True):
        if status:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)


def _end(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """End the processes and their children: by SIGTERM, after some seconds by SIGKILL."""
    _signal(processes, signal.SIGTERM)
    until = time.monotonic() + _GRACE_SECONDS
    for process in processes:
        try:
            process.wait(max(0.0, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            _signal([process], signal.SIGKILL)
            process.wait()


def _signal(processes: Sequence[subprocess.Popen[bytes]], number: int) -> None:
    for process in processes:
        if process.poll() is None:
            os.killpg(process.pid, number)
