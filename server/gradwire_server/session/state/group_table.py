"""Group table: the groups that a session has joined, and the shared memory of their ranks.

Each rank has a file in memory without a name. All ranks' workers open it while the group forms, so it lasts as long as
any of them needs it. A rank writes its values into one of the file's two regions. It takes the other one after each
collective in which all ranks met. When it writes a region again, all ranks have met once more and so have read what was
there. A refused collective is no meeting: another rank may still read the values of the one before. A third region has
the ring of streamed reductions (streamed_reduction.py).

The memory of ranks at other servers is a copy: a file of the front, into which it fetches what this server's ranks
need (registry/group_nodes.py).
"""

import mmap
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Protocol

import numpy as np

from gradwire_engine import Account
from gradwire_engine.core.errors import EngineError, Reason
from gradwire_engine.core.nccl import Communicator
from gradwire_server.common.errors import Refusal
from gradwire_server.common.shared_files import REGION, opened
from gradwire_server.session.state.cancel_token import CancelToken
from gradwire_server.session.state.durability import Durability
from gradwire_server.session.state.process_memory import ProcessMemory
from gradwire_server.session.state.shared_tensors import MappedTensors, SharedTensors

Bytes = np.ndarray[Any, Any]
_PAGE = 1 << 16  # regions grow by multiples of it
RING = 2  # the region of the ring; only ranks of one server have it
MAX_GROUPS = 256  # of a session
MAX_MESSAGES = 1024  # that a rank may have received and not taken


class GroupChannel(Protocol):
    """A worker's way to the front, which knows all groups (worker/group_channel.py)."""

    def ask(self, session: int, do: str, **fields: Any) -> Future[dict[str, Any]]:
        """Send a request; a future of its answer, which may raise Refusal."""

    def tell(self, session: int, do: str, **fields: Any) -> None:
        """Send a message without an answer."""


def _mapped(fd: int, begin: int, size: int, write: bool) -> Bytes:
    access = mmap.ACCESS_WRITE if write else mmap.ACCESS_READ
    return np.frombuffer(mmap.mmap(fd, size, access=access, offset=begin), np.uint8)


