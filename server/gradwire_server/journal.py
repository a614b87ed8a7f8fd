"""The log between two snapshots: what was applied, written before it is answered, and read again after a crash.

One thread per worker writes for all its sessions: what came while it waited for the disk goes together, one flush for
each session's file. A batch is written as it came, after it was applied, together with what its commands alone do not
tell: which of them were refused, and the numbers of nodes. A record that is not whole ends the log: nobody was told
of it.
"""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import struct
import threading
import zlib
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from google.protobuf.message import DecodeError

from gradwire.v1 import snapshots_pb2 as pb
from gradwire_engine.graph import go_on_from, next_seq
from gradwire_server.errors import Refusal
from gradwire_server.session import Brake
from gradwire_server.vault import sync_folder

if TYPE_CHECKING:
    from gradwire_server.session import Session

_HEAD = struct.Struct("<II")
_MOST_OPEN = 512  # files
#: Is called when a record is on disk, or with why it is not.
Done: TypeAlias = Callable[[Refusal | None], None]

log = logging.getLogger("gradwire.server")


class Log:
    """A session's log file. What could not be written is kept, and tried again before what comes next."""

    def __init__(self, path: Path, size: int = 0) -> None:
        self.path = path
        self.size = size  # bytes of whole records
        self.taken = size  # and of those that are to be written
        self.backlog: list[bytes] = []
        self.failing = False
        self.closed = False
        self.before: Log | None = None  # the generation before, until all of that is written


@dataclass(slots=True)
class _Task:
    log: Log
    record: bytes
    done: Done | None
    last: bool = False


