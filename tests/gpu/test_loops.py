"""Training loops through a server, on a GPU and on the CPU beside it: the same losses, and nothing is repeated.

A loop on the CPU repeats calls, passes and steps (engine: op/repeated.py). Where there is a GPU, none of these is made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import gradwire
import gradwire as torch
from gradwire_engine.autograd import repeated_backward
from gradwire_engine.autograd.noted_pass import NotedPass
from gradwire_engine.autograd.repeated_step import RepeatedStep
from gradwire_engine.op.repeated import Recipe
from gradwire_server.session.prepared import repeats
from tests.server.harness import LIMITS, Running

STEPS = 30
F = torch.nn.functional


class Sequence(torch.nn.Module):
    """An LSTM and a layer on its last output."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = torch.nn.LSTM(4, 6, batch_first=True)
        self.head = torch.nn.Linear(6, 3)

    def forward(self, x: Any) -> Any:
        return self.head(self.lstm(x)[0][:, -1])


def perceptron() -> tuple[Any, tuple[int, ...]]:
    nn = torch.nn
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3)), (6,)


def convolutions() -> tuple[Any, tuple[int, ...]]:
    nn = torch.nn
    return nn.Sequential(nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.Flatten(), nn.Linear(48, 3)), (1, 6, 6)


def sequence() -> tuple[Any, tuple[int, ...]]:
    return Sequence(), (5, 4)


OPTIMIZERS: dict[str, Callable[[Any], Any]] = {
    "Adam": lambda parameters: torch.optim.Adam(parameters, lr=0.01),
    "momentum": lambda parameters: torch.optim.SGD(parameters, lr=0.05, momentum=0.9),
}


def batches(shape: tuple[int, ...]) -> Iterator[tuple[Any, Any]]:
    rng = np.random.default_rng(3)
    while True:
        yield rng.normal(size=(4, *shape)).astype("float32"), rng.integers(0, 3, 4)


def training(device: str, made: Callable[[], Any], optimizer: str, compiled: bool = False) -> Iterator[Any]:
    """The loss of each step of a loop whose batches are uploaded."""
    torch.manual_seed(0)
    model, shape = made()
    model = model.to(device)
    optimize = OPTIMIZERS[optimizer](model.parameters())

    def step(x: Any, labels: Any) -> Any:
        optimize.zero_grad()
        loss = F.cross_entropy(model(x), labels)
        loss.backward()
        optimize.step()
        return loss.detach()

    run = torch.compile(step) if compiled else step
    for x, labels in batches(shape):
        yield run(torch.tensor(x).to(device), torch.tensor(labels).to(device))


def losses(loop: Iterator[Any], read: bool, steps: int = STEPS) -> list[float]:
    """The losses of a loop, each read at its step, or all read at the end."""
    found = [loss.item() if read else loss for loss, _ in zip(loop, range(steps), strict=False)]
    return found if read else torch.stack([each.cpu() for each in found]).tolist()  # type: ignore[no-any-return]


