"""The log writer: writes a worker's calls to its sessions' logs, and holds their answers until the records are on disk.

A call is applied, then logged; its answer is sent once the record survives a crash. If memory is too short to log what
was applied, the session is restored from its log (`discard_session`). Bytes of uploads and files enter the log's queue
no faster than the disk writes them.
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
from gradwire_server.session.commands import BY_METHOD
from gradwire_server.session.session import AnswerCallback, PendingCall, Session
from gradwire_server.session.state.transfers import Upload
from gradwire_server.storage.session_files import files_of
from gradwire_server.storage.stores import LogStore
from gradwire_server.storage.write_ahead_log import LOADED, Log, Parts, WriteAheadLog, packed

if TYPE_CHECKING:
    from gradwire_server.storage.tensor_files import LoadedTensors

_UPLOAD_PART = 1 << 20
_WAIT_SECONDS = 0.001  # wait for room in the log's queue, before other sessions have their turn
_INLINE = 1 << 10  # bytes that every server accepts inside a message
_UNLOGGED = ("Tidy", "BeginUpload")  # steps of a session's life that change nothing that outlives the server


def _is_logged(method: str) -> bool:
    command = BY_METHOD.get(method)
    return method not in _UNLOGGED if command is None else command.logged


class LogWriter:
    """Logs the calls of sessions that have a log."""

    def __init__(self, store: LogStore) -> None:
        self.wal = WriteAheadLog(store)

    def check(self, session: Session) -> None:
        """Check, before a call, that the session's log can be written. Raises Refusal: UNAVAILABLE, SESSION_MOVED."""
        files = files_of(session)
        if files is not None and files.log is not None and (files.log.failing or files.log.moved is not None):
            self.wal.check(files.log)

    def wait_for_room(self, session: Session) -> Iterator[None]:
        """Wait, before a call, until the disk has taken most of what is queued.

        One call's record may have a gigabyte of what collectives gave. A client sends its next calls meanwhile.
        """
        files = files_of(session)
        if files is None or files.log is None:
            return
        while not self.wal.has_room(0, _WAIT_SECONDS) and not session.cancel_token.closed:
            yield

    def unary(self, call: PendingCall) -> Generator[None, None, bytes]:
        """Apply a unary call's command and hold its answer until it is logged. Yields in pauses.

        A refused command is logged if it changed the random generator, the next id or the next node number, or if it
        was applied but cannot be answered. Its refusal waits for the disk as well. Raises Refusal if nothing changed.
        """
        session, files = call.session, files_of(call.session)
        assert files is not None
        notes = files.notes
        before = _counters(session)
        try:
            answer = yield from run_unary(call)
        except Refusal as refusal:
            session.durability.uncommitted = True
            if refusal.applied or refusal.began or before != _counters(session):
                notes.refused(session, 0, refusal)
                self._record_refused(session, call, refusal)
            session.durability.uncommitted = False
            notes.clear()
            if call.hold is None:
                raise
            return b""
        except BaseException:
            notes.clear()
            raise
        session.durability.uncommitted = True
        self.record(session, call)
        session.durability.uncommitted = False
        return answer

    def hold(self, call: PendingCall, refusal: Refusal) -> bool:
        """Hold a refusal until it is known that no other server owns the session; whether that is needed.

        The state that caused the refusal may be older than the new owner's.
        """
        files = files_of(call.session)
        if files is None or files.log is None or files.log.claim is None or call.hold is not None:
            return False
        if files.log.moved is not None or call.session.cancel_token.closed:
            return False
        refusal.__traceback__ = refusal.__context__ = None  # the frames hold the call, which holds the refusal
        self._put(call, files.log, (), refusal)
        return True

    def record(self, session: Session, call: PendingCall) -> None:
        """Log an applied call and hold its answer until the record is on disk."""
        files = files_of(session)
        if files is None or files.log is None or call.hold is not None:
            return
        batch, record = b"", pb.LogRecord()
        if call.method == "Run":
            batch = call.raw
        elif call.method == "FinishDownload":
            record.finished_download = call.raw[1:].decode()
        elif call.method == "Attach":
            record.writer = int.from_bytes(call.raw, "little")
        elif _is_logged(call.method):
            record.call.method, record.call.request = call.method, call.raw
        logged = batch or record.WhichOneof("record")
        files.notes.take(session, record)
        self._put(call, files.log, packed(record, batch) if logged else ())

    def _record_refused(self, session: Session, call: PendingCall, refusal: Refusal) -> None:
        """Log a refused unary call and hold its refusal until the record is on disk."""
        files = files_of(session)
        if files is None or files.log is None:
            return
        record = pb.LogRecord(call=pb.LogCall(method=call.method, request=call.raw))
        files.notes.take(session, record)
        refusal.__traceback__ = refusal.__context__ = None  # the frames hold the call, which holds the refusal
        self._put(call, files.log, packed(record), refusal)

    def _put(self, call: PendingCall, target: Log, parts: Parts, refusal: Refusal | None = None) -> None:
        """Write a record, and hold the call's answer or refusal until it and all earlier records are on disk."""
        wal = self.wal

        def hold(answer: AnswerCallback, result: bytes) -> None:
            def written(failure: Refusal | None) -> None:
                failed = failure or refusal
                answer(result if failed is None else b"", failed)

            wal.put(target, parts, written)

        call.hold = hold

    def discard_session(self, call: PendingCall) -> bool:
        """Give up a session whose memory is ahead of its log; return whether there is a log to restore it from.

        The call's answer waits until everything that may have been acknowledged is on disk. Then the log is closed.
        """
        session, wal = call.session, self.wal
        files = files_of(session)
        if files is None or files.log is None:
            return False
        target = files.log

        def hold(answer: AnswerCallback, _: bytes) -> None:
            def written(_: Refusal | None) -> None:
                target.closed = True
                answer(b"", session.durability.broken)

            wal.put(target, (), written)

        call.hold = hold
        return True

    # Bytes in the log.

    def keep_upload(self, call: PendingCall) -> Iterator[None]:
        """Log a complete upload's bytes, and wait until they are on disk. Raises Refusal: UNAVAILABLE."""
        session = call.session
        self.check(session)
        files, transfer_id = files_of(session), call.raw.decode()
        held = session.transfers.held.get(transfer_id)
        if files is None or files.log is None or not isinstance(held, Upload) or held.received != held.total:
            return
        session.cancel_token.begin_call(call.ticket, call.deadline)
        failed: list[Refusal] = []
        data = memoryview(held.buffer.data)
        yield from self._put_bytes(session, files.log, transfer_id, held.request_id, data, failed)
        yield from self._written(session, files.log, failed)
        held.logged = True

    def keep_loaded(self, call: PendingCall, loaded: LoadedTensors) -> Iterator[None]:
        """Log the bytes of leaves loaded from a file, since the file may change before a replay.

        Runs before the leaves have ids. Raises Refusal: UNAVAILABLE, CANCELLED.
        """
        files = files_of(call.session)
        assert files is not None
        assert files.log is not None
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
            yield from self._put_bytes(call.session, files.log, transfer.transfer_id, "", data, failed)
        if any(creation.HasField("transfer") for creation in loaded.creations):
            yield from self._written(call.session, files.log, failed)

    def record_load(self, call: PendingCall, loaded: LoadedTensors) -> None:
        """Log the creation of loaded leaves, after they were given ids."""
        session = call.session
        files, request_id = files_of(session), loaded.request.request_id
        assert files is not None
        assert files.log is not None
        record = pb.LogRecord()
        record.load.creations.extend(creation.SerializeToString() for creation in loaded.creations)
        if request_id:
            method, digest, response = session.response_cache.held[request_id]
            record.load.answer.request_id, record.load.answer.method = request_id, method
            record.load.answer.request_digest, record.load.answer.response = digest, response
        files.notes.take(session, record)
        self._put(call, files.log, packed(record))

    def _put_bytes(
        self,
        session: Session,
        target: Log,
        transfer_id: str,
        request_id: str,
        data: memoryview,
        failed: list[Refusal],
    ) -> Iterator[None]:
        """Queue bytes for the log, one part before each yield, no faster than the log is written.

        `_written` waits for the disk. Raises Refusal: CANCELLED, DEADLINE_EXCEEDED.
        """

        def done(failure: Refusal | None) -> None:
            if failure is not None:
                failed.append(failure)

        for start in range(0, max(1, len(data)), _UPLOAD_PART):
            while not self.wal.has_room(_UPLOAD_PART, _WAIT_SECONDS):
                if session.cancel_token.stopping():
                    raise session.cancel_token.refusal()
                yield
            if failed:
                return
            part = pb.LogUpload(
                transfer_id=transfer_id, request_id=request_id, total_bytes=len(data), offset=start,
                data=bytes(data[start : start + _UPLOAD_PART]),
            )  # fmt: skip
            self.wal.put(target, packed(pb.LogRecord(upload=part)), done, lasting=False)
            yield

    def _written(self, session: Session, target: Log, failed: list[Refusal]) -> Iterator[None]:
        """Wait until all earlier records are on disk. Raises Refusal: UNAVAILABLE, CANCELLED, DEADLINE_EXCEEDED."""
        written = threading.Event()

        def done(failure: Refusal | None) -> None:
            if failure is not None:
                failed.append(failure)
            written.set()

        self.wal.put(target, (), done)
        while not written.wait(_WAIT_SECONDS):
            if session.cancel_token.stopping():
                raise session.cancel_token.refusal()
            yield
        if failed:
            raise failed[0]


def _counters(session: Session) -> tuple[int, int, int]:
    """What also a refused command may change: the random generator, the next id and the next node number."""
    context = session.grad_context
    return context.generator.draws, session.next_id, context.nodes.next
