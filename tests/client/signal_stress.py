"""A training program interrupted by signals whose handlers raise: its results must equal those of an undisturbed run.

`make storm` raises ten thousand exceptions, each at a random time after the previous one. They strike anywhere in a
program that trains, writes in place, runs hooks, compiles, and moves large tensors.
"""

import argparse
import gc
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import gradwire

SIGNALS = {"alarm": signal.SIGALRM, "usr1": signal.SIGUSR1, "int": signal.SIGINT}
_RNG = np.random.default_rng(5)
_INPUTS = _RNG.standard_normal((8, 6)).astype(np.float32)
_LARGE = _RNG.standard_normal((800, 1000)).astype(np.float32)  # more than goes into a message, and into a ring
_NAP = 0.0005


class RaisedError(Exception):
    """Raised by handlers."""


class RaisedInterrupt(KeyboardInterrupt):
    """Like Ctrl-C: `except Exception` does not catch it."""


RAISED = (RaisedError, RaisedInterrupt)


class SignalStress:
    """Raises one of `RAISED` in the main thread `count` times, `least` to `most` seconds apart.

    With `uses`, handlers compute before they raise.
    """

    def __init__(self, kind: str, count: int, least: float, most: float, seed: int, uses: bool) -> None:
        self.number = SIGNALS[kind]
        self.left = count
        self.raised = 0
        #: Whether a handler may raise now. Cleared when one has raised.
        self.armed = False
        self.probe = gradwire.tensor([1.0, 2.0]) if uses else None
        self.wrong: list[Any] = []
        self._random = random.Random(seed)
        self._span = least, most
        self.stretch = 1.0
        self._over = threading.Event()
        self._before = signal.signal(self.number, self._handle)
        self._thread = threading.Thread(target=self._send_signals, daemon=True)
        self._came = threading.Event()
        self._thread.start()

    def _send_signals(self) -> None:
        while not self._over.wait(self.stretch * self._random.uniform(*self._span)):
            self._came.clear()
            os.kill(os.getpid(), self.number)
            while not self._came.wait(0.05) and not self._over.is_set():
                pass

    def _handle(self, number: int, frame: Any) -> None:
        self._came.set()
        if self.left <= 0 or not self.armed:
            return
        self.armed = False
        self.left -= 1
        self.raised += 1
        if self.probe is not None:
            answer = (self.probe * 2.0).tolist()
            if answer != [2.0, 4.0]:
                self.wrong.append(answer)
        raise RAISED[self.raised % 2](self.raised)

    def stop(self) -> None:
        """Stop sending signals."""
        self.left = 0
        self._over.set()
        self._thread.join()
        assert signal.getsignal(self.number) == self._handle, "programs see their own handlers"
        signal.signal(self.number, self._before)


class NoSignals:
    """Sends no signals."""

    armed = False
    stretch = 1.0


