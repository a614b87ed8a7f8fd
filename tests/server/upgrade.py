"""Walk a rolling upgrade: three machines of a previous version are replaced one after the other, during a training.

    git worktree add --detach ../before COMMIT
    python -m tests.server.upgrade ../before

Each machine is drained by a signal and joins again with the version of here, the first one last. If the version before
had no storage of Ray's head, the others then join its new head. Then the cluster grows by a machine and shrinks by one.
Steps are computed meanwhile. Prints the longest one of each change, and whether the training gave the bits of a single
server. Needs the extra [cluster].
"""

import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import gradwire
from tests.client.sharing import train
from tests.ports import free_port
from tests.server.harness import running
from tests.server.machines import start_machine

EVERY = 20  # steps between two changes
PAUSE = 0.2  # seconds after a step, so that steps are computed for as long as a change takes
PARTS = ("client", "engine", "server")
CHANGE_SECONDS = 200.0


class Walk:
    """Three machines, and what is done to them at steps of a training."""

    def __init__(self, folder: Path, before: Path) -> None:
        self._ray_port, *ports = [free_port() for _ in range(5)]
        self._endpoints = [f"127.0.0.1:{port}" for port in ports]
        self._shared = [f"--state-dir={folder}/state", f"--folder={folder}"]
        self._storage = f"--head-storage={folder}/head"
        self._before = os.pathsep.join(str(before / part) for part in PARTS)
        self._stored_before = "head-storage" in (before / "server/gradwire_server/cluster/cli.py").read_text()
        rejoin = [("drain", 2), ("join", 2), ("drain", 1), ("join", 1)]
        #: Machines 2, 1 and 0 are upgraded; then machine 3 joins and machine 1 leaves.
        self.plan = [*rejoin, ("drain", 0), ("start", 0), *([] if self._stored_before else rejoin)]
        self.plan += [("join", 3), ("drain", 1)]
        self._commands: dict[int, subprocess.Popen[str]] = {}
        self._change = threading.Thread()
        self._failed: list[BaseException] = []
        self._last = time.monotonic()
        self.longest = 0.0
        self.addresses = ",".join(self._endpoints[:3])

    def start(self, index: int, before: bool = False) -> None:
        """Start or join a machine, of the version of before or of here."""
        role = ["join", f"127.0.0.1:{self._ray_port}"]
        if not index:
            stored = self._stored_before or not before
            role = ["start", f"--ray-port={self._ray_port}", *([self._storage] if stored else [])]
        port = self._endpoints[index].rpartition(":")[2]
        command = [*role, f"--port={port}", *self._shared, "--", "--workers=1", "--log-level=warning"]
        self._commands[index] = start_machine(*command, path=self._before if before else "")

    def drain(self, index: int) -> None:
        """End a machine. Its sessions continue at others."""
        ending = self._commands.pop(index)
        ending.terminate()
        ending.communicate(timeout=CHANGE_SECONDS)

    def versions(self) -> str:
        """The version of each server."""
        found = []
        for index in self._commands:
            with gradwire.connect(self._endpoints[index]) as session:
                found.append(session.server_info().version)
                session.close()
        return " ".join(found)

    def step_done(self, step: int) -> None:
        """Begin the next change after each `EVERY` steps, once the one before it is done."""
        if step:
            self.longest = max(self.longest, time.monotonic() - self._last)
        if step and step % EVERY == 0:
            self._finish_change()
            if step // EVERY <= len(self.plan):
                self._change = threading.Thread(target=self._make, args=self.plan[step // EVERY - 1], daemon=True)
                self._change.start()
        else:
            time.sleep(PAUSE)
        self._last = time.monotonic()

    def _make(self, kind: str, index: int) -> None:
        began = time.monotonic()
        try:
            self.drain(index) if kind == "drain" else self.start(index)
        except BaseException as error:  # noqa: BLE001 - raised by the training's thread
            self._failed.append(error)
        print(f"{kind} {index}: {time.monotonic() - began:.1f} s", end="", flush=True)

    def _finish_change(self) -> None:
        if self._change.ident is None:
            return
        self._change.join(CHANGE_SECONDS)
        if self._failed:
            raise self._failed[0]
        print(f", longest step {self.longest:.2f} s", flush=True)
        self.longest = 0.0

    def end(self) -> None:
        """End all that run."""
        for index in sorted(self._commands, reverse=True):
            self.drain(index)


def main() -> int:
    before = Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        walk = Walk(Path(folder), before)
        steps = EVERY * (len(walk.plan) + 1) + 1
        with running() as server:
            undisturbed = train(server.address, steps)
        try:
            for index in range(3):
                walk.start(index, before=True)
            print(f"versions: {walk.versions()}; load {os.getloadavg()[0]:.0f}", flush=True)
            same = train(walk.addresses, steps, walk.step_done) == undisturbed
            print(f"versions: {walk.versions()}; load {os.getloadavg()[0]:.0f}")
        finally:
            walk.end()
    print("the same bits" if same else "OTHER BITS")
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
