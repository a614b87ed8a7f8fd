"""The runtime: holds one worker's sessions and executes their calls, without asyncio or sockets.

Two threads use it. The compute thread calls `make_call` and `execute`, in the order of the calls. The control thread
calls the methods for cancellation and for chunks of transfers, which are short and do not block. The front numbers the
sessions and keeps their leases (session_registry.py).
"""

import gc
import json
import logging
import os
import threading
import time
from collections.abc import Callable, Container, Generator, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from gradwire.v1 import service_pb2
from gradwire_engine import REGISTRY
from gradwire_engine.compile.eager.preloading import PRELOADER
from gradwire_engine.core.device import available, cupy, pools
from gradwire_engine.core.dtypes import BY_NAME
from gradwire_engine.ops.signal.fft_plans import release
from gradwire_server import __version__
from gradwire_server.common.allocator import PAGES, give_back, ready_pages
from gradwire_server.common.build import build_info, device_info
from gradwire_server.common.errors import Refusal, refusal_of
from gradwire_server.common.futures import Steps, until_done
from gradwire_server.common.limits import Limits
from gradwire_server.common.payload import TO_WIRE
from gradwire_server.common.protobuf_peek import bytes_field
from gradwire_server.common.shared_counters import SharedCounters
from gradwire_server.session.batch import OutOfOrder, run_batch, run_unary
from gradwire_server.session.commands import BY_METHOD
from gradwire_server.session.meter import Meter
from gradwire_server.session.op_schemas import schemas
from gradwire_server.session.session import PendingCall, Session
from gradwire_server.session.state.cancel_token import CancelToken
from gradwire_server.session.state.transfers import Download
from gradwire_server.storage.checkpointer import Checkpointer
from gradwire_server.storage.instructions import StorageInstruction
from gradwire_server.storage.log_writer import LogWriter
from gradwire_server.storage.tensor_files import TensorFiles
from gradwire_server.worker.frames import KEEP, NUMBER, RESTORE_SESSION, UPLOAD_BEGUN, UploadCall
from gradwire_server.worker.group_channel import GroupChannel, Send
from gradwire_server.worker.quotas import Quotas
from gradwire_server.worker.rings import Ring, Rings

_FILE_METHODS = ("SaveFile", "LoadFile")
_IDLE_SECONDS = 1.0
#: Bytes of a session from which its commands are expected to take pages.
PAGES_WORTH = 256 << 10
_SHARE_OF_PAGES = 16  # the part of all sessions' memory that all workers bring into memory at most
_LARGE_SESSION = 8 << 20  # bytes: memory of a session that held this much is returned to the system at once
log = logging.getLogger("gradwire.server")
_DATA_FIELD = service_pb2.DownloadResponse.DATA_FIELD_NUMBER


