"""Trace of a batch: the wall seconds of each op, in order, for a client's profiler. None is left out or estimated."""

import math
import time
from collections.abc import Callable

from gradwire_server.session.state.activity import OTHERS, REST, OpTimes

MAX_ENTRIES = 10_000  # of a batch: they are in its answer


class OpTrace(OpTimes):
    """Times of single ops. It stands in for the session's watch while the batch computes."""

    __slots__ = ("earlier", "entries")

    def __init__(self, earlier: OpTimes | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(clock)
        #: The watch that it replaces.
        self.earlier = earlier
        #: Kind, name, and seconds with calls, in order of time.
        self.entries: list[tuple[str, str, list[float]]] = []
        self.ends = math.inf
        self._running = [0.0, 0.0]

    def choose(self) -> bool:
        """Begin a call, which is always counted."""
        self._active = True
        self._added(REST, "")
        self.resume()
        return True

    def begin(self, kind: str, name: str) -> float:
        """End what is running, begin another, and return the time."""
        now = self._clock()
        self._running[0] += now - self._since
        self._since = now
        self._added(kind, name)
        return now

    def items(self) -> list[tuple[str, str, float, int]]:
        """Kind, name, seconds and calls of each entry that took time."""
        self.pause()
        return [(kind, name, seconds, round(calls)) for kind, name, (seconds, calls) in self.entries if seconds > 0.0]

    def _added(self, kind: str, name: str) -> list[float]:
        if len(self.entries) < MAX_ENTRIES:
            self.entries.append((kind, name, [0.0, 0.0]))
        elif len(self.entries) == MAX_ENTRIES:
            self.entries.append((REST, OTHERS, [0.0, 0.0]))
        self._running = self.entries[-1][2]
        self._running[1] += 1.0
        return self._running
