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


CLASSES, BATCH = 12, (3, 4)


class Tagger(torch.nn.Module):
    """Classes of tokens, by an embedding of each and of its position."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.positions = torch.nn.Embedding(CLASSES, 8), torch.nn.Embedding(BATCH[1], 8)
        self.head = torch.nn.Linear(8, CLASSES)

    def forward(self, tokens: Any) -> Any:
        places = torch.arange(tokens.shape[1], device=tokens.device)
        return self.head(self.tokens(tokens) + self.positions(places))


def uploaded(least: int = 0, most: int = CLASSES, shape: tuple[int, ...] = BATCH) -> Any:
    return torch.tensor(np.random.default_rng(0).integers(least, most, shape)).cuda()


def ignored_where(mask: Any, tokens: Any) -> Any:
    labels = tokens.clone()
    labels[mask] = -100
    return labels


def windows(data: Any) -> tuple[Any, Any]:
    """Tokens and the next ones, at drawn places of a data set."""
    where = torch.randint(0, len(data) - 5, (3,), device="cuda")[:, None] + torch.arange(4, device="cuda")
    return data[where], data[where + 1]


def both(tokens: Any) -> tuple[Any, Any]:
    return tokens, tokens


# Tokens and labels of a loop, given the model.
TOKENS: dict[str, Callable[[Any], tuple[Any, Any]]] = {
    "uploaded": lambda model: (lambda each: (each[:, :-1], each[:, 1:]))(uploaded(shape=(3, 5))),
    "rows of an uploaded data set": lambda model: both(torch.stack([uploaded(shape=(50,))[i : i + 4] for i in (3, 9)])),
    "drawn windows of a data set": lambda model: windows(uploaded(shape=(50,))),
    "permuted rows": lambda model: both(uploaded(shape=(9, 4))[torch.randperm(9, device="cuda")[:3]]),
    "labels ignored by where": lambda model: (
        uploaded(),
        torch.where(torch.rand(BATCH, device="cuda") < 0.5, uploaded(), -100),
    ),
    "labels ignored by masked_fill": lambda model: (uploaded(), uploaded().masked_fill(uploaded() > 5, -100)),
    "labels ignored by a mask": lambda model: (uploaded(), ignored_where(uploaded() == 3, uploaded())),
    "labels ignored by a slice": lambda model: (uploaded(), ignored_where((slice(None), 0), uploaded())),
    "arithmetic": lambda model: both((torch.arange(12, device="cuda").view(BATCH) * 7 + 3) % CLASSES),
    "from one on": lambda model: both(uploaded(1, CLASSES + 1) - 1),
    "in place": lambda model: both(uploaded(1, CLASSES + 1).sub_(1)),
    "rounded numbers": lambda model: both((torch.rand(BATCH, device="cuda") * 99).long().clamp(0, CLASSES - 1)),
    "comparisons": lambda model: both((torch.randn(BATCH, device="cuda") > 0).long()),
    "predictions": lambda model: (uploaded(), model(uploaded()).argmax(-1)),
    "constants": lambda model: (torch.zeros(BATCH, dtype=torch.long, device="cuda"), torch.full(BATCH, 3).cuda()),
    "bytes": lambda model: both(uploaded().to(torch.uint8).long()),
    "counts": lambda model: both((uploaded() > 5).cumsum(1) + (uploaded() > 5).sum(1, keepdim=True)),
}


@pytest.mark.parametrize("name", TOKENS)
def test_a_step_does_not_wait_for_tokens_and_labels_whose_bounds_follow_from_their_making(
    session: Any, name: str
) -> None:
    model = Tagger().cuda()
    optimize = torch.optim.Adam(model.parameters())
    waits = 0
    for _ in range(3):  # the first fills caches
        with hostcupy.counted() as counts:
            optimize.zero_grad()
            tokens, labels = TOKENS[name](model)
            torch.nn.functional.cross_entropy(model(tokens).flatten(0, 1), labels.flatten()).backward()
            optimize.step()
            session.sync()
        waits = counts.waits
    assert waits == 0


def test_a_step_waits_once_for_integers_of_unknown_bounds(session: Any) -> None:
    model = Tagger().cuda()
    for _ in range(3):
        with hostcupy.counted() as counts:
            tokens = (torch.rand(BATCH, device="cuda") * CLASSES).long()
            torch.nn.functional.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten()).backward()
            session.sync()
        assert counts.to_host == 1


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
