"""Threads for large computations: work is divided among this thread and helpers that wait in a pool.

Each part's order of operations is fixed. So results do not depend on the number of threads.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from queue import SimpleQueue

import numpy as np

from gradwire_engine.core.device import Array, row_major_copy
from gradwire_engine.core.team import Team

#: Operations on elements from which a loop is divided by a team, and without one: about 16 and 250 µs.
SHARED, LARGE = 1 << 19, 1 << 23
#: Bytes from which a copy is divided by a team.
COPIED = 1 << 19
_ALIGNED = 64  # rows: a division of a flat loop begins at a cache line
#: A compiled loop: its rows from a first to before a last, with scratch memory and a table of operands.
Entry = Callable[[int, int, "int | None", int], object]
_Done = SimpleQueue["BaseException | None"]


class Pool:
    """Helper threads of this process. Several threads may use it at once. A fork starts helpers of its own.

    threads: this process's share of the cores. A server sets it as workers become busy or idle.
    team: shares jobs of machine code at less cost; None if there is none.
    make_team: asks for a team, which may come at any time; False: ask again later. None if nothing makes one.
    is_beside_client: whether the client that sends ops needs one of the threads' cores.
    """

    def __init__(self) -> None:
        self.threads = 1
        self.is_beside_client = False
        self.team: Team | None = None
        self.make_team: Callable[[], bool] | None = None
        self.forget_helpers()

    def forget_helpers(self) -> None:
        """Begin without helpers: a fork has none of its parent's."""
        self._jobs: SimpleQueue[tuple[Callable[[], object], _Done]] = SimpleQueue()
        self._lock = threading.Lock()
        self._helpers = 0
        if self.team is not None:
            self.team.forget_helpers()

    def lanes(self, work: int, most: int) -> int:
        """Threads for a loop of so many operations on elements, which can be divided among `most`."""
        shared = work >= SHARED and (self.ready_team() is not None or work >= LARGE)
        return max(1, min(self.threads, most)) if shared else 1

    def ready_team(self) -> Team | None:
        """The team for a job; if there is none yet, it is asked for."""
        if self.team is None and self.make_team is not None and self.make_team():
            self.make_team = None
        return self.team

    def run(self, entry: Entry, end: int, scratch: Sequence[int | None], table: int) -> None:
        """Run a kernel's rows from 0 to `end` in as many threads as there are addresses of scratch memory.

        The addresses have equal distances.
        """
        if self.team is not None:
            self.team.run_loop(entry, end, scratch, table)
            return
        step = -(-end // len(scratch))
        if end >= _ALIGNED * len(scratch):
            step = -(-step // _ALIGNED) * _ALIGNED
        begins = range(step, end, step)
        if not begins or not self._ensure(len(begins)):
            entry(0, end, scratch[0], table)
            return
        parts = [partial(entry, 0, step, scratch[0], table)]
        parts += [
            partial(entry, begin, min(begin + step, end), scratch[place], table)
            for place, begin in enumerate(begins, 1)
        ]
        self._together(parts)

    def row_major_copy(self, array: Array) -> Array:
        """A row-major copy of an array; of a large row-major one in host memory in threads."""
        if type(array) is np.ndarray and array.nbytes >= COPIED and array.flags.c_contiguous and self.threads > 1:
            team = self.ready_team()
            if team is not None:
                made = np.empty_like(array)
                target, source = (each.__array_interface__["data"][0] for each in (made, array))
                team.copy(target, source, array.nbytes, self.threads)
                return made
        return row_major_copy(array)

    def each(self, job: Callable[[int], object], count: int) -> None:
        """Call `job` with each number below `count`, in the pool's number of threads. Raises what a job raises."""
        most = min(self.threads, count)
        if most <= 1 or not self._ensure(most - 1):
            for number in range(count):
                job(number)
            return
        numbers = deque(range(count))

        def work() -> None:
            while True:
                try:
                    number = numbers.popleft()
                except IndexError:
                    return
                job(number)

        self._together([work] * most)

    def _together(self, parts: Sequence[Callable[[], object]]) -> None:
        """Run the first part in this thread and the others in helpers; return when all have ended."""
        done: _Done = SimpleQueue()
        for part in parts[1:]:
            self._jobs.put((part, done))
        errors = [_outcome(parts[0])]
        errors += [done.get() for _ in parts[1:]]
        for error in errors:
            if error is not None:
                raise error

    def _ensure(self, count: int) -> bool:
        """Start helpers until there are so many; False if that is not possible."""
        with self._lock:
            while self._helpers < count:
                try:
                    threading.Thread(target=self._work, name="gradwire-loops", daemon=True).start()
                except RuntimeError:
                    return False
                self._helpers += 1
        return True

    def _work(self) -> None:
        jobs = self._jobs
        while True:
            part, done = jobs.get()
            done.put(_outcome(part))


def _outcome(part: Callable[[], object]) -> BaseException | None:
    """Run a part; the error that it raised. The caller must wait for all parts, since they use its memory."""
    try:
        part()
    except BaseException as error:  # noqa: BLE001 - raised where the parts were divided
        return error
    return None


#: The helpers of this process.
POOL = Pool()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=POOL.forget_helpers)
