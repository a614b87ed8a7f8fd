"""The write-ahead log: records applied commands between two snapshots, before their answers, for replay after a crash.

One thread per worker writes the logs of all its sessions. Records that arrive while it waits for the disk are written
together, with one flush for each session's file. A batch is written as received, after it was applied, with what its
commands do not show: which were refused, and the node numbers.

A file begins with the number of its flushed bytes, which may have been acknowledged. That number is written after each
flush and is on disk with the next flush at the latest. An incomplete record after that offset is a write that a crash
interrupted, and ends the log. An incomplete record before that offset is damage.

Where servers share a directory, each write is followed by a look at the session's owner (ownership.py). What another
server has taken over is not answered.
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
from gradwire_server.common.errors import Refusal
from gradwire_server.common.protobuf_peek import bytes_field
from gradwire_server.storage.configured import LOGS
from gradwire_server.storage.ownership import claim_of
from gradwire_server.storage.snapshot_files import LOG, damaged
from gradwire_server.storage.stores import LogStore

if TYPE_CHECKING:
    from gradwire_server.session.session import Session
    from gradwire_server.session.state.durability import CommandState, Received

MAGIC = b"GWLOG02\n"
_FLUSHED = struct.Struct("<QI")  # flushed bytes, and the CRC-32 of that number
START = len(MAGIC) + _FLUSHED.size  # where the records begin
_HEAD = struct.Struct("<II")
_SIZE = struct.Struct("<I")
#: Prefix of transfer ids for bytes of loaded files, which no client uploaded.
LOADED = "file:"
#: Queued bytes above which uploads and loaded files wait.
MOST_QUEUED = 16 << 20
#: Called with None when a record is on disk, or with the refusal if it cannot be written.
Done: TypeAlias = Callable[[Refusal | None], None]
Parts: TypeAlias = Sequence[bytes]

log = logging.getLogger("gradwire.server")


class Log:
    """A session's log file. Records that could not be written are kept and written before the next one."""

    def __init__(self, path: Path, size: int = START, exists: bool = False) -> None:
        self.path = path
        self.size = size  # flushed bytes
        self.taken = size  # flushed and queued bytes
        self.backlog: list[bytes] = []
        self.fresh = size == START and not exists  # must be created, even without a record
        self.failing = False
        self.closed = False
        self.before: Log | None = None  # the previous generation's log, until it is completely written
        self.claim = claim_of(path.parent)  # None if no other server can own the session
        self.moved: Refusal | None = None  # set when another server owns it: nothing more is written or answered


@dataclass(slots=True)
class _Task:
    log: Log
    parts: Parts
    size: int
    done: Done | None
    last: bool = False
    lasting: bool = True  # retry a failed write: the record's call was applied


def log_path(location: Path, generation: int) -> Path:
    """Path of a session's log of a generation."""
    return location / f"{generation}{LOG}"


def packed(record: pb.LogRecord, batch: bytes = b"") -> Parts:
    """Serialize a record, in parts. A given `batch` is not copied and must not be in the record."""
    rest = record.SerializeToString()
    body = [bytes_field(pb.LogRecord.BATCH_FIELD_NUMBER, len(batch)), batch, rest] if batch else [rest]
    length = _SIZE.pack(sum(map(len, body)))
    crc = zlib.crc32(length)
    for part in body:
        crc = zlib.crc32(part, crc)
    return (_SIZE.pack(crc) + length, *body)


def beginning(flushed: int) -> bytes:
    """A log file's first START bytes."""
    return MAGIC + _flushed(flushed)


def _flushed(size: int) -> bytes:
    raw = struct.pack("<Q", size)
    return _FLUSHED.pack(size, zlib.crc32(raw))


class WriteAheadLog:
    """Writes logs in its own thread. `queued` counts the bytes that wait for the disk."""

    def __init__(self, store: LogStore | None = None) -> None:
        """Use the log store of configured.py by default."""
        self.store = store or LOGS()
        self.queued = 0
        self._room = threading.Condition()
        self._tasks: queue.SimpleQueue[_Task | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="gradwire-log", daemon=True)
        self._thread.start()

    def put(self, target: Log, parts: Parts, done: Done | None, lasting: bool = True) -> None:
        """Write a record after all earlier ones. With empty `parts`, `done` is called when those are written.

        A failed write is retried if the record is `lasting`; other records belong to calls that were not applied yet.
        """
        size = sum(map(len, parts))
        self._tasks.put(_Task(target, parts, size, done, lasting=lasting))
        target.taken += size
        if size:
            with self._room:
                self.queued += size

    def has_room(self, size: int, seconds: float) -> bool:
        """Whether the queue has room for `size` more bytes; wait for it up to `seconds`."""
        with self._room:
            return self._room.wait_for(lambda: not self.queued or self.queued + size <= MOST_QUEUED, seconds)

    def close(self, target: Log, written: bool = True) -> None:
        """Close a log; with `written`, after its queued records were written."""
        target.closed = target.closed or not written
        self._tasks.put(_Task(target, (), 0, None, last=True))

    def stop(self, timeout: float) -> None:
        """End after the queued records, within `timeout` seconds."""
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
        """Write the queued records of one log and call their `done`."""
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
                    log.exception("an answer could not be sent")
        if any(task.last for task in group):
            self._end(target)

    def _end(self, target: Log) -> None:
        target.closed = True
        target.backlog.clear()
        self.store.close(target.path)

    def _append(self, target: Log, tasks: Sequence[_Task]) -> Refusal | None:
        """Write and flush records; return the refusal if that fails, or if another server owns the session."""
        if target.closed:  # a snapshot contains everything, or the session has ended
            return None
        failure = target.moved or self._written(target, tasks)
        if target.claim is None or target.moved is not None:
            return failure
        try:
            target.moved = target.claim.lost()
        except OSError as error:
            return failure or _refusal(error)
        if target.moved is None:
            return failure
        log.warning("another server owns the session", extra={"file": str(target.path), "why": target.moved.message})
        return target.moved

    def _written(self, target: Log, tasks: Sequence[_Task]) -> Refusal | None:
        if target.before is not None:
            failure = self._append(target.before, ())
            if failure is not None:  # nothing may be written after a missing record
                target.failing = True
                _keep(target, tasks)
                return failure
            self.close(target.before)
            target.before = None
        if not (target.fresh or target.backlog or any(task.parts for task in tasks)):
            # Nothing is missing: failed records would be in the backlog.
            target.failing = False
            return None
        try:
            parts = [*target.backlog, *(part for task in tasks for part in task.parts)]
            size = target.size + sum(map(len, parts))
            if target.fresh:
                self.store.create(target.path, beginning(START))
                target.fresh = False
            self.store.append(target.path, parts, target.size, (len(MAGIC), _flushed(size)), target.failing)
        except (OSError, MemoryError) as error:  # must not end the thread, on which all sessions depend
            if not target.failing and not _is_lost(target):
                log.error("log cannot be written", extra={"file": str(target.path), "error": str(error)})
            target.failing = True
            _keep(target, tasks)
            return _refusal(error if isinstance(error, OSError) else None)
        target.backlog.clear()
        target.size = size
        target.failing = False
        return None

    def check(self, target: Log) -> None:
        """Check, before a session computes, that its log can be written. Raises Refusal: UNAVAILABLE.

        A failing log is retried in the background, so a later check may succeed. Raises SESSION_MOVED, if another
        server is known to own the session.
        """
        if target.moved is not None:
            raise target.moved.copy()
        if target.failing:
            self.put(target, (), None)
            raise _refusal()


