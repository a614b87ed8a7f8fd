"""Training steps of whole models: a program's steps eager and compiled over a connection, beside PyTorch in process.

The models are small, and their steps are not only matrix products: attention, normalization, convolutions, recurrence,
pooling, elementwise chains, losses, optimizers. Both sides start from the same weights and must agree on the losses of
the first steps. With `cpu`, a turn is the CPU time of client and server together, which other load disturbs less.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.derivatives import fill, physics
from benchmarks.measure import SETTLE_SECONDS, Bound, Result, Run, geometric_mean

Step = Callable[[], Any]
Build = Callable[[Any], tuple[Step, Any]]

#: Compiled and eager, each: the geometric mean and each row.
MUST = {"compiled": (1.0, 1.5), "eager": (2.0, 3.0)}
_TURN_SECONDS = 0.3


def _trained(torch: Any, net: Any, optimizer: Any, loss_of: Step) -> Step:
    def step() -> Any:
        optimizer.zero_grad()
        loss = loss_of()
        loss.backward()
        optimizer.step()
        return loss

    return step


def gpt(torch: Any, layers: int = 4, width: int = 128, heads: int = 4, length: int = 64, batch: int = 8) -> Any:
    """A GPT of 4 layers (width 128, 4 heads, 8 × 64 tokens) with dropout 0, AdamW."""
    nn, functional, vocabulary = torch.nn, torch.nn.functional, 256

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x: Any) -> Any:
            parts = self.qkv(self.norm1(x)).split(width, dim=-1)
            q, k, v = [part.reshape(batch, length, heads, width // heads).transpose(1, 2) for part in parts]
            mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
            return x + self.down(functional.gelu(self.up(self.norm2(x))))

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
            self.blocks = nn.Sequential(*[Block() for _ in range(layers)])
            self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary)

        def forward(self, tokens: Any, places: Any) -> Any:
            return self.head(self.norm(self.blocks(self.tokens(tokens) + self.places(places))))

    rng, net = np.random.default_rng(0), Net()
    fill(torch, net, rng)
    tokens, target = (torch.tensor(rng.integers(0, vocabulary, (batch, length))) for _ in range(2))
    places = torch.tensor(np.arange(length))
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)

    def loss() -> Any:
        return functional.cross_entropy(net(tokens, places).reshape(-1, vocabulary), target.reshape(-1))

    return _trained(torch, net, optimizer, loss), net


def resnet(torch: Any, width: int = 32, batch: int = 16) -> Any:
    """A ResNet of 3 blocks (32 channels, 16 images of 32 × 32), SGD with momentum."""
    nn, functional = torch.nn, torch.nn.functional

    class Block(nn.Module):
        def __init__(self, given: int, made: int, stride: int) -> None:
            super().__init__()
            self.conv1 = nn.Conv2d(given, made, 3, stride, 1, bias=False)
            self.conv2 = nn.Conv2d(made, made, 3, 1, 1, bias=False)
            self.norm1, self.norm2 = nn.BatchNorm2d(made), nn.BatchNorm2d(made)
            self.short = None if given == made else nn.Conv2d(given, made, 1, stride, bias=False)

        def forward(self, x: Any) -> Any:
            y = self.norm2(self.conv2(torch.relu(self.norm1(self.conv1(x)))))
            return torch.relu(y + (x if self.short is None else self.short(x)))

    rng = np.random.default_rng(0)
    net = nn.Sequential(
        nn.Conv2d(3, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU(), Block(width, width, 1),
        Block(width, 2 * width, 2), Block(2 * width, 2 * width, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Linear(2 * width, 10),
    )  # fmt: skip
    fill(torch, net, rng)
    images = torch.tensor(rng.standard_normal((batch, 3, 32, 32), dtype=np.float32))
    target = torch.tensor(rng.integers(0, 10, batch))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
    return _trained(torch, net, optimizer, lambda: functional.cross_entropy(net(images), target)), net


def lstm(torch: Any, width: int = 128, length: int = 32, batch: int = 16) -> Any:
    """An LSTM of one layer (128 units, 16 × 32 steps) that classifies, Adam."""
    nn, functional = torch.nn, torch.nn.functional

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lstm, self.head = nn.LSTM(64, width, batch_first=True), nn.Linear(width, 10)

        def forward(self, x: Any) -> Any:
            return self.head(self.lstm(x)[0][:, -1])

    rng, net = np.random.default_rng(0), Net()
    fill(torch, net, rng)
    x = torch.tensor(rng.standard_normal((batch, length, 64), dtype=np.float32))
    target = torch.tensor(rng.integers(0, 10, batch))
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    return _trained(torch, net, optimizer, lambda: functional.cross_entropy(net(x), target)), net


def convnext(torch: Any, width: int = 64, batch: int = 8) -> Any:
    """A ConvNeXt block (64 channels, 8 images of 28 × 28): depthwise 7 × 7, layer norm, gelu; AdamW."""
    nn, functional = torch.nn, torch.nn.functional

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.depthwise = nn.Conv2d(width, width, 7, padding=3, groups=width)
            self.norm = nn.LayerNorm(width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
            self.scale = nn.Parameter(torch.ones(width))

        def forward(self, x: Any) -> Any:
            y = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
            y = self.scale * self.down(functional.gelu(self.up(y)))
            return x + y.permute(0, 3, 1, 2)

    rng, net = np.random.default_rng(0), Block()
    fill(torch, net, rng)
    x, wanted = (torch.tensor(rng.standard_normal((batch, width, 28, 28), dtype=np.float32)) for _ in range(2))
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    return _trained(torch, net, optimizer, lambda: functional.mse_loss(net(x), wanted)), net


def vae(torch: Any, batch: int = 128, hidden: int = 400, latent: int = 20) -> Any:
    """A VAE (784-400-20, batch 128) whose noise is drawn beforehand, Adam."""
    nn, functional = torch.nn, torch.nn.functional

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encode, self.mean, self.spread = (
                nn.Linear(784, hidden),
                nn.Linear(hidden, latent),
                nn.Linear(hidden, latent),
            )
            self.decode, self.out = nn.Linear(latent, hidden), nn.Linear(hidden, 784)

    rng, net = np.random.default_rng(0), Net()
    fill(torch, net, rng)
    x = torch.tensor(rng.random((batch, 784), dtype=np.float32))
    noise = torch.tensor(rng.standard_normal((batch, latent), dtype=np.float32))
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)

    def loss() -> Any:
        inner = torch.relu(net.encode(x))
        mean, spread = net.mean(inner), net.spread(inner) * 0.1
        code = mean + noise * torch.exp(0.5 * spread)
        logits = net.out(torch.relu(net.decode(code)))
        rebuilt = functional.binary_cross_entropy_with_logits(logits, x, reduction="sum")
        return (rebuilt - 0.5 * (1 + spread - mean.square() - spread.exp()).sum()) / batch

    return _trained(torch, net, optimizer, loss), net


MODELS: dict[str, Build] = {
    "GPT, 4 layers": gpt,
    "ResNet": resnet,
    "LSTM": lstm,
    "ConvNeXt block": convnext,
    "VAE": vae,
    "PINN": physics,
}


def _repeated(step: Step, count: int) -> Run:
    def run() -> float:
        for _ in range(count):
            loss = step()
        return float(loss.item())

    return run


@dataclass(frozen=True)
class Clock:
    """What a turn is measured by: the wall clock, or the CPU time of client and server."""

    cpu: bool = False

    def now(self) -> float:
        """Seconds since some moment."""
        if not self.cpu:
            return time.perf_counter()
        import gradwire

        return _cpu_seconds(os.getpid()) + _cpu_seconds(int(gradwire.current_session()._embedded._process.pid))


def _cpu_seconds(process: int) -> float:
    """CPU time of a process on Linux, its ended threads included, without its children (the compiler process)."""
    return time.clock_gettime((~process << 3) | 2)  # the id that clock_getcpuclockid(3) gives


def measure(only: str, turns: int, *, cpu: bool = False, warm: float = 10.0) -> Iterator[Result]:
    """Each model eager and compiled beside PyTorch; `warm` seconds of compiled steps come first."""
    for name, build in MODELS.items():
        if only in name:
            yield from _model(name, build, turns, Clock(cpu), warm)


def _model(name: str, build: Build, turns: int, clock: Clock, warm: float) -> Iterator[Result]:
    import torch

    import gradwire

    peer, eager, planned = build(torch)[0], build(gradwire)[0], build(gradwire)[0]
    compiled = gradwire.compile(planned)
    steps = {"PyTorch": peer, "eager": eager, "compiled": compiled}
    losses = {side: [_repeated(step, 1)() for _ in range(4)] for side, step in steps.items()}
    for side, values in losses.items():
        if any(
            not math.isclose(one, other, rel_tol=2e-3) for one, other in zip(values, losses["PyTorch"], strict=True)
        ):
            raise SystemExit(f"{name}: the losses of {side} are {values}, of PyTorch {losses['PyTorch']}")
    end = time.monotonic() + warm
    while time.monotonic() < end:
        compiled().item()
    results = {
        side: Result("models", f"{name}, {side}", "PyTorch", Bound(MUST[side][1], MUST[side][0])) for side in MUST
    }
    for turn in range(turns):
        order = list(steps) if turn % 2 else list(reversed(steps))
        times = {side: _turn(steps[side], clock) for side in order}
        for side, result in results.items():
            result.add(times[side], times["PyTorch"])
    yield from results.values()


def _turn(step: Step, clock: Clock) -> float:
    """Seconds of one step: as many as fit into the turn, each waiting for its loss, after a pause and one step."""
    time.sleep(SETTLE_SECONDS)
    step().item()
    begin, now, done = time.perf_counter(), clock.now(), 0
    while time.perf_counter() < begin + _TURN_SECONDS:
        step().item()
        done += 1
    return (clock.now() - now) / done


def summary(results: list[Result]) -> str:
    """The geometric means beside what they must be."""
    lines = []
    for side, (mean, each) in MUST.items():
        ratios = [result.ratio for result in results if result.name.endswith(f", {side}")]
        if ratios:
            lines.append(
                f"{side}: geometric mean {geometric_mean(ratios):.2f} × (must ≤ {mean:g} ×), "
                f"worst {max(ratios):.2f} × (must ≤ {each:g} ×)."
            )
    return "\n".join(lines)
