"""Outbox: a session's commands and releases of ids until a batch takes them.

Any thread may append, which is atomic. Only a thread that holds the session's lock for sending takes, and numbers what
it takes.
"""

from __future__ import annotations

import contextlib
import itertools
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from gradwire._proxy.memo import MemoEntry
from gradwire._session.deferred_errors import CallSite
from gradwire._session.framing import framed_commands, places_of_others
from gradwire._session.step_ends import StepEnds, unused
from gradwire._transport import wire
from gradwire.v1 import service_pb2

#: Maximum bytes of a batch, or of the large commands that wait for one.
BATCH_BYTES = 4 << 20
#: Maximum bytes of a batch besides its commands. A release has 8 bytes.
BATCH_HEAD = 64
# Maximum extra bytes of a prepared op's call between commands of another kind.
_CALLS_HEAD = 16
_MOST_RELEASES = 65_536
_MOST_COMMANDS = 4096  # of a batch, whatever the server allows


class Waiter:
    """A command whose issuer waits for the answer."""

    __slots__ = ("call_site", "result")

    def __init__(self, call_site: CallSite) -> None:
        self.call_site = call_site
        self.result: service_pb2.Result | None = None


class Taken(NamedTuple):
    """What a batch takes: the first command's number, framed commands, a record of each, and places of the waiters."""

    first: int
    commands: list[bytes]
    records: list[Waiter | MemoEntry | None]
    waiters: list[int]


class Outbox:
    """Commands and ids that wait to be sent.

    commands: bytes, the Waiter or MemoEntry, and what call of a prepared op it is (`framing`). released: ids that the
    server may free. large_bytes: bytes of large commands; small ones are not counted. taken: how many commands were
    taken so far. next_seq: the number of the next one.
    """

    __slots__ = ("commands", "large_bytes", "next_seq", "released", "step_ends", "taken")

    def __init__(self) -> None:
        self.commands: deque[tuple[bytes, Waiter | MemoEntry | None, int]] = deque()
        self.released: deque[int] = deque()
        self.large_bytes = 0
        self.taken = 0
        self.next_seq = 1
        self.step_ends = StepEnds()

    def position(self) -> int:
        """The number of commands that were ever buffered: the next command's position."""
        return self.taken + len(self.commands)

    def next_number(self) -> int:
        """The number that the next command gets, unless a release comes first."""
        return self.next_seq + len(self.commands)

    def append_counted(self, command: bytes, record: Waiter | None) -> None:
        """Add a command that may be large, and count its bytes."""
        framed = wire.framed(command)
        self.large_bytes += len(framed)
        self.commands.append((framed, record, 0))

    def replace(self, first: int, replaced: Callable[[Sequence[Any]], Sequence[Any]]) -> bool:
        """Let a function change the commands from position `first` on, unless some were taken; return whether it did.

        Other threads may append meanwhile.
        """
        kept = first - self.taken
        if kept < 0:
            return False
        items = list(self.commands.copy())
        found = replaced(items[kept:])
        for _ in range(len(items) - kept):
            del self.commands[kept]
        self.commands.rotate(-kept)
        self.commands.extendleft(reversed(found))
        self.commands.rotate(kept)
        return True

    def remove(self, waiter: Waiter) -> bool:
        """Remove a waiter's command; return whether it was here."""
        for index in range(len(self.commands) - 1, -1, -1):
            if self.commands[index][1] is waiter:
                del self.commands[index]
                return True
        return False

    def forget_released(self, ids: Sequence[int]) -> None:
        """Forget the releases of ids that the server never gets to know."""
        unknown = set(ids)
        for _ in range(len(self.released)):
            one = self.released.popleft()
            if one not in unknown:
                self.released.append(one)

    def clear(self) -> None:
        """Forget all."""
        self.commands.clear()
        self.released.clear()

    def least_bytes(self) -> int:
        """The bytes of the smallest batch that may be next."""
        try:
            least = len(self.commands[0][0])
        except IndexError:  # only releases are waiting
            least = 8 * min(len(self.released), _MOST_RELEASES)
        return least + 2 * BATCH_HEAD

    def take(self, most_bytes: int, most_commands: int, end: int | None = None) -> Taken:
        """Take what the next batch has room for; commands from position `end` on are left."""
        # A release must follow every use of its id. So a batch has releases only if it has all commands that were
        # buffered before the releases were counted, but for those that do not use the id.
        releases = len(self.released)
        waiting = len(self.commands) if end is None else min(len(self.commands), end - self.taken)
        data, records, calls, size = self._take_commands(waiting, most_bytes, min(most_commands, _MOST_COMMANDS) - 1)
        commands = framed_commands(data, calls)
        waiters = [place for place in places_of_others(calls) if type(records[place]) is Waiter]
        if len(data) == waiting and releases:
            fitting = min(releases, _MOST_RELEASES, (most_bytes - size) // 8 - BATCH_HEAD)
            ids = self._take_released(fitting, is_all=end is None)
            if ids:
                commands.append(wire.release_command(ids))
                records.append(None)
        self.large_bytes = max(0, self.large_bytes - size)
        first, self.next_seq = self.next_seq, self.next_seq + len(records)
        return Taken(first, commands, records, waiters)

    def _take_commands(
        self, waiting: int, most_bytes: int, most: int
    ) -> tuple[Sequence[bytes], list[Any], Sequence[int], int]:
        """The next of so many commands that fit: their bytes, records and kinds of calls, and the size of all."""
        items: list[Any] = []
        with contextlib.suppress(IndexError):  # another thread has made the session unusable: those before it count
            items.extend(itertools.islice(iter(self.commands.popleft, None), min(waiting, most)))
        data, records, calls = zip(*items, strict=True) if items else ((), (), ())
        count = len(items)
        size = BATCH_HEAD + sum(map(len, data)) + _CALLS_HEAD * count
        while size > most_bytes and count > 1:
            count -= 1
            size -= len(data[count]) + _CALLS_HEAD
        if count < waiting:  # the rest of a step goes with the next batch
            kept = self.step_ends.last_start(self.taken, self.taken + count) - self.taken
            size -= sum(map(len, data[kept:count])) + _CALLS_HEAD * (count - kept)
            count = kept
            self.commands.extendleft(reversed(items[count:]))
        self.taken += count
        return data[:count], list(records[:count]), calls[:count], size

    def _take_released(self, most: int, is_all: bool) -> Sequence[int]:
        """Ids to release; only those that no waiting command uses, unless the batch has all commands."""
        popleft = self.released.popleft
        ids = [popleft() for _ in range(most)]
        if not is_all:
            ids, used = unused(ids, self.commands.copy())
            self.released.extend(used)
        return ids
