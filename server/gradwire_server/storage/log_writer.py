"""The log writer: what a worker writes to the logs of its sessions, and which answers wait for that.

A call is applied and then written; its answer is sent when that would survive a crash. Where memory is so short that
what was applied cannot be written, the session goes back to what is written (`give_up`). Bytes of uploads and files,
which can wait, are copied to the log's queue no faster than it is written.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING

from gradwire.v1 import commands_pb2
from gradwire.v1 import snapshots_pb2 as pb
from gradwire_server.common.errors import Refusal
from gradwire_server.session.batch import run_unary
from gradwire_server.session.session import Answered, Pending, Session
from gradwire_server.session.transfers import Upload
from gradwire_server.storage.kept import kept_of
from gradwire_server.storage.stores import LogStore
from gradwire_server.storage.write_ahead_log import LOADED, Log, Parts, WriteAheadLog, packed

if TYPE_CHECKING:
    from gradwire_server.storage.tensor_files import Loaded

_UPLOAD_PART = 1 << 20
_WAIT_SECONDS = 0.001  # for room in the log's queue, before others have their turn
_INLINE = 1 << 10  # bytes that any server takes within a message
_UNLOGGED = ("Tidy", "BeginUpload", "Describe")  # they change nothing that outlives the server


class LogWriter:
    """Writes what is applied to sessions that have a log."""

    def __init__(self, store: LogStore) -> None:
        self.journal = WriteAheadLog(store)

    def check(self, session: Session) -> None:
        """Before a call: whether what it does can be logged. Raises Refusal: UNAVAILABLE."""
        kept = kept_of(session)
        if kept is not None and kept.log is not None and kept.log.failing:
            self.journal.check(kept.log)

    def unary(self, call: Pending) -> Generator[None, None, bytes]:
        """Apply a command that came alone, and let its answer wait until the log has it. Yields in pauses.

        Raises Refusal.

        One that is refused is logged if it used anything up, or was applied and cannot be answered.
        """
        session, kept = call.session, kept_of(call.session)
        assert kept is not None
        notes = kept.notes
        before = session.recording.generator.get_state(), session.next_id
        notes.resumed(0)
        try:
            answer = yield from run_unary(call)
        except Refusal as refusal:
            session.torn = True
            if refusal.applied or before != (session.recording.generator.get_state(), session.next_id):
                notes.refused(session, 0, refusal)
                self._record_refused(session, call)
            session.torn = False
            notes.clear()
            raise
        except BaseException:
            notes.clear()
            raise
        session.torn = True
        self.record(session, call)
        session.torn = False
        return answer

    def record(self, session: Session, call: Pending) -> None:
        """A call was applied: let its answer wait until the log has it."""
        kept = kept_of(session)
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
        kept = kept_of(session)
        if kept is not None and kept.log is not None:
            record = pb.LogRecord(call=pb.LogCall(method=call.method, request=call.raw))
            kept.notes.take(session, record)
            self.journal.put(kept.log, packed(record), None)

    def _put(self, call: Pending, target: Log, parts: Parts) -> None:
        """Write a record, and let the answer wait until it is on disk with all before it."""
        journal = self.journal

        def hold(answer: Answered, result: bytes) -> None:
            journal.put(
                target, parts, lambda failure: answer(result, None) if failure is None else answer(b"", failure)
            )

        call.hold = hold

    def give_up(self, call: Pending) -> bool:
        """What is in memory is ahead of the log, and stays so; whether there is a log to come back from.

        The call's answer waits until all that may have been acknowledged is on disk; nothing more is written then.
        """
        session, journal = call.session, self.journal
        kept = kept_of(session)
        if kept is None or kept.log is None:
            return False
        target = kept.log

        def hold(answer: Answered, _: bytes) -> None:
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
        kept, transfer_id = kept_of(session), call.raw.decode()
        held = session.transfers.held.get(transfer_id)
        if kept is None or kept.log is None or not isinstance(held, Upload) or held.received != held.total:
            return
        session.cancel_token.begin(call.ticket, call.deadline)
        failed: list[Refusal] = []
        data = memoryview(held.buffer.data)
        yield from self._put_bytes(session, kept.log, transfer_id, held.request_id, data, failed)
        yield from self._written(session, kept.log, failed)
        held.logged = True

    def keep_loaded(self, call: Pending, loaded: Loaded) -> Iterator[None]:
        """Leaves are made of a file, which may be another by the time the log is read: let it have their bytes.

        Raises Refusal: UNAVAILABLE, CANCELLED; nothing has an id yet.
        """
        kept = kept_of(call.session)
        assert kept is not None
        assert kept.log is not None
        inline, batch, failed = _UPLOAD_PART, secrets.token_hex(8), list[Refusal]()
        for number, (creation, data) in enumerate(zip(loaded.creations, loaded.data, strict=True)):
            if len(data) <= min(_INLINE, inline):
                creation.payload.data = bytes(data)
                inline -= len(data)
                continue
            described = creation.payload
            transfer = commands_pb2.Transfer(
                dtype=described.dtype, shape=described.shape, transfer_id=f"{LOADED}{batch}-{number}"
            )
            creation.transfer.CopyFrom(transfer)
            yield from self._put_bytes(call.session, kept.log, transfer.transfer_id, "", data, failed)
        if any(creation.HasField("transfer") for creation in loaded.creations):
            yield from self._written(call.session, kept.log, failed)

    def record_load(self, call: Pending, loaded: Loaded) -> None:
        """The leaves have ids."""
        session = call.session
        kept, request_id = kept_of(session), loaded.request.request_id
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
        self,
        session: Session,
        target: Log,
        transfer_id: str,
        request_id: str,
        data: memoryview,
        failed: list[Refusal],
    ) -> Iterator[None]:
        """Copy bytes to the log, a part before each yield, no faster than it is written; whether they are there
        `_written` tells. Raises Refusal: CANCELLED, DEADLINE_EXCEEDED."""

        def done(failure: Refusal | None) -> None:
            if failure is not None:
                failed.append(failure)

        for start in range(0, max(1, len(data)), _UPLOAD_PART):
            while not self.journal.has_room(_UPLOAD_PART, _WAIT_SECONDS):
                if session.cancel_token.stopping():
                    raise session.cancel_token.refusal()
                yield
            if failed:
                return
            part = pb.LogUpload(
                transfer_id=transfer_id, request_id=request_id, total_bytes=len(data), offset=start,
                data=bytes(data[start : start + _UPLOAD_PART]),
            )  # fmt: skip
            self.journal.put(target, packed(pb.LogRecord(upload=part)), done, lasting=False)
            yield

    def _written(self, session: Session, target: Log, failed: list[Refusal]) -> Iterator[None]:
        """Wait until all before is on disk. Raises Refusal: UNAVAILABLE, CANCELLED, DEADLINE_EXCEEDED."""
        written = threading.Event()

        def done(failure: Refusal | None) -> None:
            if failure is not None:
                failed.append(failure)
            written.set()

        self.journal.put(target, (), done)
        while not written.wait(_WAIT_SECONDS):
            if session.cancel_token.stopping():
                raise session.cancel_token.refusal()
            yield
        if failed:
            raise failed[0]
