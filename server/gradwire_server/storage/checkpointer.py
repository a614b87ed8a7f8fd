"""The checkpointer: what a worker does to store its sessions and to take them up again.

Saving is a call in the session's line. The compute thread describes the session and hands its tensors' bytes to the
system, a piece per slice, so that other sessions compute in between; the session itself then goes on, while a thread of
the checkpointer waits for the disk. The answer is sent when the snapshot would survive a crash. With a log, so is every
other answer of the session.
"""

from __future__ import annotations

import logging
import os
import queue
import secrets
import threading
import time
from collections.abc import Callable, Generator
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from pathlib import Path
from typing import Any

from gradwire.v1 import service_pb2
from gradwire.v1 import snapshots_pb2 as pb
from gradwire_server import __version__
from gradwire_server.common.errors import Refusal, refusal_of
from gradwire_server.session.session import Pending, Session
from gradwire_server.session.specs import fill_spec
from gradwire_server.storage import snapshot_files
from gradwire_server.storage.configured import LOGS, SNAPSHOTS
from gradwire_server.storage.kept import SessionFiles, kept_of
from gradwire_server.storage.log_writer import LogWriter
from gradwire_server.storage.orders import Order
from gradwire_server.storage.replay import Replay
from gradwire_server.storage.snapshot_decoder import SnapshotDecoder, reserve
from gradwire_server.storage.snapshot_encoder import SnapshotEncoder
from gradwire_server.storage.stores import LogStore, SnapshotStore, Writing
from gradwire_server.storage.write_ahead_log import START, Log, log_path

_LOG_SECONDS = 60.0  # for a disk to begin a log
_LOG_FACTOR = 4  # times the last snapshot's bytes that a log may have before another is made
_LEAST_LOG = 64 << 20
Steps = Generator[None, None, bytes]

log = logging.getLogger("gradwire.server")


