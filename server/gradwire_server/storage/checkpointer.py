"""The checkpointer: stores and restores a worker's sessions.

Saving is a call in the session's queue. The compute thread encodes the session and writes its tensors' bytes, a piece
per slice, so other sessions compute in between. Then the session continues, while the checkpointer's thread waits for
the disk. The answer is sent once the snapshot survives a crash. With a write-ahead log, every other answer of the
session also waits until it survives a crash.

The compute thread waits for no store that may block: threads make its calls, and the session's call yields their
futures.
"""

from __future__ import annotations

import logging
import os
import queue
import secrets
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeout
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from gradwire.v1 import service_pb2
from gradwire.v1 import snapshots_pb2 as pb
from gradwire_server import __version__
from gradwire_server.common.errors import Refusal, refusal_of
from gradwire_server.common.futures import Steps, until_done
from gradwire_server.session.session import PendingCall, Session
from gradwire_server.session.specs import fill_spec
from gradwire_server.storage import snapshot_files
from gradwire_server.storage.configured import LOGS, snapshot_store
from gradwire_server.storage.instructions import StorageInstruction
from gradwire_server.storage.log_writer import LogWriter
from gradwire_server.storage.ownership import claim_of, remove_session
from gradwire_server.storage.replay import Replay
from gradwire_server.storage.session_files import SessionFiles, files_of
from gradwire_server.storage.snapshot_decoder import SnapshotDecoder, reserve
from gradwire_server.storage.snapshot_encoder import SnapshotEncoder
from gradwire_server.storage.stores import LogStore, SnapshotStore, SnapshotWriter
from gradwire_server.storage.write_ahead_log import START, Log, log_path

_LOG_SECONDS = 60.0  # timeout for creating a log
_LOG_FACTOR = 4  # a log of this many times the last snapshot's bytes causes a new snapshot
_LEAST_LOG = 64 << 20
_THREADS = 4  # calls of a store that may block, at once
P = ParamSpec("P")
T = TypeVar("T")

log = logging.getLogger("gradwire.server")


