"""Ray session: Ray's processes on this machine, in one session, so that they are ended without harm to others.

The watch lives as long as they do (watch.py). So this imports little.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time

_END_SECONDS = 5.0
_RAYLET, _GCS = b"/raylet/raylet", b"/gcs/gcs_server"  # Ray's processes of a machine, and of the head


class RaySession:
    """What `ray start` has started on this machine."""

    def __init__(self, session: int, folder: str) -> None:
        """`session` is the id of the processes' session."""
        self.pid = session
        self.folder = folder
        self._raylet = 0  # its process, once it was found

    @property
    def alive(self) -> bool:
        """Whether Ray runs on this machine: its raylet does."""
        if _RAYLET not in _command(self._raylet):
            self._raylet = next((each for each in _session(self.pid) if _RAYLET in _command(each)), 0)
        return self._raylet != 0

    @property
    def is_known(self) -> bool:
        """Whether the session is Ray's still, and its id not another one's since."""
        return any(name in _command(each) for each in _session(self.pid) for name in (_RAYLET, _GCS))

    def head(self) -> int:
        """Process id of Ray's head; 0 if it does not run here."""
        return next((each for each in _session(self.pid) if _GCS in _command(each)), 0)

    def stop(self) -> None:
        """End all its processes."""
        import shutil

        for each in _session(self.pid):
            if any(name in _command(each) for name in (_RAYLET, _GCS)):
                _signal(each, signal.SIGTERM)
        ends = time.monotonic() + _END_SECONDS
        while self.alive and time.monotonic() < ends:
            time.sleep(0.05)
        for each in _session(self.pid):  # what SIGTERM has not ended
            _signal(each, signal.SIGKILL)
        shutil.rmtree(self.folder, ignore_errors=True)


def _session(leader: int) -> list[int]:
    """The processes in a process's session."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdecimal():
            try:
                if os.getsid(int(name)) == leader:
                    found.append(int(name))
            except (ProcessLookupError, PermissionError):
                continue
    return found


def _command(pid: int) -> bytes:
    """A process's program, with its path; empty if it has ended."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read().partition(b"\0")[0]
    except OSError:
        return b""


def _signal(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):  # it has ended
        os.kill(pid, number)


if __name__ == "__main__":  # the actor of a node without a watch runs it (node.py)
    # Ray ends the children of an actor that ends, and the actor's session is what is to end.
    if os.fork():
        os._exit(0)
    os.setsid()
    RaySession(int(sys.argv[1]), sys.argv[2]).stop()
