"""What the front and its workers know of each other without asking: a few numbers in memory that all of them see.

Each worker writes the bytes its sessions hold, and for principals with a place the bytes and tensors of theirs; the
front writes how many workers have work. Every number has one writer and is written whole, so there is no lock; a
reader may be a moment behind.
"""

import mmap
import os
import tempfile

_SIZE = 8
PLACES = 1024  # of principals, the first for those without a quota


class Ledger:
    """Numbers for so many workers, of this process alone or, given the file's descriptor, of several."""

    def __init__(self, workers: int, descriptor: int | None = None) -> None:
        self.workers = workers
        size = _numbers(workers) * _SIZE
        self._memory = mmap.mmap(-1 if descriptor is None else descriptor, size)
        self._numbers = memoryview(self._memory).cast("Q")

    @staticmethod
    def file(workers: int) -> int:
        """A file for the ledger of so many workers, without a name: its descriptor."""
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

    def total(self) -> int:
        """The bytes that all sessions hold."""
        return sum(self._numbers[1 : 1 + self.workers])

    def hold_share(self, worker: int, place: int, size: int, tensors: int) -> None:
        """Say what a worker's sessions of the principal at a place hold."""
        start = self._start(place) + worker
        self._numbers[start] = size
        self._numbers[start + self.workers] = tensors

    def share(self, place: int) -> tuple[int, int]:
        """The bytes and the tensors that the sessions of the principal at a place hold."""
        start, middle = self._start(place), self._start(place) + self.workers
        return sum(self._numbers[start:middle]), sum(self._numbers[middle : middle + self.workers])

    def forget(self, worker: int) -> None:
        """A worker has ended, and what it held with it."""
        self.hold(worker, 0)
        for place in range(PLACES):
            self.hold_share(worker, place, 0, 0)

    def _start(self, place: int) -> int:
        return 1 + self.workers + place * 2 * self.workers


def _numbers(workers: int) -> int:
    return 1 + workers + PLACES * 2 * workers