class Runtime:
    """Sessions by number. Publishes what they hold in the shared counters, as worker number `worker`."""

    def __init__(
        self,
        limits: Limits,
        counters: SharedCounters,
        worker: int = 0,
        counts: bool = False,
        checkpointer: Checkpointer | None = None,
    ) -> None:
        """With `counts` the runtime has a meter; without `checkpointer` nothing is stored."""
        self.limits = limits
        self.counters = counters
        self.worker = worker
        self.checkpointer = checkpointer
        self.tensor_files = TensorFiles()
        self.quotas = Quotas(limits, counters, worker)
        self.sessions: dict[int, Session] = {}
        self.rings = Rings(limits.max_shared_bytes)
        self.bytes = 0  # of all sessions, as of each one's last call; `_tidy` corrects it for collected garbage
        self.reserved = 0  # bytes of these, for offloaded ops
        self.meter = Meter() if counts else None
        self._has_pages = cupy() is not None  # sessions' bytes may be a GPU's
        self._no_session = Session(0, limits, CancelToken())
        self._cancel_tokens: dict[int, CancelToken] = {}
        self._groups: GroupChannel | None = None
        self._newest = 0  # the highest number of a session that was opened
        self._lock = threading.Lock()
        self._lifecycle: dict[str, Callable[[Session, bytes], bytes]] = {
            "Open": self._open,
            "Attach": self._attach,
            "Drop": self._drop,
            "BeginUpload": self._begin_upload,
            "KeepUpload": self._keep_upload,
            "FinishDownload": self._finish_download,
            "Tidy": self._tidy,
            "Save": self._save,
            "Restore": self._restore,
            "Group": self._group,
        }

    def use_checkpointer(self, checkpointer: Checkpointer) -> None:
        """Store sessions from now on; before the first call."""
        self.checkpointer = checkpointer

    def use_groups(self, send: Send) -> None:
        """Let sessions form groups; `send` takes their messages to the front. Before the first call."""
        self._groups = GroupChannel(send, self.sessions)

    @property
    def log_writer(self) -> LogWriter | None:
        """The log writer; None without write-ahead logs."""
        return None if self.checkpointer is None else self.checkpointer.log_writer

    @property
    def internal_methods(self) -> Container[str]:
        """The methods that only the front calls, not clients."""
        return self._lifecycle

    # Control thread: short methods

    def cancel(self, number: int, ticket: int) -> None:
        """Stop the calls of a session up to a ticket."""
        cancel_token = self._cancel_token_of(number)
        if cancel_token is not None:
            cancel_token.cancel_ticket = max(cancel_token.cancel_ticket, ticket)
            cancel_token.interrupt()

    def cancel_through(self, number: int, writer: int, seq: int) -> None:
        """Stop a writer's commands up to a seq."""
        cancel_token = self._cancel_token_of(number)
        if cancel_token is not None:
            cancel_token.cancelled_through[writer] = max(cancel_token.cancelled_through.get(writer, 0), seq)
            cancel_token.interrupt()

    def close(self, number: int, ticket: int) -> None:
        """Stop a session's computation and refuse its waiting calls; a following "Drop" frees its tensors."""
        cancel_token = self._cancel_token_of(number)
        if cancel_token is not None:
            cancel_token.closed = True
            cancel_token.cancel_ticket = max(cancel_token.cancel_ticket, ticket)
            cancel_token.interrupt()

    def _cancel_token_of(self, number: int) -> CancelToken | None:
        """Cancel token of a session, also before it is opened; None after it was dropped."""
        with self._lock:
            if number > self._newest:
                return self._cancel_tokens.setdefault(number, CancelToken())
            return self._cancel_tokens.get(number)

    @contextmanager
    def receiving(self, upload: UploadCall, size: int) -> Iterator[memoryview]:
        """Memory for an upload's next `size` bytes, valid inside the block.

        Raises Refusal: TRANSFER_NOT_FOUND, ARGUMENT_VALUE, PAYLOAD_SIZE.
        """
        transfers = self._session_of(upload.number).transfers
        with transfers.receiving(upload.transfer_id, upload.attempt, upload.offset, size) as room:
            yield room
        upload.offset += size

    @contextmanager
    def chunk(self, number: int, transfer_id: str, offset: int) -> Iterator[tuple[bytes, memoryview, int]]:
        """A DownloadResponse, serialized in two parts, and the transfer's total bytes.

        The bytes do not change inside the block, which should be short. Raises Refusal: TRANSFER_NOT_FOUND,
        ARGUMENT_VALUE.
        """
        download = self._download(number, transfer_id, offset)
        head = service_pb2.DownloadResponse(offset=offset).SerializeToString()
        with download.copying(offset, self.limits.chunk_bytes) as data:
            yield head + bytes_field(_DATA_FIELD, data.nbytes), data, download.total

    def _download(self, number: int, transfer_id: str, offset: int) -> Download:
        download = self._session_of(number).transfers.download(transfer_id)
        if offset >= download.total:
            raise Refusal(
                "ARGUMENT_VALUE",
                f"the transfer has {download.total} bytes; there are none at {offset}",
                argument="offset",
                total_bytes=download.total,
            )
        return download

    # Shared memory: any thread, but each ring is used by one thread at a time

    def lend_ring(self, number: int, nonce: str) -> Ring:
        """Lend a ring to one call. Raises Refusal: NOT_SUPPORTED, ARGUMENT_VALUE, SESSION_NOT_FOUND."""
        if number <= self._newest:  # else the session is about to be opened
            self._session_of(number)
        return self.rings.take(number, nonce)

    def return_ring(self, number: int, ring: Ring, clean: bool) -> None:
        """Take a ring back after its call; `clean` if the client no longer uses the ring."""
        self.rings.give_back(number, ring, clean and number in self.sessions)

    def read_ring(self, upload: UploadCall, ring: Ring, ring_offset: int, size: int) -> None:
        """Copy an upload's next bytes out of a ring. Raises Refusal as `receiving` does."""
        with self.receiving(upload, size) as room:
            np.frombuffer(room, np.uint8)[:] = ring.bytes[ring_offset : ring_offset + size]

    def write_ring(self, number: int, transfer_id: str, offset: int, ring: Ring, ring_offset: int) -> tuple[int, int]:
        """Copy a download's piece at `offset` into a ring; return its size and the next offset, 0 after the last."""
        download = self._download(number, transfer_id, offset)
        with download.copying(offset, ring.piece) as data:
            size = data.nbytes
            ring.bytes[ring_offset : ring_offset + size] = np.frombuffer(data, np.uint8)
        return size, 0 if offset + size == download.total else offset + size

    def query(self, question: str, about: Mapping[str, Any]) -> bytes:
        """Answer "usage_report", as JSON, or "list_ops". Any thread."""
        if question == "usage_report":
            return json.dumps(self.usage_report(**about)).encode()
        assert question == "list_ops"
        return self.list_ops()

    def usage_report(self, first: int, last: int) -> dict[str, Any]:
        """This worker's totals and meter, and figures of its sessions numbered `first` to `last`."""
        sessions = list(self.sessions.values())
        report: dict[str, Any] = {
            "process": os.getpid(),
            "bytes": sum(max(0, each.account.bytes) for each in sessions),
            "tensors": sum(len(each.store) for each in sessions),
            "pools": pools(),
            "log_bytes": 0 if self.log_writer is None else self.log_writer.wal.queued,
            "sessions": {
                each.key: [
                    max(0, each.account.bytes),
                    len(each.store),
                    each.commands,
                    each.usage.computed,
                    len(each.hooks.suspended),
                ]
                for each in sessions
                if first <= each.key <= last
            },
        }
        if self.meter is not None:
            report["meter"] = self.meter.as_json()
        return report

    def describe(self) -> service_pb2.ServerInfoResponse:
        """This worker's version, devices, dtypes and build."""
        return service_pb2.ServerInfoResponse(
            version=__version__,
            devices=[device_info(name) for name in available()],
            dtypes=[TO_WIRE[dtype] for dtype in BY_NAME.values()],  # type: ignore[misc]
            build=build_info(),
        )

    @staticmethod
    def list_ops() -> bytes:
        """All ops that sessions may use, as a serialized ListOpsResponse."""
        return schemas(REGISTRY).SerializeToString()

    # Compute thread

    def make_call(
        self, method: str, number: int, raw: bytes, ticket: int, deadline: float | None, sent: float = 0.0
    ) -> PendingCall:
        """Create a PendingCall for session `number`; 0 for none. `sent` is by time.monotonic()."""
        if method in ("Open", "Restore"):
            with self._lock:
                session = Session(number, self.limits, self._cancel_tokens.setdefault(number, CancelToken()))
                session.usage.meter = self.meter
                session.groups.channel = self._groups
                self.sessions[number] = session
                self._newest = max(self._newest, number)  # last: `_session_of` reads both without the lock
        session = self.sessions.get(number, self._no_session)
        if not PRELOADER.begun and session.account.bytes >= PRELOADER.WORTH:
            PRELOADER.begin()
        if not self._has_pages and session.account.bytes >= PAGES_WORTH:
            self._has_pages = True
            ready_pages(min(PAGES, self.limits.max_bytes // _SHARE_OF_PAGES // self.counters.workers))
        return PendingCall(method, session, raw, ticket, deadline, sent)

    def execute(self, call: PendingCall) -> Steps[bytes]:
        """Execute a call in steps. Raises Refusal, OutOfOrder; nothing else."""
        session, durability = call.session, call.session.durability
        try:
            step = self._lifecycle.get(call.method)
            if step is not None:
                answer: bytes = step(session, call.raw)
                if self.checkpointer is not None:
                    answer = yield from self._persist(self.checkpointer, call, answer)
                return answer
            if durability.log_notes is not None and self.log_writer is not None:
                yield from self.log_writer.wait_for_room(session)
            self._check(session)
            if call.method != "Run" and durability.files is not None and (noted := durability.files.use()) is not None:
                yield from until_done(noted)
            if call.method in _FILE_METHODS:
                return (yield from self._transfer_file(call))
            if call.method == "Run":
                steps = run_batch(call)
            else:
                steps = (
                    run_unary(call)
                    if durability.log_notes is None or self.log_writer is None
                    else self.log_writer.unary(call)
                )
            while True:
                try:
                    awaited = next(steps)
                except StopIteration as done:
                    if call.method == "Run":
                        if durability.log_notes is not None and self.log_writer is not None:
                            self.log_writer.record(session, call)
                        durability.uncommitted = False
                    answer = done.value
                    return answer
                self._publish(session)
                yield awaited
                self.update_limits(session)
        except (Refusal, OutOfOrder) as refused:
            if isinstance(refused, Refusal):
                _log_refusal(call, refused)
            if durability.uncommitted:
                return self._break_session(call, refused)
            if isinstance(refused, Refusal) and self.log_writer is not None and self.log_writer.hold(call, refused):
                return b""
            raise
        except Exception as error:  # noqa: BLE001 - a refusal too; the unforeseen is logged
            if durability.uncommitted:
                return self._break_session(call, error)
            failed = refusal_of(error, call.method, session.command.log_fields())
            _log_refusal(call, failed)
            raise failed from None
        finally:
            if not session.deferred_releases:  # `apply_deferred_releases` follows at once
                self._publish(session)

    def _break_session(self, call: PendingCall, error: Exception) -> bytes:
        """Break a session whose call failed halfway: its state contains changes that are neither answered nor logged.

        If memory ran out and there is a log, the session is restored as of its last answer. This call's answer then
        waits until all earlier records are written. Raises Refusal otherwise.
        """
        session = call.session
        session.durability.uncommitted = False
        cause = refusal_of(error, call.method, session.command.log_fields())
        broken = Refusal(
            cause.reason,
            f"the session cannot continue, because a call failed after it had changed the session: {cause.message}",
        )
        if cause.reason == "MEMORY_LIMIT" and self.log_writer is not None and self.log_writer.discard_session(call):
            broken = Refusal("UNAVAILABLE", f"the session is restored as of its last answer: {cause.message}")
            broken.metadata[RESTORE_SESSION] = "1"
        log.error("session cannot continue", extra={**session.command.log_fields(), "error": cause.message})
        session.durability.broken, session.cancel_token.closed = broken, True
        session.groups.abandon(broken.message)
        if call.hold is None:
            raise broken
        return b""

    def apply_deferred_releases(self, session: Session) -> None:
        """Apply the session's deferred release, after the call was answered."""
        session.apply_deferred_releases()
        self._publish(session)

    def _persist(self, checkpointer: Checkpointer, call: PendingCall, answer: bytes) -> Steps[bytes]:
        """Store, restore or log a step of a session's lifecycle. Raises Refusal."""
        session = call.session
        if call.method == "Open":
            return (yield from checkpointer.opened(session, call))
        if call.method == "Restore":
            try:
                answer = yield from checkpointer.restore(session, call, self.update_limits)
                session.activity.forget()  # those of the replay
                return answer
            except Exception as error:  # noqa: BLE001 - raised again by later calls of the session
                session.durability.broken = refusal_of(error, call.method)
                session.cancel_token.closed = True
                raise session.durability.broken from None
        if call.method == "Save":
            self._check(session)
            return (yield from checkpointer.save(session, call))
        if session.durability.log_notes is not None and self.log_writer is not None:
            if call.method == "KeepUpload":
                yield from self.log_writer.keep_upload(call)
            else:
                self.log_writer.record(session, call)
        return answer

    def _transfer_file(self, call: PendingCall) -> Generator[None, None, bytes]:
        """Write or read a tensor file; log a read file's tensors as created. Raises Refusal and others."""
        if call.method == "SaveFile":
            return (yield from self.tensor_files.save(call))
        loaded = yield from self.tensor_files.load(call)
        if isinstance(loaded, bytes):
            return loaded
        durability = call.session.durability
        log_writer = self.log_writer if durability.log_notes is not None else None
        if log_writer is not None:
            yield from log_writer.keep_loaded(call, loaded)
        durability.uncommitted = True
        answer = loaded.bind()
        if log_writer is not None:
            log_writer.record_load(call, loaded)
        durability.uncommitted = False
        return answer

    def _check(self, session: Session) -> None:
        """Check that a session may compute, and update its limits. Raises Refusal."""
        if session.cancel_token.closed or session is self._no_session:
            raise session.durability.broken or Refusal("SESSION_NOT_FOUND", "the session was closed")
        if session.durability.log_notes is not None and self.log_writer is not None:
            self.log_writer.check(session)
        self.update_limits(session)

    def update_limits(self, session: Session) -> None:
        """Lower a session's limits to what the server and its principal have left."""
        left = self.limits.max_bytes - self.counters.total() + session.account.bytes
        session.account.limit = max(1, min(self.limits.max_session_bytes, left))
        if session.usage.counter_row:
            self.quotas.limit(session)

    def _publish(self, session: Session) -> None:
        """Publish what a session holds now, for its limits and those of others."""
        self._count_session(session)
        if session.usage.counter_row:
            self.quotas.publish(session)

    def _count_session(self, session: Session) -> None:
        """Count a session's bytes as of now: the garbage collector may have changed them since it last computed."""
        change = session.account.bytes - session.usage.counted
        if change:
            session.usage.counted += change
            self._count_bytes(change)

    def _count_bytes(self, change: int) -> None:
        self.bytes += change
        self.counters.set_bytes(self.worker, max(0, self.bytes))

    def reserve(self, change: int) -> None:
        """Change the bytes reserved for offloaded ops by `change`, which may be negative."""
        self.reserved += change
        self._count_bytes(change)

    def _session_of(self, number: int) -> Session:
        newest = self._newest  # first: `make_call` enters the session before it raises this
        session = self.sessions.get(number)
        if session is not None:
            return session
        if number > newest:  # the compute thread has yet to open it, so none of its commands has run
            raise Refusal("TRANSFER_NOT_FOUND", "the session has no transfer yet")
        raise Refusal("SESSION_NOT_FOUND", "the session was closed")

    def _open(self, session: Session, raw: bytes) -> bytes:
        """Open a session with one writer and its principal's row in the shared counters.

        With write-ahead logs, `_persist` stores a first snapshot afterwards.
        """
        self._initialize(session, StorageInstruction.unpack(raw))
        session.attach(1)
        return b""

    def _restore(self, session: Session, raw: bytes) -> bytes:
        """Open a session as `_open` does; `_persist` restores its stored state afterwards."""
        self._initialize(session, StorageInstruction.unpack(raw))
        return b""

    def _initialize(self, session: Session, instruction: StorageInstruction) -> None:
        """Set the session's owner, and where it is stored."""
        session.command.session, session.command.principal = instruction.short_id, instruction.principal
        session.usage.counter_row, session.usage.owner = instruction.counter_row, instruction.owner
        self.quotas.begin(session)
        if self.checkpointer is not None:
            self.checkpointer.begin(session, instruction)

    def _save(self, session: Session, raw: bytes) -> bytes:
        """Check that there is a checkpointer; `_persist` does the saving. Raises Refusal: NOT_SUPPORTED."""
        if self.checkpointer is None:
            raise Refusal("NOT_SUPPORTED", "the server keeps no sessions: it has no --state-dir")
        return b""

    def _keep_upload(self, session: Session, raw: bytes) -> bytes:
        """Do nothing; with a log, `_persist` writes the received upload to it."""
        return b""

    def _attach(self, session: Session, raw: bytes) -> bytes:
        session.attach(NUMBER.unpack(raw)[0])
        return b""

    def _drop(self, session: Session, raw: bytes) -> bytes:
        """Free a closed session's state; return the bytes freed."""
        session.cancel_token.closed = True  # CLOSE comes on the control pipe, perhaps later than this call
        held = session.account.bytes
        if self.checkpointer is not None:
            self.checkpointer.forget(session, keep=raw == KEEP)
        session.drop()
        if session.account.bytes:  # reference cycles made by `create_graph`
            gc.collect()
        with self._lock:
            self.sessions.pop(session.key, None)
            self._cancel_tokens.pop(session.key, None)
        self.quotas.publish(session, ended=True)
        session.usage.counter_row = 0
        if not self.sessions:
            release()
        if not self.sessions or held >= _LARGE_SESSION:
            give_back()
        return NUMBER.pack(max(0, held - session.account.bytes))

    def _begin_upload(self, session: Session, raw: bytes) -> bytes:
        """Begin or resume an upload. Raises Refusal: TRANSFER_NOT_FOUND, PAYLOAD_SIZE, MEMORY_LIMIT."""
        start = service_pb2.UploadStart.FromString(raw)
        self._check(session)
        transfers = session.transfers
        transfer_id = start.transfer_id or transfers.begin(
            start.total_bytes, self.limits.max_tensor_bytes, start.request_id
        )
        held, attempt = transfers.resume(transfer_id)
        return UPLOAD_BEGUN.pack(held.received, attempt) + transfer_id.encode()

    def _finish_download(self, session: Session, raw: bytes) -> bytes:
        """Finish a download that was sent to its end; the first byte of `raw` is 1 if its arrival is known."""
        session.transfers.finish(raw[1:].decode(), raw[0] == 1)
        return b""

    def _group(self, session: Session, raw: bytes) -> bytes:
        """Take a message of the front about groups."""
        assert self._groups is not None
        self._groups.receive(raw)
        return b""

    def _tidy(self, session: Session, raw: bytes) -> bytes:
        """Drop abandoned transfers, backwards and rings, and recount all bytes."""
        for each in self.sessions.values():
            each.hooks.tidy()
            self.quotas.publish(each)
            if each.transfers.held:
                each.transfers.tidy()
        self.rings.tidy()
        now = time.monotonic()
        schedules = [each.schedule for each in self.sessions.values()]
        if all(not each.queue and now - each.idle_since > _IDLE_SECONDS for each in schedules):
            give_back()  # only when idle: a computing session would allocate the memory again
        self.bytes = self.reserved
        for each in self.sessions.values():
            each.usage.counted = 0
            self._count_session(each)
        self._count_bytes(0)
        return b""


def _log_refusal(call: PendingCall, refusal: Refusal) -> None:
    """Log the refusal of a whole call in its session; batch.py logs those of a batch's commands."""
    if call.session.key:  # else no session has the call
        spec = BY_METHOD.get(call.method)
        call.session.activity.log(call.method if spec is None else spec.name, "", refusal)
