"""What the front and its workers know of each other without asking: a few numbers in memory that all of them see.

Each worker writes the bytes its sessions hold, the front how many workers have work. Every number has one writer and
is written whole, so there is no lock; a reader may be a moment behind.
"""

import mmap
import os
import tempfile

_SIZE = 8


class Ledger:
    """Numbers for so many workers, of this process alone or, given the file's descriptor, of several."""

    def __init__(self, workers: int, descriptor: int | None = None) -> None:
        self.workers = workers
        size = (workers + 1) * _SIZE
        self._memory = mmap.mmap(-1 if descriptor is None else descriptor, size)
        self._numbers = memoryview(self._memory).cast("Q")

    @staticmethod
    def file(workers: int) -> int:
        """A file for the ledger of so many workers, without a name: its descriptor."""
        with tempfile.TemporaryFile() as file:
            file.truncate((workers + 1) * _SIZE)
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
        return sum(self._numbers[1:])
