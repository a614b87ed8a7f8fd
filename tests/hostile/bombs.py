"""Expensive requests: `python -m tests.hostile.bombs`, as `make bombs`.

Each bomb is one small request that computes for long or allocates much, by its op or its shapes. A victim's
session does small ops in the same worker meanwhile. The program prints each bomb's outcome (refused, answered or timed
out), its time, and the victim's slowest call. At the end it prints the memory of the server's processes.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import threading
import time
from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np

import gradwire
from tests.hostile.bomb_list import BOMBS
from tests.hostile.server_process import percentile, resident, served

LATE = 1.0  # seconds beyond its limit after which a bomb must have been ended, on a quiet machine
GOAL = 1.0  # seconds of the victim's calls, but for one in a hundred


# What loads the libraries that the bombs need.
WARM: dict[str, Any] = {
    "warm: decompositions": lambda: gradwire.linalg.lu(gradwire.linalg.matrix_exp(gradwire.ones(8, 8)))[1],
    "warm: transforms": lambda: gradwire.fft.fft(gradwire.ones(8)).abs().digamma(),
    "warm: apart": lambda: gradwire.linalg.svd(gradwire.randn(400, 400))[1],
    "warm: sparse": lambda: (
        gradwire.nn.functional.embedding(
            gradwire.zeros(100, dtype=gradwire.int64), gradwire.ones(10, 64, requires_grad=True)
        )
        .sum()
        .backward()
    ),
}


@dataclass
class Outcome:
    """What became of a bomb."""

    name: str
    seconds: float
    how: str  # "answered", "refused" or "ended"
    said: str
    slowest: float


class Victim:
    """A session that does small ops, one after the other; `times` has the seconds of each."""

    def __init__(self, address: str) -> None:
        self.session = gradwire.connect(address)
        self.times: list[float] = []
        self._over = False
        self._thread = threading.Thread(target=self._work)
        self._thread.start()

    def _work(self) -> None:
        with self.session:
            x = gradwire.ones(16)
            while not self._over:
                began = time.perf_counter()
                assert float((x * 2).sum()) == 32.0
                self.times.append(time.perf_counter() - began)
                time.sleep(0.002)

    def stop(self) -> None:
        """End it."""
        self._over = True
        self._thread.join()
        self.session.close()


def explode(session: Any, name: str, bomb: Any, seconds: float) -> tuple[str, str]:
    """Send a bomb; how it ended, and what was said."""
    try:
        with session, gradwire.timeout(seconds):
            made = bomb()
            for each in made if isinstance(made, tuple | list) else (made,):
                if hasattr(each, "numel") and each.numel():
                    each.flatten()[0].item()
    except TimeoutError as error:
        return "ended", str(error)
    except (gradwire.GradwireError, RuntimeError, ValueError, TypeError, IndexError, MemoryError) as error:
        return "refused", f"{type(error).__name__}: {error}"
    return "answered", ""


def run(address: str, bombs: dict[str, Any], seconds: float) -> tuple[list[Outcome], list[float]]:
    """Send bombs, a session each; what became of them, and how long the victim's calls took."""
    victim = Victim(address)
    outcomes, times = [], []
    try:
        for name, bomb in bombs.items():
            victim.times, before = [], victim.times
            times += before
            session = gradwire.connect(address)
            began = time.perf_counter()
            how, said = explode(session, name, bomb, seconds)
            took = time.perf_counter() - began
            with contextlib.suppress(gradwire.GradwireError):
                session.close()
            outcomes.append(Outcome(name, took, how, said, max(victim.times, default=0.0)))
            print_outcome(outcomes[-1])
        times += victim.times
    finally:
        victim.stop()
    return outcomes, times


def print_outcome(each: Outcome) -> None:
    """Print what became of a bomb."""
    mark = "SLOW" if each.slowest > GOAL else ""
    print(
        f"{each.name:40} {each.how:9} {each.seconds:6.2f} s  victim {each.slowest:6.3f} s {mark:5}{each.said[:110]}",
        flush=True,
    )


def main() -> int:
    """Tell of all bombs, or of those that are named."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=1.0, help="a bomb's time limit")
    parser.add_argument("--only", default="", help="bombs whose names hold this")
    parser.add_argument("--session-bytes", default="512MiB")
    options = parser.parse_args()
    bombs = {name: bomb for name, bomb in BOMBS.items() if options.only in name}
    with served("--workers=1", f"--max-session-bytes={options.session_bytes}") as (address, front):
        run(address, WARM, 60.0)
        before = resident(front)
        outcomes, times = run(address, bombs, options.seconds)
        time.sleep(2.5)
        after = resident(front)
    late = [each for each in outcomes if each.seconds > options.seconds + LATE]
    ninety_nine = percentile(times, 0.99)
    print(f"\n{dict(Counter(each.how for each in outcomes))}; ended late: {[each.name for each in late]}")
    median, most = np.median(times), max(times)
    print(f"the victim's {len(times)} calls: p50 {median:.4f} s, p99 {ninety_nine:.3f} s, most {most:.3f} s")
    print(f"resident: {before:.0f} MiB before, {after:.0f} MiB after")
    return int(bool(late) or ninety_nine > GOAL or after > before * 1.1)


if __name__ == "__main__":
    sys.exit(main())
