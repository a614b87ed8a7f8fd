"""What the front and its workers know of each other without asking: a few numbers in memory that all of them see.

Each worker writes the bytes its sessions hold, and for principals with a place what theirs hold and have computed; the
front writes how many workers have work. Every number has one writer and is written whole, so there is no lock; a
reader may be a moment behind.
"""

import mmap
import os
import tempfile
from typing import NamedTuple

_SIZE = 8
PLACES = 1024  # of principals, the first for those without a quota


class PrincipalTotals(NamedTuple):
    """What a principal's sessions hold, and the microseconds that they have computed ever since the server started."""

    bytes: int = 0
    tensors: int = 0
    programs: int = 0
    computed: int = 0

    @property
    def is_empty(self) -> bool:
        """Whether nothing is held."""
        return not (self.bytes or self.tensors or self.programs)


_KINDS = len(PrincipalTotals._fields)


class SharedCounters:
    """Numbers for so many workers, of this process alone or, given the file's descriptor, of several."""

    def __init__(self, workers: int, descriptor: int | None = None) -> None:
        self.workers = workers
        size = _numbers(workers) * _SIZE
        self._memory = mmap.mmap(-1 if descriptor is None else descriptor, size)
        self._numbers = memoryview(self._memory).cast("Q")
        self._last = _numbers(workers) - workers

    @staticmethod
    def file(workers: int) -> int:
        """A file for the shared counters of so many workers, without a name: its descriptor."""
        with tempfile.TemporaryFile() as file:
            file.truncate(_numbers(workers) * _SIZE)
            return os.dup(file.fileno())

    @property
    def runnable(self) -> int:
        """How many workers have work."""
        return self._numbers[0]

    @runnable.setter
    def runnable(self, count: int) -> None:
        self._numbers[0] = count

    def bytes(self, worker: int) -> int:
        """The bytes that a worker's sessions hold."""
        return self._numbers[1 + worker]

    def hold(self, worker: int, size: int) -> None:
        """Say what a worker's sessions hold."""
        self._numbers[1 + worker] = size

    def since(self, worker: int) -> int:
        """By time.monotonic_ns(), when what a worker computes without looking up began; 0 for nothing."""
        return self._numbers[self._last + worker]

    def compute(self, worker: int, since: int) -> None:
        """Say that a worker has begun to compute, or for 0 that it looks up."""
        self._numbers[self._last + worker] = since

    def total(self) -> int:
        """The bytes that all sessions hold."""
        return sum(self._numbers[1 : 1 + self.workers])

    def hold_share(self, worker: int, place: int, share: PrincipalTotals) -> None:
        """Say what a worker's sessions of the principal at a place hold."""
        start = self._start(place) + worker
        for kind, number in enumerate(share):
            self._numbers[start + kind * self.workers] = number

    def share(self, place: int) -> PrincipalTotals:
        """What the sessions of the principal at a place hold."""
        start, count = self._start(place), self.workers
        return PrincipalTotals(
            *(sum(self._numbers[first : first + count]) for first in range(start, start + _KINDS * count, count))
        )

    def computed(self, place: int, worker: int = -1) -> int:
        """The microseconds that the sessions of the principal at a place have computed, in one worker or in all."""
        start = self._start(place) + PrincipalTotals._fields.index("computed") * self.workers
        return self._numbers[start + worker] if worker >= 0 else sum(self._numbers[start : start + self.workers])

    def forget(self, worker: int) -> None:
        """A worker has ended, and what it held with it."""
        self.hold(worker, 0)
        self.compute(worker, 0)
        for place in range(PLACES):
            self.hold_share(worker, place, PrincipalTotals(computed=self.computed(place, worker)))

    def _start(self, place: int) -> int:
        return 1 + self.workers + place * _KINDS * self.workers


def _numbers(workers: int) -> int:
    return 1 + workers + PLACES * _KINDS * workers + workers
