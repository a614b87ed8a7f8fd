"""Places: limits how many ops are computed apart at once, and decides when the process may fork.

At a fork, BLAS waits for its threads to end; the fork hangs if one of them is computing. So the process never forks
while a thread computes aside, and no thread starts computing aside during a fork. Waiting forks precede such threads.

A free place goes to the owner with the fewest places, then to the earliest request.
"""

import itertools
import threading
from collections import Counter
from collections.abc import Callable

LOOK_SECONDS = 0.02


class ForkPlaces:
    """At most `most` places for child processes. Thread-safe; a wait polls `look`, which may raise to end the wait."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._changed = threading.Condition()
        self._taken: Counter[int] = Counter()  # by owner
        self._asked: dict[int, int] = {}  # the owners of waiting requests, by request number
        self._numbers = itertools.count()
        self._forking = False
        self._threads = 0  # that compute aside

    def take_at_once(self, owner: int) -> bool:
        """Take a place and the right to fork, if both are available without waiting."""
        with self._changed:
            if self._asked or not self._free() or self._threads or self._forking:
                return False
            self._take(owner)
            return True

    def take(self, owner: int, look: Callable[[], None]) -> None:
        """Wait for a place and the right to fork."""
        with self._changed:
            number = next(self._numbers)
            self._asked[number] = owner
            try:
                while self._forking or self._threads or not self._free() or self._next() != number:
                    self._changed.wait(LOOK_SECONDS)
                    look()
                self._take(owner)
            finally:
                del self._asked[number]
                self._changed.notify_all()

    def forked(self) -> None:
        """Give back the right to fork, after the fork or its failure."""
        with self._changed:
            self._forking = False
            self._changed.notify_all()

    def give_back(self, owner: int) -> None:
        """Give back a place: the child has ended."""
        with self._changed:
            self._taken[owner] -= 1
            self._taken += Counter()  # drops zero counts
            self._changed.notify_all()

    def enter(self, look: Callable[[], None]) -> None:
        """Begin computing aside in a thread; wait until no fork runs or is due."""
        with self._changed:
            while self._forking or (self._asked and self._free()):
                self._changed.wait(LOOK_SECONDS)
                look()
            self._threads += 1

    def leave(self) -> None:
        """End computing aside in a thread."""
        with self._changed:
            self._threads -= 1
            self._changed.notify_all()

    def _take(self, owner: int) -> None:
        self._taken[owner] += 1
        self._forking = True

    def _free(self) -> bool:
        return self._taken.total() < self._most

    def _next(self) -> int:
        return min(self._asked, key=lambda number: (self._taken[self._asked[number]], number))
