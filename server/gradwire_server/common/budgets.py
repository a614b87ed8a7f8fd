"""Budgets: how much computing a session, or a principal over all workers, may do within a minute.

A bucket holds so many seconds, and fills up within a minute. What a turn computed is taken out of it afterwards, for
how long a command takes is known only then; while it is empty its sessions rest.
"""

import time
from collections.abc import Callable

_MINUTE = 60.0


class Budget:
    """A bucket of seconds. `used` counts all that was ever taken, as whoever counts it has it."""

    __slots__ = ("_clock", "_held", "_seen", "_since", "limit")

    def __init__(self, limit: float, used: float = 0.0, clock: Callable[[], float] = time.monotonic) -> None:
        self.limit = limit
        self._clock = clock
        self._held = limit
        self._seen = used
        self._since = clock()

    def rest(self, used: float) -> float:
        """Seconds until there is something in it again, if so much was used by now; 0 if there is."""
        now = self._clock()
        rate = self.limit / _MINUTE
        self._held = min(self.limit, self._held + (now - self._since) * rate) - max(0.0, used - self._seen)
        self._since, self._seen = now, used
        return max(0.0, -self._held / rate)
