"""Head: Ray's process that knows the cluster. The watch of the first machine starts it again when it ends."""

from __future__ import annotations

import os
import select
import sys
import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Sequence

_FIRST_WAIT, _LONGEST_WAIT = 0.1, 5.0  # seconds before a head that ended is started again
_STEADY_SECONDS = 10.0  # a head that ran so long is started again at once
_END_SECONDS = 5.0


class HeadKeeper:
    """Starts Ray's head of this machine again when it ends, as it was started. Its storage must tell it the rest."""

    def __init__(self, pid: int) -> None:
        """Keep the process `pid`. Raises OSError if it has ended."""
        self._descriptor = os.pidfd_open(pid)
        self._command = _read(f"/proc/{pid}/cmdline").rstrip(b"\0").split(b"\0")
        words = _read(f"/proc/{pid}/environ").split(b"\0")
        self._environment = dict(word.split(b"=", 1) for word in words if b"=" in word)
        self._process: subprocess.Popen[bytes] | None = None
        self._stopping = threading.Event()
        self._starting = threading.Lock()
        self._thread = threading.Thread(target=self._keep, daemon=True)

    def start(self) -> None:
        """Begin to watch it."""
        self._thread.start()

    def stop(self) -> None:
        """Start it no more, and end the one that was started here."""
        with self._starting:
            self._stopping.set()
            process = self._process
        if process is None:
            return
        process.terminate()
        ends = time.monotonic() + _END_SECONDS
        while process.poll() is None and time.monotonic() < ends:
            time.sleep(0.02)
        process.kill()  # nothing if it has ended
        process.wait()

    def _keep(self) -> None:
        select.select((self._descriptor,), (), ())  # until the process ends that Ray has started
        wait = _FIRST_WAIT
        while not self._stopping.wait(wait):
            with self._starting:
                if self._stopping.is_set():
                    return
                began = time.monotonic()
                try:
                    process = self._process = _run(self._command, self._environment)
                except OSError as error:  # such as a machine without memory now
                    print(f"Ray's head cannot be started, and is tried again: {error}", file=sys.stderr)
                    wait = min(2 * wait, _LONGEST_WAIT)
                    continue
            status = process.wait()
            if self._stopping.is_set():
                return
            lasted = time.monotonic() - began
            print(f"Ray's head has ended after {lasted:.0f} s (status {status}), and is started again", file=sys.stderr)
            wait = _FIRST_WAIT if lasted > _STEADY_SECONDS else min(2 * wait, _LONGEST_WAIT)


def _run(command: Sequence[bytes], environment: dict[bytes, bytes]) -> subprocess.Popen[bytes]:
    """Run a program whose output Ray keeps in files."""
    import subprocess

    nothing = subprocess.DEVNULL
    return subprocess.Popen(command, env=environment, stdin=nothing, stdout=nothing, stderr=nothing)


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()
