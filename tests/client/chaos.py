"""A server with a state directory that is killed and restarted, behind a proxy with a constant address.

`make chaos` runs it as a program. Four clients train with momentum and dropout through a proxy, which cuts connections
and duplicates some. Every few seconds the server is killed, terminated or suspended. Once in a run it is down for a
minute. The weights must equal those of an undisturbed run, bit for bit, and no client may give up.
"""

import argparse
import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from unittest.mock import patch

import numpy as np

import gradwire
from tests.client.faulty_proxy import FaultyProxy

LAST_STEPS = 20  # which a client does when it is told that no further disturbance must meet it


class Restarting:
    """The server. `address` is the proxy's address; `flags` are the server's options."""

    def __init__(self, folder: Path, *flags: str, seed: int = 0, most_bytes: int = 0, twin_every: int = 0) -> None:
        self.folder = folder
        self.flags = flags
        self.kills = 0
        self.slowest = 0.0  # seconds that a start took
        self.process: subprocess.Popen[str]
        self.proxy = FaultyProxy("127.0.0.1:1", seed, most_bytes, twin_every=twin_every)
        self.address = self.proxy.address
        self.start()

    def start(self) -> None:
        """Start the server on a free port."""
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
        """Kill the server process, as a crash does. Its workers end by themselves."""
        self.process.kill()
        self._ended()
        self.kills += 1

    def terminate(self, cuts: bool = True) -> int:
        """Send SIGTERM and return the exit status. With `cuts`, clients cannot reach the server meanwhile."""
        self.process.send_signal(signal.SIGTERM)
        return self._ended(cuts)

    def pause(self, seconds: float) -> None:
        """Suspend the server process for some seconds."""
        self.process.send_signal(signal.SIGSTOP)
        time.sleep(seconds)
        self.process.send_signal(signal.SIGCONT)

    def kill_worker(self) -> int:
        """Kill the worker process. Returns the number of processes killed."""
        killed = 0
        for children in Path(f"/proc/{self.process.pid}/task").glob("*/children"):  # any thread may have started it
            for child in children.read_text().split():
                with suppress(FileNotFoundError, ProcessLookupError):  # it may just have ended
                    if b"gradwire_server.worker.main" in Path(f"/proc/{child}/cmdline").read_bytes():
                        os.kill(int(child), signal.SIGKILL)
                        killed += 1
        return killed

    def _ended(self, cuts: bool = True) -> int:
        if cuts:
            self.proxy.target = "127.0.0.1:1"
        status = self.process.wait(60)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return status

    def stop(self) -> None:
        """Kill the server and stop the proxy."""
        if self.process.poll() is None:
            self.process.kill()
            self._ended()
        self.proxy.stop()


@contextmanager
def restarting_server(
    folder: Path, *flags: str, seed: int = 0, most_bytes: int = 0, local: bool = False, twin_every: int = 0
) -> Iterator[Restarting]:
    """Run such a server in the block. Streams also go through the proxy, unless `local`."""
    running = Restarting(folder, *flags, seed=seed, most_bytes=most_bytes, twin_every=twin_every)
    with patch.dict(os.environ, GRADWIRE_LOCAL_STREAM=str(int(local))):
        try:
            yield running
        finally:
            running.stop()


def train(address: str, steps: int, step_done: Callable[[int], None] = lambda step: None) -> list[bytes]:
    """Train a small network with dropout; return weights, momenta and random numbers."""
    rng = np.random.default_rng(5)
    session = gradwire.connect(address)
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
    """Kills, terminates or suspends the server every few seconds. The first time it is down for `outage` seconds.

    With `events` it does these and ends: a slow machine is not disturbed faster than it gets on.
    """

    def __init__(
        self, server: Restarting, seed: int, least: float, most: float, outage: float = 0.0, events: Sequence[str] = ()
    ) -> None:
        self.server = server
        self.done = {"killed": 0, "terminated": 0, "suspended": 0, "worker killed": 0}
        self._random = random.Random(seed)
        self._span = least, most
        self._outage = outage
        self._events = events
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._work)
        self._thread.start()

    def _drawn(self) -> Iterator[str]:
        while True:
            yield self._random.choices(tuple(self.done), (4, 2, 2, 2))[0]

    def _work(self) -> None:
        for what in self._events or self._drawn():
            if self._ended.wait(self._random.uniform(*self._span)):
                break
            if self._outage:
                what = "killed"
            count = 1
            if what == "worker killed":
                count = self.server.kill_worker()
            elif what == "suspended":
                self.server.pause(self._random.uniform(0.2, self._span[1]))
            else:
                if what == "killed":
                    self.server.kill()
                else:
                    self.server.terminate()
                self._ended.wait(self._outage)
                self._outage = 0.0
                self.server.start()
            self.done[what] += count

    def join(self) -> None:
        """Wait until the events are done."""
        self._thread.join()

    def stop(self) -> None:
        """Stop disturbing the server, and wait for the thread."""
        self._ended.set()
        self._thread.join()


