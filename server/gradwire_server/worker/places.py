"""Places: how many ops are computed apart at once, whose turn it is to have one, and when a process may fork.

A fork waits for the threads that are inside BLAS to end its threads, for ever if one of them is computing: so no
process forks while a thread computes aside, and no thread begins to while one forks. Who waits to fork comes first.

Places go to whoever's owner has the fewest, then in the order in which they were asked for.
"""

import itertools
import threading
from collections import Counter
from collections.abc import Callable

LOOK_SECONDS = 0.02


class ForkPlaces:
    """So many places for processes. Each method may be called by any thread; a wait calls `look`, which may raise."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._changed = threading.Condition()
        self._taken: Counter[int] = Counter()  # by owner
        self._asked: dict[int, int] = {}  # the owners of those that wait, by when they came
        self._numbers = itertools.count()
        self._forking = False
        self._threads = 0  # that compute aside

    def take_at_once(self, owner: int) -> bool:
        """Have a place and the right to fork, if nobody is to be waited for."""
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
        """The process has forked, or could not."""
        with self._changed:
            self._forking = False
            self._changed.notify_all()

    def give_back(self, owner: int) -> None:
        """The process has ended."""
        with self._changed:
            self._taken[owner] -= 1
            self._taken += Counter()  # forget who has none
            self._changed.notify_all()

    def enter(self, look: Callable[[], None]) -> None:
        """A thread is about to compute aside: wait until nobody forks."""
        with self._changed:
            while self._forking or (self._asked and self._free()):
                self._changed.wait(LOOK_SECONDS)
                look()
            self._threads += 1

    def leave(self) -> None:
        """It has."""
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
