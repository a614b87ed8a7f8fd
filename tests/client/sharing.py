"""Servers, each a process, that share a state directory, and a training that shows whether anything was lost."""

import hashlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import psutil

import gradwire
from gradwire._base.errors import GradwireError
from gradwire._transport.credentials import Credentials
from gradwire._transport.transport import Transport
from gradwire.v1 import service_pb2
from tests.ports import free_port
from tests.server.harness import until


class Node:
    """A server with one worker and a write-ahead log."""

    def __init__(self, folder: Path, *flags: str, host: str = "127.0.0.1", within: Sequence[str] = ()) -> None:
        """`within` is a command that runs the server somewhere, such as a network namespace that has `host`."""
        port = free_port()
        self.endpoint = f"{host}:{port}"
        self._command = [
            *within, sys.executable, "-m", "gradwire_server", f"--host={host}", f"--port={port}", "--workers=1",
            f"--state-dir={folder}",
            f"--endpoint={self.endpoint}", "--log-level=error", "--log-format=json", *flags,
        ]  # fmt: skip
        self.start()

    def start(self) -> None:
        """Start it, and wait until it listens."""
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
        self.process = subprocess.Popen(
            self._command, stdout=subprocess.PIPE, env=environment, text=True, start_new_session=True
        )
        assert self.process.stdout is not None
        assert self.process.stdout.readline(), "the server did not start"

    def kill(self) -> None:
        """Kill the server and its worker, as the loss of a machine does."""
        if self.process.poll() is None:
            self.signal(signal.SIGKILL)
        self.process.wait(60)
        if self.process.stdout is not None:
            self.process.stdout.close()

    def workers(self) -> list[int]:
        """Process ids of the server's workers."""
        return [child.pid for child in psutil.Process(self.process.pid).children()]

    def signal(self, number: int) -> None:
        """Send a signal to the server and its worker."""
        os.killpg(self.process.pid, number)


@contextmanager
def sharing(folder: Path, count: int = 2, *flags: str) -> Iterator[list[Node]]:
    """Run such servers in the block."""
    nodes: list[Node] = []
    try:
        nodes.extend(Node(folder, *flags) for _ in range(count))
        yield nodes
    finally:
        for each in nodes:
            each.kill()


def train(address: str, steps: int, step_done: Callable[[int], None] = lambda step: None) -> str:
    """Train with dropout and Adam. The hash of the weights, of Adam's state and of the next random numbers."""
    rng = np.random.default_rng(5)
    with gradwire.connect(address) as session:
        gradwire.manual_seed(7)
        inputs = gradwire.tensor(rng.standard_normal((8, 6), np.float32))
        model = gradwire.nn.Sequential(
            gradwire.nn.Linear(6, 10), gradwire.nn.Tanh(), gradwire.nn.Dropout(0.2), gradwire.nn.Linear(10, 3)
        )
        optimizer = gradwire.optim.Adam(model.parameters(), lr=0.01)
        for step in range(steps):
            loss = (model(inputs) - 1.0).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % 3 == 0:
                loss.item()
            step_done(step)
        found = hashlib.sha256()
        for parameter in model.parameters():
            state = optimizer.state[parameter]
            for each in (parameter.detach(), state["exp_avg"], state["exp_avg_sq"]):
                found.update(each.numpy().tobytes())
        found.update(gradwire.rand(5).numpy().tobytes())
        session.close()
    return found.hexdigest()


def attach_elsewhere(endpoint: str, session_id: str, credentials: Credentials | None = None) -> None:
    """Take a session over at another node, as a second client there does."""
    transport = Transport([endpoint], credentials or Credentials())

    def attached() -> bool:
        try:
            transport.call(
                "OpenSession", service_pb2.OpenSessionRequest(session_id=session_id), service_pb2.OpenSessionResponse
            )
        except GradwireError as error:
            if error.reason != "UNAVAILABLE":
                raise
            return False
        return True

    try:
        until(attached, "the second client")
    finally:
        transport.close()
