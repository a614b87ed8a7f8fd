"""Run random programs beside PyTorch and print how many show no difference, and the others by class.

python -m tests.parity.drawn --programs 2000 --seed 1
"""

from __future__ import annotations

import argparse
import collections
import multiprocessing
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any

from tests.parity.drawn import program
from tests.parity.drawn.state import CLASSES

#: Programs of one process. PyTorch may corrupt its memory; of a process that dies, so many are run again at once.
AT_ONCE, AGAIN = 200, 10


def main() -> int:
    """Run the programs in processes one after the other, and print the report. Returns 0."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--programs", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--show", type=int, default=3, help="examples a class")
    parser.add_argument("--only", default="", help="show only this class")
    given = parser.parse_args()
    found: list[tuple[int, program.Difference]] = []
    started, lines, programs = time.monotonic(), 0, 0
    first = given.seed * 1_000_000
    for seeds, count, differences in compare_in_processes(range(first, first + given.programs), AT_ONCE):
        programs += len(seeds)
        lines += count
        found += differences
    report(found, programs, lines, time.monotonic() - started, given.show, given.only)
    return 0


def compare_in_processes(seeds: range, at_once: int) -> Iterator[tuple[range, int, list[tuple[int, Any]]]]:
    """Compare so many programs a process. Yields their seeds, count of lines and differences, but not of those lost."""
    for start in range(0, len(seeds), at_once):
        some = seeds[start : start + at_once]
        with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
            try:
                yield some, *pool.submit(program.compare_seeds, some).result()
            except BrokenProcessPool:
                if at_once > AGAIN:
                    yield from compare_in_processes(some, AGAIN)
                else:
                    print(f"--- lost: the process of seeds {some[0]} to {some[-1]} has died")


def report(
    found: list[tuple[int, program.Difference]], programs: int, lines: int, seconds: float, show: int, only: str
) -> None:
    """Print examples of each class and the table."""
    by_class: dict[str, list[tuple[int, program.Difference]]] = collections.defaultdict(list)
    for seed, difference in found:
        worst = min((kind for kind, _ in difference.what), key=CLASSES.index)
        by_class[worst].append((seed, difference))
    for kind in CLASSES:
        if only and kind != only:
            continue
        for seed, difference in by_class[kind][:show]:
            print(f"--- {kind}, seed {seed}")
            print("\n".join(line[:300] for line in difference.program))
            for one, text in difference.what[:3]:
                print(f"    {one}: {text}"[:400])
    print(f"{programs} programs of {lines} lines in {seconds:.0f} s; seed 1000000 * SEED + number")
    for kind in CLASSES:
        print(f"{kind:>10} {len(by_class[kind]):6} {100 * len(by_class[kind]) / max(programs, 1):6.2f} %")
    print(f"{'none':>10} {programs - len(found):6} {100 * (programs - len(found)) / max(programs, 1):6.2f} %")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
