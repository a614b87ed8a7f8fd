"""The log between two snapshots: what was applied, written before it is answered, and read again after a crash.

One thread per worker writes for all its sessions: what came while it waited for the disk goes together, one flush for
each session's file. A batch is written as it came, after it was applied, together with what its commands alone do not
tell: which of them were refused, and the numbers of nodes.

A file begins with how many bytes of it were flushed, and so may have been acknowledged; that is written after each
flush, and reaches the disk with the next one at the latest. So two things that look alike are told apart: what is not
whole after that place is a write that a crash cut off, and ends the log; what is not whole before it is damage.
"""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import struct
import threading
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, TypeAlias

from google.protobuf.message import DecodeError

from gradwire.v1 import snapshots_pb2 as pb
from gradwire_engine.graph.graph import next_seq
from gradwire_server.common.errors import Refusal
from gradwire_server.common.protobuf_peek import bytes_field
from gradwire_server.storage.configured import LOGS
from gradwire_server.storage.snapshot_files import LOG, damaged
from gradwire_server.storage.stores import LogStore

if TYPE_CHECKING:
    from gradwire_server.session.session import Session

MAGIC = b"GWLOG02\n"
_FLUSHED = struct.Struct("<QI")  # bytes that were flushed, and the CRC-32 of that number
START = len(MAGIC) + _FLUSHED.size  # where the records begin
_HEAD = struct.Struct("<II")
_SIZE = struct.Struct("<I")
#: What ids of bytes begin with that are no client's upload but of a file.
LOADED = "file:"
#: Bytes in the queue above which whoever has more that can wait does.
MOST_QUEUED = 16 << 20
#: Is called when a record is on disk, or with why it is not.
Done: TypeAlias = Callable[[Refusal | None], None]
Parts: TypeAlias = Sequence[bytes]

log = logging.getLogger("gradwire.server")


class Log:
    """A session's log file. What could not be written is kept, and tried again before what comes next."""

    def __init__(self, path: Path, size: int = START, exists: bool = False) -> None:
        self.path = path
        self.size = size  # bytes that are flushed
        self.taken = size  # and of those that are to be written
        self.backlog: list[bytes] = []
        self.fresh = size == START and not exists  # to be made, also if nothing is to be written yet
        self.failing = False
        self.closed = False
        self.before: Log | None = None  # the generation before, until all of that is written


@dataclass(slots=True)
class _Task:
    log: Log
    parts: Parts
    size: int
    done: Done | None
    last: bool = False
    lasting: bool = True  # to be tried again if it cannot be written: it was applied


def log_path(place: Path, generation: int) -> Path:
    """By which path a session's log of a generation is known."""
    return place / f"{generation}{LOG}"


def packed(record: pb.LogRecord, batch: bytes = b"") -> Parts:
    """A record as it is written, in parts; `batch` is not copied, and not to be in the record then."""
    rest = record.SerializeToString()
    body = [bytes_field(pb.LogRecord.BATCH_FIELD_NUMBER, len(batch)), batch, rest] if batch else [rest]
    length = _SIZE.pack(sum(map(len, body)))
    crc = zlib.crc32(length)
    for part in body:
        crc = zlib.crc32(part, crc)
    return (_SIZE.pack(crc) + length, *body)


def beginning(flushed: int) -> bytes:
    """What a log begins with."""
    return MAGIC + _flushed(flushed)


def _flushed(size: int) -> bytes:
    raw = struct.pack("<Q", size)
    return _FLUSHED.pack(size, zlib.crc32(raw))


class WriteAheadLog:
    """Writes logs, in a thread of its own. `queued` counts the bytes that wait for it."""

    def __init__(self, store: LogStore | None = None) -> None:
        """Without a store of its own it has that of configured.py."""
        self.store = store or LOGS()
        self.queued = 0
        self._room = threading.Condition()
        self._tasks: queue.SimpleQueue[_Task | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="gradwire-journal", daemon=True)
        self._thread.start()

    def put(self, target: Log, parts: Parts, done: Done | None, lasting: bool = True) -> None:
        """Write a record, after all before it; without one, `done` is called when those are written.

        One that is not `lasting` is given up where it cannot be written: it is a part of what was not applied yet.
        """
        size = sum(map(len, parts))
        self._tasks.put(_Task(target, parts, size, done, lasting=lasting))
        target.taken += size
        if size:
            with self._room:
                self.queued += size

    def has_room(self, size: int, seconds: float) -> bool:
        """Whether so many bytes more may wait, for which this waits for that long at most."""
        with self._room:
            return self._room.wait_for(lambda: not self.queued or self.queued + size <= MOST_QUEUED, seconds)

    def close(self, target: Log, written: bool = True) -> None:
        """Nothing more comes for a log; with `written` what came before is written first."""
        target.closed = target.closed or not written
        self._tasks.put(_Task(target, (), 0, None, last=True))

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
                self._do(group)

    def _do(self, group: list[_Task]) -> None:
        """What came for one log."""
        target, size = group[0].log, sum(task.size for task in group)
        failure = self._append(target, group)
        with self._room:
            self.queued -= size
            self._room.notify_all()
        for task in group:
            if task.done is not None:
                try:
                    task.done(failure)
                except Exception:  # all other sessions' answers wait for this thread
                    log.exception("an answer could not be given")
        if any(task.last for task in group):
            self._end(target)

    def _end(self, target: Log) -> None:
        target.closed = True
        target.backlog.clear()
        self.store.close(target.path)

    def _append(self, target: Log, tasks: Sequence[_Task]) -> Refusal | None:
        """Bring records to the disk; why that cannot be, if it cannot."""
        if target.closed:  # a snapshot has all of it, or the session is gone
            return None
        if target.before is not None:
            failure = self._append(target.before, ())
            if failure is not None:  # nothing may be written while something is missing before it
                target.failing = True
                _keep(target, tasks)
                return failure
            self.close(target.before)
            target.before = None
        if not (target.fresh or target.backlog or any(task.parts for task in tasks)):
            # Else what is missing would be there.
            target.failing = False
            return None
        try:
            parts = [*target.backlog, *(part for task in tasks for part in task.parts)]
            size = target.size + sum(map(len, parts))
            if target.fresh:
                self.store.create(target.path, beginning(START))
                target.fresh = False
            self.store.append(target.path, parts, target.size, (len(MAGIC), _flushed(size)), target.failing)
        except (OSError, MemoryError) as error:  # the thread outlives both: all sessions wait for it
            if not target.failing:
                log.error("log cannot be written", extra={"file": str(target.path), "error": str(error)})
            target.failing = True
            _keep(target, tasks)
            return _refusal(error if isinstance(error, OSError) else None)
        target.backlog.clear()
        target.size = size
        target.failing = False
        return None

    def check(self, target: Log) -> None:
        """Before a session computes: whether what it does can be written. Raises Refusal: UNAVAILABLE.

        What could not be written before is tried again, so that it may go well the next time.
        """
        if target.failing:
            self.put(target, (), None)
            raise _refusal()


