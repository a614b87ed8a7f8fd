"""Parts of a computation by oneDNN's primitives, shared by a team's threads (team.py), or by the pool's without a team.

A thread of a team calls the primitives in machine code, so a part costs no lock of Python's. Each lane of the team has
its own memory objects of the library, and its own temporary memory. A part's result does not depend on its lane.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gradwire_engine.backends.onednn import error_of
from gradwire_engine.backends.operands import ROOM, Bound, Prepared, address_of
from gradwire_engine.core.device import Array
from gradwire_engine.core.team import MOST_HELPERS, PRIMITIVES
from gradwire_engine.core.threads import POOL

# Numbers of a job before those of its parts: omp_set_num_threads, memory_set_data_handle, primitive_execute, the
# stream, the first failure, the lanes' programs, programs of a lane, numbers of a part, temporary memory, and its bytes
# of a lane.
_HEADER, _FAILURE, _ROOM = 10, 4, 8


class PrimitiveParts:
    """Primitives, one for each part, with equally many operands. Any thread may run them."""

    def __init__(self, parts: Sequence[Prepared]) -> None:
        self._parts = parts
        self._kinds = list({id(each): each for each in parts}.values())
        self._nbytes = max(each.nbytes for each in parts)
        self._idle: list[_Job] = []

    def __len__(self) -> int:
        return len(self._parts)

    def room(self) -> int:
        """Bytes of temporary memory of the threads that run at once."""
        return min(len(self._parts), POOL.threads) * self._nbytes

    def run(self, addresses: Array) -> None:
        """Compute all parts; `addresses` (int64) has a row of operands for each. Raises RuntimeError, MemoryError."""
        if len(self._parts) == 1:
            self._parts[0].run(addresses[0].tolist())
            return
        lanes = min(POOL.threads, len(self._parts), MOST_HELPERS + 1)
        team = POOL.ready_team() if lanes > 1 else None
        if team is None:
            POOL.each(lambda number: self._parts[number].run(addresses[number].tolist()), len(self._parts))
            return
        job = self._job(lanes)
        address, _held = ROOM.take(self._nbytes, lanes)
        facts = job.facts
        facts[_ROOM] = address
        facts[_HEADER:].reshape(len(self._parts), -1)[:, 1:] = addresses
        team.run(PRIMITIVES, len(self._parts), address_of(facts), lanes)
        status, facts[_FAILURE] = int(facts[_FAILURE]), 0
        self._idle.append(job)
        if status:
            raise error_of("primitive_execute", status)

    def _job(self, lanes: int) -> _Job:
        """A job that no thread uses."""
        try:
            job = self._idle.pop()
        except IndexError:
            return _Job(self._parts, self._kinds, lanes, self._nbytes)
        return job if job.lanes >= lanes else _Job(self._parts, self._kinds, lanes, self._nbytes)


class _Job:
    """The numbers of a job, and the memory objects of its lanes. One thread at a time may use it."""

    def __init__(self, parts: Sequence[Prepared], kinds: Sequence[Prepared], lanes: int, nbytes: int) -> None:
        self.lanes, loaded = lanes, kinds[0].library
        self._bound = [Bound(kind) for _ in range(lanes) for kind in kinds]
        self._programs: list[Any] = [np.array(each.program(), np.int64) for each in self._bound]
        self._table = np.array([address_of(each) for each in self._programs], np.int64)
        words = 1 + len(kinds[0].sides)
        header = [loaded.set_threads, loaded.point, loaded.execute, loaded.stream.value or 0, 0]
        header += [address_of(self._table), len(kinds), words, 0, nbytes]
        #: The job as machine code reads it, without its addresses.
        self.facts = np.zeros(_HEADER + words * len(parts), np.int64)
        self.facts[:_HEADER] = header
        numbers = {id(kind): number for number, kind in enumerate(kinds)}
        self.facts[_HEADER::words] = [numbers[id(each)] for each in parts]
