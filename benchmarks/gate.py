"""The regression gate: ratios measured now against those committed in ratios.json, never times.

A row has grown worse where its median, the whole of its interval and its ratio at best are all beyond the committed
ratio times the tolerance, and are so again when it is measured a second time. So noise alone hardly fails it, and
what is slower by less than the tolerance passes: it catches what was lost, not what was not won.

Both sides have one thread: two that wait for each other are worth little where something else runs on the machine.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks import ops, small, suite
from benchmarks.measure import Result

COMMITTED = Path(__file__).parent / "ratios.json"
TOLERANCE = 1.6
TURNS = 5
Source = Callable[[], Iterator[Result]]


def results(rows: Iterator[Any]) -> Iterator[Result]:
    """The rows that are ratios, not facts."""
    return (row for row in rows if isinstance(row, Result))


def sources() -> dict[str, Source]:
    """What is measured: those rows that repeat well."""
    return {
        "ops": lambda: (ops.measure(*row, turns=TURNS) for row in ops.rows()),
        "small": lambda: small.measure(TURNS),
        "torch": lambda: results(suite.beside_torch(TURNS)),
        "tcp": lambda: results(suite.over_tcp(TURNS)),
    }


def is_worse(result: Result, committed: float, tolerance: float) -> bool:
    """Whether a ratio is beyond its tolerance for certain."""
    measured = (result.ratio, result.at_best, *result.interval)
    if result.bound.at_least:
        return max(measured) < committed / tolerance
    return min(measured) > committed * tolerance


def settled(result: Result) -> float:
    """The ratio to commit: of the median and the one at best the one that promises less."""
    both = (result.ratio, result.at_best)
    return round(min(both) if result.bound.at_least else max(both), 3)


def update(only: str, show: Callable[[Result], None]) -> None:
    """Measure, and write what was measured into ratios.json."""
    held: dict[str, Any] = json.loads(COMMITTED.read_text()) if COMMITTED.exists() else {"ratios": {}}
    for name, source in sources().items():
        if only in name:
            for result in source():
                show(result)
                held["ratios"][result.name] = settled(result)
            held["tolerance"] = held.get("tolerance", TOLERANCE)
            COMMITTED.write_text(json.dumps(held, indent=1, ensure_ascii=False, sort_keys=True) + "\n")


def check(only: str, show: Callable[[Result], None]) -> tuple[list[str], list[str]]:
    """Sentences about the rows that have grown worse, and the names of those that nothing is committed of."""
    held = json.loads(COMMITTED.read_text())
    ratios, tolerance = held["ratios"], held["tolerance"]
    complaints, unknown = [], []
    for name, source in sources().items():
        if only not in name:
            continue
        suspects: set[str] = set()
        for result in source():
            show(result)
            if result.name not in ratios:
                unknown.append(result.name)
            elif is_worse(result, ratios[result.name], tolerance):
                suspects.add(result.name)
        if suspects:
            complaints += _again(source, suspects, ratios, tolerance)
    return complaints, unknown


def _again(source: Source, suspects: set[str], ratios: dict[str, float], tolerance: float) -> list[str]:
    return [
        f"{result.name}: {result.ratio:.2f} ×, was {ratios[result.name]:.2f} × (tolerance {tolerance:g})"
        for result in source()
        if result.name in suspects and is_worse(result, ratios[result.name], tolerance)
    ]