def in_its_own_process(address: str, steps: int, pace: float) -> "subprocess.Popen[str]":
    """Start a client process that trains and prints the digest of its results.

    Before its last steps it waits until its input is closed.
    """
    command = [sys.executable, "-m", "tests.client.chaos", "--steps", str(steps), "--pace", str(pace)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    return subprocess.Popen(
        [*command, "--client", address],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment,
    )  # fmt: skip


def chaos(
    seed: int, steps: int, folder: Path, pace: float, clients: int, outage: float = 0.0, most_bytes: int = 60_000,
    span: tuple[float, float] = (2.0, 5.0), events: Sequence[str] = (),
) -> tuple[list[str], dict[str, int]]:  # fmt: skip
    """Train while the server is disturbed. Returns each client's output, and the count of each disturbance.

    A step takes at least `pace` seconds. The proxy cuts a connection after at most `most_bytes`. Between disturbances
    `span` seconds pass. They are `events`, all of which come before the clients' last steps, or without end.
    """
    flags = ("--durability=log", "--snapshot-every=0.7")
    with restarting_server(folder, *flags, seed=seed, most_bytes=most_bytes, twin_every=10) as server:
        children = [in_its_own_process(server.address, steps, pace) for _ in range(clients)]
        for child in children:
            assert child.stdout is not None
            child.stdout.readline()  # it is connected
        killer = Killer(server, seed, *span, outage, events)
        try:
            if events:
                killer.join()
            for child in children:
                assert child.stdin is not None
                child.stdin.close()
                child.stdin = None  # communicate() would flush it
            found = [" ".join(part.strip()[-600:] for part in child.communicate(timeout=1800)) for child in children]
        finally:
            killer.stop()
            for child in children:
                child.kill()
    proxy = server.proxy
    return found, {**killer.done, "cut": proxy.cuts, "delivered late": proxy.late, "duplicated": proxy.doubled}


def digest(found: list[bytes]) -> str:
    """Hash of the results of `train`."""
    return hashlib.sha256(b"".join(found)).hexdigest()


def main() -> None:
    """Train with each seed and compare with the undisturbed run."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--pace", type=float, default=0.03)
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--outage", type=float, default=60.0, help="seconds of the long outage")
    parser.add_argument("--client", default="", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.client:

        def paced(step: int) -> None:
            if step == 0:
                print("connected", flush=True)
            if step == max(given.steps - LAST_STEPS, 0):
                sys.stdin.read()
            time.sleep(given.pace)

        print(digest(train(given.client, given.steps, paced)))
        return
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        with restarting_server(Path(folder) / "undisturbed") as server:
            wanted = digest(train(server.address, given.steps))
        for seed in range(given.first, given.first + given.seeds):
            began = time.monotonic()
            found, done = chaos(seed, given.steps, Path(folder) / str(seed), given.pace, given.clients, given.outage)
            differing = [each for each in found if each.strip() != wanted]
            wrong += bool(differing)
            took = time.monotonic() - began
            outcome = f"DIFFER: {differing}" if differing else "all equal bit for bit"
            counts = ", ".join(f"{count} {what}" for what, count in done.items())
            print(f"seed {seed}: {given.clients} clients, {given.steps} steps in {took:.0f} s; {counts}: {outcome}")
            sys.stdout.flush()
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
