"""The first steps of a compiled function, with an empty kernel cache and with a full one, each in processes of its own.

A step's first run is recorded and runs as ops; its loops are compiled or read. Later runs are a plan. One of them waits
for the plan's kernels, if they are not ready by then.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator

from benchmarks.measure import Fact

#: Seconds of the first answer: with an empty kernel cache, and with a full one.
MUST = {"empty cache": 2.0, "full cache": 0.2}
_LIMIT = 120.0


def measure(only: str, seconds: float) -> Iterator[Fact]:
    """Each model's first answer, then its longest step and its usual one in the following seconds."""
    from benchmarks.models import MODELS

    for name in MODELS:
        if only in name:
            yield from _model(name, seconds)


def _model(name: str, seconds: float) -> Iterator[Fact]:
    with tempfile.TemporaryDirectory(prefix="gradwire-kernels-") as folder:
        for cache, most in MUST.items():
            made = subprocess.run(
                [sys.executable, "-m", "benchmarks.first_steps", name, str(seconds)],
                env={**os.environ, "GRADWIRE_KERNEL_CACHE": folder},
                stdout=subprocess.PIPE,
                check=True,
                timeout=_LIMIT,
            )
            first, second, longest, at, usual = json.loads(made.stdout)
            value = (
                f"first {first:.2f} s, second {1e3 * second:.0f} ms, longest of the rest {1e3 * longest:.0f} ms "
                f"(after {at:.1f} s), usual {1e3 * usual:.1f} ms"
            )
            yield Fact(f"{name}, {cache}", value, f"≤ {most:g} s", first <= most, first)


def _child(name: str, seconds: float) -> list[float]:
    """Seconds of the first step, of the second, of the longest of the rest and when it began, and of the usual one."""
    import gradwire
    from benchmarks.models import MODELS

    step = gradwire.compile(MODELS[name](gradwire)[0])
    gradwire.zeros(1).item()  # the server has started
    begin = time.perf_counter()
    times = [_timed(step) for _ in range(2)]
    begins = []
    while time.perf_counter() < begin + seconds:
        begins.append(time.perf_counter() - begin)
        times.append(_timed(step))
    longest = max(times[2:])
    return [*times[:2], longest, begins[times.index(longest, 2) - 2], statistics.median(times[len(times) // 2 :])]


def _timed(step: object) -> float:
    begin = time.perf_counter()
    step().item()  # type: ignore[operator]
    return time.perf_counter() - begin


if __name__ == "__main__":
    print(json.dumps(_child(sys.argv[1], float(sys.argv[2]))))
