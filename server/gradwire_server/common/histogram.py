"""Histogram: counts seconds and sizes, with the bounds of the metrics."""

from bisect import bisect_left
from collections.abc import Sequence
from typing import Any

SECONDS = (0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
COMMANDS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 10_000)


class Histogram:
    """Counts of values between neighbouring bounds, the last above all bounds, and the sum of values."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def add(self, value: float) -> None:
        """Add a value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def as_json(self) -> dict[str, Any]:
        """The histogram as JSON values."""
        return {"counts": list(self.counts), "total": self.total}
