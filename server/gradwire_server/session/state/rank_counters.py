"""Rank counters: numbers that each rank of a group keeps at the start of its ring, and by which the others follow it.

A rank that waits for a counter looks at it for some milliseconds, while its process gives way to others. Then its
worker computes other sessions.
"""

import math
import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future

import numpy as np

from gradwire_server.common.errors import Refusal
from gradwire_server.session.state.group_table import Bytes, GroupTable, Membership

HEADER = 4096  # bytes of the counters, before the slots
# Places of the counters; those that change during a reduction are in cache lines of their own.
WRITTEN, READ = 0, 16  # chunks since the group formed
PROBE, CAN = 32, 33  # where `KNOWN` is in the rank's memory, and whether it can read all others (2) or not (1)
READY = 48  # a digest of which collective the rank takes part in; 0 if it has left it, and its tensors may change
ADDRESSES, MOST_ADDRESSES = 64, 256  # of its tensors in that collective
FILES, MOST_FILES = 320, 96  # for each of its first tensors, the descriptor and inode of its file; 0 twice for none
KNOWN = np.frombuffer(b"gradwire's group", np.int64).copy()
_SPIN_SECONDS = 50e-6  # for which a rank only looks at a counter
_YIELD_SECONDS = 0.005  # for which it then gives its core to any other process between two looks


class _Reached(Future[None]):
    """Done when another rank's counter has a value, the group broke or the time is over. The scheduler asks for it."""

    def __init__(self, member: Membership, counters: "memoryview[int]", place: int, value: int, ends: float) -> None:
        super().__init__()
        self._member = member
        self._counters, self._place, self._value = counters, place, value
        self._ends = ends

    def done(self) -> bool:
        """Whether the wait is over."""
        reached = self._counters[self._place] >= self._value
        return reached or self._member.broken is not None or time.monotonic() >= self._ends


class RankCounters:
    """The counters of one rank and, once all rings exist, of the others."""

    def __init__(self, groups: GroupTable, member: Membership, ring: Bytes, timeout_ms: int) -> None:
        self._groups = groups
        self._member = member
        self._seconds = timeout_ms / 1000 if timeout_ms else math.inf
        self._ends = math.inf
        self.own = _counters(ring)
        self.others: list[memoryview[int]] = []  # of the other ranks, in their order
        self.all: list[memoryview[int]] = []

    def open(self, rings: Sequence[Bytes]) -> None:
        """Take the rings of all ranks."""
        self.all = [_counters(each) for each in rings]
        self.others = [each for rank, each in enumerate(self.all) if rank != self._member.rank]

    def begin(self) -> None:
        """Begin to count the time for which this rank waits."""
        self._ends = time.monotonic() + self._seconds

    def is_due(self) -> bool:
        """Whether other sessions wait for the worker."""
        token = self._groups.cancel_token
        return time.monotonic() >= token.at and token.pauses()

    def appear(self, place: int, value: int) -> bool:
        """Whether the other ranks' counters soon have exactly this value. It is not waited for longer."""
        return self._look(self.others, place, lambda found: found == value)

    def reach(self, place: int, value: int, rank: int | None = None) -> Iterator[None]:
        """Wait until the counters of all other ranks, or of one, have at least a value. Raises Refusal."""
        looked = self.others if rank is None else [self.all[rank]]
        if not self._look(looked, place, lambda found: found >= value):
            for counters in looked:
                while counters[place] < value:
                    yield from self._wait(counters, place, value)

    def _look(self, looked: "Sequence[memoryview[int]]", place: int, suits: Callable[[int], bool]) -> bool:
        """Look at counters for some milliseconds, unless other sessions wait; whether all values suit."""
        began = now = time.monotonic()
        for counters in looked:
            while not suits(counters[place]):
                if now >= began + _YIELD_SECONDS or self.is_due():
                    return False
                if now >= began + _SPIN_SECONDS:
                    os.sched_yield()
                now = time.monotonic()
        return True

    def _wait(self, counters: "memoryview[int]", place: int, value: int) -> Iterator[None]:
        """Let other sessions compute until a counter may have a value. A cancelled command waits, too. Raises Refusal.

        The other ranks would get no further without it: it is bounded by the group's end and by its time limit.
        """
        member, token = self._member, self._groups.cancel_token
        token.wait_for(_Reached(member, counters, place, value, self._ends))
        yield
        if counters[place] >= value:
            return
        if member.broken is not None:
            raise member.broken.copy()
        if token.closed:
            raise Refusal("GROUP_BROKEN", f"the session of rank {member.rank} ended", rank=member.rank)
        if time.monotonic() >= self._ends:
            what = f"rank {member.rank} waited {self._seconds:g} s for another rank's values"
            raise Refusal("DEADLINE_EXCEEDED", what, rank=member.rank)
        time.sleep(_SPIN_SECONDS)  # a cancelled command is continued at once


def _counters(ring: Bytes) -> "memoryview[int]":
    return ring[:HEADER].data.cast("q")
