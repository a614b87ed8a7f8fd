"""Shared counters: numbers in shared memory that the front and its workers read without asking each other.

Each worker writes the bytes its sessions hold. For each principal with a row, it also writes what the principal's
sessions hold and have computed. The front writes how many workers have work. In a cluster it also writes what each
principal's sessions at other servers hold. Every number has one writer and is written whole, so there is no lock. A
reader may see a slightly old value.
"""

import mmap
import os
import tempfile
from typing import NamedTuple

_SIZE = 8
ROWS = 1024  # for principals; the first is for callers without a quota


class PrincipalTotals(NamedTuple):
    """What a principal's sessions hold, and the microseconds they have computed since the server started."""

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
    """Counters for `workers` workers: private to this process, or shared by the file's descriptor."""

    def __init__(self, workers: int, descriptor: int | None = None) -> None:
        self.workers = workers
        size = _numbers(workers) * _SIZE
        self._memory = mmap.mmap(-1 if descriptor is None else descriptor, size)
        self._numbers = memoryview(self._memory).cast("Q")
        self._last = _numbers(workers) - workers

    @staticmethod
    def file(workers: int) -> int:
        """Create an unnamed file for the counters of `workers` workers; its descriptor."""
        with tempfile.TemporaryFile() as file:
            file.truncate(_numbers(workers) * _SIZE)
            return os.dup(file.fileno())

    @property
    def runnable(self) -> int:
        """Number of workers with work."""
        return self._numbers[0]

    @runnable.setter
    def runnable(self, count: int) -> None:
        self._numbers[0] = count

    def bytes(self, worker: int) -> int:
        """The bytes that a worker's sessions hold."""
        return self._numbers[1 + worker]

    def set_bytes(self, worker: int, size: int) -> None:
        """Set the bytes that a worker's sessions hold."""
        self._numbers[1 + worker] = size

    def slice_start(self, worker: int) -> int:
        """When a worker's uninterrupted computation began, by time.monotonic_ns(); 0 if there is none."""
        return self._numbers[self._last + worker]

    def set_slice_start(self, worker: int, since: int) -> None:
        """Set when a worker began to compute; 0 when it handles other calls again."""
        self._numbers[self._last + worker] = since

    def total(self) -> int:
        """The bytes that all sessions hold."""
        return sum(self._numbers[1 : 1 + self.workers])

    def set_share(self, worker: int, row: int, share: PrincipalTotals) -> None:
        """Set what a worker's sessions of the principal of a row hold."""
        start = self._start(row) + worker
        for kind, number in enumerate(share):
            self._numbers[start + kind * (self.workers + 1)] = number

    def set_elsewhere(self, row: int, share: PrincipalTotals) -> None:
        """Set what the sessions of the principal of a row hold at other servers of the cluster."""
        self.set_share(self.workers, row, share)

    def elsewhere(self, row: int) -> PrincipalTotals:
        """What the sessions of the principal of a row hold at other servers, as far as this one was told."""
        start, count = self._start(row) + self.workers, self.workers + 1
        return PrincipalTotals(*self._numbers[start : start + _KINDS * count : count])

    def share_here(self, row: int) -> PrincipalTotals:
        """What the sessions of the principal of a row hold at this server."""
        start, count = self._start(row), self.workers
        firsts = range(start, start + _KINDS * (count + 1), count + 1)
        return PrincipalTotals(*(sum(self._numbers[first : first + count]) for first in firsts))

    def share(self, row: int) -> PrincipalTotals:
        """What the sessions of the principal of a row hold, at this server and elsewhere."""
        start, count = self._start(row), self.workers + 1
        return PrincipalTotals(
            *(sum(self._numbers[first : first + count]) for first in range(start, start + _KINDS * count, count))
        )

    def computed(self, row: int, worker: int = -1) -> int:
        """Microseconds computed by the sessions of the principal of a row, in one worker, or everywhere for -1."""
        count = self.workers + 1
        start = self._start(row) + PrincipalTotals._fields.index("computed") * count
        return self._numbers[start + worker] if worker >= 0 else sum(self._numbers[start : start + count])

    def forget(self, worker: int) -> None:
        """Reset an ended worker's counters, except the computed time."""
        self.set_bytes(worker, 0)
        self.set_slice_start(worker, 0)
        for row in range(ROWS):
            self.set_share(worker, row, PrincipalTotals(computed=self.computed(row, worker)))

    def _start(self, row: int) -> int:
        return 1 + self.workers + row * _KINDS * (self.workers + 1)


def _numbers(workers: int) -> int:
    return 1 + workers + ROWS * _KINDS * (workers + 1) + workers
