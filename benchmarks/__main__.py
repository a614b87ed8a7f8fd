"""`make bench`: gradwire over a real connection against PyTorch in the same process and run.

The two take turns, so that a drift of the machine's speed hits both; what counts is the ratio of the medians.
Prints a Markdown table; `--address` measures a server that is running already.
"""

import argparse
import os
import platform
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from typing import Any

import torch

import gradwire
from benchmarks.workloads import Run, chain, round_trip, training

THREADS = min(2, os.cpu_count() or 1)


@dataclass(frozen=True)
class Workload:
    """A row of the table: how it is built for a module, runs per turn, and what one run counts as."""

    name: str
    build: Callable[[Any], Run]
    repeats: int
    per: int
    must: float | None


SMALL, LARGE = (64, 256, 10), (1024, 1024, 1024, 10)
WORKLOADS = [
    Workload("W1 eager: 1,000 ops + backward", chain, 9, 1, 4.0),
    Workload("W2 eager: step of a 64-256-10 MLP, batch 128", lambda t: training(t, 128, SMALL, 200), 5, 200, 6.0),
    Workload(
        "W3 eager: step of a 1024-1024-1024-10 MLP, batch 512", lambda t: training(t, 512, LARGE, 10), 5, 10, None
    ),
    Workload("RTT: one tiny op and the read of its value", round_trip, 200, 1, None),
]


def seconds(run: Run) -> float:
    """How long one run takes."""
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def measure(workload: Workload) -> tuple[float, float]:
    """Median milliseconds of PyTorch and of gradwire, taking turns."""
    local, remote = workload.build(torch), workload.build(gradwire)
    expected, answer = local(), remote()
    if abs(expected - answer) > 1e-3 * max(1.0, abs(expected)):
        raise SystemExit(f"{workload.name}: PyTorch computed {expected}, gradwire {answer}")
    remote()
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(workload.repeats):
        times[0].append(seconds(local))
        times[1].append(seconds(remote))
    local_ms, remote_ms = (statistics.median(each) / workload.per * 1e3 for each in times)
    return local_ms, remote_ms


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--address", help="a running server; else the embedded one")
    parser.add_argument("--only", default="", help="only workloads whose name begins so")
    options = parser.parse_args()
    torch.set_num_threads(THREADS)
    if options.address:
        gradwire.connect(options.address)
    cores = f"{platform.machine()}, {os.cpu_count()} cores"
    print(f"{date.today()}, {cores}, PyTorch {torch.__version__} with {THREADS} threads; medians of turns\n")
    print("| workload | PyTorch in process | gradwire | ratio | must |")
    print("| --- | --- | --- | --- | --- |")
    for workload in WORKLOADS:
        if workload.name.startswith(options.only):
            local, remote = measure(workload)
            must = "" if workload.must is None else f"≤ {workload.must:g} ×"
            print(f"| {workload.name} | {local:.3f} ms | {remote:.3f} ms | {remote / local:.2f} × | {must} |")


if __name__ == "__main__":
    main()
