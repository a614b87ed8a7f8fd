"""Launch and synchronization budgets on hostcupy, which counts them: per op and per training step.

The numbers are what was counted when they were written down. A step or op that needs more has become slower on every
GPU; one that needs less gets a lower number here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gradwire as torch
import gradwire_engine as engine
from gradwire_engine.compile.eager.library import SessionLoops
from gradwire_engine.compile.fusion.fused import OPTIONS
from gradwire_engine.core import device as devices
from gradwire_engine.core.context import Context, activate
from tests.gpu import hostcupy

if hostcupy.folder() is None:
    pytest.skip("needs hostcupy", allow_module_level=True)


@pytest.fixture(autouse=True)
def gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """The device of this process: no stand-in. Ops use their kernels, as on a server by default."""
    monkeypatch.setattr(OPTIONS, "mode", "on")


class Block(torch.nn.Module):
    """A residual block."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        nn = torch.nn
        self.first = nn.Sequential(nn.Conv2d(channels, channels, 3, padding=1, bias=False), nn.BatchNorm2d(channels))
        self.second = nn.Sequential(nn.Conv2d(channels, channels, 3, padding=1, bias=False), nn.BatchNorm2d(channels))

    def forward(self, x: Any) -> Any:
        return (self.second(self.first(x).relu()) + x).relu()


def perceptron() -> tuple[Any, Any, Any]:
    model = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10))
    return model, torch.randn(16, 64), torch.randint(0, 10, (16,))


def three_layers() -> tuple[Any, Any, Any]:
    """The ops of the benchmarks' W3, as `perceptron` has those of W2."""
    nn = torch.nn
    model = nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 10))
    return model, torch.randn(16, 32), torch.randint(0, 10, (16,))


def residual() -> tuple[Any, Any, Any]:
    nn = torch.nn
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), Block(8), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(128, 10)
    )
    return model, torch.randn(2, 3, 8, 8), torch.randint(0, 10, (2,))


def transformer() -> tuple[Any, Any, Any]:
    nn = torch.nn
    layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True, dropout=0.0)
    model = nn.Sequential(nn.Embedding(50, 32), layer, nn.Flatten(0, 1), nn.Linear(32, 50))
    return model, torch.randint(0, 50, (2, 6)), torch.randint(0, 50, (12,))


# Launches and waits of an eager step. All optimizers below have as many.
STEPS: dict[Callable[[], tuple[Any, Any, Any]], tuple[int, int]] = {
    perceptron: (17, 0),
    three_layers: (24, 0),
    residual: (45, 0),
    transformer: (68, 0),
}
# Steps before the optimizer's are a plan: the first two run op by op, the next two record and trace. Of a plan's runs
# the first is made call by call, the second in its own memory, and the third is captured.
_WARM_UP = 8
OPTIMIZERS: dict[str, dict[str, float]] = {"SGD": {"momentum": 0.9}, "Adam": {}, "AdamW": {}}


def counted_step(
    session: Any, made: Callable[[], tuple[Any, Any, Any]], optimizer: str, options: dict[str, float], compiled: bool
) -> hostcupy.Counts:
    model, x, labels = (each.to("cuda") for each in made())
    optimize = getattr(torch.optim, optimizer)(model.parameters(), lr=1e-3, **options)

    def step() -> None:
        optimize.zero_grad()
        torch.nn.functional.cross_entropy(model(x), labels).backward()
        optimize.step()

    run = torch.compile(step) if compiled else step
    for _ in range(_WARM_UP):
        run()
        session.sync()
    with hostcupy.counted() as counts:
        run()
        session.sync()
    return counts


@pytest.mark.parametrize("optimizer", [*OPTIMIZERS, "plain SGD"])
@pytest.mark.parametrize("made", STEPS, ids=lambda made: made.__name__)
def test_a_training_step_stays_within_its_launches_and_synchronizations(
    session: Any, made: Any, optimizer: str
) -> None:
    name, options = optimizer.split()[-1], OPTIMIZERS.get(optimizer, {})
    eager, compiled = (counted_step(session, made, name, options, each) for each in (False, True))
    assert (eager.graphs, eager.launches, eager.waits) == (0, *STEPS[made])
    assert (compiled.graphs, compiled.launches, compiled.waits, compiled.fills) == (1, 0, 0, 0)
    numbers = optimizer.startswith("Adam")  # whose bias corrections differ from step to step
    assert compiled.to_device == numbers


def float_array(*shape: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(0).normal(size=shape).astype(np.float32)


# Op, its operands, its other arguments; launches and waits of the forward, launches of the backward.
OPS: dict[str, tuple[list[np.ndarray[Any, Any]], tuple[Any, ...], tuple[int, int, int]]] = {
    "add": ([float_array(8, 8), float_array(8, 8)], (), (1, 0, 2)),
    "matmul": ([float_array(8, 8), float_array(8, 8)], (), (1, 0, 4)),
    "relu": ([float_array(8, 8)], (), (1, 0, 2)),
    "gelu": ([float_array(8, 8)], (), (1, 0, 2)),
    "softmax": ([float_array(8, 8)], (1,), (1, 0, 2)),
    "layer_norm": ([float_array(8, 8)], ((8,),), (1, 0, 2)),
    "conv2d": ([float_array(2, 3, 8, 8), float_array(4, 3, 3, 3)], (), (1, 0, 4)),
    "max_pool2d": ([float_array(2, 3, 8, 8)], (2,), (1, 0, 2)),
    "cross_entropy": ([float_array(8, 10), np.arange(8)], (), (2, 0, 3)),
}


@pytest.mark.parametrize("name", OPS)
def test_an_op_stays_within_its_launches_and_synchronizations(name: str) -> None:
    operands, others, expected = OPS[name]
    found = (0, 0, 0)
    with activate(Context(loops=SessionLoops(lambda: True))):
        leaves = [engine.tensor(devices.to_device(each, "cuda:0"), each.dtype.kind == "f") for each in operands]
        for _ in range(2):  # the first turn fills caches
            with hostcupy.counted() as forward:
                result = engine.call(name, (*leaves, *others))
            gradient = engine.tensor(result.array * 0 + 1)
            with hostcupy.counted() as backward:
                engine.backward([result], [gradient])
            found = forward.launches, forward.waits, backward.launches
    assert found == expected


def test_synchronize_waits_for_the_gpu_once(session: Any) -> None:
    torch.ones(3, device="cuda")
    torch.cuda.synchronize()
    with hostcupy.counted() as counts:
        torch.cuda.synchronize()
    assert counts.to_host == 1
