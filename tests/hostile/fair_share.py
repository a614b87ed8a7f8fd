"""Training sessions and one flooding session share a worker: `python -m tests.hostile.fair_share`.

The program simulates them without processes or sockets. All clocks show the worker's own processor time, so other load
of the machine does not count. A training step is two calls; the second is sent when the first is answered. The flooding
session always has sixteen batches waiting, each of two hundred matrix products. With `--alone` it sends none. Do not
import this module: it replaces the process's clock.
"""

# ruff: noqa: E402 - the clock is replaced before the other imports read it
from __future__ import annotations

import argparse
import heapq
import itertools
import random
import time
from dataclasses import dataclass, field

time.monotonic = time.thread_time

import numpy as np

from gradwire.v1 import commands_pb2 as c
from gradwire.v1 import service_pb2 as s
from gradwire_server.common.limits import Limits
from gradwire_server.common.shared_counters import SharedCounters
from gradwire_server.session.session import PendingCall
from gradwire_server.storage.instructions import StorageInstruction
from gradwire_server.worker.runtime import Runtime
from gradwire_server.worker.scheduler import Scheduler, run_scheduler
from tests.hostile.server_process import percentile
from tests.hostile.training_step import IDS, W, data, read_loss, update
from tests.server.harness import Id, op, payload

FLOODING = 1  # the session that floods; the others train
A = 4  # the matrix of the flooding session
_AT_ONCE = 16
_PRODUCTS = 200


@dataclass
class Trainer:
    """A session that trains: which of a step's calls is due, and where its seqs and ids are."""

    seq: int = 1
    first: int = 100
    second: bool = False
    began: float = 0.0
    times: list[float] = field(default_factory=list)

    def call(self) -> s.RunRequest:
        """Forward, backward and update; or the loss and the end of what was made."""
        commands = read_loss(self.first) if self.second else update(self.first)
        if self.second:
            self.first += IDS
        request = s.RunRequest(writer=1, first_seq=self.seq, acknowledged_seq=self.seq - 1, commands=commands)
        self.seq += len(commands)
        return request


class Simulation:
    """A scheduler, and the calls that reach it at their times."""

    def __init__(self, sessions: int, seconds: float, steps_a_second: float, floods: bool) -> None:
        self.rng = random.Random(1)
        self.rate = steps_a_second
        self.runtime = Runtime(Limits().resolved(), SharedCounters(1))
        self.scheduler = Scheduler(self.runtime, self.answer, lambda call: None)
        self.tickets = itertools.count(1)
        self.due: list[tuple[float, int, int]] = []  # a heap: when, order, session
        self.arrived: dict[int, tuple[int, float]] = {}  # by ticket
        self.waits: list[float] = []
        self.flood_seq, self.flooded = 1, 0
        self.trainers = {number: Trainer() for number in range(FLOODING + 1, FLOODING + 1 + sessions)}
        for number in (FLOODING, *self.trainers):
            self._open(number)
        now = time.thread_time()
        self.ends = now + seconds
        for number in self.trainers:
            self.push(now + self.rng.expovariate(self.rate), number)
        for _ in range(_AT_ONCE if floods else 0):
            self.push(now, FLOODING)

    def _open(self, number: int) -> None:
        values = {**data(), A: np.ones((128, 128), np.float32)}
        calls = [("Open", StorageInstruction().pack())]
        for tensor, array in values.items():
            request = c.CreateRequest(id=tensor, payload=payload(array), requires_grad=tensor == W)
            calls.append(("Create", request.SerializeToString()))
        for method, raw in calls:
            self.scheduler.add(self.runtime.make_call(method, number, raw, next(self.tickets), None))
            while self.scheduler.runnable:
                self.scheduler.slice()

    def push(self, at: float, number: int) -> None:
        """Schedule a session's next call at that time."""
        heapq.heappush(self.due, (at, next(self.tickets), number))

    def answer(self, call: PendingCall, result: bytes, failure: Exception | None) -> None:
        """A call is answered; its session's next one comes."""
        assert failure is None, failure
        number, arrived = self.arrived.pop(call.ticket, (0, 0.0))
        now = time.thread_time()
        if number == FLOODING:
            self.flooded += 1
            self.push(now, FLOODING)
        elif number:
            trainer = self.trainers[number]
            self.waits.append(now - arrived)
            if trainer.second:
                trainer.times.append(now - trainer.began)
            trainer.second = not trainer.second
            self.push(now if trainer.second else now + self.rng.expovariate(self.rate), number)

    def take(self, timeout: float | None) -> list[PendingCall] | None:
        """The calls whose time has come."""
        if time.thread_time() > self.ends:
            return None
        while not self.scheduler.runnable and self.due[0][0] > time.thread_time():
            pass
        found = []
        while self.due and self.due[0][0] <= time.thread_time():
            at, _, number = heapq.heappop(self.due)
            ticket = next(self.tickets)
            found.append(self.runtime.make_call("Run", number, self._request(number, at), ticket, None))
            self.arrived[ticket] = number, at
        return found

    def _request(self, number: int, at: float) -> bytes:
        if number != FLOODING:
            trainer = self.trainers[number]
            if not trainer.second:
                trainer.began = at
            return trainer.call().SerializeToString()
        run = s.RunRequest(writer=1, first_seq=self.flood_seq, acknowledged_seq=self.flood_seq - 1)
        ids = range(100, 100 + _PRODUCTS)
        for made in ids:
            run.commands.add(op=op("matmul", Id(A), Id(A), outputs=[made]), quiet=True)
        run.commands.add(release=c.ReleaseRequest(tensors=ids), quiet=True)
        self.flood_seq += len(run.commands)
        return run.SerializeToString()

    def play(self) -> None:
        """Let it all happen, and say how long calls and steps took."""
        run_scheduler(self.scheduler, self, lambda: None)
        steps = [each for trainer in self.trainers.values() for each in trainer.times]
        for name, times in (("calls", self.waits), ("steps", steps)):
            shown = "  ".join(
                f"{label} {1000 * percentile(times, share):.2f} ms"
                for label, share in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("longest", 1.0))
            )
            print(f"{len(times):>6} {name}  {shown}")
        print(f"{self.flooded:>6} batches of the session that floods")


def main() -> None:
    """From the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sessions", type=int, default=500)
    parser.add_argument("--seconds", type=float, default=8.0, help="of processor time")
    parser.add_argument("--rate", type=float, default=1.0, help="steps of a session in a second, at most")
    parser.add_argument("--alone", action="store_true", help="nobody floods")
    given = parser.parse_args()
    Simulation(given.sessions, given.seconds, given.rate, not given.alone).play()


if __name__ == "__main__":
    main()
