"""Threads for large loops: a kernel's rows are divided among this thread and helpers that wait in a pool.

Rows are independent, and the order of operations in a row is fixed. So results do not depend on the number of threads.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from queue import SimpleQueue

#: Operations on elements from which a loop is divided: about a quarter of a millisecond.
LARGE = 1 << 23
_ALIGNED = 64  # rows: a division of a flat loop begins at a cache line
Entry = Callable[[int, int, "int | None", int], None]
_Job = tuple[Entry, int, int, "int | None", int, "SimpleQueue[None]"]


class Pool:
    """Helper threads of this process. Several threads may use it at once."""

    def __init__(self) -> None:
        self._jobs: SimpleQueue[_Job] = SimpleQueue()
        self._lock = threading.Lock()
        self._helpers = 0
        self._process = os.getpid()

    def run(self, entry: Entry, end: int, scratch: Sequence[int | None], table: int) -> None:
        """Run a kernel's rows from 0 to `end` in as many threads as there are addresses of scratch memory."""
        step = -(-end // len(scratch))
        if end >= _ALIGNED * len(scratch):
            step = -(-step // _ALIGNED) * _ALIGNED
        begins = range(step, end, step)
        if not begins or not self._ensure(len(begins)):
            entry(0, end, scratch[0], table)
            return
        done: SimpleQueue[None] = SimpleQueue()
        for place, begin in enumerate(begins, 1):
            self._jobs.put((entry, begin, min(begin + step, end), scratch[place], table, done))
        entry(0, step, scratch[0], table)
        for _ in begins:
            done.get()

    def _ensure(self, count: int) -> bool:
        """Start helpers until there are so many; False if that is not possible."""
        if os.getpid() != self._process:
            return False  # a fork has no helpers
        with self._lock:
            while self._helpers < count:
                try:
                    threading.Thread(target=self._work, name="gradwire-loops", daemon=True).start()
                except RuntimeError:
                    return False
                self._helpers += 1
        return True

    def _work(self) -> None:
        while True:
            entry, begin, end, scratch, table, done = self._jobs.get()
            entry(begin, end, scratch, table)
            done.put(None)


#: The helpers of this process.
POOL = Pool()
