"""Fork permits: limits how many ops run in forked processes at once, and decides when the process may fork.

At a fork, BLAS waits for its threads to end; the fork hangs if one of them is computing. So the process never forks
while a thread computes an offloaded op, and no thread starts such an op during a fork. Waiting forks precede such
threads. A free permit goes to the owner with the fewest permits, then to the earliest request.
"""

import itertools
import threading
from collections import Counter
from collections.abc import Callable

POLL_SECONDS = 0.02


class ForkPermits:
    """At most `most` permits for child processes. Thread-safe; a wait polls `poll`, which may raise to end the wait."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._changed = threading.Condition()
        self._used: Counter[int] = Counter()  # by owner
        self._requests: dict[int, int] = {}  # the owners of waiting requests, by request number
        self._numbers = itertools.count()
        self._forking = False
        self._threads = 0  # that compute offloaded ops

    def try_acquire(self, owner: int) -> bool:
        """Take a permit and the right to fork, if both are available without waiting."""
        with self._changed:
            if self._requests or not self._has_free() or self._threads or self._forking:
                return False
            self._use(owner)
            return True

    def acquire(self, owner: int, poll: Callable[[], None]) -> None:
        """Wait for a permit and the right to fork."""
        with self._changed:
            number = next(self._numbers)
            self._requests[number] = owner
            try:
                while self._forking or self._threads or not self._has_free() or self._next_request() != number:
                    self._changed.wait(POLL_SECONDS)
                    poll()
                self._use(owner)
            finally:
                del self._requests[number]
                self._changed.notify_all()

    def fork_done(self) -> None:
        """Give back the right to fork, after the fork or its failure."""
        with self._changed:
            self._forking = False
            self._changed.notify_all()

    def release(self, owner: int) -> None:
        """Give back a permit: the child has ended."""
        with self._changed:
            self._used[owner] -= 1
            self._used += Counter()  # drops zero counts
            self._changed.notify_all()

    def enter_thread(self, poll: Callable[[], None]) -> None:
        """Begin an offloaded op in a thread; wait until no fork runs or is due."""
        with self._changed:
            while self._forking or (self._requests and self._has_free()):
                self._changed.wait(POLL_SECONDS)
                poll()
            self._threads += 1

    def exit_thread(self) -> None:
        """End an offloaded op in a thread."""
        with self._changed:
            self._threads -= 1
            self._changed.notify_all()

    def _use(self, owner: int) -> None:
        self._used[owner] += 1
        self._forking = True

    def _has_free(self) -> bool:
        return self._used.total() < self._most

    def _next_request(self) -> int:
        return min(self._requests, key=lambda number: (self._used[self._requests[number]], number))
