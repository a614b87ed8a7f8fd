"""Loops whose indices, sizes and numbers vary: data sets, sliding windows, reinforcement learning; beside PyTorch.

One program serves both sides. An op with another number must not cost a round trip. Most runs have other numbers than
the run before.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from benchmarks.measure import Bound, Result, Run, compare

Program = Callable[[Any], Run]
_ROWS = 25_600  # 400 runs of 64 rows


def dataset(torch: Any) -> Run:
    """A data set of tensors, read sample by sample and stacked to batches of 16."""
    inputs, labels = torch.ones(_ROWS, 8), torch.arange(_ROWS)
    starts = itertools.cycle(range(0, _ROWS, 64))

    def run() -> Any:
        seen, first = 0.0, next(starts)
        for start in range(first, first + 64, 16):
            rows = torch.stack([inputs[number] for number in range(start, start + 16)])
            numbers = torch.stack([labels[number] for number in range(start, start + 16)])
            seen = seen + rows.sum() + numbers.sum()
        return seen.item()

    return run


def loader(torch: Any) -> Run:
    """A shuffled DataLoader over a TensorDataset, and a linear model's step per batch; the last one is smaller."""
    torch.manual_seed(0)
    data = torch.utils.data.TensorDataset(torch.ones(60, 8), torch.ones(60, 1))
    batches = torch.utils.data.DataLoader(data, batch_size=8, shuffle=True)
    model = torch.nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)

    def run() -> Any:
        loss = None
        for inputs, targets in batches:
            optimizer.zero_grad()
            loss = ((model(inputs) - targets) ** 2).mean()
            loss.backward()
            optimizer.step()
        return loss.item()

    return run


def windows(torch: Any) -> Run:
    """Sliding windows of a series, each with another length, and their means."""
    series = torch.arange(float(_ROWS))
    starts = itertools.cycle(range(0, _ROWS - 200, 100))

    def run() -> Any:
        total, first = torch.zeros(()), next(starts)
        for start in range(first, first + 100):
            window = series[start : start + 5 + start % 40]
            total = total + window.mean() * (start % 7)
        return total.item()

    return run


def table_of_numbers(torch: Any) -> Run:
    """Whole numbers written one by one, as in dynamic programming."""
    runs = itertools.count()

    def run() -> Any:
        table, first = torch.zeros(12, 12, dtype=torch.int64), next(runs)
        for row in range(12):
            for column in range(12):
                table[row, column] = row * column + first
        return table.sum().item()

    return run


def reinforce(torch: Any) -> Run:
    """REINFORCE: an episode of 40 steps, a value read per step, then the update."""
    torch.manual_seed(0)
    policy = torch.nn.Sequential(torch.nn.Linear(4, 16), torch.nn.ReLU(), torch.nn.Linear(16, 2))
    optimizer = torch.optim.Adam(policy.parameters(), lr=0.0)
    start = np.linspace(-1, 1, 4, dtype=np.float32)

    def run() -> Any:
        state, log_probs, rewards = start, [], []
        for _ in range(40):
            logits = policy(torch.from_numpy(state).unsqueeze(0))
            chosen = torch.distributions.Categorical(logits=logits)
            action = chosen.sample()
            log_probs.append(chosen.log_prob(action))
            state = np.roll(state, 1 + action.item())
            rewards.append(1.0)
        returns = torch.tensor(np.cumsum(rewards[::-1])[::-1].copy(), dtype=torch.float32)
        returns = (returns - returns.mean()) / (returns.std() + 1e-6)
        loss = torch.cat([-log_prob * value for log_prob, value in zip(log_probs, returns, strict=True)]).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return log_probs[0].shape[0]

    return run


ROWS: tuple[tuple[str, Program, str], ...] = (
    ("data set, x[i] stacked to batches", dataset, "ms"),
    ("DataLoader and a linear model's epoch", loader, "ms"),
    ("100 sliding windows x[a:b]", windows, "ms"),
    ("144 elements written, x[i, j] = v", table_of_numbers, "ms"),
    ("REINFORCE, an episode of 40 steps", reinforce, "ms"),
)


def measure(only: str, turns: int) -> Iterator[Result]:
    """Each loop, gradwire against PyTorch."""
    import torch

    import gradwire

    for name, program, unit in ROWS:
        if only not in name:
            continue
        ours, theirs = program(gradwire), program(torch)
        found = ours(), theirs()
        if found[0] != found[1]:
            raise SystemExit(f"{name}: gradwire has {found[0]}, PyTorch {found[1]}")
        yield compare(Result("varying", name, "PyTorch", Bound(), unit=unit), ours, theirs, turns=turns)
