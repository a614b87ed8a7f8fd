"""A server with a state directory that is killed and started again, behind a proxy whose address stays.

As a program it is `make chaos`: training with momentum and dropout through a proxy that cuts connections, while the
server is killed every few seconds; the weights must be those of an undisturbed run, bit for bit.
"""

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

import numpy as np

import gradwire
from tests.client.faulty_proxy import FaultyProxy


class Restarting:
    """The server. `address` is its proxy's; `flags` are its own."""

    def __init__(self, folder: Path, *flags: str, seed: int = 0, most_bytes: int = 0) -> None:
        self.folder = folder
        self.flags = flags
        self.kills = 0
        self.slowest = 0.0  # seconds that a start took
        self.process: subprocess.Popen[str]
        self.proxy = FaultyProxy("127.0.0.1:1", seed, most_bytes)
        self.address = self.proxy.address
        self.start()

    def start(self) -> None:
        """Start it, on a port that is free."""
        began = time.monotonic()
        command = [
            sys.executable, "-m", "gradwire_server", "--port=0", "--workers=1", "--log-format=json",
            f"--state-dir={self.folder}", "--log-level=error", *self.flags,
        ]  # fmt: skip
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, text=True)
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, "the server did not start"
        self.slowest = max(self.slowest, time.monotonic() - began)
        self.proxy.target = str(json.loads(line)["address"])

    def kill(self) -> None:
        """End it at once, as a crash does. Its workers find out by themselves."""
        self.process.kill()
        self._ended()
        self.kills += 1

    def terminate(self) -> int:
        """Ask it to end; its status."""
        self.process.send_signal(signal.SIGTERM)
        return self._ended()

    def kill_worker(self) -> None:
        """End its worker process at once."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        for child in children:
            if b"gradwire_server.worker" in Path(f"/proc/{child}/cmdline").read_bytes():
                os.kill(int(child), signal.SIGKILL)

    def _ended(self) -> int:
        self.proxy.target = "127.0.0.1:1"
        status = self.process.wait(60)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return status

    def stop(self) -> None:
        """Leave nothing."""
        if self.process.poll() is None:
            self.process.kill()
            self._ended()
        self.proxy.stop()


@contextmanager
def restarting(
    folder: Path, *flags: str, seed: int = 0, most_bytes: int = 0, local: bool = False
) -> Iterator[Restarting]:
    """Such a server, for the block. Streams go through its proxy, too, unless `local`."""
    running = Restarting(folder, *flags, seed=seed, most_bytes=most_bytes)
    with patch.dict(os.environ, GRADWIRE_LOCAL_STREAM=str(int(local))):
        try:
            yield running
        finally:
            running.stop()


def train(address: str, steps: int, step_done: Callable[[int], None] = lambda step: None) -> list[bytes]:
    """Weights, momenta and random numbers after so many steps of a small network with dropout."""
    rng = np.random.default_rng(5)
    session = gradwire.connect(address)
    session._delivery.patience = 300.0  # on a busy machine a server may need long to start
    gradwire.manual_seed(7)
    inputs = gradwire.tensor(rng.standard_normal((8, 6), np.float32))
    weights = [
        gradwire.tensor(rng.standard_normal(shape, np.float32), requires_grad=True) for shape in ((6, 10), (10, 3))
    ]
    optimizer = gradwire.optim.SGD(weights, lr=0.01, momentum=0.9)
    for step in range(steps):
        hidden = gradwire.nn.functional.dropout((inputs @ weights[0]).tanh(), 0.2)
        loss = (hidden @ weights[1] - 1.0).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 7 == 0:
            loss.item()
        step_done(step)
    momenta = [optimizer.state[weight]["momentum_buffer"] for weight in weights]
    found = [each.detach().numpy().tobytes() for each in (*weights, *momenta, gradwire.rand(5))]
    session.close()
    return found


class Killer:
    """Kills the server every few seconds, and starts it again."""

    def __init__(self, server: Restarting, seed: int, least: float, most: float) -> None:
        self.server = server
        self._random = random.Random(seed)
        self._span = least, most
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._work)
        self._thread.start()

    def _work(self) -> None:
        while not self._ended.wait(self._random.uniform(*self._span)):
            if self._random.random() < 0.2:
                self.server.kill_worker()
            else:
                self.server.kill()
                self.server.start()

    def stop(self) -> None:
        """No more."""
        self._ended.set()
        self._thread.join()


def chaos(seed: int, steps: int, folder: Path, pace: float) -> tuple[list[bytes], Restarting]:
    """Train while the server is killed and connections are cut. A step takes `pace` seconds at least."""
    with restarting(folder, "--durability=log", "--snapshot-every=0.7", seed=seed, most_bytes=60_000) as server:
        killer = Killer(server, seed, 2.0, 5.0)
        try:
            found = train(server.address, steps, lambda step: time.sleep(pace))
        finally:
            killer.stop()
    return found, server


def main() -> None:
    """The long form."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--pace", type=float, default=0.03)
    given = parser.parse_args()
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        with restarting(Path(folder) / "undisturbed") as server:
            wanted = train(server.address, given.steps)
        for seed in range(given.first, given.first + given.seeds):
            began = time.monotonic()
            found, server = chaos(seed, given.steps, Path(folder) / str(seed), given.pace)
            same = found == wanted
            wrong += not same
            print(
                f"seed {seed}: {given.steps} steps in {time.monotonic() - began:.0f} s, {server.kills} kills (slowest "
                f"start {server.slowest:.0f} s), {server.proxy.cuts} connections cut: "
                f"weights {'equal bit for bit' if same else 'DIFFER'}",
                flush=True,
            )
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