class Journal:
    """Writes logs, in a thread of its own."""

    def __init__(self) -> None:
        self._tasks: queue.SimpleQueue[_Task | None] = queue.SimpleQueue()
        self._open: OrderedDict[Path, int] = OrderedDict()
        self._thread = threading.Thread(target=self._work, name="gradwire-journal", daemon=True)
        self._thread.start()

    def put(self, target: Log, record: pb.LogRecord | None, done: Done | None) -> None:
        """Write a record, after all before it; without one, `done` is called when those are written."""
        data = b""
        if record is not None:
            body = record.SerializeToString()
            length = struct.pack("<I", len(body))
            data = struct.pack("<I", zlib.crc32(body, zlib.crc32(length))) + length + body
            target.taken += len(data)
        self._tasks.put(_Task(target, data, done))

    def close(self, target: Log, written: bool = True) -> None:
        """Nothing more comes for a log; with `written` what came before is written first."""
        target.closed = target.closed or not written
        self._tasks.put(_Task(target, b"", None, last=True))

    def stop(self, timeout: float) -> None:
        """End when all is written."""
        self._tasks.put(None)
        self._thread.join(timeout)

    def _work(self) -> None:
        ended = False
        while not ended:
            tasks = [self._tasks.get()]
            with contextlib.suppress(queue.Empty):
                while True:
                    tasks.append(self._tasks.get_nowait())
            ended = None in tasks
            groups: dict[int, list[_Task]] = {}
            for task in tasks:
                if task is not None:
                    groups.setdefault(id(task.log), []).append(task)
            for group in groups.values():
                failure = self._append(group[0].log, [task.record for task in group if task.record])
                for task in group:
                    if task.done is not None:
                        task.done(failure)
                if any(task.last for task in group):
                    self._end(group[0].log)

    def _end(self, target: Log) -> None:
        target.closed = True
        target.backlog.clear()
        descriptor = self._open.pop(target.path, -1)
        if descriptor >= 0:
            os.close(descriptor)

    def _append(self, target: Log, records: list[bytes]) -> Refusal | None:
        """Bring records to the disk; why that cannot be, if it cannot."""
        if target.closed:  # a snapshot has all of it, or the session is gone
            return None
        target.backlog.extend(records)
        if target.before is not None:
            failure = self._append(target.before, [])
            if failure is not None:  # nothing may be written while something is missing before it
                target.failing = True
                return failure
            self.close(target.before)
            target.before = None
        if not target.backlog:  # else what is missing would be there
            target.failing = False
            return None
        try:
            data = b"".join(target.backlog)
            descriptor = self._file(target)
            if target.failing:
                os.ftruncate(descriptor, target.size)
            view = memoryview(data)
            while view.nbytes:
                view = view[os.write(descriptor, view) :]
            os.fdatasync(descriptor)
        except (OSError, MemoryError) as error:  # the thread outlives both: all sessions wait for it
            if not target.failing:
                log.error("log cannot be written", extra={"file": str(target.path), "error": str(error)})
            target.failing = True
            with contextlib.suppress(OSError, KeyError):
                os.ftruncate(self._open[target.path], target.size)
            return _refusal(error if isinstance(error, OSError) else None)
        target.backlog.clear()
        target.size += len(data)
        target.failing = False
        return None

    def _file(self, target: Log) -> int:
        descriptor = self._open.get(target.path)
        if descriptor is None:
            new = not target.path.exists()
            descriptor = os.open(target.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            if new:
                sync_folder(target.path.parent)
            self._open[target.path] = descriptor
            while len(self._open) > _MOST_OPEN:
                os.close(self._open.popitem(last=False)[1])
        else:
            self._open.move_to_end(target.path)
        return descriptor

    def check(self, target: Log) -> None:
        """Before a session computes: whether what it does can be written. Raises Refusal: UNAVAILABLE.

        What could not be written before is tried again, so that it may go well the next time.
        """
        if target.failing:
            self.put(target, None, None)
            raise _refusal()


def _refusal(error: OSError | None = None) -> Refusal:
    why = f": {os.strerror(error.errno or 0)}" if error is not None else ""
    return Refusal("UNAVAILABLE", f"the server cannot write the session's log{why}; nothing is lost, try again")


def read(path: Path) -> Iterator[tuple[pb.LogRecord, int]]:
    """A log's records, and where each ends; up to the first that is not whole."""
    end = 0
    with path.open("rb") as file:
        while True:
            start = file.read(_HEAD.size)
            if len(start) < _HEAD.size:
                return
            crc, size = _HEAD.unpack(start)
            if size > os.fstat(file.fileno()).st_size - file.tell():
                return
            body = file.read(size)
            if len(body) < size or zlib.crc32(body, zlib.crc32(start[4:])) != crc:
                return
            end += _HEAD.size + size
            try:
                record = pb.LogRecord.FromString(body)
            except DecodeError:
                return
            yield record, end


@dataclass(slots=True)
class Notes:
    """What a batch's record says besides its commands."""

    refusals: list[pb.LogRefusal] = field(default_factory=list)
    resumptions: list[pb.LogResumption] = field(default_factory=list)

    def resumed(self, applied: int) -> None:
        """The session computes, perhaps after others have."""
        self.resumptions.append(pb.LogResumption(after_seq=applied, node_seq=next_seq() + 1))

    def refused(self, session: Session, seq: int, refusal: Refusal) -> None:
        """A command was refused."""
        self.refusals.append(
            pb.LogRefusal(
                seq=seq, reason=refusal.reason, message=refusal.message, metadata=refusal.metadata,
                root_seq=refusal.root_seq, generator=session.recording.generator.get_state(),
            )
        )  # fmt: skip

    def take(self, record: pb.LogRecord) -> None:
        """Give a record what was noted."""
        record.refusals.extend(self.refusals)
        record.resumptions.extend(self.resumptions)
        self.refusals.clear()
        self.resumptions.clear()


class ReplayBrake(Brake):
    """Stops the commands that were refused the first time, and gives nodes the numbers that they had."""

    __slots__ = ("_refusals", "_resumptions", "_seq", "_session")

    def __init__(self, session: Session) -> None:
        self._seq = 0
        self._session = session
        self._refusals: dict[int, pb.LogRefusal] = {}
        self._resumptions: dict[int, int] = {}
        super().__init__()
        self.through = {0: 0}

    def follow(self, record: pb.LogRecord) -> None:
        """Go by what a record says."""
        self._refusals = {each.seq: each for each in record.refusals}
        self._resumptions = {each.after_seq + 1: each.node_seq for each in record.resumptions}

    @property
    def seq(self) -> int:
        """The command that runs."""
        return self._seq

    @seq.setter
    def seq(self, seq: int) -> None:
        self._seq = seq
        first = self._resumptions.get(seq)
        if first is not None:
            go_on_from(first)

    def cancelled(self) -> bool:
        """Whether it was refused the first time."""
        return self._seq in self._refusals

    def stopping(self) -> bool:
        """As `cancelled`; time is no reason."""
        return self._seq in self._refusals

    def refusal(self) -> Refusal:
        """Why it was."""
        told = self._refusals[self._seq]
        self._session.recording.generator.set_state(told.generator)
        refusal = Refusal(told.reason, told.message, root_seq=told.root_seq)
        refusal.metadata = dict(told.metadata)
        return refusal
