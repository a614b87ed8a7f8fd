"""Workloads: benchmark programs written against PyTorch's API; their argument `torch` is PyTorch or gradwire.

W1 measures per-op overhead, W2 a small training step, W3 a training step dominated by matrix products. A round trip
is one tiny op and the read of its value.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np

Run = Callable[[], float]
SMALL, LARGE = (64, 256, 10), (1024, 1024, 1024, 10)
RATE = 0.01


def chain(torch: Any, length: int = 1000) -> Run:
    """W1: `length` dependent elementwise ops on 32 floats, their backward, and the read of one gradient."""

    def run() -> float:
        x = torch.ones(32, requires_grad=True)
        y = x
        for _ in range(length // 2):
            y = y * 1.0001
            y = y + 0.001
        y.sum().backward()
        return float(x.grad[0])

    return run


def data(batch: int, sizes: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray, list[np.ndarray]]:
    """An MLP's inputs, labels and first weights."""
    rng = np.random.default_rng(0)
    inputs = rng.standard_normal((batch, sizes[0]), dtype=np.float32)
    labels = rng.integers(0, sizes[-1], batch)
    weights = [
        rng.standard_normal((rows, columns), dtype=np.float32) * np.float32(rows**-0.5)
        for rows, columns in itertools.pairwise(sizes)
    ]
    return inputs, labels, weights


def training(torch: Any, batch: int, sizes: tuple[int, ...], steps: int, compiled: bool = False) -> Run:
    """W2, W3: `steps` SGD steps of a ReLU MLP with cross-entropy; the loss is read once, at the end."""
    arrays = data(batch, sizes)
    inputs, labels = torch.tensor(arrays[0]), torch.tensor(arrays[1])
    params = []
    for weight in arrays[2]:
        params.append(torch.tensor(weight, requires_grad=True))
        params.append(torch.zeros(weight.shape[1], requires_grad=True))
    functional = torch.nn.functional

    def step() -> Any:
        hidden = inputs
        for i in range(0, len(params), 2):
            hidden = hidden @ params[i] + params[i + 1]
            if i < len(params) - 2:
                hidden = torch.relu(hidden)
        loss = functional.cross_entropy(hidden, labels)
        loss.backward()
        with torch.no_grad():
            for p in params:
                p -= RATE * p.grad
                p.grad = None
        return loss

    taken = torch.compile(step) if compiled else step

    def run() -> float:
        for _ in range(steps):
            loss = taken()
        return float(loss.item())

    return run


def round_trip(torch: Any) -> Run:
    """One tiny op and the read of its value."""
    x = torch.ones(1)

    def run() -> float:
        return float((x + 1.0).item())

    return run
