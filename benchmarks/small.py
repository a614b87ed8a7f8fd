"""The engine's own cost per op: what is computed is nothing, so what is measured is recording and walking the graph."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from benchmarks.measure import Bound, Result, Run, compare

LENGTH = 1000
MUST = Bound(1.5)


def engine_runs(length: int) -> tuple[Run, Run]:
    """In the engine: a leaf, so many ops on it, and the backward of their sum or, of one op, from ones; and forward."""
    import gradwire_engine

    x = gradwire_engine.tensor(np.ones(32, np.float32), True)
    ones = gradwire_engine.tensor(np.ones(32, np.float32))

    def forward() -> gradwire_engine.Tensor:
        y = x
        for _ in range(length // 2):
            y = y * 1.0001
            y = y + 0.001
        return y if length > 1 else x * 1.0001

    def both() -> float:
        x.grad = None
        gradwire_engine.backward([forward()], [ones])
        return float(x.grad.array[0])

    return both, forward


def _pytorch(length: int) -> tuple[Run, Run]:
    import torch

    x = torch.ones(32, requires_grad=True)
    ones = torch.ones(32)

    def forward() -> torch.Tensor:
        y = x
        for _ in range(length // 2):
            y = y * 1.0001
            y = y + 0.001
        return y if length > 1 else x * 1.0001

    def both() -> float:
        x.grad = None
        forward().backward(ones)
        return float(x.grad[0])

    return both, forward


def measure(turns: int) -> Iterator[Result]:
    """One op of 32 floats and a chain of a thousand, forward, and with backward."""
    for length, what, unit in ((1, "one op", "µs"), (LENGTH, f"a chain of {LENGTH:,} ops, per op", "µs")):
        ours, theirs = engine_runs(length), _pytorch(length)
        if abs(ours[0]() - theirs[0]()) > 1e-4:  # type: ignore[operator]
            raise SystemExit(f"{what}: the engine and PyTorch disagree")
        for place, part in ((1, "forward"), (0, "with backward")):
            bound = MUST if place == 0 else Bound()
            result = Result("small", f"engine in process, {what}, {part}", "PyTorch", bound, unit=unit)
            yield compare(result, ours[place], theirs[place], per=length, turns=turns)
