"""Direct reduction: an all-reduce of ranks whose workers read each other's memory.

A tensor that other workers can map is read where it is (shared_tensors.py); others are copied (process_memory.py).

A rank reduces its share of the elements from all ranks' tensors, and copies the other shares' results from there. None
goes on before all have read its tensors.

A rank tells by a counter that its tensors are there. The others then read them ahead into their own rings, while the
front has not yet answered that all ranks have met. They change no tensor before. If the collective is refused, what was
read is dropped. A rank that leaves early resets its counter first. So the others look at it after each read: only then
are the values those of the collective.
"""

import math
from collections.abc import Iterator

from gradwire_engine.core.reduction import HostArray, reduce_into
from gradwire_server.common.errors import Refusal
from gradwire_server.session.state.flat_values import FlatValues
from gradwire_server.session.state.group_table import Membership
from gradwire_server.session.state.rank_counters import ADDRESSES, FILES, MOST_FILES, READ, READY, WRITTEN, RankCounters

# Bytes of a share that are reduced at once. With fewer, values stay in a core's cache, but Python's code does not.
_PART = 1 << 23


class DirectReduction:
    """One direct all-reduce of one rank. `ring` is this rank's, which no other one reads meanwhile."""

    def __init__(
        self,
        member: Membership,
        counters: RankCounters,
        flat: FlatValues,
        name: str,
        ring: HostArray,
        collective: int,
    ) -> None:
        self._member = member
        self._collective = collective
        self._counters = counters
        self._flat = flat
        self._name = name
        self._others = [rank for rank in range(member.size) if rank != member.rank]
        self._width = max(1, min(_PART, ring.nbytes // (member.size - 1)) // flat.dtype.itemsize)
        self._room = ring[: self._width * (ring.size // self._width)].reshape(-1, self._width)
        self._most = math.ceil(math.ceil(flat.size / member.size) / self._width)  # parts of the largest share
        self._ahead = 0  # parts of the own share that were read
        self._mapped: dict[tuple[int, int], HostArray | None] = {}  # by rank and tensor

    def _share(self, rank: int) -> list[tuple[int, int]]:
        """The parts that a rank reduces: their first and last elements."""
        begin, end = (self._flat.size * each // self._member.size for each in (rank, rank + 1))
        return [(at, min(at + self._width, end)) for at in range(begin, end, self._width)]

    def read_ahead(self) -> None:
        """Read the other ranks' tensors as far as the ring has room, if all have them there for this collective."""
        counters, began = self._counters, self._member.streamed
        if any(each[READ] < began for each in counters.others) or not counters.appear(READY, self._collective):
            return
        rooms = len(self._room) // (self._member.size - 1)
        try:
            for begin, end in self._share(self._member.rank)[:rooms]:
                if counters.is_due():
                    break
                for at, first, part in self._flat.pieces(begin, end):
                    self._read_others(self._ahead, self._flat.offset(at, first) - begin, at, first, part.size)
                self._ahead += 1
        except (OSError, Refusal):  # if all have met nevertheless, run() will fail, too
            self._ahead = 0

    def run(self) -> Iterator[None]:
        """Reduce all values. Raises Refusal, OSError."""
        counters, member, began = self._counters, self._member, self._member.streamed
        yield from counters.reach(READ, began)  # until then, others may read the ring
        for done, (begin, end) in enumerate(self._share(member.rank)):
            for at, first, part in self._flat.pieces(begin, end):
                place = self._flat.offset(at, first) - begin
                if done >= self._ahead:
                    self._read_others(done, place, at, first, part.size)
                self._reduce(self._rooms(done, place, part.size), at, first, part)
            counters.own[WRITTEN] = began + done + 1
            if counters.is_due():
                yield
        for rank in (*range(member.rank + 1, member.size), *range(member.rank)):
            yield from self._copy_results(rank)
        counters.own[WRITTEN] = counters.own[READ] = began + self._most
        yield from counters.reach(READ, began + self._most)  # until then, others read this rank's tensors
        member.streamed += self._most

    def _copy_results(self, rank: int) -> Iterator[None]:
        """Copy a rank's results as they come."""
        for done, (begin, end) in enumerate(self._share(rank)):
            yield from self._counters.reach(WRITTEN, self._member.streamed + done + 1, rank)
            for at, first, part in self._flat.pieces(begin, end):
                self._copy(rank, at, first, part)
            if self._counters.is_due():
                yield

    def _reduce(self, rooms: list[HostArray], at: int, first: int, part: HostArray) -> None:
        """Write the reduction of the other ranks' values and the own ones in `part` there."""
        rank, spare = self._member.rank, rooms[0]
        mapped = [self._map(other, at) for other in self._others]
        sources = [
            room if there is None else there[first : first + part.size]
            for room, there in zip(rooms, mapped, strict=True)
        ]
        sources.insert(rank, part)
        made = part if rank <= 1 else spare  # the first or second source, as reduce_into() needs it, or none
        reduce_into(self._name, sources, made)
        if made is not part:
            part[...] = made
        if any(there is not None for there in mapped):
            for other in self._others:
                self._check(other, part)

    def _rooms(self, done: int, place: int, size: int) -> list[HostArray]:
        """The room in the ring for elements of a part, from `place` on, by the other ranks."""
        others = self._member.size - 1
        rows = [(done * others + other) % len(self._room) for other in range(others)]
        return [self._room[row, place : place + size] for row in rows]

    def _read_others(self, done: int, place: int, at: int, first: int, size: int) -> None:
        """Copy elements of a part of the own share from the other ranks that are not mapped. Raises OSError."""
        for rank, room in zip(self._others, self._rooms(done, place, size), strict=True):
            if self._map(rank, at) is None:
                self._read(rank, at, first, room)

    def _copy(self, rank: int, at: int, first: int, into: HostArray) -> None:
        """Copy elements of a rank's tensor. Raises OSError, Refusal."""
        there = self._map(rank, at)
        if there is None:
            self._read(rank, at, first, into)
        else:
            into[...] = there[first : first + into.size]
            self._check(rank, into)

    def _map(self, rank: int, at: int) -> HostArray | None:
        """A rank's tensor, mapped; None if its memory cannot be. Raises Refusal."""
        if (rank, at) not in self._mapped:
            there, own, found = self._counters.all[rank], self._flat.arrays[at], None
            if at < MOST_FILES and own.nbytes:
                descriptor, inode = there[FILES + 2 * at], there[FILES + 2 * at + 1]
                self._check(rank)
                if inode:
                    process = self._member.processes[rank]
                    found = self._member.mapped.find(process, descriptor, inode, own.nbytes)
            self._mapped[rank, at] = None if found is None else found.view(own.dtype)
        return self._mapped[rank, at]

    def _read(self, rank: int, at: int, first: int, into: HostArray) -> None:
        """Copy elements of a rank's tensor, from `first` on. Raises OSError, Refusal; there are zeros then."""
        there, memory = self._counters.all[rank], self._member.memories[rank]
        assert memory is not None
        memory.read(there[ADDRESSES + at] + first * self._flat.dtype.itemsize, into)
        self._check(rank, into)

    def _check(self, rank: int, made: HostArray | None = None) -> None:
        """Check that what was read from a rank is of this collective. Raises Refusal; `made` has zeros then.

        A rank that leaves the collective early says so before its tensors change or their memory is used again.
        """
        if self._counters.all[rank][READY] != self._collective:
            if made is not None:
                made[...] = 0
            raise Refusal("GROUP_BROKEN", f"rank {rank} has left the collective", rank=rank)