class Program:
    """Deterministic training in small units, which return their results and change no argument."""

    def __init__(self, stress: "SignalStress | NoSignals") -> None:
        self.stress = stress
        self.weights = [
            gradwire.tensor(np.full(shape, 0.1, np.float32) + np.arange(shape[1], dtype=np.float32) / 10)
            for shape in ((6, 10), (10, 3))
        ]
        self.momenta = [gradwire.zeros_like(weight) for weight in self.weights]
        self.counter = gradwire.zeros(3)
        self.written = 0.0
        self.leaf = gradwire.ones(2, requires_grad=True)
        self.added = 0.0
        self.compiled = gradwire.compile(lambda x: (x * 2.0).tanh().sum())

    def retried(self, unit: Callable[..., Any], *args: Any) -> Any:
        """Repeat a unit until no handler raises in it; return its result."""
        tries = 0
        while True:
            try:
                self.stress.armed = True
                found = unit(*args)
                self.stress.armed = False
                break
            except RAISED:
                tries += 1
            if tries % 10 == 0:
                self.stress.stretch *= 1.5  # or a slow machine would never get through
            assert gradwire.is_grad_enabled(), "a block has left its mode behind"
            assert gradwire.current_session().recorder is None
        self.stress.stretch = max(1.0, self.stress.stretch * 0.99)
        return found

    def gradients(self, step: int) -> tuple[list[Any], float]:
        """Gradients of a small network with dropout and a hook."""
        gradwire.manual_seed(step)
        leaves = [weight.detach().clone().requires_grad_() for weight in self.weights]
        hidden = gradwire.nn.functional.dropout((gradwire.tensor(_INPUTS) @ leaves[0]).tanh(), 0.2)
        handle = hidden.register_hook(lambda gradient: gradient * 0.5)
        loss = (hidden @ leaves[1] - 1.0).pow(2).mean()
        loss.backward()
        handle.remove()
        return [leaf.grad for leaf in leaves], loss.item()

    def updated(self, gradients: list[Any]) -> tuple[list[Any], list[Any]]:
        """New weights and momenta, by in-place writes to copies, some through views."""
        weights = [weight.clone() for weight in self.weights]
        momenta = [momentum.clone() for momentum in self.momenta]
        with gradwire.no_grad():
            for weight, momentum, gradient in zip(weights, momenta, gradients, strict=True):
                momentum.mul_(0.9).add_(gradient)
                weight.view(-1).sub_((momentum * 0.01).view(-1))
                low, _ = weight.min(0)
                weight += low * 0.001
        return weights, momenta

    def transferred(self, step: int) -> float:
        """Send a large tensor to the server and back."""
        array = _LARGE + np.float32(step)
        back = (gradwire.from_numpy(array) + 1.0).numpy()
        assert np.array_equal(back, array + np.float32(1.0))
        return float(back[3, 5])

    def write(self) -> None:
        """Write a kept tensor in place. If a handler raises, the write is done once or not at all."""
        try:
            self.stress.armed = True
            self.counter += 1.0
            self.written += 1.0
            self.stress.armed = False
        except RAISED:
            now = self.retried(self.counter.tolist)
            assert now in ([self.written] * 3, [self.written + 1.0] * 3), (now, self.written)
            self.written = now[0]

    def add(self) -> None:
        """Accumulate into a kept gradient. If a handler raises, it is done once or not at all."""
        try:
            self.stress.armed = True
            (self.leaf * 2.0).sum().backward()
            self.added += 2.0
            self.stress.armed = False
        except RAISED:
            grad = self.retried(self.grad_of_leaf)
            assert grad in ([self.added] * 2, [self.added + 2.0] * 2), (grad, self.added)
            self.added = grad[0]

    def grad_of_leaf(self) -> list[float]:
        """The gradient as a list; zeros without one."""
        return [0.0, 0.0] if self.leaf.grad is None else self.leaf.grad.tolist()

    def in_another_session(self) -> list[float]:
        """Open, use and close another session."""
        address = gradwire.current_session().address
        other = gradwire.connect(address)
        with other:
            found: list[float] = (gradwire.ones(2) * 3.0).tolist()
        other.close()
        return found

    def step(self, number: int) -> tuple[float, ...]:
        """Run every unit once; return their results."""
        gradients, loss = self.retried(self.gradients, number)
        self.weights, self.momenta = self.retried(self.updated, gradients)
        self.write()
        self.add()
        values = [loss, self.retried(lambda: self.compiled(self.weights[1]).item())]
        if number % 5 == 0:
            values += self.retried(self.in_another_session)
        if number % 10 == 0:
            values.append(self.retried(self.transferred, number))
        if number % 7 == 0:
            self.retried(gradwire.sync)
        return tuple(values)

    def outcome(self) -> list[bytes]:
        """Weights and momenta."""
        return [each.numpy().tobytes() for each in (*self.weights, *self.momenta)]


def in_another_thread(function: Callable[[], Any]) -> Any:
    """What it returns there, where it waits for every lock that the main thread has left taken."""
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(function()), daemon=True)
    thread.start()
    thread.join(60)
    assert found, "a lock was left taken"
    return found[0]


def held(session: Any) -> int:
    """Tensors that the session names, when nothing waits to be released."""
    gc.collect()
    session.sync()
    return int(session.describe().tensor_count)


def run(kind: str, count: int, least: float, most: float, seed: int, uses: bool) -> str:
    """Strike so often; one line of figures. Raises AssertionError for anything that is not as it would be without."""
    with gradwire.current_session() as session:
        return _run(session, kind, count, least, most, seed, uses)


def _run(session: Any, kind: str, count: int, least: float, most: float, seed: int, uses: bool) -> str:
    began = time.monotonic()
    stress = SignalStress(kind, count, least, most, seed, uses)
    program = Program(stress)
    values: list[tuple[float, ...]] = []
    while stress.left > 0:
        values.append(program.step(len(values)))
    stress.stop()
    assert not stress.wrong, stress.wrong
    took = time.monotonic() - began
    outcome, steps = program.outcome(), len(values)
    assert program.counter.tolist() == [program.written] * 3
    assert program.grad_of_leaf() == [program.added] * 2
    assert in_another_thread((program.counter - program.counter).tolist) == [0.0] * 3
    stress.probe = None
    left = held(session)
    del program, stress
    held(session)
    calm = Program(NoSignals())
    for number, found in enumerate(values):
        assert calm.step(number) == found, f"step {number}"
    assert calm.outcome() == outcome, "weights differ"
    calm.grad_of_leaf()  # names the gradient, as above
    wanted = held(session)
    if session._embedded is not None:  # no other client has sessions there
        assert session.server_info().sessions == 1, "a session was not closed"
    assert left <= wanted, f"{left - wanted} tensors were not released"
    return f"{kind}{', handlers compute' if uses else ''}: {count} exceptions in {took:.0f} s, {steps} steps equal"


def main() -> None:
    """From the command line: with GRADWIRE_ADDRESS over gRPC too, else with an embedded server."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--signal", choices=[*SIGNALS, "all"], default="all")
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--least", type=float, default=1.0, help="milliseconds between two")
    parser.add_argument("--most", type=float, default=40.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--uses", action="store_true", help="handlers compute, too")
    given = parser.parse_args()
    kinds = list(SIGNALS) if given.signal == "all" else [given.signal]
    share = given.count // len(kinds)
    session = gradwire.current_session()
    for kind in kinds:
        with session:  # the default is another's by then
            print(run(kind, share, given.least / 1000, given.most / 1000, given.seed, given.uses), flush=True)
    sys.exit(0)


if __name__ == "__main__":
    main()
