"""Embedded server: a child process on a private Unix socket, used when no address is given.

The processes of a distributed program share one, which has several workers.

The server ends with this process. Its standard input is a pipe that carries no data. When this process ends in any
way, the pipe closes and the server stops.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import queue
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from typing import IO

from gradwire._base.errors import make_error
from gradwire._base.signals import deliver
from gradwire.v1 import errors_pb2 as pb

_START_SECONDS = 60.0
_STOP_SECONDS = 10.0
_NAP = 0.05  # seconds between checks for pending signals


class EmbeddedServer:
    """The child process. `address` is the server's address."""

    def __init__(self, workers: int = 0) -> None:
        """Start it. With `workers`, that many processes compute, else a thread of the server."""
        # Unix socket paths have a small maximum length; a deep temporary folder would exceed it.
        self._folder = tempfile.mkdtemp(prefix="gradwire-", dir=_short_folder())
        self._errors = open(os.path.join(self._folder, "stderr"), "w+b")  # noqa: SIM115 - kept while it runs
        self.pid = os.getpid()
        command = [sys.executable, "-m", "gradwire_server", "--embedded"]
        if workers:
            command += ["--workers", str(workers)]
        self._process = subprocess.Popen(
            [*command, "--socket", os.path.join(self._folder, "socket")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            start_new_session=True,  # Ctrl-C in the terminal is for the program, not for its server
        )
        atexit.register(self.stop)
        try:
            self.address = self._read_address()
        except BaseException:
            self.stop()
            raise

    def _read_address(self) -> str:
        assert self._process.stdout is not None
        lines: queue.Queue[bytes] = queue.Queue()
        reader = threading.Thread(target=_read_line, args=(self._process.stdout, lines), daemon=True)
        reader.start()
        try:
            line = _taken(lines)
        except queue.Empty:
            raise make_error(
                pb.REASON_UNAVAILABLE, f"the embedded server did not start within {_START_SECONDS:.0f} seconds", 14
            ) from None
        if not line:
            raise self._start_error()
        return str(json.loads(line)["address"])

    def _start_error(self) -> Exception:
        status = self._process.wait(_STOP_SECONDS)
        self._errors.seek(0)
        text = self._errors.read().decode("utf-8", "replace").strip()
        if "No module named" in text:
            missing = text.rsplit("No module named", 1)[1].strip().strip("'\"")
            return make_error(
                pb.REASON_UNAVAILABLE,
                f"no server address was given and the embedded server cannot start, for {missing} is not installed: "
                "`pip install gradwire[server]`, or name a server by GRADWIRE_ADDRESS=host:port or "
                "gradwire.connect('host:port')",
                14,
            )
        return make_error(pb.REASON_UNAVAILABLE, f"the embedded server ended with status {status}:\n{text}", 14)

    def exit_reason(self) -> str | None:
        """An error message if the process has ended, else None."""
        status = self._process.poll()
        if status is None:
            return None
        gone = f"the embedded server has ended with status {status}; its tensors are gone"
        return f"{gone}. gradwire.connect() starts another"

    def forget(self) -> None:
        """Close the pipe in a forked child, so the server ends with its parent and not with the child."""
        for stream in (self._process.stdin, self._process.stdout, self._errors):
            if stream is not None:
                stream.close()

    def stop(self) -> None:
        """End the process and remove its folder. Does nothing in a forked child."""
        if os.getpid() != self.pid:
            return
        atexit.unregister(self.stop)
        process = self._process
        if process.stdin is not None:
            with contextlib.suppress(OSError):
                process.stdin.close()
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdout is not None:
            process.stdout.close()
        self._errors.close()
        shutil.rmtree(self._folder, ignore_errors=True)


def _taken(lines: queue.Queue[bytes]) -> bytes:
    """The first line; signals are handled during the wait. Raises queue.Empty after _START_SECONDS."""
    ends = time.monotonic() + _START_SECONDS
    while True:
        try:
            return lines.get(timeout=_NAP)
        except queue.Empty:
            deliver()
            if time.monotonic() > ends:
                raise


def _read_line(stream: IO[bytes], lines: queue.Queue[bytes]) -> None:
    lines.put(stream.readline())


def _short_folder() -> str | None:
    return "/tmp" if len(tempfile.gettempdir()) > 60 and os.access("/tmp", os.W_OK) else None