def _is_lost(target: Log) -> bool:
    """Whether another server has taken the session over, and with it the log. False if that cannot be seen now."""
    try:
        return target.claim is not None and target.claim.lost() is not None
    except OSError:  # the storage is away, which is then told
        return False


def _keep(target: Log, tasks: Sequence[_Task]) -> None:
    """Keep the records of applied calls for a later write; drop the others, whose callers get the failure."""
    for task in tasks:
        if task.lasting:
            target.backlog.extend(task.parts)
        else:
            target.taken -= task.size


def _refusal(error: OSError | None = None) -> Refusal:
    why = f": {os.strerror(error.errno or 0)}" if error is not None else ""
    return Refusal("UNAVAILABLE", f"the server cannot write the session's log{why}; nothing is lost, try again")


def read(path: Path, store: LogStore | None = None) -> Iterator[tuple[pb.LogRecord, int]]:
    """Yield a log's records and the offset where each ends, up to the first incomplete record after the flushed bytes.

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
                    raise damaged(path, f"the record at byte {end} has changed, and {flushed} were flushed")
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
        raise damaged(path, "its beginning has changed")
    return flushed


def _body(file: BinaryIO, size: int) -> bytes | None:
    """Read the next record's bytes; None if the record is incomplete or there is none."""
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
    """What a batch's record contains besides its commands: refusals, resumptions and values of collectives."""

    refusals: list[pb.LogRefusal] = field(default_factory=list)
    resumptions: list[pb.LogResumption] = field(default_factory=list)
    drawn: int | None = None  # the generator's count of draws at the last refusal
    values: list[Received] = field(default_factory=list)
    received_bytes: int = 0  # size of `values`

    def retried(self, session: CommandState, seq: int) -> None:
        """Note that a command is tried a second time: a replay begins where the second try did. seq: 0 if unary."""
        self._resumed(session, max(seq - 1, 0), session.grad_context.generator.get_state())

    def refused(self, session: CommandState, seq: int, refusal: Refusal) -> None:
        """Note a refused command. The generator's state, of 5 KB, is noted again only after draws."""
        generator = session.grad_context.generator
        state = b"" if generator.draws == self.drawn else generator.get_state()
        self.drawn = generator.draws
        self.refusals.append(
            pb.LogRefusal(
                seq=seq, reason=refusal.reason, message=refusal.message, metadata=refusal.metadata,
                root_seq=refusal.root_seq, generator=state,
                next_id=session.next_id, applied=refusal.applied, began=refusal.began,
            )
        )  # fmt: skip
        if not refusal.applied:  # a replay does not try it, so it makes none of its nodes
            self._resumed(session, seq)

    def _resumed(self, session: CommandState, after_seq: int, generator: bytes = b"") -> None:
        number = session.grad_context.nodes.next
        self.resumptions.append(pb.LogResumption(after_seq=after_seq, node_seq=number, generator=generator))

    def received(self, what: Received) -> None:
        """Note what a collective gave, which a replay cannot compute."""
        self.values.append(what)
        self.received_bytes += len(what.values or b"")

    def take(self, session: Session, record: pb.LogRecord) -> None:
        """Add the notes and the session's outcome to a record, and clear the notes."""
        record.refusals.extend(self.refusals)
        record.resumptions.extend(self.resumptions)
        for each in self.values:
            values = None if each.values is None else bytes(each.values)
            record.received.append(pb.LogReceived(values=values, peer=each.peer))
        record.outcome.CopyFrom(outcome(session))
        self.clear()

    def clear(self) -> None:
        """Forget the notes."""
        self.refusals.clear()
        self.resumptions.clear()
        self.drawn = None
        self.values.clear()
        self.received_bytes = 0


def outcome(session: Session) -> pb.LogOutcome:
    """Counts that must be equal after a replay."""
    applied = sum([writer.applied for writer in session.writers.values()])
    return pb.LogOutcome(applied=applied, tensors=len(session.store), next_id=session.next_id)
