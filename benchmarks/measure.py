"""Two ways to do the same work, measured in turns: what counts is the ratio within a pair of turns.

A machine's speed drifts, and others use it: so ours and theirs run in turn, each pair of turns gives one ratio, and
the median of those is what is reported, with the interval that holds the true median at 95 %. Which of a pair goes
first alternates. The statistics of each side are pytest-benchmark's.
"""

from __future__ import annotations

import gc
import math
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from pytest_benchmark.stats import Stats

Run = Callable[[], object]

TURNS = 9
TURN_SECONDS = 0.1
SETTLE_SECONDS = 0.03  # OpenBLAS's and OpenMP's threads spin for about as long after their last work


@dataclass(frozen=True)
class Bound:
    """What a ratio must and should be; most bounds are from above, those of throughput from below."""

    must: float | None = None
    aim: float | None = None
    at_least: bool = False

    def holds(self, ratio: float) -> bool | None:
        """Whether a ratio keeps what it must; None where nothing is asked."""
        if self.must is None:
            return None
        return ratio >= self.must if self.at_least else ratio <= self.must

    def text(self, limit: float | None) -> str:
        """A limit as it stands in a table."""
        return "" if limit is None else f"{'≥' if self.at_least else '≤'} {limit:g} ×"


@dataclass
class Result:
    """One row: what both sides took, in seconds for one unit of work, and the ratio of each pair of turns."""

    group: str
    name: str
    peer: str
    bound: Bound = field(default_factory=Bound)
    ours: Stats = field(default_factory=Stats)
    theirs: Stats = field(default_factory=Stats)
    ratios: list[float] = field(default_factory=list)
    unit: str = "ms"

    @property
    def ratio(self) -> float:
        """The median of the pairs' ratios."""
        return statistics.median(self.ratios)

    @property
    def at_best(self) -> float:
        """The ratio of each side's fastest turn: less exact than the median, but unharmed by what else runs here."""
        ratio: float = self.ours.min / self.theirs.min
        return 1 / ratio if self.bound.at_least else ratio

    @property
    def verdict(self) -> str:
        """Whether the ratio keeps its bound, with a question mark where the interval does not settle it."""
        holds = self.bound.holds(self.ratio)
        if holds is None:
            return ""
        settled = all(self.bound.holds(end) == holds for end in self.interval)
        return ("pass" if holds else "FAIL") + ("" if settled else "?")

    @property
    def interval(self) -> tuple[float, float]:
        """The ratios between which the true median lies at 95 %: order statistics, so no shape is assumed."""
        ordered, below, rank = sorted(self.ratios), 0.0, 0
        total = len(ordered)
        while rank < total // 2:
            below += math.comb(total, rank) / 2**total
            if below > 0.025:
                break
            rank += 1
        rank = max(rank - 1, 0)
        return ordered[rank], ordered[total - 1 - rank]

    def add(self, ours: float, theirs: float, ratio: float | None = None) -> None:
        """Note a pair of turns; the ratio is ours to theirs unless it is of something else, such as throughput."""
        self.ours.update(ours)
        self.theirs.update(theirs)
        self.ratios.append(ours / theirs if ratio is None else ratio)


@dataclass(frozen=True)
class Fact:
    """A row that is no ratio: a size, or why a row is left out."""

    name: str
    value: str
    must: str = ""
    holds: bool | None = None
    number: float | None = None

    @property
    def verdict(self) -> str:
        """Whether it is what it must be."""
        return {None: "", True: "pass", False: "FAIL"}[self.holds]


def seconds(run: Run) -> float:
    """How long one run takes."""
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def turn(run: Run, turn_seconds: float) -> float:
    """The median of so many seconds of runs, after a pause for the other side's threads and one run."""
    gc.collect()
    time.sleep(SETTLE_SECONDS)
    run()
    times = [seconds(run)]
    end = time.perf_counter() + turn_seconds
    while time.perf_counter() < end:
        times.append(seconds(run))
    return statistics.median(times)


def compare(
    result: Result, ours: Run, theirs: Run, *, per: float = 1, turns: int = TURNS, turn_seconds: float = TURN_SECONDS
) -> Result:
    """Fill a row: `per` is how many units of work a run does. Both must have been checked to do the same."""
    for run in (ours, theirs):
        run()
    for number in range(turns):
        times = [0.0, 0.0]
        for side in (0, 1) if number % 2 == 0 else (1, 0):
            times[side] = turn((ours, theirs)[side], turn_seconds) / per
        result.add(*times)
    return result


def geometric_mean(ratios: list[float]) -> float:
    """The mean of ratios, in which half and double cancel."""
    return math.exp(statistics.fmean(map(math.log, ratios)))
