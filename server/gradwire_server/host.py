"""The host: all sessions of a process, without any asyncio. A worker process could own one whole.

Two threads use it. The front's calls `control` methods, which are quick and never wait: opening, admitting calls,
leases, cancellation. The compute thread calls `execute`, `drop` and the other methods that touch tensors, in the
order in which the calls were admitted.
"""

import gc
import itertools
import logging
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from gradwire.v1 import service_pb2
from gradwire_engine import REGISTRY
from gradwire_engine.device import available
from gradwire_engine.dtypes import BY_NAME
from gradwire_server import __version__
from gradwire_server.arguments import schemas
from gradwire_server.batch import OutOfOrder, run_batch, run_unary
from gradwire_server.build import build_info, device_info
from gradwire_server.errors import Refusal, refusal_of
from gradwire_server.limits import Limits
from gradwire_server.payload import TO_WIRE
from gradwire_server.rings import Ring, Rings, machine
from gradwire_server.session import Pending, Session
from gradwire_server.transfers import Download, Upload
from gradwire_server.wire import bytes_field

PROTOCOL = 1
_DATA_FIELD = service_pb2.DownloadResponse.DATA_FIELD_NUMBER
_ID_SHOWN = 6  # characters of a session's id that the log shows; the rest stays secret

log = logging.getLogger("gradwire.server")