def _keep(target: Log, tasks: Sequence[_Task]) -> None:
    """What was applied is to be written later; the rest is told to be lost, and comes again."""
    for task in tasks:
        if task.lasting:
            target.backlog.extend(task.parts)
        else:
            target.taken -= task.size


def _refusal(error: OSError | None = None) -> Refusal:
    why = f": {os.strerror(error.errno or 0)}" if error is not None else ""
    return Refusal("UNAVAILABLE", f"the server cannot write the session's log{why}; nothing is lost, try again")


def read(path: Path, store: LogStore | None = None) -> Iterator[tuple[pb.LogRecord, int]]:
    """A log's records, and where each ends; up to the first that is not whole, if nobody can have been told of that.

    Raises Refusal: SNAPSHOT_DAMAGED; OSError.
    """
    with (store or LOGS()).open(path) as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(0)
        flushed = _flushed_of(path, file.read(START))
        if size < flushed:
            raise damaged(path, f"it has {size} bytes, and {flushed} were flushed")
        end = START
        while True:
            body = _body(file, size)
            if body is None:
                if end < flushed:
                    raise damaged(path, f"the record at byte {end} is not what was written, and {flushed} were flushed")
                return
            end += _HEAD.size + len(body)
            try:
                record = pb.LogRecord.FromString(body)
            except DecodeError:
                raise damaged(path, f"what ends at byte {end} is no LogRecord") from None
            if record.WhichOneof("record") is None:
                raise damaged(path, f"the record that ends at byte {end} is none that this version of the server knows")
            yield record, end


def _flushed_of(path: Path, start: bytes) -> int:
    if len(start) < START or not start.startswith(MAGIC):
        raise damaged(path, "it does not begin as a log does")
    flushed: int = _FLUSHED.unpack_from(start, len(MAGIC))[0]
    if start != beginning(flushed):
        raise damaged(path, "its beginning is not what was written")
    return flushed


def _body(file: BinaryIO, size: int) -> bytes | None:
    """The next record's bytes; None if it is not whole, or there is none."""
    start = file.read(_HEAD.size)
    if len(start) < _HEAD.size:
        return None
    crc, length = _HEAD.unpack(start)
    if length > size - file.tell():
        return None
    body = file.read(length)
    if len(body) < length or zlib.crc32(body, zlib.crc32(start[_SIZE.size :])) != crc:
        return None
    return body


@dataclass(slots=True)
class Notes:
    """What a batch's record says besides its commands."""

    refusals: list[pb.LogRefusal] = field(default_factory=list)
    resumptions: list[pb.LogResumption] = field(default_factory=list)

    def resumed(self, applied: int, generator: bytes = b"") -> None:
        """The session computes, perhaps after others have; with a generator, for the second time."""
        self.resumptions.append(pb.LogResumption(after_seq=applied, node_seq=next_seq() + 1, generator=generator))

    def refused(self, session: Session, seq: int, refusal: Refusal) -> None:
        """A command was refused."""
        self.refusals.append(
            pb.LogRefusal(
                seq=seq, reason=refusal.reason, message=refusal.message, metadata=refusal.metadata,
                root_seq=refusal.root_seq, generator=session.recording.generator.get_state(), next_id=session.next_id,
                applied=refusal.applied,
            )
        )  # fmt: skip
        if seq:  # of a batch, whose next commands come after what nodes this one made
            self.resumed(seq)

    def take(self, session: Session, record: pb.LogRecord) -> None:
        """Give a record what was noted, and how the session stands after it."""
        record.refusals.extend(self.refusals)
        record.resumptions.extend(self.resumptions)
        record.outcome.CopyFrom(outcome(session))
        self.clear()

    def clear(self) -> None:
        """Forget what was noted."""
        self.refusals.clear()
        self.resumptions.clear()


def outcome(session: Session) -> pb.LogOutcome:
    """What is to be the same when what was applied is applied again."""
    applied = sum([writer.applied for writer in session.writers.values()])
    return pb.LogOutcome(applied=applied, tensors=len(session.store), next_id=session.next_id)