class Checkpointer:
    """Stores and restores sessions of one worker. `logs`: whether answers wait for a write-ahead log."""

    def __init__(
        self, logs: bool = False, snapshots: SnapshotStore | None = None, log_store: LogStore | None = None
    ) -> None:
        """Use the stores of configured.py by default."""
        self.logs = logs
        self.snapshots = snapshots or snapshot_store()
        self.log_store = log_store or LOGS()
        self.log_writer = LogWriter(self.log_store) if logs else None
        self._threads = (
            ThreadPoolExecutor(_THREADS, "gradwire-store") if self.snapshots.may_block else None
        )  # each thread starts when it is needed
        self._tasks: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="gradwire-checkpointer", daemon=True)
        self._thread.start()

    def stop(self, timeout: float) -> None:
        """End after the queued tasks, within `timeout` seconds."""
        self._tasks.put(None)
        self._thread.join(timeout)
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)
        if self.log_writer is not None:
            self.log_writer.wal.stop(timeout)

    def _work(self) -> None:
        while (task := self._tasks.get()) is not None:
            try:
                task()
            except Exception:
                log.exception("checkpointer failed")

    def _in_thread(self, function: Callable[P, T], *args: P.args, **named: P.kwargs) -> Steps[T]:
        """Call a store off the compute thread if it may block; yields until the call is over."""
        if self._threads is None:
            return function(*args, **named)
        return (yield from until_done(self._threads.submit(function, *args, **named)))

    # Sessions' lives.

    def begin(self, session: Session, instruction: StorageInstruction) -> None:
        """Begin a session that is stored in its own folder."""
        session.durability.files = SessionFiles(
            Path(instruction.home), instruction.home_head, self.snapshots, threads=self._threads
        )

    def forget(self, session: Session, keep: bool) -> None:
        """Forget a session that has ended; `keep` leaves its files."""
        files, session.durability.files, session.durability.log_notes = files_of(session), None, None
        if files is None:
            return
        if files.log is not None and self.log_writer is not None:
            self.log_writer.wal.close(files.log, written=keep)
        if not keep:
            self._tasks.put(lambda: remove_session(self.snapshots, files.folder))

    def opened(self, session: Session, call: PendingCall) -> Steps[bytes]:
        """With logs, store an opened session's first snapshot before its opening is answered."""
        files = files_of(session)
        if self.logs and files is not None:
            yield from self._save(session, call, files, files.folder, files.head, StorageInstruction())
        return b""

    # Saving.

    def save(self, session: Session, call: PendingCall) -> Steps[bytes]:
        """Store a session, for itself or under a name. Raises Refusal: NOT_SUPPORTED, STORAGE, SNAPSHOT_LIMIT."""
        instruction = StorageInstruction.unpack(call.raw)
        if instruction.request:
            request = pb.SaveSessionRequest.FromString(instruction.request)
            if request.name:
                return (
                    yield from self._save(
                        session, call, None, Path(instruction.folder), instruction.head, instruction, request
                    )
                )
        files = files_of(session)
        if files is None:
            raise Refusal("NOT_SUPPORTED", "the server keeps no sessions: it has no --state-dir")
        if files.generation and files.saved_progress == _progress(session):
            tensors, uses = len(session.store), files.uses
            self._answer_after(call, lambda: self._unchanged(files, tensors, uses if instruction.last else None))
            return b""
        if files.saving and not instruction.request and not instruction.last:
            return b""  # the next save stores it
        if instruction.last and not self.logs and (abandoned := session.hooks.abandon_all()):
            log.warning(
                "backwards that wait for their client are given up: the session ends here",
                extra={**session.command.log_fields(), "backwards": abandoned},
            )
        try:
            return (yield from self._save(session, call, files, files.folder, files.head, instruction))
        except Refusal as refusal:
            raise _moved(files.folder) or refusal from None

    @staticmethod
    def _unchanged(files: SessionFiles, tensors: int, uses: int | None) -> bytes:
        """Answer a save of an unchanged session. Runs on the checkpointer's thread, after earlier snapshots."""
        if files.saved_progress is None:
            raise Refusal("STORAGE", "the server cannot write its state directory")
        if uses is not None:
            files.stop(uses)
        return _summary(files.head, files.bytes, tensors).SerializeToString()

    def _save(
        self,
        session: Session,
        call: PendingCall,
        files: SessionFiles | None,
        folder: Path,
        raw_head: bytes,
        instruction: StorageInstruction,
        request: pb.SaveSessionRequest | None = None,
    ) -> Steps[bytes]:
        """Store a session in a folder; `files` is None for a named snapshot."""
        progress = _progress(session)
        uses = files.uses if files is not None else 0
        head = pb.SnapshotHead.FromString(raw_head)
        if files is not None and files.log is not None:
            files.bytes = max(
                files.bytes, files.log.taken
            )  # after a failure, the next save waits until the log has grown
        encoder = SnapshotEncoder(session)
        yield from encoder.steps()
        self._fill(session, head, encoder, request)
        base = folder.parent if files is not None else folder.parent.parent
        if files is not None and claim_of(folder) is not None:
            base = folder  # a location without its folder belongs to another server now
        writing: SnapshotWriter | None = None
        try:
            stored = yield from self._in_thread(self.snapshots.list, folder)
            generation = 1 + max((0 if files is None else files.generation, *stored))
            writing = yield from self._in_thread(self.snapshots.begin, folder, generation, head, encoder.state, base)
            yield from writing.data(encoder.memories, instruction.room)
        except OSError as error:
            self._abandon(writing)
            log.error("session cannot be stored", extra={"file": str(folder), "error": str(error)})
            raise snapshot_files.storage_refusal(error) from None
        except BaseException:
            self._abandon(writing)
            raise
        begun = None
        if files is not None:
            files.saving, files.generation, files.saved_progress = True, writing.generation, progress
            if self.logs:
                begun = self._rotate(session, files)
                head.logged = True
        durable_uses = uses if instruction.last or self.logs else None
        self._answer_after(call, lambda: self._commit(session, files, writing, progress, durable_uses, begun))
        return b""

    def _abandon(self, writing: SnapshotWriter | None) -> None:
        if writing is None:
            return
        if self._threads is None:
            writing.abandon()
        else:
            self._tasks.put(writing.abandon)

    def _fill(self, session: Session, head: pb.SnapshotHead, encoder: SnapshotEncoder, request: Any) -> None:
        head.format, head.version = snapshot_files.FORMAT, __version__
        head.saved_unix_ms = int(time.time() * 1000)
        head.tensors, head.client_nodes = len(session.store), encoder.client_nodes
        head.memory_bytes = session.account.bytes
        if request is not None:
            for named in request.tensors:
                session.tensor(named.id)
            encoder.state.named.extend(request.tensors)

    def _rotate(self, session: Session, files: SessionFiles) -> Future[Refusal | None]:
        """Switch to the next generation's log; the future is done when that log exists or failed."""
        assert self.log_writer is not None
        begun: Future[Refusal | None] = Future()
        old = files.log
        path = log_path(files.folder, files.generation)
        files.log = Log(path, exists=self.log_store.exists(path))
        files.log.before = old
        self.log_writer.wal.put(files.log, (), begun.set_result)
        session.durability.log_notes, session.transfers.logs = files.notes, True
        return begun

    def _commit(
        self,
        session: Session,
        files: SessionFiles | None,
        writing: SnapshotWriter,
        progress: Any,
        uses: int | None,
        begun: Future[Refusal | None] | None,
    ) -> bytes:
        """Commit a snapshot to disk, on the checkpointer's thread, after its log was created (`begun`).

        `uses` is given if the files then contain the whole session: at its end, or with a log.
        """
        try:
            if begun is not None:
                _check_begun(begun)
            if files is not None and uses is None:
                self.snapshots.set_running(files.folder, True, lasting=False)
            size = writing.commit()
            if files is not None and (moved := _moved(files.folder)) is not None:
                raise moved  # the new owner may not have seen this snapshot, so it does not count
            if files is not None:
                files.bytes = size
                if uses is not None:
                    files.stop(uses)
                for number, applied in progress[1]:
                    writer = session.writers.get(number)
                    if writer is not None:
                        writer.durable = max(writer.durable, applied)
        except (OSError, Refusal) as error:
            writing.abandon()
            if files is not None:
                files.saved_progress = None
            if files is not None and (moved := _moved(files.folder)) is not None:
                raise moved from None
            log.error("session cannot be stored", extra={"file": str(writing.folder), "error": str(error)})
            raise (snapshot_files.storage_refusal(error) if isinstance(error, OSError) else error) from None
        finally:
            if files is not None:
                files.saving = False
        return _summary(writing.head.SerializeToString(), size, writing.head.tensors).SerializeToString()

    def _answer_after(self, call: PendingCall, task: Callable[[], bytes | None]) -> None:
        """Run a task on the checkpointer's thread, and answer the call when the task is done."""

        def hold(answer: Callable[[bytes, Exception | None], None], result: bytes) -> None:
            def run() -> None:
                try:
                    made = task()
                except Exception as error:  # noqa: BLE001 - becomes the call's refusal
                    answer(b"", refusal_of(error, call.method))
                else:
                    answer(result if made is None else made, None)

            self._tasks.put(run)

        call.hold = hold

    # The log.

    def wants_saving(self, session: Session) -> bool:
        """Whether a session's log is so long that a new snapshot is due."""
        files = files_of(session)
        if files is None or files.log is None or files.saving:
            return False
        return files.log.taken > max(_LEAST_LOG, _LOG_FACTOR * files.bytes)

    @staticmethod
    def save_instruction() -> bytes:
        """The instruction to store a session in its own folder."""
        return StorageInstruction().pack()

    # Restoring.

    def restore(self, session: Session, call: PendingCall, limit: Callable[[Session], None]) -> Steps[bytes]:
        """Fill an empty session from its stored state, after `limit` set the session's limits.

        Raises Refusal: SNAPSHOT_DAMAGED, MEMORY_LIMIT, SESSION_MOVED and others.
        """
        instruction = StorageInstruction.unpack(call.raw)
        home = Path(instruction.home)
        try:
            answer = yield from self._restore(session, instruction, limit)
        except Refusal as refusal:
            raise _moved(home) or refusal from None
        # A server that takes the session over deletes the files that were being read.
        if (moved := _moved(home)) is not None:
            raise moved
        return answer

    def _restore(
        self, session: Session, instruction: StorageInstruction, limit: Callable[[Session], None]
    ) -> Steps[bytes]:
        source = Path(instruction.folder)
        request = pb.RestoreSessionRequest.FromString(instruction.request) if instruction.request else None
        generation = 0
        try:
            while True:
                found = yield from self._in_thread(self.snapshots.list, source)
                if not found:
                    raise Refusal("SNAPSHOT_NOT_FOUND", "nothing of it is stored any more")
                generation = found[-1]
                try:
                    head, state = yield from self._in_thread(self.snapshots.read, source, generation)
                    limit(session)
                    session.account.admit(head.memory_bytes)
                    memories = [reserve(each) for each in state.memories]
                    yield from self.snapshots.data(source, generation, state, memories)
                    break
                except (Refusal, FileNotFoundError):
                    newest = (yield from self._in_thread(self.snapshots.list, source))[-1:]
                    if newest == [generation]:
                        raise  # else a newer generation has replaced it: read that one
            yield from SnapshotDecoder(session, state, memories).fill()
            answer = self._restored(session, state, head, request)
            if request is None:
                yield from self._replay_logs(session, generation, head.logged)
        except OSError as error:
            raise Refusal("STORAGE", f"the stored data cannot be read: {os.strerror(error.errno or 0)}") from None
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
            # A new session: no client has seen its epoch or its writers.
            session.epoch = _new_epoch(session.epoch)
            session.attach(max(session.writers, default=0) + 1)
            for named in state.named:
                tensor = session.store.get(named.id)
                if tensor is not None:
                    described = answer.tensors.add(name=named.name, has_grad=tensor.grad is not None)
                    fill_spec(described.spec, tensor, named.id)
            if request.named_only:
                wanted = {named.id for named in state.named}
                for tensor_id in [each for each in session.store if each not in wanted]:
                    session.release(tensor_id)
        return answer

    def _replay_logs(self, session: Session, generation: int, logged: bool) -> Steps[bytes]:
        """Replay the logs and continue at their end. `logged`: whether this generation must have a log."""
        files = files_of(session)
        assert files is not None
        first = log_path(files.folder, generation)
        if logged and not self.log_store.exists(first):
            raise snapshot_files.damaged(first, "it is missing")
        logs = [each for each in self.log_store.list(files.folder) if each >= generation]
        end = START
        for number in logs:
            path = log_path(files.folder, number)
            end = yield from Replay(session, self.log_store).run(path)
            size = self.log_store.size(path)
            if size > end:
                log.warning("log ends within a record", extra={"file": str(path), "bytes": size - end})
                self.log_store.cut(path, end)
        files.generation = logs[-1] if logs else generation
        files.saved_progress = None
        running = yield from self._in_thread(self.snapshots.running, files.folder)
        if running and (len(session.writers) > 1 or session.unary_commands):
            # Commands may have been lost, and with unary calls or several writers the seqs do not show which.
            session.epoch = _new_epoch(session.epoch)
        if self.logs:
            path = log_path(files.folder, files.generation)
            files.log = Log(path, end, self.log_store.exists(path))
            session.durability.log_notes, session.transfers.logs = files.notes, True
        else:
            yield from self._in_thread(self.snapshots.set_running, files.folder, True)
        return b""


