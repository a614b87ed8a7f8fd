"""The workloads over a real connection, each beside PyTorch in process (or its bare peer) in the same run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from benchmarks.measure import Bound, Result, Run, compare
from benchmarks.workloads import chain, round_trip, training

SMALL, LARGE = (64, 256, 10), (1024, 1024, 1024, 10)


@dataclass(frozen=True)
class Workload:
    """A row whose work is written once for both: how it is built for a module, and what one run counts as."""

    name: str
    build: Callable[[Any], Run]
    per: int
    bound: Bound


WORKLOADS = [
    Workload("W1 eager: 1,000 ops + backward", chain, 1, Bound(2, 1)),
    Workload(
        "W2 eager: step of a 64-256-10 MLP, batch 128", lambda t: training(t, 128, SMALL, 200), 200, Bound(3, 1.5)
    ),
    Workload(
        "W3 eager: step of a 1024-1024-1024-10 MLP, batch 512", lambda t: training(t, 512, LARGE, 10), 10, Bound()
    ),
    Workload("tiny op + read", round_trip, 1, Bound()),
]


def agree(name: str, ours: Run, theirs: Run) -> None:
    """Run both once and compare their answers. Raises SystemExit where they differ."""
    answer, expected = ours(), theirs()
    if abs(answer - expected) > 1e-3 * max(1.0, abs(expected)):  # type: ignore[operator, arg-type]
        raise SystemExit(f"{name}: PyTorch computed {expected}, gradwire {answer}")


def measure(only: str, turns: int) -> Iterator[Result]:
    """The rows whose name contains `only`, as they are measured."""
    import torch

    import gradwire

    for workload in WORKLOADS:
        if only in workload.name:
            ours, theirs = workload.build(gradwire), workload.build(torch)
            agree(workload.name, ours, theirs)
            result = Result("suite", workload.name, "PyTorch", workload.bound)
            yield compare(result, ours, theirs, per=workload.per, turns=turns)
