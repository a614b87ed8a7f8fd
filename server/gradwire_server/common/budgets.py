"""Budgets: limit the computing of a session, or of a principal over all workers, within a minute.

A bucket of `limit` seconds refills within a minute. A turn's computing time is known only afterwards, and is taken from
the bucket then. While the bucket is empty, its sessions wait.
"""

import time
from collections.abc import Callable

_MINUTE = 60.0


class Budget:
    """A bucket of seconds. `used` is the caller's running total of seconds computed."""

    __slots__ = ("_clock", "_held", "_seen", "_since", "limit")

    def __init__(self, limit: float, used: float = 0.0, clock: Callable[[], float] = time.monotonic) -> None:
        self.limit = limit
        self._clock = clock
        self._held = limit
        self._seen = used
        self._since = clock()

    def delay(self, used: float) -> float:
        """Seconds until the bucket is no longer overdrawn, given the total `used` by now; 0 if it is not."""
        now = self._clock()
        rate = self.limit / _MINUTE
        self._held = min(self.limit, self._held + (now - self._since) * rate) - max(0.0, used - self._seen)
        self._since, self._seen = now, used
        return max(0.0, -self._held / rate)
