"""How far foretold costs lie from measured ones: `OPENBLAS_NUM_THREADS=1 python -m tools.cost`.

All samples of the parity tables are too small to be measured, so each op is called as there, on tensors whose first
dimension is repeated until it takes a while, and differentiated. Measured is the processor time of the process, so that
a loaded machine does. Told is the most of it for an operation foretold, in nanoseconds, of each op's forward and of its
formulas ("back"), over the calls that took longer than --least milliseconds; and which lie outside the factors.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import time
from typing import Any

import numpy as np

import gradwire_engine as engine
from gradwire_engine.autograd.backward import Backward
from gradwire_engine.op import workload
from gradwire_engine.op.declaration import OPS
from gradwire_engine.op.op import Op
from tests.parity.test_ops import CASES

UNDER, OVER = 10.0, 50.0  # times as long as foretold, and times as short
_ENOUGH = 0.03
_MOST = 1 << 22  # elements of an operand


class Measured:
    """The application of each op that is furthest below what it takes: seconds, and operations foretold."""

    def __init__(self, least: float) -> None:
        self.least = least
        self.furthest: dict[str, tuple[float, float]] = {}
        self.called: set[str] = set()

    def note(self, name: str, seconds: float, work: float) -> None:
        """One more. The first one loads what an op needs and does not count."""
        if name not in self.called:
            self.called.add(name)
            return
        worst, of = self.furthest.get(name, (0.0, 1.0))
        if seconds >= self.least and seconds / max(work, 1.0) > worst / max(of, 1.0):
            self.furthest[name] = seconds, work

    def watch(self) -> None:
        """Time each op's forward and formulas from now on, and have each ask what it costs."""
        compute, offload, clock = Op.compute, Backward._offload, time.process_time
        depth = 0

        def timed(op: Op, args: Any) -> Any:
            nonlocal depth
            if depth:  # within another one
                return compute(op, args)
            work, began = workload.estimate(op, list(args)), clock()
            depth += 1
            try:
                made = compute(op, args)
            finally:
                depth -= 1
            self.note(op.name, clock() - began, work)
            return made

        def timed_back(passage: Any, node: Any, *rest: Any) -> Any:
            nonlocal depth
            began = clock()
            depth += 1
            try:
                made = offload(passage, node, *rest)
            finally:
                depth -= 1
            self.note(f"{node.op.name} back", clock() - began, node.work)
            return made

        Op.compute = timed  # type: ignore[method-assign]
        Backward._offload = timed_back  # type: ignore[method-assign]
        for op in OPS.values():
            op.cheap_size, op.linear_positions = -1, None


def enlarged(values: Any, times: int) -> Any:
    """An array with its leading dimension repeated, where it has one."""
    return np.concatenate([values] * times) if isinstance(values, np.ndarray) and values.ndim else values


def grown(sample: Any, times: int) -> list[Any]:
    """A sample's arguments, its floating tensors larger."""
    return [
        engine.tensor(enlarged(each.array, times), each.requires_grad)
        if type(each) is engine.Tensor and each.dtype.kind == "f"
        else each
        for each in sample
    ]


def main() -> int:
    """Measure, and tell."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=1 << 20, help="how much larger samples are made at most")
    parser.add_argument("--only", default="", help="ops whose names hold one of these, with commas between")
    parser.add_argument("--samples", type=int, default=2, help="of each op")
    parser.add_argument("--least", type=float, default=3.0, help="milliseconds below which nothing is told")
    options = parser.parse_args()
    measured = Measured(options.least / 1e3)
    measured.watch()
    with contextlib.suppress(KeyboardInterrupt):  # then told is of what was measured
        for case in [each for each in CASES if any(part in each.op for part in options.only.split(","))]:
            for sample in case.samples[: options.samples]:
                measure(case, sample, options.times)
    outside = 0
    order = sorted(measured.furthest.items(), key=lambda each: -each[1][0] / max(1, each[1][1]))
    for name, (seconds, work) in order:
        per = seconds * 1e9 / max(1.0, work)
        mark = "" if 1 / OVER <= per <= UNDER else "OUTSIDE"
        outside += bool(mark)
        print(f"{name:34} {seconds * 1e3:9.1f} ms  {per:8.2f} ns an operation {mark}")
    print(f"{len(order)} measured, {outside} outside")
    return int(bool(outside))


def measure(case: Any, sample: Any, most: int) -> None:
    """Call an op on larger and larger tensors until that takes a while."""
    from tests.parity.harness import _Call

    call, times, took = _Call(case, sample, sample.dtypes[0]), 1, 0.0
    while times <= most and took < _ENOUGH:
        given = grown(call.ours(), times)
        if max((each.array.size for each in given), default=0) > _MOST:
            break
        began = time.process_time()
        try:
            differentiate(call.call_ours(given))
        except Exception as error:  # noqa: BLE001 - a sample that cannot be enlarged so
            print(f"{case.op}: {type(error).__name__}", file=sys.stderr)
            break
        took, times = time.process_time() - began, times * 4


def differentiate(made: list[Any]) -> None:
    """Send gradients back through what has a graph."""
    roots = [each for each in made if each.requires_grad]
    if roots:
        engine.backward(roots, [engine.tensor(np.ones_like(each.array)) for each in roots])


if __name__ == "__main__":
    sys.exit(main())