class RankMemory:
    """This rank's file, counted in the session's account."""

    def __init__(self, account: Account) -> None:
        self.fd = os.memfd_create("gradwire-collective", os.MFD_CLOEXEC)
        self.account = account
        self._regions: list[Bytes] = [np.empty(0, np.uint8)] * 3
        self._fetched = [0, 0]  # bytes of other servers' ranks, which the front holds for this one

    def admit_fetched(self, turn: int, size: int) -> None:
        """Count bytes that the front will fetch from other servers. Raises EngineError: MEMORY_LIMIT."""
        more = size - self._fetched[turn]
        if more > 0:
            self.account.admit(more)
            self.account.bytes += more
            self._fetched[turn] = size

    def region(self, turn: int, size: int) -> Bytes:
        """Memory for `size` bytes. Raises EngineError: MEMORY_LIMIT; MemoryError."""
        held = self._regions[turn]
        if held.nbytes < size:
            wanted = -(-size // _PAGE) * _PAGE
            self.account.admit(wanted - held.nbytes)
            try:
                if os.fstat(self.fd).st_size < turn * REGION + wanted:
                    os.ftruncate(self.fd, turn * REGION + wanted)
                made = _mapped(self.fd, turn * REGION, wanted, write=True)
            except OSError as error:
                raise EngineError(Reason.MEMORY_LIMIT, f"out of shared memory: {error}") from None
            self.account.bytes += wanted - held.nbytes
            held = self._regions[turn] = made
        return held[:size]

    def close(self) -> None:
        """Give the memory back, except what other ranks still read."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1
            self.account.bytes -= sum(each.nbytes for each in self._regions) + sum(self._fetched)
            self._fetched = [0, 0]
            self._regions = [np.empty(0, np.uint8)] * 3


class PeerMemory:
    """Another rank's file, read-only."""

    def __init__(self, where: Sequence[int]) -> None:
        """Open it through the process that made it. Raises OSError if that has ended, or has closed it."""
        self._fd = opened(where)
        self._begin = where[3] if len(where) > 3 else 0  # a front's file has the memory of several ranks
        self._regions: list[Bytes] = [np.empty(0, np.uint8)] * 3

    def region(self, turn: int, size: int) -> Bytes:
        """The first `size` bytes that the rank wrote. Raises EngineError: MEMORY_LIMIT."""
        held = self._regions[turn]
        if held.nbytes < size:
            try:
                wanted = -(-size // _PAGE) * _PAGE
                held = self._regions[turn] = _mapped(self._fd, self._begin + turn * REGION, wanted, write=False)
            except OSError as error:
                raise EngineError(Reason.MEMORY_LIMIT, f"out of address space: {error}") from None
        return held[:size]

    def close(self) -> None:
        """Close the file."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        self._regions = [np.empty(0, np.uint8)] * 3


class Message:
    """Values that another rank sent and this one has not taken. `about` describes dtype and shapes."""

    def __init__(self, sender: int, tag: int, about: str, data: Bytes) -> None:
        self.sender = sender
        self.tag = tag
        self.about = about
        self.data = data


class Membership:
    """A session's place in one group. `number` is the group's, by which front and workers name it."""

    def __init__(self, name: str, number: int, rank: int, size: int, memory: RankMemory) -> None:
        self.name = name
        self.number = number
        self.rank = rank
        self.size = size
        self.memory = memory
        self.peers: list[PeerMemory] = []
        self.nodes: list[int] = []  # of each rank, the number of its server; empty if all have this one
        self.processes: list[int] = []  # of each rank, its worker's
        self.streamed = 0  # chunks of all streamed reductions
        self.direct: bool | None = None  # whether all ranks' workers can read each other's memory; None if unknown
        self.memories: list[ProcessMemory | None] = []  # of the ranks' workers, without the own one; if `direct`
        self.mapped = MappedTensors()
        self.in_use = False  # whether a command of the group runs, which may need the memory although the group broke
        self.broken: Refusal | None = None
        self.begun = 0  # collectives
        self.turn = 0  # the region that the next collective uses; all ranks agree on it
        self.gpus: Communicator | None = None  # of all ranks, once they have exchanged values between their GPUs
        self.by_host = False  # whether the ranks' GPUs were found not to be able to
        self.inbox: list[Message] = []
        self.receiving: Future[Any] | None = None  # of the rank's RECV, which waits for a message

    def is_remote(self, rank: int) -> bool:
        """Whether a rank has another server than this one."""
        return bool(self.nodes) and self.nodes[rank] != self.nodes[self.rank]

    def pop(self, sender: int | None, tag: int) -> Message | None:
        """Take the oldest message of a rank, or of any; None if there is none."""
        for place, message in enumerate(self.inbox):
            if message.tag == tag and sender in (None, message.sender):
                self.memory.account.bytes -= message.data.nbytes
                return self.inbox.pop(place)
        return None

    def close(self) -> None:
        """Give all memory back."""
        if self.gpus is not None:
            self.gpus.abort()
        self.memory.close()
        for peer in self.peers:
            peer.close()
        self.peers = []
        for each in self.memories:
            if each is not None:
                each.close()
        self.memories = []
        self.mapped.clear()
        self.memory.account.bytes -= sum(message.data.nbytes for message in self.inbox)
        self.inbox.clear()


class GroupTable:
    """A session's groups by name. Only the compute thread uses it."""

    def __init__(self, session: int, account: Account, cancel_token: CancelToken, durability: Durability) -> None:
        self.session = session
        self.account = account
        self.cancel_token = cancel_token
        self.durability = durability
        self.channel: GroupChannel | None = None  # set by the runtime
        self.joined: dict[str, Membership] = {}
        self.shared_tensors = SharedTensors(account)

    def find(self, name: str) -> Membership:
        """The group of a name. Raises Refusal: GROUP_BROKEN."""
        found = self.joined.get(name)
        if found is None:
            raise Refusal("GROUP_BROKEN", f"this session is in no group {name[:200]!r}")
        if found.broken is not None:
            raise found.broken.copy()
        return found

    def rank_in(self, name: str) -> int | None:
        """The session's rank in the group of a name; None if it is in none, or the group broke."""
        found = self.joined.get(name)
        return None if found is None or found.broken is not None else found.rank

    def has_ranks(self) -> bool:
        """Whether the session is in a group with other ranks."""
        return any(each.size > 1 for each in self.joined.values())

    def of_number(self, number: int) -> Membership | None:
        """The group of a number; None if the session is not in it."""
        return next((each for each in self.joined.values() if each.number == number), None)

    def require_channel(self) -> GroupChannel:
        """The way to the front. Raises Refusal: NOT_SUPPORTED."""
        if self.channel is None:
            raise Refusal("NOT_SUPPORTED", "this server's sessions form no groups")
        return self.channel

    def skipped(self, name: str, why: str) -> None:
        """Break a group: this rank left out a collective, so it is no longer in step with the others."""
        found = self.joined.get(name)
        if found is not None and found.broken is None and self.channel is not None:
            refusal = Refusal("GROUP_BROKEN", f"rank {found.rank} left out a collective of group {name!r}: {why}")
            found.broken = refusal
            found.close()
            self.channel.tell(self.session, "abandon", group=found.number, why=refusal.message)

    def mark_broken(self, number: int, refusal: Refusal) -> None:
        """Note that a group broke. A command in progress keeps its memory: its collective may be complete."""
        found = self.of_number(number)
        if found is not None:
            found.broken = found.broken or refusal
            if found.gpus is not None:
                found.gpus.abort()
            if not found.in_use:
                found.close()
            if found.receiving is not None and not found.receiving.done():
                found.receiving.set_exception(refusal.copy())

    def take(self, group: int, fields: Mapping[str, Any]) -> Refusal | None:
        """Take a message of another rank; the refusal if there is no room."""
        found = self.of_number(group)
        if found is None or found.broken is not None:
            return Refusal("GROUP_BROKEN", "the receiver has left the group")
        if len(found.inbox) >= MAX_MESSAGES:
            return Refusal("MEMORY_LIMIT", f"rank {found.rank} has {MAX_MESSAGES} messages that it did not receive")
        size = fields["size"]
        try:
            self.account.admit(size)
            data = np.empty(size, np.uint8)
            with open(opened(fields["file"]), "rb", buffering=0) as file:
                while size and (count := file.readinto(data[-size:].data)):
                    size -= count
            if size:
                raise OSError(f"it lacks {size} bytes")
        except EngineError as error:
            return Refusal("MEMORY_LIMIT", f"rank {found.rank} has no room for the message: {error}")
        except (OSError, MemoryError) as error:
            return Refusal("MEMORY_LIMIT", f"rank {found.rank} cannot take the message: {error}")
        found.inbox.append(Message(fields["sender"], fields["tag"], fields["about"], data))
        self.account.bytes += data.nbytes
        if found.receiving is not None and not found.receiving.done():
            found.receiving.set_result(None)
        return None

    def abandon(self, why: str) -> None:
        """Break all groups: this session cannot continue. No other rank may wait for it."""
        for name in list(self.joined):
            self.skipped(name, why)

    def clear(self) -> None:
        """Leave all groups."""
        for each in self.joined.values():
            each.close()
        self.joined.clear()
        self.shared_tensors.close()
