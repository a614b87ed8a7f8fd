"""Random numbers on the CPU: the engine with each algorithm beside PyTorch, in process, by CPU time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

Draw = Callable[[], Any]
SIZES = (100, 10_000, 1_000_000)
_AT_LEAST = 2e-3  # seconds of a turn
HEADER = "| draw | numbers | mt19937, µs | pcg64, µs | PyTorch, µs | mt19937 to PyTorch |\n|" + " --- |" * 6


def _pairs(count: int) -> dict[str, tuple[Draw, Draw]]:
    import torch

    from gradwire_engine import call, tensor
    from gradwire_engine.core import dtypes

    weights = torch.rand(count)
    held = tensor(weights.numpy())
    wide = {"dtype": dtypes.float64}, {"dtype": torch.float64}
    return {
        "rand": (lambda: call("rand", [(count,)]), lambda: torch.rand(count)),
        "rand, float64": (lambda: call("rand", [(count,)], wide[0]), lambda: torch.rand(count, **wide[1])),
        "randn": (lambda: call("randn", [(count,)]), lambda: torch.randn(count)),
        "randn, float64": (lambda: call("randn", [(count,)], wide[0]), lambda: torch.randn(count, **wide[1])),
        "randint": (lambda: call("randint", [0, 10, (count,)]), lambda: torch.randint(0, 10, (count,))),
        "randperm": (lambda: call("randperm", [count]), lambda: torch.randperm(count)),
        "bernoulli": (lambda: call("bernoulli", [held]), lambda: torch.bernoulli(weights)),
        "dropout": (lambda: call("dropout", [held, 0.3]), lambda: torch.nn.functional.dropout(weights, 0.3)),
        "exponential": (lambda: call("exponential", [held]), lambda: torch.empty(count).exponential_()),
        "poisson": (lambda: call("poisson", [held]), lambda: torch.poisson(weights)),
    }


def _seconds(draw: Draw) -> float:
    """CPU time of a draw, in a turn of several."""
    calls, begin = 0, time.process_time()
    while (spent := time.process_time() - begin) < _AT_LEAST:
        draw()
        calls += 1
    return spent / calls


def measure(turns: int) -> Iterator[str]:
    """A row for each draw and size: each side's fastest turn."""
    from gradwire_engine import Context, Generator, activate
    from gradwire_engine.compile.eager.library import SessionLoops
    from gradwire_engine.compile.fusion.fused import OPTIONS

    OPTIONS.mode, loops = "on", SessionLoops(lambda: True)
    for count in SIZES:
        for name, (ours, theirs) in _pairs(count).items():
            fastest = dict.fromkeys(("mt19937", "pcg64", "PyTorch"), float("inf"))
            for _ in range(turns):
                for side in fastest:
                    generator = Generator(5) if side == "PyTorch" else Generator(5, side)
                    with activate(Context(generator=generator, loops=loops)):
                        spent = _seconds(theirs if side == "PyTorch" else ours)
                    fastest[side] = min(fastest[side], spent)
            figures = " | ".join(f"{spent * 1e6:,.1f}" for spent in fastest.values())
            yield f"| {name} | {count:,} | {figures} | {fastest['mt19937'] / fastest['PyTorch']:.2f} × |"
