"""What a setting of the server costs: W1 on two servers in turns, one of which has it, by the CPU time of each.

The kernel counts that time in nanoseconds and by thread, so other work on the machine disturbs it less than a clock.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import psutil

import gradwire
from benchmarks.processes import served
from gradwire._cli.workloads import chain

RUNS = 10  # of W1 in a turn


def spent(process: psutil.Process, with_children: bool = True) -> float:
    """Seconds that a process has computed, and its workers."""
    every = [process, *(process.children(recursive=True) if with_children else ())]
    files = (each for one in every for each in Path(f"/proc/{one.pid}/task").glob("*/schedstat"))
    return sum(int(file.read_text().split()[0]) for file in files) / 1e9


def measure(flags: Sequence[str], turns: int) -> tuple[list[float], list[float]]:
    """Seconds per W1, by turn, of a server without the flags and of one with them."""
    times: tuple[list[float], list[float]] = ([], [])
    with ExitStack() as stack:
        servers = []
        for more in ((), flags):
            address, pid = stack.enter_context(served("--workers=1", *more))
            session = gradwire.connect(address)
            stack.callback(session.close)
            servers.append((psutil.Process(pid), session))
        run = chain(gradwire)
        for turn in range(turns + 1):
            for which in (0, 1) if turn % 2 else (1, 0):
                process, session = servers[which]
                before = spent(process)
                with session:
                    for _ in range(RUNS):
                        run()
                if turn:  # the first one warms up
                    times[which].append((spent(process) - before) / RUNS)
    return times


def told(flags: Sequence[str], times: tuple[list[float], list[float]]) -> str:
    """The result, for a person."""
    low, middle, high = statistics.quantiles((b / a for a, b in zip(*times, strict=True)), n=4)
    (without, with_it), (best, best_with) = (map(how, times) for how in (statistics.median, min))
    return (
        f"W1, the server's CPU time: {without * 1e3:.2f} ms, with {' '.join(flags)} {with_it * 1e3:.2f} ms, at best "
        f"{best * 1e3:.2f} and {best_with * 1e3:.2f} ms; ratio of turns {middle:.3f} (half: {low:.3f} to {high:.3f})"
    )
