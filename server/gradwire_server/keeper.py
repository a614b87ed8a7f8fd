"""The keeper: what a worker does to store its sessions and to take them up again.

Saving is a call in the session's line. The compute thread describes the session and hands its tensors' bytes to the
system, a piece per slice, so that other sessions compute in between; the session itself then goes on, while a thread of
the keeper's waits for the disk. The answer is sent when the snapshot would survive a crash. With a log, so is every
other answer of the session.
"""

from __future__ import annotations

import base64
import contextlib
import json
import logging
import os
import queue
import secrets
import threading
import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gradwire.v1 import commands_pb2, service_pb2
from gradwire.v1 import snapshots_pb2 as pb
from gradwire_server import __version__, vault
from gradwire_server.batch import run_unary
from gradwire_server.errors import Refusal, refusal_of
from gradwire_server.freezing import Freezer
from gradwire_server.journal import START, Journal, Log, Notes, Parts, packed
from gradwire_server.replay import Replay
from gradwire_server.session import Pending, Session
from gradwire_server.specs import fill_spec
from gradwire_server.thawing import Thawer, reserve
from gradwire_server.transfers import Upload
from gradwire_server.vault import LOG, RUNNING, SESSION, Writing

if TYPE_CHECKING:
    from gradwire_server.filing import Loaded
    from gradwire_server.host import Host

_UPLOAD_PART = 1 << 20
_WAIT_SECONDS = 0.001  # for room in the log's queue, before others have their turn
_INLINE = 1 << 10  # bytes that any server takes within a message
_LOG_FACTOR = 4  # times the last snapshot's bytes that a log may have before another is made
_LEAST_LOG = 64 << 20
_UNLOGGED = ("Tidy", "BeginUpload", "Describe")  # they change nothing that outlives the server
_BYTES = ("head", "request", "home_head")
Steps = Generator[None, None, bytes]

log = logging.getLogger("gradwire.server")


@dataclass
class Order:
    """What the front tells of a session, or of a snapshot, that is to be stored or was."""

    folder: str = ""  # where from or to, if not the session's own
    head: bytes = b""  # a SnapshotHead without what only the worker knows
    room: int | None = None  # bytes that the principal has left
    request: bytes = b""  # the client's
    last: bool = False  # whether the session ends here
    place: int = 0  # of the principal in the ledger
    owner: int = 0  # a number that stands for the principal
    home: str = ""  # the session's own folder, and its head
    home_head: bytes = b""

    def pack(self) -> bytes:
        """As bytes."""
        told = dict(self.__dict__)
        for name in _BYTES:
            told[name] = base64.b64encode(told[name]).decode()
        return json.dumps(told).encode()

    @staticmethod
    def unpack(raw: bytes) -> Order:
        """Of bytes."""
        told: dict[str, Any] = json.loads(raw)
        for name in _BYTES:
            told[name] = base64.b64decode(told[name])
        return Order(**told)


@dataclass
class Kept:
    """Where a session is stored, and how far."""

    folder: Path
    head: bytes
    generation: int = 0
    mark: Any = None  # what the last snapshot had seen
    bytes: int = 0  # the last snapshot's
    log: Log | None = None
    notes: Notes = field(default_factory=Notes)
    saving: bool = False
    # How often it was about to compute, and whether the files say that it does no more.
    uses: int = 0
    stopped: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)

    def use(self) -> None:
        """It is about to compute what no file knows of. Raises Refusal: STORAGE where that cannot be noted."""
        if self.log is not None:
            return
        with self.lock:
            self.uses += 1
            if self.stopped:
                try:
                    (self.folder / RUNNING).touch(0o600)
                    vault.sync_folder(self.folder)
                except OSError as error:
                    log.error("session cannot go on", extra={"file": str(self.folder), "error": str(error)})
                    raise vault.storage_refusal(error) from None
                self.stopped = False

    def stop(self, uses: int) -> None:
        """The files know of all that was applied, unless it was used since. Raises OSError."""
        with self.lock:
            if self.uses == uses:
                self.stopped = True
                with contextlib.suppress(FileNotFoundError):
                    (self.folder / RUNNING).unlink()
                    vault.sync_folder(self.folder)


