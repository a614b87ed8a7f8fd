"""Streamed reduction: an all-reduce whose values pass through small rings, while the ranks' workers run side by side.

Each rank has a ring of a few slots in its file. It copies a chunk of its values into a slot, and reduces that chunk in
place when the other ranks' chunks are there too. So shared memory stays small, and the results are written once. Two
counters in the file tell the others how many chunks were written and read, since the group formed (rank_counters.py).

Where workers can read each other's memory, values need no ring (direct_reduction.py). All ranks agree on it in their
first reduction.

The front has no part in it once all ranks have met. It tells of a rank that is gone, which ends the wait.
"""

import hashlib
import os
import platform
from collections.abc import Iterator, Sequence

import numpy as np

from gradwire_engine import Tensor
from gradwire_engine.core.reduction import HostArray, reduce_into
from gradwire_server.common.errors import Refusal
from gradwire_server.session.state.direct_reduction import DirectReduction
from gradwire_server.session.state.flat_values import FlatValues
from gradwire_server.session.state.group_table import RING, Bytes, GroupTable, Membership
from gradwire_server.session.state.process_memory import ProcessMemory
from gradwire_server.session.state.rank_counters import (
    ADDRESSES,
    CAN,
    FILES,
    HEADER,
    KNOWN,
    MOST_ADDRESSES,
    MOST_FILES,
    PROBE,
    READ,
    READY,
    WRITTEN,
    RankCounters,
)

LEAST = 1 << 22  # bytes of the tensors; for smaller ones a ring would be more memory than they need
_SLOTS = 4
_CHUNK = 1 << 21  # bytes of a slot; smaller ones were slower: a core then reads what another one still has
_SIZE = HEADER + _SLOTS * _CHUNK
# Counters are plain memory: they follow the values only where a processor keeps the order of stores.
_KEEPS_ORDER = platform.machine() in ("x86_64", "AMD64")


def streams(member: Membership, size: int) -> bool:
    """Whether an all-reduce of `size` bytes is streamed. All ranks decide the same."""
    return (
        _KEEPS_ORDER
        and size >= LEAST
        and 1 < member.size <= len(os.sched_getaffinity(0))
        and not member.nodes
        and len(set(member.processes)) == member.size  # ranks of one worker would wait for each other
    )