class Host:
    """Sessions by id, their leases, and what runs in them. `clock` counts seconds."""

    def __init__(self, limits: Limits, clock: Callable[[], float] = time.monotonic) -> None:
        self.limits = limits.resolved()
        self.clock = clock
        self.sessions: dict[str, Session] = {}
        self.tombstones: OrderedDict[str, None] = OrderedDict()
        self.tickets = itertools.count(1)
        self.last_ticket = 0
        self.closing: set[Session] = set()  # taken out, and not dropped yet
        # Of all sessions, as of the last call of each: what is collected between calls is found by `tidy`.
        self.bytes = 0
        self.rings = Rings(self.limits.max_shared_bytes)
        self._lock = threading.Lock()
        self._ops: dict[str, bytes] = {}

    # Control: quick, from the front's thread

    def open_session(self, request: service_pb2.OpenSessionRequest) -> service_pb2.OpenSessionResponse:
        """Open a session or attach a writer. Raises Refusal: PROTOCOL_VERSION, SESSION_LIMIT, SESSION_NOT_FOUND."""
        least, most = request.min_protocol or 1, request.max_protocol or max(1, request.min_protocol)
        if not least <= PROTOCOL <= most:
            raise Refusal(
                "PROTOCOL_VERSION",
                f"the server speaks protocol {PROTOCOL}, the client {least} to {most}",
                min_protocol=PROTOCOL,
                max_protocol=PROTOCOL,
            )
        session = self.find(request.session_id) if request.session_id else self._new_session(request)
        writer = session.attach()
        return service_pb2.OpenSessionResponse(
            session_id=session.id,
            writer=writer.number,
            epoch=session.epoch,
            lease_ms=int(session.lease * 1000),
            protocol=PROTOCOL,
            limits=self.limits.message(),
            machine=machine() if self.limits.max_shared_bytes else "",
        )

    def _new_session(self, request: service_pb2.OpenSessionRequest) -> Session:
        limits = self.limits
        lease = min(request.lease_ms / 1000 or limits.lease_seconds, limits.max_lease_seconds)
        with self._lock:
            if len(self.sessions) >= limits.max_sessions:
                raise Refusal(
                    "SESSION_LIMIT",
                    f"the server holds {limits.max_sessions} sessions, its limit",
                    limit=limits.max_sessions,
                )
            session = Session(secrets.token_urlsafe(32), limits, lease, self.clock())
            self.sessions[session.id] = session
        log.info("session opened", extra={"session": session.id[:_ID_SHOWN], "client": request.client[:100]})
        return session

    def find(self, session_id: str) -> Session:
        """A session, its lease renewed. Raises Refusal: SESSION_NOT_FOUND, SESSION_EXPIRED."""
        session = self.sessions.get(session_id)
        now = self.clock()
        if session is None or (now >= session.expires and not session.pending):
            if session is not None or session_id in self.tombstones:
                raise Refusal("SESSION_EXPIRED", "the session's lease ran out; its tensors are gone")
            raise Refusal("SESSION_NOT_FOUND", "there is no such session; OpenSession gives one")
        session.expires = now + session.lease
        return session

    def keep_alive(self, session_id: str) -> service_pb2.KeepAliveResponse:
        """Renew a lease."""
        session = self.find(session_id)
        return service_pb2.KeepAliveResponse(lease_ms=int(session.lease * 1000), epoch=session.epoch)

    def cancel(self, request: service_pb2.CancelRequest) -> service_pb2.CancelResponse:
        """Stop what a session computes; tells whether that was anything."""
        session = self.find(request.session_id)
        if not request.through_seq:
            session.brake.cancel_ticket = self.last_ticket
            return service_pb2.CancelResponse(cancelled=bool(session.pending))
        writer = session.writer(request.writer)
        writer.cancel_through = max(writer.cancel_through, request.through_seq)
        return service_pb2.CancelResponse(
            cancelled=any(
                call.writer == request.writer and call.first_seq <= request.through_seq for call in session.pending
            )
        )

    def admit(self, method: str, session_id: str, raw: bytes, deadline: float | None = None) -> Pending:
        """A call to be executed. Until `finish` it keeps its session from expiring. Raises Refusal as `find` does."""
        session = self.find(session_id)
        call = Pending(method, session, raw, self._ticket(), deadline)
        session.pending.add(call)
        return call

    def again(self, call: Pending) -> None:
        """Admit a call once more that `execute` found to be out of order."""
        call.session.pending.add(call)

    def finish(self, call: Pending) -> None:
        """The call is answered; the lease begins anew."""
        session = call.session
        session.pending.discard(call)
        session.expires = max(session.expires, self.clock() + session.lease)

    def close(self, session_id: str) -> Session | None:
        """Take a session out and cancel what it computes; to be followed by `drop`. None if it is gone already."""
        with self._lock:
            session = self.sessions.pop(session_id, None)
        if session is not None:
            session.closed = True
            self.closing.add(session)
            session.brake.cancel_ticket = self.last_ticket
        return session

    def sweep(self) -> list[Session]:
        """Take the sessions out whose lease ran out; each is to be given to `drop`."""
        now = self.clock()
        with self._lock:
            expired = [each for each in self.sessions.values() if now >= each.expires and not each.pending]
            for session in expired:
                del self.sessions[session.id]
                session.closed = True
                self.closing.add(session)
                self.tombstones[session.id] = None
                log.info("session expired", extra={"session": session.id[:_ID_SHOWN], "bytes": session.account.bytes})
            while len(self.tombstones) > self.limits.tombstones:
                self.tombstones.popitem(last=False)
        return expired

    def cancel_all(self) -> None:
        """Stop whatever runs or waits, because the server ends."""
        for session in list(self.sessions.values()):
            session.brake.cancel_ticket = self.last_ticket

    def server_info(self) -> service_pb2.ServerInfoResponse:
        """What the server is and allows."""
        return service_pb2.ServerInfoResponse(
            version=__version__,
            min_protocol=PROTOCOL,
            max_protocol=PROTOCOL,
            devices=[device_info(name) for name in available()],
            dtypes=[TO_WIRE[dtype] for dtype in BY_NAME.values()],  # type: ignore[misc]
            limits=self.limits.message(),
            build=build_info(),
            sessions=len(self.sessions),
            bytes=sum(session.account.bytes for session in list(self.sessions.values())),
        )

    def list_ops(self, prefix: str) -> bytes:
        """The ops whose names begin so, serialized."""
        everything = self._ops.get("")
        if everything is None:
            everything = self._ops[""] = schemas(REGISTRY).SerializeToString()
        if not prefix:
            return everything
        ops = service_pb2.ListOpsResponse.FromString(everything).ops
        return service_pb2.ListOpsResponse(ops=[op for op in ops if op.name.startswith(prefix)]).SerializeToString()

    def _ticket(self) -> int:
        self.last_ticket = next(self.tickets)
        return self.last_ticket

    # Compute: one thread, in order

    def execute(self, call: Pending) -> bytes:
        """Apply a command or a batch. Raises Refusal, OutOfOrder; nothing else."""
        session = call.session
        before = session.account.bytes
        try:
            if session.closed:
                raise Refusal("SESSION_NOT_FOUND", "the session was closed")
            self._limit(session)
            return run_batch(call) if call.method == "Run" else run_unary(call)
        except (Refusal, OutOfOrder):
            raise
        except Exception as error:  # noqa: BLE001 - a refusal too; the unforeseen is logged
            raise refusal_of(error, call.method) from None
        finally:
            self.bytes += session.account.bytes - before

    def drop(self, session: Session) -> int:
        """Free all that a closed session holds; how many bytes that was."""
        held = session.account.bytes
        session.drop()
        if session.account.bytes:  # cycles of released tensors, which `create_graph` made
            gc.collect()
        self.bytes -= held
        self.closing.discard(session)
        return held - session.account.bytes

    def _limit(self, session: Session) -> None:
        """What the server has left is a session's limit too, where that is less than its own."""
        left = self.limits.max_bytes - self.bytes + session.account.bytes
        session.account.limit = max(1, min(self.limits.max_session_bytes, left))

    def begin_upload(self, session_id: str, start: service_pb2.UploadStart) -> "Arrival":
        """Begin an upload or go on with one. Raises Refusal: TRANSFER_NOT_FOUND, PAYLOAD_SIZE, MEMORY_LIMIT."""
        session = self.find(session_id)
        transfers = session.transfers
        before = session.account.bytes
        self._limit(session)
        transfer_id = start.transfer_id or transfers.begin(
            start.total_bytes, self.limits.max_tensor_bytes, start.request_id
        )
        upload, taker = transfers.resume(transfer_id)
        self.bytes += session.account.bytes - before
        return Arrival(session, transfer_id, upload, taker, start.offset)

    def finish_download(self, session_id: str, transfer_id: str, received: bool) -> None:
        """A download was sent to its end, and perhaps it is known to have arrived."""
        session = self.sessions.get(session_id)
        if session is not None:
            before = session.account.bytes
            session.transfers.finish(transfer_id, received)
            self.bytes += session.account.bytes - before

    def tidy(self) -> None:
        """Drop the transfers that nobody goes on with, and count all bytes anew."""
        for session in list(self.sessions.values()):
            if session.transfers.held:
                session.transfers.tidy()
        self.rings.tidy()
        held = [*self.sessions.values(), *self.closing]
        self.bytes = sum(session.account.bytes for session in held)

    # Transfers: copying one chunk, from either thread

    def append(self, arrival: "Arrival", data: memoryview) -> None:
        """Take the next bytes of an upload. Raises Refusal: ARGUMENT_VALUE, PAYLOAD_SIZE, MESSAGE_TOO_LARGE."""
        session = self.find(arrival.session.id)
        if data.nbytes > self.limits.chunk_bytes:
            limit = self.limits.chunk_bytes
            raise Refusal("MESSAGE_TOO_LARGE", f"a chunk has at most {limit} bytes, not {data.nbytes}", limit=limit)
        session.transfers.append(arrival.upload, arrival.taker, arrival.offset, data)
        arrival.offset += data.nbytes

    def chunk(self, session_id: str, transfer_id: str, offset: int) -> tuple[bytes, int]:
        """A DownloadResponse, serialized, and where the next one begins, 0 after the last.

        Raises Refusal: TRANSFER_NOT_FOUND, ARGUMENT_VALUE.
        """
        download = self._download(session_id, transfer_id, offset)
        head = service_pb2.DownloadResponse(offset=offset).SerializeToString()
        with download.copying(offset, self.limits.chunk_bytes) as data:
            end = offset + data.nbytes
            message = b"".join((head, bytes_field(_DATA_FIELD, data.nbytes), data))
        return message, 0 if end == download.total else end

    def _download(self, session_id: str, transfer_id: str, offset: int) -> Download:
        download = self.find(session_id).transfers.download(transfer_id)
        if offset >= download.total:
            raise Refusal(
                "ARGUMENT_VALUE",
                f"the transfer has {download.total} bytes; there are none at {offset}",
                argument="offset",
                total_bytes=download.total,
            )
        return download

    # Shared memory: from any one thread at a time, but for the copying

    def lend_ring(self, session_id: str, nonce: str) -> Ring:
        """A ring for one call. Raises Refusal: NOT_SUPPORTED, ARGUMENT_VALUE."""
        return self.rings.take(self.find(session_id).id, nonce)

    def return_ring(self, session_id: str, ring: Ring, clean: bool) -> None:
        """The call has ended; `clean` if the client is known to have done with the ring."""
        self.rings.give_back(session_id, ring, clean and session_id in self.sessions)

    def take(self, arrival: "Arrival", ring: Ring, place: int, size: int) -> None:
        """Take an upload's next bytes out of a ring. Raises Refusal as `append` does."""
        session = self.find(arrival.session.id)
        session.transfers.append(arrival.upload, arrival.taker, arrival.offset, ring.bytes[place : place + size].data)
        arrival.offset += size

    def give(self, session_id: str, transfer_id: str, offset: int, ring: Ring, place: int) -> tuple[int, int]:
        """Put a download's next piece into a ring; its size, and where the next one begins, 0 after the last."""
        download = self._download(session_id, transfer_id, offset)
        with download.copying(offset, ring.piece) as data:
            size = data.nbytes
            ring.bytes[place : place + size] = np.frombuffer(data, np.uint8)
        return size, 0 if offset + size == download.total else offset + size


@dataclass(slots=True)
class Arrival:
    """An upload's call: what it appends to, and where its next bytes go."""

    session: Session
    transfer_id: str
    upload: Upload
    taker: int
    offset: int
