"""A team of threads that share the parts of a job in machine code, so that a part costs no lock of Python's.

A helper that has no work waits in a loop for some time, and then sleeps. For a sleeping thread of a virtual machine
takes 50 µs to wake, as long as many jobs of a training step. A thread that finds the team at another job works alone.
Each part's order of operations is fixed, so results do not depend on the number of threads.
"""

from __future__ import annotations

import atexit
import ctypes
import threading
import time
from array import array
from collections.abc import Callable, Sequence

#: Machine code of a team (compile/fusion/team_code.py): what, number, data, memory of the team.
TeamCode = Callable[[int, int, "int | None", int], object]
LOOPS, PRODUCTS, COPIES, PRIMITIVES = 1, 2, 3, 4  # kinds of jobs
_HELP = 0
MOST_HELPERS = 63
#: Nanoseconds that a helper waits in a loop after its last part.
_PATIENCE = 400_000
_WORD = 8
# Words of the team's memory: whether it ends, then what a helper needs; slots of 8 words for each lane.
_ENDS, _FACTS, _SLOTS, _SLOT = 24, 40, 64, 8
_SEMAPHORE = 2  # word of a slot
_ALIGNED = 64
_PARTS = 4  # of a loop for each thread: a helper may come late
_END_SECONDS = 1.0


class Team:
    """Threads for jobs of machine code. Any thread may use it; a fork has helpers of its own."""

    def __init__(self, code: TeamCode, owner: object) -> None:
        """owner: is kept, as the code is freed with it."""
        self._code, self._owner = code, owner
        self._libc = ctypes.CDLL(None)
        self._memcpy = ctypes.cast(self._libc["memcpy"], ctypes.c_void_p).value or 0
        self._lock = threading.Lock()
        self._begin()
        atexit.register(self.end)

    def _begin(self) -> None:
        self._helpers: list[threading.Thread] = []
        # Never freed, since helpers may read it while the process ends.
        size = _WORD * (_SLOTS + _SLOT * (MOST_HELPERS + 1))
        self._libc.calloc.restype = ctypes.c_void_p
        start = self._libc.calloc(1, size + _ALIGNED)
        if not start:
            raise MemoryError("no memory for a team of threads")
        self._memory = start + -start % _ALIGNED
        words = (ctypes.c_int64 * (size // _WORD)).from_address(self._memory)
        names = "clock_gettime", "sem_wait", "sem_post", "sched_yield"
        addresses = [ctypes.cast(self._libc[name], ctypes.c_void_p).value or 0 for name in names]
        words[_FACTS : _FACTS + 5] = [_PATIENCE, *addresses]
        for lane in range(1, MOST_HELPERS + 1):
            self._libc.sem_init(self._semaphore(lane), 0, 0)
        self._words = words

    def _semaphore(self, lane: int) -> ctypes.c_void_p:
        return ctypes.c_void_p(self._memory + _WORD * (_SLOTS + _SLOT * lane + _SEMAPHORE))

    def forget_helpers(self) -> None:
        """Begin without helpers: a fork has none of its parent's."""
        self._lock = threading.Lock()
        self._begin()

    def run(self, kind: int, count: int, data: int, threads: int) -> None:
        """Do a job of so many parts, in so many threads at most. `data` is the address of its facts."""
        helpers = min(threads - 1, count - 1, MOST_HELPERS)
        if helpers > len(self._helpers):
            helpers = self._ensure(helpers)
        self._code(kind, count | helpers << 32, data, self._memory)

    def run_loop(self, entry: Callable[..., object], end: int, scratch: Sequence[int | None], table: int) -> None:
        """Run a compiled loop's rows from 0 to `end`; each of the threads has its scratch memory."""
        threads, start = len(scratch), scratch[0] or 0
        if threads == 1 or end <= 0:
            entry(0, end, scratch[0], table)
            return
        step = -(-end // (threads * _PARTS))
        if end >= threads * _PARTS * _ALIGNED:
            step += -step % _ALIGNED
        address = ctypes.c_void_p.from_buffer(entry).value  # type: ignore[arg-type]
        facts = array("q", [address or 0, end, step, table, start, (scratch[1] or 0) - start])
        self.run(LOOPS, -(-end // step), facts.buffer_info()[0], threads)

    def copy(self, target: int, source: int, nbytes: int, threads: int) -> None:
        """Copy bytes from one address to another, which must not overlap."""
        step = -(-nbytes // (threads * _PARTS))
        step += -step % _ALIGNED
        facts = array("q", [self._memcpy, target, source, nbytes, step])
        self.run(COPIES, -(-nbytes // step), facts.buffer_info()[0], threads)

    def _ensure(self, count: int) -> int:
        """Start helpers until there are so many; returns how many there are.

        A helper has its lane before it starts, since an interrupt may come after that. Two of one lane would share
        scratch memory.
        """
        with self._lock:
            while len(self._helpers) < count:
                lane = len(self._helpers) + 1
                helper = threading.Thread(
                    target=self._code, args=(_HELP, lane, None, self._memory), name="gradwire-team", daemon=True
                )
                self._helpers.append(helper)
                try:
                    helper.start()
                except RuntimeError:
                    self._helpers.pop()
                    break
            return min(count, len(self._helpers))

    def end(self) -> None:
        """End the helpers; before the machine code is freed."""
        atexit.unregister(self.end)
        self._words[_ENDS] = 1
        for lane in range(1, len(self._helpers) + 1):
            self._libc.sem_post(self._semaphore(lane))
        until = time.monotonic() + _END_SECONDS
        for helper in self._helpers:
            if helper.is_alive():
                helper.join(max(0.0, until - time.monotonic()))