class Keeper:
    """Stores and restores sessions of one worker. `logs`: whether what is answered is written first."""

    def __init__(self, logs: bool = False) -> None:
        self.logs = logs
        self.journal = Journal() if logs else None
        self._tasks: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="gradwire-keeper", daemon=True)
        self._thread.start()

    def stop(self, timeout: float) -> None:
        """End when all that was begun is on disk."""
        self._tasks.put(None)
        self._thread.join(timeout)
        if self.journal is not None:
            self.journal.stop(timeout)

    def _work(self) -> None:
        while (task := self._tasks.get()) is not None:
            try:
                task()
            except Exception:
                log.exception("keeper failed")

    # Sessions' lives.

    def begin(self, session: Session, order: Order) -> None:
        """A session begins that is to be stored in a folder of its own."""
        session.kept = Kept(Path(order.home), order.home_head)

    def forget(self, session: Session, keep: bool) -> None:
        """A session has ended; `keep` leaves its files."""
        kept, session.kept, session.notes = session.kept, None, None
        if kept is None:
            return
        if kept.log is not None and self.journal is not None:
            self.journal.close(kept.log, written=keep)
        if not keep:
            self._tasks.put(lambda: vault.remove(kept.folder))

    def opened(self, session: Session, call: Pending) -> Steps:
        """With a log, an opened session has a snapshot before anybody is told of it."""
        kept = session.kept
        if self.logs and kept is not None:
            yield from self._save(session, call, kept, kept.folder, kept.head, Order())
        return b""

    # Saving.

    def save(self, session: Session, call: Pending) -> Steps:
        """Store a session, for itself or under a name. Raises Refusal: NOT_SUPPORTED, STORAGE, SNAPSHOT_LIMIT."""
        order = Order.unpack(call.raw)
        if order.request:
            request = pb.SaveSessionRequest.FromString(order.request)
            if request.name:
                return (yield from self._save(session, call, None, Path(order.folder), order.head, order, request))
        kept = session.kept
        if kept is None:
            raise Refusal("NOT_SUPPORTED", "the server keeps no sessions: it has no --state-dir")
        if kept.generation and kept.mark == _mark(session):
            tensors, uses = len(session.store), kept.uses
            self._hold(call, lambda: self._unchanged(kept, tensors, uses if order.last else None))
            return b""
        if kept.saving and not order.request and not order.last:
            return b""  # the next time will do
        return (yield from self._save(session, call, kept, kept.folder, kept.head, order))

    @staticmethod
    def _unchanged(kept: Kept, tensors: int, uses: int | None) -> bytes:
        """On the keeper's thread, after the snapshots before: nothing was to be stored anew."""
        if kept.mark is None:
            raise Refusal("STORAGE", "the server cannot write its state directory")
        if uses is not None:
            kept.stop(uses)
        return _summary(kept.head, kept.bytes, tensors).SerializeToString()

    def _save(
        self,
        session: Session,
        call: Pending,
        kept: Kept | None,
        folder: Path,
        raw_head: bytes,
        order: Order,
        request: pb.SaveSessionRequest | None = None,
    ) -> Steps:
        """Store it in a folder; `kept` for a session's own."""
        mark = _mark(session)
        uses = kept.uses if kept is not None else 0
        head = pb.SnapshotHead.FromString(raw_head)
        if kept is not None and kept.log is not None:
            kept.bytes = max(kept.bytes, kept.log.taken)  # should this fail, it is tried again when the log has grown
        freezer = Freezer(session)
        yield from freezer.steps()
        self._fill(session, head, freezer, request)
        generation = 1 + max((0 if kept is None else kept.generation, *vault.generations(folder, SESSION)))
        writing = Writing(folder, generation, head, freezer.state)
        try:
            yield from writing.data(freezer.memories, order.room)
        except OSError as error:
            writing.abandon()
            log.error("session cannot be stored", extra={"file": str(folder), "error": str(error)})
            raise vault.storage_refusal(error) from None
        except BaseException:
            writing.abandon()
            raise
        if kept is not None:
            kept.saving, kept.generation, kept.mark = True, writing.generation, mark
            if self.logs:
                self._rotate(session, kept)
        self._hold(call, lambda: self._commit(session, kept, writing, mark, uses if order.last or self.logs else None))
        return b""

    def _fill(self, session: Session, head: pb.SnapshotHead, freezer: Freezer, request: Any) -> None:
        head.format, head.version = vault.FORMAT, __version__
        head.saved_unix_ms = int(time.time() * 1000)
        head.tensors, head.client_nodes = len(session.store), freezer.client_nodes
        head.memory_bytes = session.account.bytes
        if request is not None:
            for named in request.tensors:
                session.tensor(named.id)
            freezer.state.named.extend(request.tensors)

    def _rotate(self, session: Session, kept: Kept) -> None:
        """What comes from now on is in the next generation's log."""
        assert self.journal is not None
        old = kept.log
        kept.log = Log(kept.folder / f"{kept.generation}{LOG}")
        kept.log.before = old
        self.journal.put(kept.log, (), None)
        session.notes = kept.notes

    def _commit(self, session: Session, kept: Kept | None, writing: Writing, mark: Any, uses: int | None) -> bytes:
        """On the keeper's thread: bring a snapshot to the disk; `uses` where nothing but a log is to follow it."""
        try:
            if kept is not None and uses is None:
                (kept.folder / RUNNING).touch(0o600)
            size = writing.commit()
            if kept is not None:
                kept.bytes = size
                if uses is not None:
                    kept.stop(uses)
                for number, applied in mark[1]:
                    writer = session.writers.get(number)
                    if writer is not None:
                        writer.durable = max(writer.durable, applied)
        except OSError as error:
            writing.abandon()
            if kept is not None:
                kept.mark = None
            log.error("session cannot be stored", extra={"file": str(writing.folder), "error": str(error)})
            raise vault.storage_refusal(error) from None
        finally:
            if kept is not None:
                kept.saving = False
        return _summary(writing.head.SerializeToString(), size, writing.head.tensors).SerializeToString()

    def _hold(self, call: Pending, task: Callable[[], bytes | None]) -> None:
        """Answer a call when a task of the keeper's thread is done."""

        def hold(answer: Callable[[bytes, Exception | None], None], result: bytes) -> None:
            def run() -> None:
                try:
                    made = task()
                except Exception as error:  # noqa: BLE001 - handed to whoever waits
                    answer(b"", refusal_of(error, call.method))
                else:
                    answer(result if made is None else made, None)

            self._tasks.put(run)

        call.hold = hold

    # The log.

    def check(self, session: Session) -> None:
        """Before a call: whether what it does can be logged. Raises Refusal: UNAVAILABLE."""
        kept = session.kept
        if kept is not None and kept.log is not None and kept.log.failing and self.journal is not None:
            self.journal.check(kept.log)

    def unary(self, call: Pending) -> Generator[None, None, bytes]:
        """Apply a command that came alone, and let its answer wait until the log has it. Yields in pauses.

        Raises Refusal.

        One that is refused is logged if it used anything up, or was applied and cannot be answered.
        """
        session = call.session
        before = session.recording.generator.get_state(), session.next_id
        try:
            answer = yield from run_unary(call)
        except Refusal as refusal:
            session.torn = True
            if refusal.applied or before != (session.recording.generator.get_state(), session.next_id):
                assert session.notes is not None
                session.notes.refused(session, 0, refusal)
                self._record_refused(session, call)
            session.torn = False
            raise
        session.torn = True
        self.record(session, call)
        session.torn = False
        return answer

    def record(self, session: Session, call: Pending) -> None:
        """A call was applied: let its answer wait until the log has it."""
        kept = session.kept
        if kept is None or kept.log is None or call.hold is not None:
            return
        batch, record = b"", pb.LogRecord()
        if call.method == "Run":
            batch = call.raw
        elif call.method == "FinishDownload":
            record.finished_download = call.raw[1:].decode()
        elif call.method == "Attach":
            record.writer = int.from_bytes(call.raw, "little")
        elif call.method not in _UNLOGGED:
            record.call.method, record.call.request = call.method, call.raw
        logged = batch or record.WhichOneof("record")
        kept.notes.take(session, record)
        self._put(call, kept.log, packed(record, batch) if logged else ())

    def _record_refused(self, session: Session, call: Pending) -> None:
        """A unary call was refused; its answer, which acknowledges nothing, does not wait."""
        kept = session.kept
        if kept is not None and kept.log is not None and self.journal is not None:
            record = pb.LogRecord(call=pb.LogCall(method=call.method, request=call.raw))
            kept.notes.take(session, record)
            self.journal.put(kept.log, packed(record), None)

    def _put(self, call: Pending, target: Log, parts: Parts) -> None:
        """Write a record, and let the answer wait until it is on disk with all before it."""
        journal = self.journal
        assert journal is not None

        def hold(answer: Callable[[bytes, Exception | None], None], result: bytes) -> None:
            journal.put(
                target, parts, lambda failure: answer(result, None) if failure is None else answer(b"", failure)
            )

        call.hold = hold

    def give_up(self, call: Pending) -> bool:
        """What is in memory is ahead of the log, and stays so; whether there is a log to come back from.

        The call's answer waits until all that may have been acknowledged is on disk; nothing more is written then.
        """
        session, journal = call.session, self.journal
        kept = session.kept
        if kept is None or kept.log is None or journal is None:
            return False
        target = kept.log

        def hold(answer: Callable[[bytes, Exception | None], None], _: bytes) -> None:
            def written(_: Refusal | None) -> None:
                target.closed = True
                answer(b"", session.broken)

            journal.put(target, (), written)

        call.hold = hold
        return True

    # Bytes in the log.

    def keep_upload(self, call: Pending) -> Iterator[None]:
        """An upload was received: let its answer wait until the log has its bytes. Raises Refusal: UNAVAILABLE."""
        session = call.session
        self.check(session)
        kept, transfer_id = session.kept, call.raw.decode()
        held = session.transfers.held.get(transfer_id)
        if kept is None or kept.log is None or not isinstance(held, Upload) or held.received != held.total:
            return
        session.brake.begin(call.ticket, call.deadline)
        yield from self._put_bytes(session, kept.log, transfer_id, held.request_id, memoryview(held.buffer.data))
        self._put(call, kept.log, ())

    def keep_loaded(self, call: Pending, loaded: Loaded) -> Iterator[None]:
        """Leaves are made of a file, which may be another by the time the log is read: let it have their bytes.

        Raises Refusal: UNAVAILABLE, CANCELLED; nothing has an id yet.
        """
        kept = call.session.kept
        assert kept is not None
        assert kept.log is not None
        for number, (creation, data) in enumerate(zip(loaded.creations, loaded.data, strict=True)):
            if len(data) <= _INLINE:
                creation.payload.data = bytes(data)
                continue
            described = creation.payload
            transfer = commands_pb2.Transfer(
                dtype=described.dtype, shape=described.shape, transfer_id=f"file-{call.ticket}-{number}"
            )
            creation.transfer.CopyFrom(transfer)
            yield from self._put_bytes(call.session, kept.log, transfer.transfer_id, "", data)

    def record_load(self, call: Pending, loaded: Loaded) -> None:
        """The leaves have ids."""
        session = call.session
        kept, request_id = session.kept, loaded.request.request_id
        assert kept is not None
        assert kept.log is not None
        record = pb.LogRecord()
        record.load.creations.extend(creation.SerializeToString() for creation in loaded.creations)
        if request_id:
            method, digest, response = session.memory.held[request_id]
            record.load.answer.request_id, record.load.answer.method = request_id, method
            record.load.answer.request_digest, record.load.answer.response = digest, response
        kept.notes.take(session, record)
        self._put(call, kept.log, packed(record))

    def _put_bytes(
        self, session: Session, target: Log, transfer_id: str, request_id: str, data: memoryview
    ) -> Iterator[None]:
        """Copy bytes to the log, a part before each yield, no faster than it is written.

        Raises Refusal: UNAVAILABLE where it cannot be, CANCELLED, DEADLINE_EXCEEDED.
        """
        journal, failed = self.journal, list[Refusal]()
        assert journal is not None

        def done(failure: Refusal | None) -> None:
            if failure is not None:
                failed.append(failure)

        for start in range(0, max(1, len(data)), _UPLOAD_PART):
            while not journal.has_room(_UPLOAD_PART, _WAIT_SECONDS):
                if session.brake.stopping():
                    raise session.brake.refusal()
                yield
            if failed:
                raise failed[0]
            part = pb.LogUpload(
                transfer_id=transfer_id, request_id=request_id, total_bytes=len(data), offset=start,
                data=bytes(data[start : start + _UPLOAD_PART]),
            )  # fmt: skip
            journal.put(target, packed(pb.LogRecord(upload=part)), done, lasting=False)
            yield

    def wants_saving(self, session: Session) -> bool:
        """Whether a session's log has become long."""
        kept = session.kept
        if kept is None or kept.log is None or kept.saving:
            return False
        return kept.log.taken > max(_LEAST_LOG, _LOG_FACTOR * kept.bytes)

    @staticmethod
    def own_order() -> bytes:
        """The order to store a session where it is stored already."""
        return Order().pack()

    # Restoring.

    def restore(self, host: Host, session: Session, call: Pending) -> Steps:
        """Fill an empty session with what is stored. Raises Refusal: SNAPSHOT_DAMAGED, MEMORY_LIMIT and others."""
        order = Order.unpack(call.raw)
        source = Path(order.folder)
        request = pb.RestoreSessionRequest.FromString(order.request) if order.request else None
        generation = 0
        try:
            while True:
                found = vault.generations(source, SESSION)
                if not found:
                    raise Refusal("SNAPSHOT_NOT_FOUND", "nothing of it is stored any more")
                generation = found[-1]
                try:
                    head, state = vault.read_state(source, generation)
                    host.limit(session)
                    session.account.admit(head.memory_bytes)
                    memories = [reserve(each) for each in state.memories]
                    yield from vault.read_data(source, generation, state, memories)
                    break
                except (Refusal, FileNotFoundError):
                    if vault.generations(source, SESSION)[-1:] == [generation]:
                        raise  # else another has taken its place meanwhile
            yield from Thawer(session, state, memories).fill()
            answer = self._restored(session, state, head, request)
            if request is None:
                yield from self._take_up(session, generation)
        except OSError as error:
            raise Refusal("STORAGE", f"what is stored cannot be read: {os.strerror(error.errno or 0)}") from None
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            log.error("stored session is damaged", extra={"file": str(source), "error": repr(error)})
            raise Refusal("SNAPSHOT_DAMAGED", f"generation {generation} of {source.name} is damaged") from None
        answer.session.epoch = session.epoch
        answer.session.writer = max(session.writers, default=1)
        return answer.SerializeToString()

    def _restored(
        self,
        session: Session,
        state: pb.SessionState,
        head: pb.SnapshotHead,
        request: pb.RestoreSessionRequest | None,
    ) -> service_pb2.RestoreSessionResponse:
        answer = service_pb2.RestoreSessionResponse(client_nodes=head.client_nodes)
        if request is not None:
            # A session of its own, whose past nobody else has seen.
            session.epoch = _another(session.epoch)
            session.attach(max(session.writers, default=0) + 1)
            for named in state.named:
                tensor = session.store.get(named.id)
                if tensor is not None:
                    told = answer.tensors.add(name=named.name, has_grad=tensor.grad is not None)
                    fill_spec(told.spec, tensor, named.id)
            if request.named_only:
                wanted = {named.id for named in state.named}
                for tensor_id in [each for each in session.store if each not in wanted]:
                    session.release(tensor_id)
        return answer

    def _take_up(self, session: Session, generation: int) -> Steps:
        """Apply what the log has, and go on where it ends."""
        kept = session.kept
        assert kept is not None
        logs = [each for each in vault.generations(kept.folder, LOG) if each >= generation]
        end = START
        for number in logs:
            path = kept.folder / f"{number}{LOG}"
            end = yield from Replay(session).run(path)
            if path.stat().st_size > end:
                log.warning("log ends within a record", extra={"file": str(path), "bytes": path.stat().st_size - end})
                os.truncate(path, end)
        kept.generation = logs[-1] if logs else generation
        kept.mark = None
        running = (kept.folder / RUNNING).exists()
        if running and (len(session.writers) > 1 or session.alone):
            # Something may have been applied that no file knows of, and numbers do not tell of what.
            session.epoch = _another(session.epoch)
        if self.logs:
            kept.log = Log(kept.folder / f"{kept.generation}{LOG}", end)
            session.notes = kept.notes
        else:
            (kept.folder / RUNNING).touch(0o600)
            vault.sync_folder(kept.folder)
        return b""


def _mark(session: Session) -> Any:
    """What differs when something was applied."""
    writers = tuple((writer.number, writer.applied) for writer in session.writers.values())
    return session.alone, writers, len(session.transfers.held)


def _another(epoch: int) -> int:
    """An epoch that nobody has seen."""
    return epoch + 1 + secrets.randbelow(1 << 20)


def _summary(head: bytes, size: int, tensors: int) -> pb.SaveSessionResponse:
    told = pb.SnapshotHead.FromString(head)
    return pb.SaveSessionResponse(
        snapshot=pb.SnapshotSummary(
            name=told.name, bytes=size, tensors=tensors, saved_unix_ms=told.saved_unix_ms, ttl_left_ms=told.ttl_ms,
            client_nodes=told.client_nodes,
        )
    )  # fmt: skip
