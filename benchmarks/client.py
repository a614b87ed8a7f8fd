"""A client process: builds a workload, prints "ready", and for each line on its stdin does what it says.

Without an address it takes the workload's steps itself, by NumPy alone (by_hand.py).

`run N` runs it N times and prints the seconds that took; `loop` runs it until the next line, then prints the count.
"""

from __future__ import annotations

import argparse
import select
import sys
import time

from benchmarks import by_hand
from gradwire._cli.workloads import LARGE, SMALL, training


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("workload", choices=("W2", "W3"))
    parser.add_argument("--address", default="")
    parser.add_argument("--compiled", action="store_true")
    options = parser.parse_args()

    batch, sizes, steps = (128, SMALL, 20) if options.workload == "W2" else (512, LARGE, 2)
    if options.address:
        import gradwire

        gradwire.connect(options.address)
        run = training(gradwire, batch, sizes, steps, compiled=options.compiled)
    else:
        run = by_hand.training(batch, sizes, steps)
    run()
    run()
    print("ready", flush=True)
    for line in sys.stdin:
        word, *rest = line.split()
        start, count = time.perf_counter(), 0
        if word == "run":
            for _ in range(int(rest[0])):
                run()
            print(time.perf_counter() - start, flush=True)
        else:
            while not select.select([sys.stdin], [], [], 0)[0]:
                run()
                count += 1
            sys.stdin.readline()
            print(count, flush=True)


if __name__ == "__main__":
    main()