class StreamedReduction:
    """One all-reduce of one rank. It is made before all ranks meet, run afterwards, and ended in any case.

    `about` is what the ranks are to agree on.
    """

    def __init__(
        self, groups: GroupTable, member: Membership, name: str, tensors: Sequence[Tensor], about: str, timeout_ms: int
    ) -> None:
        """Put the first values into the ring. Raises EngineError: MEMORY_LIMIT; MemoryError."""
        self._groups = groups
        self._member = member
        self._name = name
        dtype = tensors[0].dtype
        self._ring: Bytes = member.memory.region(RING, _SIZE)
        self._slots = self._ring[HEADER:].view(dtype)
        self._rings: list[HostArray] = []  # of all ranks
        self._counters = RankCounters(groups, member, self._ring, timeout_ms)
        if member.streamed:  # all rings exist
            self._open()
        self._chunk = _CHUNK // dtype.itemsize
        # Where the own values come third or later, the result is made apart: it is not in place from the start.
        self._apart = np.empty(self._chunk if member.rank > 1 else 0, dtype)
        groups.account.admit(self._apart.nbytes)
        if member.direct:
            groups.shared_tensors.prepare(tensors)
        self._flat = flat = FlatValues(groups.account, tensors)
        groups.account.bytes += self._apart.nbytes
        self._count = -(-flat.size // self._chunk)
        self._taken = 0  # chunks that are in the ring, or were
        digest = hashlib.blake2b(f"{member.begun} {about}".encode(), digest_size=8).digest()
        self._collective = int.from_bytes(digest, "little", signed=True) or 1
        self._direct: DirectReduction | None = None
        if member.direct:
            self._make_direct()
        while self._direct is None and self._taken < min(_SLOTS, self._count) and self._is_free(self._taken):
            self._take()
        self._begin()

    def _make_direct(self) -> None:
        """Prepare to read the other ranks' tensors, unless they are too many. All ranks decide the same."""
        if len(self._flat.arrays) <= MOST_ADDRESSES:
            self._direct = DirectReduction(
                self._member, self._counters, self._flat, self._name, self._slots, self._collective
            )

    def _begin(self) -> None:
        """Tell the other ranks where the tensors are, and that they may be read until `end`."""
        own = self._counters.own
        own[PROBE] = KNOWN.ctypes.data
        for place, each in enumerate(self._flat.arrays[:MOST_ADDRESSES]):
            own[ADDRESSES + place] = each.ctypes.data
        for place, each in enumerate(self._flat.arrays[:MOST_FILES]):
            file = self._groups.shared_tensors.file_of(each)
            own[FILES + 2 * place] = file.descriptor if file else 0
            own[FILES + 2 * place + 1] = file.inode if file else 0
        own[READY] = self._collective

    def end(self) -> None:
        """Tell the other ranks that the tensors may change from now on. Those that still read one refuse then."""
        self._counters.own[READY] = 0
        self._member.mapped.end()
        self._flat.close()
        self._groups.account.bytes -= self._apart.nbytes

    def _open(self) -> None:
        """Map all ranks' rings."""
        rings = [peer.region(RING, _SIZE) for peer in self._member.peers]
        self._rings = [each[HEADER:].view(self._slots.dtype) for each in rings]
        self._counters.open(rings)

    def _is_free(self, chunk: int) -> bool:
        """Whether all have read what the chunk's slot had before."""
        least = self._member.streamed + chunk - _SLOTS + 1
        return all(each[READ] >= least for each in self._counters.others)

    def _parts(self, chunk: int) -> Iterator[tuple[int, HostArray]]:
        """The parts of a chunk's values, each within one tensor, and where they begin in the slot."""
        begin = chunk * self._chunk
        for at, first, part in self._flat.pieces(begin, begin + self._chunk):
            yield self._flat.offset(at, first) - begin, part

    def _slot(self, chunk: int) -> int:
        """The first element of a chunk's slot in a ring."""
        return (self._member.streamed + chunk) % _SLOTS * self._chunk

    def _take(self) -> None:
        """Put the next chunk into its slot. The other ranks do not know yet."""
        slot = self._slot(self._taken)
        for at, part in self._parts(self._taken):
            self._slots[slot + at : slot + at + part.size] = part
        self._taken += 1

    def read_ahead(self) -> None:
        """Read what the other ranks have there already. It is of use only if all will have met."""
        if self._direct is not None:
            self._direct.read_ahead()

    def run(self) -> Iterator[None]:
        """Reduce all values. Raises Refusal: GROUP_BROKEN, DEADLINE_EXCEEDED. Some values may have changed then."""
        member = self._member
        if member.broken is not None:
            raise member.broken.copy()
        self._counters.begin()
        if not self._rings:
            self._open()
        try:
            if member.direct is None:
                yield from self._agree()
            yield from self._by_rings() if self._direct is None else self._direct.run()
        except GeneratorExit:
            self._abandon(f"the session of rank {member.rank} ended")
            raise
        except OSError as error:
            why = f"rank {member.rank} cannot read another rank's tensors: {error}"
            self._abandon(why)
            self._flat.note_changes()
            raise Refusal("GROUP_BROKEN", why, rank=member.rank) from None
        except BaseException:
            self._flat.note_changes()
            raise
        self._flat.write_back()

    def _abandon(self, why: str) -> None:
        member = self._member
        self._groups.require_channel().tell(self._groups.session, "abandon", group=member.number, why=why)

    def _agree(self) -> Iterator[None]:
        """Find out whether all ranks can read each other's memory."""
        member, counters = self._member, self._counters
        can = self._can_read()
        counters.own[CAN] = 2 if can else 1
        yield from counters.reach(CAN, 1)
        member.direct = can and all(each[CAN] == 2 for each in counters.others)
        if member.direct:
            self._make_direct()

    def _can_read(self) -> bool:
        """Whether this rank can read the tensors of all others."""
        member, counters = self._member, self._counters
        for rank, process in enumerate(member.processes):
            if rank == member.rank:
                member.memories.append(None)
                continue
            try:
                memory = ProcessMemory(process)
            except OSError:
                return False
            member.memories.append(memory)
            there, tensor = counters.all[rank], self._readable()
            try:
                if tensor is not None:  # the system may refuse the memory of some tensors
                    memory.read(there[ADDRESSES + tensor], np.empty(1, self._flat.dtype))
            except OSError:
                return False
            if not memory.has(there[PROBE], KNOWN):
                return False
        return True

    def _readable(self) -> int | None:
        """The number of a tensor that has elements, and an address in the header."""
        return next((at for at, each in enumerate(self._flat.arrays[:MOST_ADDRESSES]) if each.size), None)

    def _by_rings(self) -> Iterator[None]:
        """Reduce chunk by chunk, each of which passes through all rings."""
        member, counters, began = self._member, self._counters, self._member.streamed
        for chunk in range(self._count):
            while self._taken < min(chunk + _SLOTS, self._count):
                if not self._is_free(self._taken):
                    if self._taken > chunk:
                        break  # the others first need what is there
                    yield from counters.reach(READ, began + self._taken - _SLOTS + 1)
                self._take()
            counters.own[WRITTEN] = began + self._taken
            yield from counters.reach(WRITTEN, began + chunk + 1)
            self._reduce(chunk)
            counters.own[READ] = began + chunk + 1
            if counters.is_due():
                yield
        member.streamed += self._count

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
