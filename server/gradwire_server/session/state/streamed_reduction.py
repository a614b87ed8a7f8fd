"""Streamed reduction: an all-reduce whose values pass through small rings, while the ranks' workers run side by side.

Each rank has a ring of a few slots in its file. It copies a chunk of its values into a slot, and reduces that chunk in
place when the other ranks' chunks are there too. So shared memory stays small, and the results are written once. Two
counters in the file tell the others how many chunks were written and read, since the group formed. A rank that waits
for a counter looks at it for some milliseconds. Then its worker computes other sessions.

Where workers can read each other's memory (process_memory.py), values need no ring. A rank then reduces its share of
the elements from all ranks' tensors, and copies the other shares' results from there. All ranks agree on it in their
first reduction. None goes on before all have read its tensors.

The front has no part in it once all ranks have met. It tells of a rank that is gone, which ends the wait.
"""

import math
import os
import platform
import time
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from itertools import pairwise
from typing import Any

import numpy as np

from gradwire_engine import Tensor
from gradwire_engine.core.device import host, selected, to_device
from gradwire_engine.core.dtypes import DType
from gradwire_engine.core.reduction import HostArray, reduce_into
from gradwire_server.common.errors import Refusal
from gradwire_server.session.state import process_memory
from gradwire_server.session.state.group_table import RING, GroupTable, Membership

LEAST = 1 << 22  # bytes of the tensors; for smaller ones a ring would be more memory than they need
_SLOTS = 4
_CHUNK = 1 << 21  # bytes of a slot; smaller ones were slower: a core then reads what another one still has
_HEADER = 4096  # bytes of the counters, before the slots
_SIZE = _HEADER + _SLOTS * _CHUNK
_WRITTEN, _READ = 0, 16  # places of the counters, in different cache lines
# Where a rank says what is at `_KNOWN` in its memory, whether it can read all others (2) or not (1), and where its
# tensors are. More tensors are streamed.
_PROBE, _CAN, _PLACES, _MOST_PLACES = 32, 33, 64, 256
_SHARE = 1 << 19  # bytes that are read at once, which stay in a core's cache
_KNOWN = np.frombuffer(b"gradwire's group", np.int64).copy()
_SPIN_SECONDS = 50e-6  # for which a rank only looks at a counter
_YIELD_SECONDS = 0.005  # for which it then gives its core to any other process between two looks
# Counters are plain memory: they follow the values only where a processor keeps the order of stores.
_KEEPS_ORDER = platform.machine() in ("x86_64", "AMD64")


def streams(member: Membership, size: int) -> bool:
    """Whether an all-reduce of `size` bytes is streamed. All ranks decide the same."""
    return (
        _KEEPS_ORDER
        and size >= LEAST
        and 1 < member.size <= (os.cpu_count() or 1)
        and not member.nodes
        and len(set(member.processes)) == member.size  # ranks of one worker would wait for each other
    )


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