class Checkpointer:
    """Stores and restores sessions of one worker. `logs`: whether what is answered is written first."""

    def __init__(
        self, logs: bool = False, snapshots: SnapshotStore | None = None, log_store: LogStore | None = None
    ) -> None:
        """Without stores of its own it has those of configured.py."""
        self.logs = logs
        self.snapshots = snapshots or SNAPSHOTS()
        self.log_store = log_store or LOGS()
        self.log_writer = LogWriter(self.log_store) if logs else None
        self._tasks: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="gradwire-keeper", daemon=True)
        self._thread.start()

    def stop(self, timeout: float) -> None:
        """End when all that was begun is on disk."""
        self._tasks.put(None)
        self._thread.join(timeout)
        if self.log_writer is not None:
            self.log_writer.journal.stop(timeout)

    def _work(self) -> None:
        while (task := self._tasks.get()) is not None:
            try:
                task()
            except Exception:
                log.exception("keeper failed")

    # Sessions' lives.

    def begin(self, session: Session, order: Order) -> None:
        """A session begins that is to be stored in a folder of its own."""
        session.kept = SessionFiles(Path(order.home), order.home_head, self.snapshots)

    def forget(self, session: Session, keep: bool) -> None:
        """A session has ended; `keep` leaves its files."""
        kept, session.kept, session.notes = kept_of(session), None, None
        if kept is None:
            return
        if kept.log is not None and self.log_writer is not None:
            self.log_writer.journal.close(kept.log, written=keep)
        if not keep:
            self._tasks.put(lambda: self.snapshots.remove(kept.folder))

    def opened(self, session: Session, call: Pending) -> Steps:
        """With a log, an opened session has a snapshot before anybody is told of it."""
        kept = kept_of(session)
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
        kept = kept_of(session)
        if kept is None:
            raise Refusal("NOT_SUPPORTED", "the server keeps no sessions: it has no --state-dir")
        if kept.generation and kept.mark == _mark(session):
            tensors, uses = len(session.store), kept.uses
            self._hold(call, lambda: self._unchanged(kept, tensors, uses if order.last else None))
            return b""
        if kept.saving and not order.request and not order.last:
            return b""  # the next time will do
        if order.last and not self.logs and (given_up := session.hooks.give_up()):
            log.warning(
                "backwards that wait for their client are given up: the session ends here",
                extra={**session.command.told(), "backwards": given_up},
            )
        return (yield from self._save(session, call, kept, kept.folder, kept.head, order))

    @staticmethod
    def _unchanged(kept: SessionFiles, tensors: int, uses: int | None) -> bytes:
        """On the checkpointer's thread, after the snapshots before: nothing was to be stored anew."""
        if kept.mark is None:
            raise Refusal("STORAGE", "the server cannot write its state directory")
        if uses is not None:
            kept.stop(uses)
        return _summary(kept.head, kept.bytes, tensors).SerializeToString()

    def _save(
        self,
        session: Session,
        call: Pending,
        kept: SessionFiles | None,
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
        encoder = SnapshotEncoder(session)
        yield from encoder.steps()
        self._fill(session, head, encoder, request)
        base = folder.parent if kept is not None else folder.parent.parent
        writing: Writing | None = None
        try:
            generation = 1 + max((0 if kept is None else kept.generation, *self.snapshots.list(folder)))
            writing = self.snapshots.begin(folder, generation, head, encoder.state, base)
            yield from writing.data(encoder.memories, order.room)
        except OSError as error:
            if writing is not None:
                writing.abandon()
            log.error("session cannot be stored", extra={"file": str(folder), "error": str(error)})
            raise snapshot_files.storage_refusal(error) from None
        except BaseException:
            if writing is not None:
                writing.abandon()
            raise
        begun = None
        if kept is not None:
            kept.saving, kept.generation, kept.mark = True, writing.generation, mark
            if self.logs:
                begun = self._rotate(session, kept)
                head.logged = True
        told = uses if order.last or self.logs else None
        self._hold(call, lambda: self._commit(session, kept, writing, mark, told, begun))
        return b""

    def _fill(self, session: Session, head: pb.SnapshotHead, encoder: SnapshotEncoder, request: Any) -> None:
        head.format, head.version = snapshot_files.FORMAT, __version__
        head.saved_unix_ms = int(time.time() * 1000)
        head.tensors, head.client_nodes = len(session.store), encoder.client_nodes
        head.memory_bytes = session.account.bytes
        if request is not None:
            for named in request.tensors:
                session.tensor(named.id)
            encoder.state.named.extend(request.tensors)

    def _rotate(self, session: Session, kept: SessionFiles) -> Future[Refusal | None]:
        """What comes from now on is in the next generation's log; done when there is one, or cannot be."""
        assert self.log_writer is not None
        begun: Future[Refusal | None] = Future()
        old = kept.log
        path = log_path(kept.folder, kept.generation)
        kept.log = Log(path, exists=self.log_store.exists(path))
        kept.log.before = old
        self.log_writer.journal.put(kept.log, (), begun.set_result)
        session.notes, session.transfers.logs = kept.notes, True
        return begun

    def _commit(
        self,
        session: Session,
        kept: SessionFiles | None,
        writing: Writing,
        mark: Any,
        uses: int | None,
        begun: Future[Refusal | None] | None,
    ) -> bytes:
        """On the checkpointer's thread: bring a snapshot to the disk; `uses` where nothing but a log is to follow it.

        That is there first, if it is to be there: `begun`.
        """
        try:
            if begun is not None:
                _check_begun(begun)
            if kept is not None and uses is None:
                self.snapshots.set_running(kept.folder, True, lasting=False)
            size = writing.commit()
            if kept is not None:
                kept.bytes = size
                if uses is not None:
                    kept.stop(uses)
                for number, applied in mark[1]:
                    writer = session.writers.get(number)
                    if writer is not None:
                        writer.durable = max(writer.durable, applied)
        except (OSError, Refusal) as error:
            writing.abandon()
            if kept is not None:
                kept.mark = None
            log.error("session cannot be stored", extra={"file": str(writing.folder), "error": str(error)})
            raise (snapshot_files.storage_refusal(error) if isinstance(error, OSError) else error) from None
        finally:
            if kept is not None:
                kept.saving = False
        return _summary(writing.head.SerializeToString(), size, writing.head.tensors).SerializeToString()

    def _hold(self, call: Pending, task: Callable[[], bytes | None]) -> None:
        """Answer a call when a task of the checkpointer's thread is done."""

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

    def wants_saving(self, session: Session) -> bool:
        """Whether a session's log has become long."""
        kept = kept_of(session)
        if kept is None or kept.log is None or kept.saving:
            return False
        return kept.log.taken > max(_LEAST_LOG, _LOG_FACTOR * kept.bytes)

    @staticmethod
    def own_order() -> bytes:
        """The order to store a session where it is stored already."""
        return Order().pack()

    # Restoring.

    def restore(self, session: Session, call: Pending, limit: Callable[[Session], None]) -> Steps:
        """Fill an empty session with what is stored, when `limit` has told it how much it may hold.

        Raises Refusal: SNAPSHOT_DAMAGED, MEMORY_LIMIT and others.
        """
        order = Order.unpack(call.raw)
        source = Path(order.folder)
        request = pb.RestoreSessionRequest.FromString(order.request) if order.request else None
        generation = 0
        try:
            while True:
                found = self.snapshots.list(source)
                if not found:
                    raise Refusal("SNAPSHOT_NOT_FOUND", "nothing of it is stored any more")
                generation = found[-1]
                try:
                    head, state = self.snapshots.read(source, generation)
                    limit(session)
                    session.account.admit(head.memory_bytes)
                    memories = [reserve(each) for each in state.memories]
                    yield from self.snapshots.data(source, generation, state, memories)
                    break
                except (Refusal, FileNotFoundError):
                    if self.snapshots.list(source)[-1:] == [generation]:
                        raise  # else another has taken its place meanwhile
            yield from SnapshotDecoder(session, state, memories).fill()
            answer = self._restored(session, state, head, request)
            if request is None:
                yield from self._take_up(session, generation, head.logged)
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

    def _take_up(self, session: Session, generation: int, logged: bool) -> Steps:
        """Apply what the log has, and go on where it ends. `logged`: whether there is to be one of this generation."""
        kept = kept_of(session)
        assert kept is not None
        first = log_path(kept.folder, generation)
        if logged and not self.log_store.exists(first):
            raise snapshot_files.damaged(first, "it is missing")
        logs = [each for each in self.log_store.list(kept.folder) if each >= generation]
        end = START
        for number in logs:
            path = log_path(kept.folder, number)
            end = yield from Replay(session, self.log_store).run(path)
            size = self.log_store.size(path)
            if size > end:
                log.warning("log ends within a record", extra={"file": str(path), "bytes": size - end})
                self.log_store.cut(path, end)
        kept.generation = logs[-1] if logs else generation
        kept.mark = None
        running = self.snapshots.running(kept.folder)
        if running and (len(session.writers) > 1 or session.alone):
            # Something may have been applied that no file knows of, and numbers do not tell of what.
            session.epoch = _another(session.epoch)
        if self.logs:
            path = log_path(kept.folder, kept.generation)
            kept.log = Log(path, end, self.log_store.exists(path))
            session.notes, session.transfers.logs = kept.notes, True
        else:
            self.snapshots.set_running(kept.folder, True)
        return b""


def _check_begun(begun: Future[Refusal | None]) -> None:
    """Wait until a log was begun. Raises Refusal: UNAVAILABLE, STORAGE where it was not."""
    try:
        failure = begun.result(_LOG_SECONDS)
    except FutureTimeout:
        failure = Refusal("STORAGE", f"the server's disk has not answered for {_LOG_SECONDS:.0f} seconds")
    if failure is not None:
        raise failure


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