@pytest.fixture
def nothing_repeated(gpu: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No recipe, list or step is made inside, and none of another test is used."""
    made: list[Any] = []
    for kind in (Recipe, NotedPass, RepeatedStep):
        given = kind.__init__

        def noted(self: Any, *args: Any, given: Any = given, **kwargs: Any) -> None:
            given(self, *args, **kwargs)
            made.append(self)

        monkeypatch.setattr(kind, "__init__", noted)
    monkeypatch.setattr(repeats.Repeats, "_use", lambda self, known, recipe: made.append(recipe))
    before = len(repeats._recipes), len(repeated_backward._SHARED)
    yield
    assert (len(repeats._recipes), len(repeated_backward._SHARED)) == before
    assert not [each for each in made if not isinstance(each, NotedPass) or (each.steps and each.leaves)]


CASES = [(perceptron, name) for name in OPTIMIZERS] + [(convolutions, "momentum"), (sequence, "Adam")]


@pytest.mark.parametrize("read", [True, False], ids=["read", "unread"])
@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize(("made", "optimizer"), CASES, ids=lambda each: getattr(each, "__name__", each))
def test_a_loop_on_a_gpu_has_the_losses_of_the_cpu(
    nothing_repeated: None, session: Any, made: Any, optimizer: str, compiled: bool, read: bool
) -> None:
    steps = 8 if made is convolutions else STEPS  # hostcupy takes long for them
    ours, expected = (losses(training(device, made, optimizer, compiled), read, steps) for device in ("cuda", "cpu"))
    np.testing.assert_allclose(ours, expected, rtol=2e-4, atol=2e-5)
    assert ours[-1] != ours[0]


# Loops that touch both devices.


def _two_halves(device: str) -> Callable[[Any], Any]:
    """A layer on the CPU, another on the device: one backward passes both."""
    first, second = torch.nn.Linear(6, 8), torch.nn.Linear(8, 3).to(device)
    optimizers = [torch.optim.Adam(each.parameters(), lr=0.02) for each in (first, second)]

    def step(x: Any) -> Any:
        loss = second(first(x).tanh().to(device)).square().mean() + 0.1 * first.weight.square().sum().to(device)
        for each in optimizers:
            each.zero_grad()
        loss.backward()
        for each in optimizers:
            each.step()
        return loss

    return step


def _hand_written(device: str) -> Callable[[Any], Any]:
    """Parameters and running values that are changed in place, without an optimizer."""
    weight, mean = torch.randn(6, 3).to(device).requires_grad_(), torch.zeros(3, device=device)

    def step(x: Any) -> Any:
        out = x.to(device) @ weight
        loss = (out - mean).square().mean()
        loss.backward()
        with torch.no_grad():
            mean.mul_(0.9).add_(out.mean(0), alpha=0.1)
            weight.sub_(0.1 * weight.grad)
            weight.data[0].mul_(0.99)
            weight.grad.zero_()
        return loss

    return step


def _indices_of_the_cpu(device: str) -> Callable[[Any], Any]:
    """A table on the device, indexed by integers in host memory."""
    table = torch.randn(10, 6).to(device).requires_grad_()
    rows, optimize = torch.tensor([1, 3, 3, 9]), torch.optim.SGD([table], lr=0.1)

    def step(x: Any) -> Any:
        optimize.zero_grad()
        loss = (table[rows] - x.to(device)).square().mean() + table[rows % 3].sum().sigmoid()
        loss.backward()
        optimize.step()
        return loss

    return step


def _copied_into(device: str) -> Callable[[Any], Any]:
    """A fixed buffer on the device that each batch is copied into, and a part of it from the CPU's results."""
    buffer, model = torch.zeros(4, 6, device=device), torch.nn.Linear(6, 3).to(device)
    kept, optimize = torch.zeros(2), torch.optim.Adam(model.parameters(), lr=0.02)

    def step(x: Any) -> Any:
        buffer.copy_(x)
        buffer[0, 1:] = x[1, 1:] * 2
        optimize.zero_grad()
        loss = model(buffer).square().mean()
        loss.backward()
        optimize.step()
        kept[0] = loss.detach()
        return loss + kept[0].to(device)

    return step


BOTH_DEVICES = [_two_halves, _hand_written, _indices_of_the_cpu, _copied_into]


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("made", BOTH_DEVICES, ids=lambda each: each.__name__[1:])
def test_a_loop_that_uses_both_devices_has_the_losses_of_the_cpu(
    nothing_repeated: None, session: Any, made: Any, compiled: bool
) -> None:
    found = []
    for device in ("cuda", "cpu"):
        torch.manual_seed(0)
        step = torch.compile(made(device)) if compiled else made(device)
        found.append([step(torch.tensor(x)).item() for (x, _), _ in zip(batches((6,)), range(STEPS), strict=False)])
    np.testing.assert_allclose(*found, rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
def test_sessions_on_different_devices_with_the_same_calls_do_not_mix_them(
    nothing_repeated: None, session: Any, compiled: bool
) -> None:
    """They share the recipes of a process, whose descriptions do not name devices."""
    devices = ["cpu", "cuda", "cpu", f"cuda:{torch.cuda.device_count() - 1}"]
    expected = losses(training("cpu", perceptron, "Adam", compiled), True)
    running = Running(LIMITS)
    try:
        sessions = [gradwire.connect(running.address) for _ in devices]
        loops: list[Any] = []
        found: list[list[float]] = [[] for _ in devices]
        for each, device in zip(sessions, devices, strict=True):
            with each:
                loops.append(training(device, perceptron, "Adam", compiled))
        for step in range(2 * STEPS):
            for number, (each, loop) in enumerate(zip(sessions, loops, strict=True)):
                if step < STEPS if number < 2 else step >= STEPS:  # the second two begin when the first are known
                    with each:
                        loss = next(loop)
                        assert str(loss.device).startswith(devices[number])
                        found[number].append(loss.item())
        for each in sessions:
            each.close()
    finally:
        running.stop()
    for each_found in found:
        np.testing.assert_allclose(each_found, expected, rtol=2e-4, atol=2e-5)


def test_a_loop_whose_allocations_are_refused_goes_on(nothing_repeated: None) -> None:
    """A session near its limit: what does not fit is refused, and the steps around it are those without it."""
    running = Running(replace(LIMITS, max_session_bytes=1 << 20))
    try:
        with gradwire.connect(running.address):
            loop, found = training("cuda", perceptron, "Adam"), []
            for step in range(STEPS):
                found.append(next(loop).item())
                refused = pytest.raises(RuntimeError) if step % 3 == 1 else nullcontext()
                with refused:
                    torch.ones(1 << 10, 1 << 9 if step % 3 == 1 else 1, device="cuda").sum().item()
            expected = losses(training("cpu", perceptron, "Adam"), True)
    finally:
        running.stop()
    np.testing.assert_allclose(found, expected, rtol=2e-4, atol=2e-5)


# Labels of a compiled step, changed in place between two runs so that one of them is no class.
CHANGES: dict[str, Callable[[Any], Any]] = {
    "fill": lambda labels: labels.fill_(5),
    "arithmetic": lambda labels: labels.add_(2),
    "part": lambda labels: labels[2:].sub_(300),
    "item": lambda labels: labels.__setitem__(0, 77),
    "mask": lambda labels: labels.__setitem__(labels > 1, -5),
    "copy": lambda labels: labels.copy_(torch.tensor([0, 4, 9, 1])),
    "drawn": lambda labels: labels.random_(5, 9),
    "turned view": lambda labels: labels.view(2, 2).t().mul_(100).add_(7),
    "other dtype": lambda labels: labels.view(torch.int32).fill_(9),
    "program": lambda labels: torch.compile(lambda: labels.add_(50))(),
    "data": lambda labels: labels.data.add_(9),
}


def test_a_compiled_step_refuses_labels_that_no_longer_are_classes_however_they_were_changed(session: Any) -> None:
    torch.manual_seed(0)
    weight, x = torch.randn(6, 5).cuda().requires_grad_(), torch.randn(4, 6).cuda()
    labels, right = torch.tensor([0, 1, 2, 3]).cuda(), torch.tensor([3, 1, -100, 4])
    optimize = torch.optim.SGD([weight], lr=0.1)

    @torch.compile
    def step() -> None:
        optimize.zero_grad()
        F.cross_entropy(x @ weight, labels).backward()
        optimize.step()

    def finished(call: Callable[[], None]) -> None:
        call()
        session.sync()

    for _ in range(6):
        finished(step)
    for change in CHANGES.values():
        labels.copy_(right)
        finished(step)
        before = weight.tolist()
        change(labels)
        with pytest.raises(IndexError, match="out of bounds"):
            finished(step)
        assert weight.tolist() == before