class StreamedReduction:
    """One all-reduce of one rank. It is made before all ranks meet, and run afterwards."""

    def __init__(
        self, groups: GroupTable, member: Membership, name: str, tensors: Sequence[Tensor], timeout_ms: int
    ) -> None:
        """Put the first values into the ring. Raises EngineError: MEMORY_LIMIT; MemoryError."""
        self._groups = groups
        self._member = member
        self._name = name
        self._tensors = tensors
        self._seconds = timeout_ms / 1000 if timeout_ms else math.inf
        self._dtype: DType = tensors[0].dtype
        self._copied = False  # whether `_flat` has copies
        self._flat = self._flattened()
        self._begins = [0]
        for each in self._flat:
            self._begins.append(self._begins[-1] + each.size)
        self._chunk = _CHUNK // self._dtype.itemsize
        self._count = -(-self._begins[-1] // self._chunk)
        # Where the own values come third or later, the result is made apart: it is not in place from the start.
        apart = max(_CHUNK, _SHARE) // self._dtype.itemsize if member.rank > 1 else 0
        self._apart = np.empty(apart, self._dtype)
        region = member.memory.region(RING, _SIZE)
        self._slots = region[_HEADER:].view(self._dtype)
        self._counters = region[:_HEADER].data.cast("q")
        self._counters[_PROBE] = _KNOWN.ctypes.data
        for place, each in enumerate(self._flat[:_MOST_PLACES]):
            self._counters[_PLACES + place] = each.ctypes.data
        self._rings: list[HostArray] = []  # of all ranks
        self._others: list[memoryview[int]] = []
        self._taken = 0  # chunks that are in the ring, or were
        if member.streamed:  # all rings exist
            self._open()
        while not self._is_direct() and self._taken < min(_SLOTS, self._count) and self._is_free(self._taken):
            self._take()

    def _is_direct(self) -> bool:
        """Whether ranks read each other's tensors. All decide the same."""
        return bool(self._member.direct) and len(self._flat) <= _MOST_PLACES

    def _flattened(self) -> list[HostArray]:
        """The tensors' arrays as vectors: themselves, or copies if some share memory or are not dense."""
        arrays = [each.array for each in self._tensors]
        if all(type(each) is np.ndarray and each.flags.c_contiguous for each in arrays):
            places = sorted((each.ctypes.data, each.nbytes) for each in arrays if each.nbytes)
            if all(at + size <= after for (at, size), (after, _) in pairwise(places)):
                return [each.reshape(-1) for each in arrays]
        self._groups.account.admit(sum(math.prod(each.shape) * each.dtype.itemsize for each in self._tensors))
        self._copied = True
        return [np.array(host(each), order="C", copy=True).reshape(-1) for each in arrays]

    def _open(self) -> None:
        """Map all ranks' rings."""
        for rank, peer in enumerate(self._member.peers):
            region = peer.region(RING, _SIZE)
            self._rings.append(region[_HEADER:].view(self._dtype))
            if rank != self._member.rank:
                self._others.append(region[:_HEADER].data.cast("q"))

    def _is_free(self, chunk: int) -> bool:
        """Whether all have read what the chunk's slot had before."""
        least = self._member.streamed + chunk - _SLOTS + 1
        return all(each[_READ] >= least for each in self._others)

    def _parts(self, chunk: int) -> Iterator[tuple[int, HostArray]]:
        """The parts of a chunk's values, each within one tensor, and where they begin in the slot."""
        begin = chunk * self._chunk
        for at, skipped, part in self._pieces(begin, begin + self._chunk):
            yield self._begins[at] + skipped - begin, part

    def _pieces(self, begin: int, end: int) -> Iterator[tuple[int, int, HostArray]]:
        """The values from one element to another: tensor, first element in it, and part of it."""
        end = min(end, self._begins[-1])
        at = bisect_right(self._begins, begin) - 1
        while at < len(self._flat) and self._begins[at] < end:
            first = self._begins[at]
            skipped = max(begin - first, 0)
            part = self._flat[at][skipped : end - first]
            if part.size:
                yield at, skipped, part
            at += 1

    def _slot(self, chunk: int) -> int:
        """The first element of a chunk's slot in a ring."""
        return (self._member.streamed + chunk) % _SLOTS * self._chunk

    def _take(self) -> None:
        """Put the next chunk into its slot. The other ranks do not know yet."""
        slot = self._slot(self._taken)
        for at, part in self._parts(self._taken):
            self._slots[slot + at : slot + at + part.size] = part
        self._taken += 1

    def run(self) -> Iterator[None]:
        """Reduce all values. Raises Refusal: GROUP_BROKEN, DEADLINE_EXCEEDED. Some values may have changed then."""
        member = self._member
        ends = time.monotonic() + self._seconds
        if not self._rings:
            self._open()
        try:
            if member.direct is None:
                yield from self._agree(ends)
            yield from self._by_reading(ends) if self._is_direct() else self._by_rings(ends)
        except GeneratorExit:
            self._abandon(f"the session of rank {member.rank} ended")
            raise
        except OSError as error:
            why = f"rank {member.rank} cannot read another rank's tensors: {error}"
            self._abandon(why)
            raise Refusal("GROUP_BROKEN", why, rank=member.rank) from None
        for flat, target in zip(self._flat, self._tensors, strict=True):
            if self._copied:
                with selected(target.device):
                    target.array[...] = to_device(flat.reshape(target.shape), target.device)
            target.storage.changed()

    def _abandon(self, why: str) -> None:
        member = self._member
        self._groups.require_channel().tell(self._groups.session, "abandon", group=member.number, why=why)

    def _agree(self, ends: float) -> Iterator[None]:
        """Find out whether all ranks can read each other's memory."""
        member = self._member
        others = [process for rank, process in enumerate(member.processes) if rank != member.rank]
        pairs = zip(others, self._others, strict=True)
        can = all(process_memory.can_read(process, counters[_PROBE], _KNOWN) for process, counters in pairs)
        self._counters[_CAN] = 2 if can else 1
        yield from self._reach(_CAN, 1, ends)
        member.direct = can and all(counters[_CAN] == 2 for counters in self._others)

    def _by_rings(self, ends: float) -> Iterator[None]:
        """Reduce chunk by chunk, each of which passes through all rings."""
        member, began = self._member, self._member.streamed
        for chunk in range(self._count):
            while self._taken < min(chunk + _SLOTS, self._count):
                if not self._is_free(self._taken):
                    if self._taken > chunk:
                        break  # the others first need what is there
                    yield from self._reach(_READ, began + self._taken - _SLOTS + 1, ends)
                self._take()
            self._counters[_WRITTEN] = began + self._taken
            yield from self._reach(_WRITTEN, began + chunk + 1, ends)
            self._reduce(chunk)
            self._counters[_READ] = began + chunk + 1
            if self._is_due():
                yield
        member.streamed += self._count

    def _is_due(self) -> bool:
        """Whether other sessions wait for the worker."""
        return time.monotonic() >= self._groups.cancel_token.at

    def _by_reading(self, ends: float) -> Iterator[None]:
        """Reduce this rank's share from all ranks' tensors; copy the results of the others."""
        member, began, width = self._member, self._member.streamed, max(1, _SHARE // self._dtype.itemsize)
        count = -(-self._begins[-1] // width)
        shares = [range(count * rank // member.size, count * (rank + 1) // member.size) for rank in range(member.size)]
        places: list[Any] = list(self._others)
        places.insert(member.rank, self._counters)
        room = np.empty((member.size, width), self._dtype)
        for done, share in enumerate(shares[member.rank], 1):
            for at, first, part in self._pieces(share * width, (share + 1) * width):
                self._reduce_part(places, at, first, part, room)
            self._counters[_WRITTEN] = began + done
            if self._is_due():
                yield
        for rank in (*range(member.rank + 1, member.size), *range(member.rank)):
            for done, share in enumerate(shares[rank], 1):
                yield from self._reach(_WRITTEN, began + done, ends, places[rank : rank + 1])
                for at, first, part in self._pieces(share * width, (share + 1) * width):
                    self._read(places, rank, at, first, part)
                if self._is_due():
                    yield
        self._counters[_WRITTEN] = self._counters[_READ] = began + count
        yield from self._reach(_READ, began + count, ends)  # until then, others read this rank's tensors
        member.streamed += count

    def _read(self, places: Sequence[Any], rank: int, at: int, first: int, into: HostArray) -> None:
        """Copy elements of a rank's tensor, from `first` on. Raises OSError."""
        address = places[rank][_PLACES + at] + first * self._dtype.itemsize
        process_memory.read(self._member.processes[rank], address, into)

    def _reduce_part(self, places: Sequence[Any], at: int, first: int, part: HostArray, room: HostArray) -> None:
        """Write the result of a part of this rank's share. Raises OSError."""
        sources: list[HostArray] = []
        for rank in range(self._member.size):
            if rank == self._member.rank:
                sources.append(part)
                continue
            sources.append(room[rank, : part.size])
            self._read(places, rank, at, first, sources[-1])
        self._combine(sources, part)

    def _reduce(self, chunk: int) -> None:
        """Write a chunk's result. The own values are those in the tensor, which this core has just read."""
        slot, rank = self._slot(chunk), self._member.rank
        for at, part in self._parts(chunk):
            sources = [each[slot + at : slot + at + part.size] for each in self._rings]
            sources[rank] = part
            self._combine(sources, part)

    def _combine(self, sources: Sequence[HostArray], part: HostArray) -> None:
        """Write the reduction to `part`, which is this rank's source."""
        if self._member.rank <= 1:
            reduce_into(self._name, sources, part)
        else:
            made = self._apart[: part.size]
            reduce_into(self._name, sources, made)
            part[...] = made

    def _reach(self, place: int, value: int, ends: float, ranks: Sequence[Any] = ()) -> Iterator[None]:
        """Wait until the counters of all other ranks, or of these, have a value. Raises Refusal."""
        for counters in ranks or self._others:
            if counters[place] >= value:
                continue
            began = now = time.monotonic()
            while counters[place] < value and now < began + _YIELD_SECONDS:
                if now >= began + _SPIN_SECONDS:
                    os.sched_yield()
                now = time.monotonic()
            while counters[place] < value:
                yield from self._wait(counters, place, value, ends)

    def _wait(self, counters: "memoryview[int]", place: int, value: int, ends: float) -> Iterator[None]:
        """Let other sessions compute until a counter may have a value. A cancelled command waits, too. Raises Refusal.

        The other ranks would get no further without it: it is bounded by the group's end and by its time limit.
        """
        member, token = self._member, self._groups.cancel_token
        token.wait_for(_Reached(member, counters, place, value, ends))
        yield
        if counters[place] >= value:
            return
        if member.broken is not None:
            raise member.broken.copy()
        if token.closed:
            raise Refusal("GROUP_BROKEN", f"the session of rank {member.rank} ended", rank=member.rank)
        if time.monotonic() >= ends:
            what = f"rank {member.rank} waited {self._seconds:g} s for another rank's values"
            raise Refusal("DEADLINE_EXCEEDED", what, rank=member.rank)
        time.sleep(_SPIN_SECONDS)  # a cancelled command is continued at once