def _moved(folder: Path) -> Refusal | None:
    """Why another server owns the session of a folder; None if none does, or if the storage does not tell."""
    held = claim_of(folder)
    try:
        return None if held is None else held.lost()
    except OSError:
        return None


def _check_begun(begun: Future[Refusal | None]) -> None:
    """Wait until a log was created. Raises Refusal: UNAVAILABLE, STORAGE if creation failed or took too long."""
    try:
        failure = begun.result(_LOG_SECONDS)
    except FutureTimeout:
        failure = Refusal("STORAGE", f"the server's disk has not answered for {_LOG_SECONDS:.0f} seconds")
    if failure is not None:
        raise failure


def _progress(session: Session) -> Any:
    """A value that changes whenever a command was applied or the number of transfers changed."""
    writers = tuple((writer.number, writer.applied) for writer in session.writers.values())
    return session.unary_commands, writers, len(session.transfers.held)


def _new_epoch(epoch: int) -> int:
    """A new epoch that no client has seen."""
    return epoch + 1 + secrets.randbelow(1 << 20)


def _summary(head: bytes, size: int, tensors: int) -> pb.SaveSessionResponse:
    summary = pb.SnapshotHead.FromString(head)
    return pb.SaveSessionResponse(
        snapshot=pb.SnapshotSummary(
            name=summary.name, bytes=size, tensors=tensors, saved_unix_ms=summary.saved_unix_ms,
            ttl_left_ms=summary.ttl_ms, client_nodes=summary.client_nodes,
        )
    )  # fmt: skip
