"""`Backend`: assigns each session to a worker and forwards its calls. interface.py has the contract."""

import asyncio
import json
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing, suppress
from pathlib import Path
from typing import Any, TypeAlias

from gradwire.v1 import service_pb2, snapshots_pb2
from gradwire_server import __version__
from gradwire_server.auth.principals import CALLER
from gradwire_server.common.errors import Refusal
from gradwire_server.common.limits import Limits
from gradwire_server.common.protobuf_peek import peek_run
from gradwire_server.common.protocol import PROTOCOL, ids_of
from gradwire_server.common.shared_counters import SharedCounters
from gradwire_server.registry.cluster_quotas import ClusterQuotas
from gradwire_server.registry.files import Files
from gradwire_server.registry.gangs import gang_of
from gradwire_server.registry.group_homes import Homes
from gradwire_server.registry.group_nodes import GroupNodes
from gradwire_server.registry.groups import Groups
from gradwire_server.registry.handed_over import HandedOver
from gradwire_server.registry.peer_links import Peers
from gradwire_server.registry.persistence import Persistence, instruction_of
from gradwire_server.registry.placement import GangRefused, PlacementClient
from gradwire_server.registry.principal_rows import PrincipalRows
from gradwire_server.registry.session_catalog import SessionCatalog
from gradwire_server.registry.session_registry import SessionRegistry
from gradwire_server.worker.frames import KEEP, NUMBER
from gradwire_server.worker.rings import machine
from gradwire_server.worker_pool.bulk_transfer import LentRing, OpenUpload
from gradwire_server.worker_pool.session_entry import SessionEntry
from gradwire_server.worker_pool.worker import Answered, Load, StorageOptions, Worker, WorkerEvents

_SWEEP_SECONDS = 1.0
_REPORT_SECONDS = 2.0  # deadline for a worker's answer about what it holds
_MOST_LISTED = 1000  # sessions on one page
_NUMBER_DIGITS = 18
Opening: TypeAlias = service_pb2.OpenSessionRequest | snapshots_pb2.RestoreSessionRequest


class Backend:
    """Sessions and their workers. Holds leases, writer numbers and the table from session to worker."""

    def __init__(
        self,
        limits: Limits,
        make: Callable[[Load, WorkerEvents], Sequence[Worker]],
        counters: SharedCounters,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`make` makes the workers, with what they report to."""
        self.limits = limits
        self.counters = counters
        self.principal_rows = PrincipalRows(limits, counters)
        self.load = Load(counters)
        self.persistence: Persistence | None = None
        self.placement: PlacementClient | None = None  # names the servers for new sessions, in a cluster
        self.metrics = ""  # address at which metrics are served
        self.draining = False
        self.local_stream = ""  # name of the Unix socket for local streams
        self.registry: SessionRegistry[Worker] = SessionRegistry(limits, clock)
        self.cluster_quotas = ClusterQuotas(counters, self.principal_rows, self.registry, clock)
        self.files = Files(self.registry)
        self.groups = Groups(self.registry.of_number)
        self.group_nodes: GroupNodes | None = None  # groups whose ranks have several servers
        self._server_info: service_pb2.ServerInfoResponse
        self._sweeper: asyncio.Task[None]
        self._ops = b""
        self._store = ""
        registry = self.registry
        events = WorkerEvents(registry.begin, registry.finish, self.evict, self.groups.received, self.moved, self.lost)
        self.workers = make(self.load, events)

    async def persist_in(self, catalog: SessionCatalog, logs: bool, every: float, store: str = "") -> None:
        """Store sessions in a directory, or where `store` says (configured.py). Call before `start`.

        Raises OSError if the directory cannot be opened.
        """
        self._store = store
        await asyncio.get_running_loop().run_in_executor(None, catalog.open)
        self.persistence = Persistence(self, catalog, logs, every)

    def share_groups(self, peers: Peers, folder: Path) -> None:
        """Let sessions form groups with those of other servers, which share a folder. Call before `start`."""
        self.groups.nodes = self.group_nodes = GroupNodes(
            self.groups, Homes(folder), peers, self.limits.max_session_bytes
        )

    async def start(self) -> None:
        """Start the workers and the sweep of leases."""
        keeps = self.persistence
        storing = None if keeps is None else StorageOptions(keeps.catalog.lock, keeps.logs, self._store)
        self._server_info = (await asyncio.gather(*(worker.start(storing) for worker in self.workers)))[0]
        self._sweeper = asyncio.create_task(self._sweep())
        if self.persistence is not None:
            await self.persistence.start()
        if self.group_nodes is not None:
            await self.group_nodes.start()
        if self.placement is not None:
            self.placement.start(self.load_report, self.cluster_quotas)

    def load_report(self) -> dict[str, Any]:
        """What placement compares, and administrators see: the fields of Load (cluster/placement.py)."""
        return {
            "sessions": len(self.registry.entries),
            "workers": len(self.workers),
            "gpus": sum(device.name != "cpu" for device in self._server_info.devices),
            "bytes": self.counters.total(),
            "max_bytes": self.limits.max_bytes,
            "draining": self.draining,
            "device_types": self.device_types(),
            "version": __version__,
            "metrics": self.metrics,
            "max_sessions": self.limits.max_sessions,
            "opened": self.registry.opened,
            "gangs": self.registry.gangs.report(),
            "max_principal_sessions": self.limits.max_principal_sessions,
        }

    def device_types(self) -> list[str]:
        """The types of this server's devices, such as "cpu" and "cuda"."""
        return sorted({device.name.partition(":")[0] for device in self._server_info.devices})

    async def _endpoint_for(self, request: Opening) -> str:
        """The address of the server that is to open a session; "" for this one.

        Raises Refusal: DEVICE_UNAVAILABLE, ARGUMENT_VALUE, SESSION_LIMIT if a gang has no room.
        """
        wanted, principal = request.device_type, CALLER.get().name
        gang, size = gang_of(request, principal) if isinstance(request, service_pb2.OpenSessionRequest) else ("", 0)
        if request.follows_endpoint and self.placement is not None:
            try:
                if other := await self.placement.choose(wanted, gang and json.dumps([principal, gang]), size):
                    return other
            except GangRefused as refused:
                raise Refusal("SESSION_LIMIT", str(refused)) from None
        if self.draining:
            raise self.refusal_in_drain()
        if wanted and wanted not in self.device_types():
            found = ", ".join(self.device_types())
            raise Refusal(
                "DEVICE_UNAVAILABLE", f"no server was found with a device of the type {wanted!r}; this one has {found}"
            )
        return ""

    async def unstorable_sessions(self) -> frozenset[str]:
        """Sessions that cannot be stored yet: a backward waits for its client, and no snapshot can hold that."""
        if self.persistence is None or self.persistence.logs:
            return frozenset()
        reports = await self.usage_report(0, 1 << 62)
        counts = {number: held[-1] for worker in reports.values() for number, held in worker["sessions"].items()}
        entries = self.registry.entries.values()
        # A busy worker does not answer in time: count all its sessions.
        return frozenset(entry.id for entry in entries if counts.get(entry.number, entry.worker.index not in reports))

    def begin_drain(self) -> None:
        """Open no more sessions, and let the cluster know."""
        self.draining = True
        if self.placement is not None:
            self.placement.report()

    def admits_in_drain(self, method: str) -> bool:
        """Whether a call is answered while the server ends: one that opens a session is sent to another server."""
        return self.placement is not None and method in ("OpenSession", "RestoreSession")

    def refusal_in_drain(self, session_id: str | None = None) -> Refusal:
        """Why a call is refused while the server ends: the session may be at another server already."""
        gone = HandedOver() if self.persistence is None else self.persistence.handed_over
        return gone.refusal(session_id)

    async def hand_over(self, finishing: frozenset[str]) -> None:
        """Give the sessions to other servers of the cluster, if there are any, but not those that finish here."""
        if self.persistence is not None:
            choose = _nowhere if self.placement is None else self.placement.choose
            await self.persistence.hand_over(choose, finishing)

    async def stop(self, grace: float) -> int:
        """Store the sessions to keep, free all, end the workers within the grace. Returns how many were not stored."""
        self._sweeper.cancel()
        with suppress(asyncio.CancelledError):
            await self._sweeper
        if self.placement is not None:
            await self.placement.stop()
        if self.group_nodes is not None:
            await self.group_nodes.stop()
        lost = 0 if self.persistence is None else await self.persistence.stop(grace)
        for entry in self.registry.empty():
            if entry.worker.alive:
                self.drop(entry, KEEP if self.persistence is not None else b"")
        await asyncio.gather(*(worker.stop(grace) for worker in self.workers))
        if self.persistence is not None:
            self.persistence.catalog.close()
        return lost

    async def open_session(self, request: service_pb2.OpenSessionRequest) -> service_pb2.OpenSessionResponse:
        """Open a session or attach a writer, or name the server that is to open the session.

        Raises Refusal: PROTOCOL_VERSION, SESSION_LIMIT, SESSION_NOT_FOUND, SESSION_MOVED, DEVICE_UNAVAILABLE.
        """
        least, most = request.min_protocol or 1, request.max_protocol or max(1, request.min_protocol)
        if not least <= PROTOCOL <= most:
            raise Refusal(
                "PROTOCOL_VERSION",
                f"the server speaks protocol {PROTOCOL}, the client {least} to {most}",
                min_protocol=PROTOCOL,
                max_protocol=PROTOCOL,
            )
        if request.session_id:
            if self.draining:
                raise self.refusal_in_drain(request.session_id)
            found = self.registry.find(request.session_id)
            if found.restoring is not None:
                await asyncio.wait((found.restoring,))
            entry = self.registry.attach(request.session_id)
            if self.persistence is None:
                entry.worker.notify("Attach", entry.number, NUMBER.pack(entry.writers))
            else:
                await self.persistence.attached(entry)
        else:
            if other := await self._endpoint_for(request):
                return service_pb2.OpenSessionResponse(endpoint=other)
            counter_row = self.principal_rows.of(CALLER.get().name, self.registry.has_sessions)
            entry = self.registry.open(request, self.choose_worker)
            entry.worker.add_session()
            if self.persistence is None:
                entry.worker.notify("Open", entry.number, instruction_of(entry, counter_row).pack())
            else:
                await self._open_stored(self.persistence, entry, counter_row)
        return self.opened(entry)

    async def _open_stored(self, persistence: Persistence, entry: SessionEntry[Worker], counter_row: int) -> None:
        try:
            await persistence.opened(entry, counter_row)
        except BaseException as error:
            await self.not_opened(entry, error)
            raise

    async def not_opened(self, entry: SessionEntry[Worker], error: BaseException) -> None:
        """Remove a session whose id no client has, and its files. Raises Refusal: UNAVAILABLE, if its worker ended."""
        if self.registry.entries.get(entry.id) is entry:
            self.registry.remove(entry)
            self.drop(entry)
            return
        if self.persistence is not None:
            await self.persistence.forget(entry)
        if isinstance(error, Refusal) and error.reason in ("SESSION_NOT_FOUND", "UNAVAILABLE"):
            why = "the worker process that was to hold the session ended; try again"
            raise Refusal("UNAVAILABLE", why) from None

    def opened(self, entry: SessionEntry[Worker]) -> service_pb2.OpenSessionResponse:
        """The answer to a session's newest writer."""
        first_id, last_id = ids_of(entry.writers)
        return service_pb2.OpenSessionResponse(
            session_id=entry.id,
            writer=entry.writers,
            epoch=entry.epoch,
            lease_ms=int(entry.lease * 1000),
            expires_unix_ms=_unix_ms(entry.lease),
            protocol=PROTOCOL,
            limits=self.limits.message(),
            machine=machine() if self.limits.max_shared_bytes else "",
            local_stream=self.local_stream,
            first_id=first_id,
            last_id=last_id,
        )

    def choose_worker(self) -> Worker:
        """The worker for a new session: fewest active sessions, sessions, bytes. Raises Refusal: UNAVAILABLE."""
        alive = [worker for worker in self.workers if worker.alive]
        if not alive:
            raise Refusal("UNAVAILABLE", "the server's worker processes are being started; try again")
        return min(alive, key=lambda each: (each.active, each.sessions, self.counters.bytes(each.index)))

    async def close_session(self, session_id: str) -> int:
        """End a session and cancel its computations; bytes freed."""
        entry = self.registry.close(session_id)
        if entry is None and self.persistence is not None:
            await self.persistence.close(session_id)
        return 0 if entry is None else await self.drop(entry)

    async def keep_alive(self, session_id: str) -> service_pb2.KeepAliveResponse:
        """Renew a lease."""
        entry = self.registry.find(session_id)
        return service_pb2.KeepAliveResponse(
            lease_ms=int(entry.lease * 1000), epoch=entry.epoch, expires_unix_ms=_unix_ms(entry.lease)
        )

    async def cancel(self, request: service_pb2.CancelRequest) -> service_pb2.CancelResponse:
        """Cancel a session's computations; whether there were any. Raises Refusal: ARGUMENT_VALUE."""
        entry = self.registry.find(request.session_id)
        if not request.through_seq:
            entry.worker.cancel(entry)
            return service_pb2.CancelResponse(cancelled=bool(entry.pending))
        if not 1 <= request.writer <= entry.writers:
            raise Refusal(
                "ARGUMENT_VALUE",
                f"the session has no writer {request.writer}; OpenSession gives one",
                argument="writer",
            )
        entry.worker.cancel(entry, (request.writer, request.through_seq))
        runs = [peek_run(raw) for method, raw in entry.pending.values() if method == "Run"]
        return service_pb2.CancelResponse(
            cancelled=any(
                run is None or (run.writer == request.writer and run.first_seq <= request.through_seq) for run in runs
            )
        )

    def stop_work(self, principal: str) -> None:
        """Cancel the computations of a principal's sessions."""
        for entry in self.registry.entries.values():
            if entry.owner == principal and entry.pending:
                entry.worker.cancel(entry)

    def call(
        self,
        method: str,
        session_id: str,
        raw: bytes,
        deadline: float | None,
        at_once: Callable[[bytes], bool] | None = None,
        then: Answered | None = None,
    ) -> "asyncio.Future[bytes]":
        """Submit a command or a batch. A thread that has the answer may call `at_once` with it, before the future."""
        entry = self.registry.find(session_id)
        return entry.worker.call(entry, method, raw, deadline, at_once, then)

    def stream_opened(self, session_id: str) -> None:
        """Note that a client opened a stream."""
        self.groups.stream_opened(session_id)

    def stream_closed(self, session_id: str) -> None:
        """Note that a stream ended; its client may be gone."""
        self.groups.stream_closed(session_id, self.registry.entries.get(session_id))

    def when_answered(self, then: Callable[[], None]) -> None:
        """Register a callback for each answered request."""
        self.registry.answered = then

    def check_traffic(self, session_id: str, size: int) -> None:
        """Check that another request may be submitted. Raises Refusal: TRAFFIC_LIMIT."""
        self.registry.check_traffic(session_id, size)

    def is_full(self, session_id: str) -> bool:
        """Whether to stop reading a session's stream for now."""
        return self.registry.is_full(session_id)

    async def begin_upload(self, session_id: str, start: service_pb2.UploadStart) -> OpenUpload[Worker]:
        """Begin or resume an upload."""
        entry = self.registry.find(session_id)
        return await entry.worker.transfers.begin_upload(entry, start)

    async def append(self, upload: OpenUpload[Worker], data: memoryview) -> None:
        """Receive an upload's next bytes. Raises Refusal: ARGUMENT_VALUE, PAYLOAD_SIZE, MESSAGE_TOO_LARGE."""
        self.registry.find(upload.entry.id)
        if data.nbytes > self.limits.chunk_bytes:
            limit = self.limits.chunk_bytes
            raise Refusal("MESSAGE_TOO_LARGE", f"a chunk has at most {limit} bytes, not {data.nbytes}", limit=limit)
        await upload.entry.worker.transfers.append(upload, data)

    async def end_upload(self, upload: OpenUpload[Worker]) -> int:
        """Bytes that the upload has received."""
        received = await upload.entry.worker.transfers.end_upload(upload)
        await self.keep_upload(upload)
        return received

    async def keep_upload(self, upload: OpenUpload[Worker]) -> None:
        """Store a complete upload's bytes, if the server logs what it acknowledges."""
        if self.persistence is not None and self.persistence.logs:
            await upload.entry.worker.call(upload.entry, "KeepUpload", upload.transfer_id.encode())

    def leave_upload(self, upload: OpenUpload[Worker]) -> None:
        """Release an upload's call."""
        upload.entry.worker.transfers.leave_upload(upload)

    async def chunks(self, session_id: str, transfer_id: str, offset: int) -> AsyncGenerator[bytes, None]:
        """Parts of a download. Each looks the session up, so a transfer renews the lease and ends with the session."""
        entry = self.registry.find(session_id)
        async with aclosing(entry.worker.transfers.chunks(entry, transfer_id, offset)) as parts:
            async for message in parts:
                self.registry.find(session_id)
                yield message

    async def finish_download(self, session_id: str, transfer_id: str, received: bool = False) -> None:
        """Finish a download that was sent completely."""
        entry = self.registry.entries.get(session_id)
        if entry is not None:
            await entry.worker.call(entry, "FinishDownload", bytes((received,)) + transfer_id.encode())

    async def lend_ring(self, session_id: str, nonce: str) -> LentRing[Worker]:
        """Lend shared memory for one call."""
        entry = self.registry.find(session_id)
        return await entry.worker.transfers.lend_ring(entry, nonce)

    async def return_ring(self, session_id: str, ring: LentRing[Worker], clean: bool) -> None:
        """Return a ring after its call."""
        ring.entry.worker.transfers.return_ring(ring, clean)

    async def read_ring(self, upload: OpenUpload[Worker], ring: LentRing[Worker], ring_offset: int, size: int) -> None:
        """Receive an upload's next bytes from a ring."""
        self.registry.find(upload.entry.id)
        await upload.entry.worker.transfers.read_ring(upload, ring, ring_offset, size)

    async def write_ring(
        self, session_id: str, transfer_id: str, offset: int, ring: LentRing[Worker], ring_offset: int
    ) -> tuple[int, int]:
        """Write a download's next piece into a ring."""
        entry = self.registry.find(session_id)
        return await entry.worker.transfers.write_ring(entry, transfer_id, offset, ring, ring_offset)

    async def server_info(self) -> service_pb2.ServerInfoResponse:
        """Description and limits of the server."""
        info = service_pb2.ServerInfoResponse()
        info.CopyFrom(self._server_info)
        info.min_protocol = info.max_protocol = PROTOCOL
        info.limits.CopyFrom(self.limits.message())
        info.sessions = len(self.registry.entries)
        info.bytes = self.counters.total()
        return info

    async def list_ops(self, prefix: str, known_hash: str = "") -> bytes:
        """The ops whose names begin with `prefix`: a serialized ListOpsResponse, without ops if their hash is known."""
        if not self._ops:
            self._ops = await self.choose_worker().list_ops()
        if not prefix and not known_hash:
            return self._ops
        found = service_pb2.ListOpsResponse.FromString(self._ops)
        some = [] if known_hash == found.hash else [op for op in found.ops if op.name.startswith(prefix)]
        return service_pb2.ListOpsResponse(ops=some, hash=found.hash).SerializeToString()

    async def list_sessions(self, request: service_pb2.ListSessionsRequest) -> service_pb2.ListSessionsResponse:
        """One page of all sessions. Raises Refusal: ARGUMENT_VALUE; NOT_SUPPORTED if the server stores none."""
        answer = await self._listed(request)
        if request.nodes and self.placement is not None:
            answer.nodes.extend(_node(*each) for each in (await self.placement.nodes()).items())
        return answer

    async def _listed(self, request: service_pb2.ListSessionsRequest) -> service_pb2.ListSessionsResponse:
        after = request.page_token or "0"
        if not after.isdecimal() or len(after) > _NUMBER_DIGITS:
            raise Refusal("ARGUMENT_VALUE", "page_token must come from an earlier response", argument="page_token")
        most = min(request.page_size or _MOST_LISTED, _MOST_LISTED)
        if request.stored:
            return _page(self.required_persistence().stored(int(after), request.principal, most + 1), most)
        found = self.registry.listed(int(after), request.principal, most + 1)
        now = self.registry.clock()
        held: dict[int, list[Any]] = {}
        for report in (await self.usage_report(found[0].number, found[-1].number) if found else {}).values():
            held.update(report["sessions"])
        page = [
            service_pb2.SessionSummary(
                **_summary_fields(held.get(entry.number)),
                number=entry.number,
                principal=entry.owner,
                client=entry.client,
                age_ms=int((now - entry.opened) * 1000),
                lease_left_ms=max(0, int((entry.expires - now) * 1000)),
                writers=entry.writers,
                pending=len(entry.pending),
                worker=entry.worker.index,
                unstored=entry.unstored,
            )
            for entry in found
        ]
        return _page(page, most)

    async def usage_report(self, first: int, last: int) -> dict[int, dict[str, Any]]:
        """By worker index, what each worker holds (Runtime.usage_report). Omits workers that do not answer."""

        async def request(worker: Worker) -> dict[str, Any] | None:
            try:
                return await asyncio.wait_for(worker.usage_report(first, last), _REPORT_SECONDS)
            except (Refusal, asyncio.TimeoutError):  # the worker is busy, has ended or is starting
                return None

        alive = [worker for worker in self.workers if worker.alive]
        answers = await asyncio.gather(*map(request, alive))
        return {worker.index: report for worker, report in zip(alive, answers, strict=True) if report is not None}

    async def end_session(self, number: int, stored: bool = False) -> int:
        """End any principal's session and cancel its computations, or delete an evicted one; bytes freed.

        Raises Refusal: SESSION_NOT_FOUND; NOT_SUPPORTED if the server stores none.
        """
        if stored:
            return await self.required_persistence().end(number)
        return await self.drop(self.registry.end(number))

    def sweep(self) -> "list[asyncio.Future[int]]":
        """End the sessions whose lease ran out. Bytes freed, one future per session; none if sessions are stored."""
        if self.persistence is not None:
            self.persistence.expired(self.registry.overdue())
            return []
        return [self.drop(entry) for entry in self.registry.sweep()]

    def drop(self, entry: SessionEntry[Worker], how: bytes = b"") -> "asyncio.Future[int]":
        """Free the memory of a session removed from the registry; bytes freed."""
        self.groups.session_ended(entry, "its session ended")
        entry.worker.remove_session()
        entry.worker.close(entry)
        return asyncio.ensure_future(_freed(entry.worker.call(entry, "Drop", how)))

    def lost(self, worker: Worker, why: str) -> tuple[int, Refusal]:
        """Remove an ended worker's sessions. Returns how many are lost, and the refusal for pending calls."""
        lost = self.registry.lost(worker, why)
        for entry in lost:
            self.groups.session_ended(entry, why)
        if self.persistence is not None:
            lost_entries = self.persistence.lost(lost, why)
            if len(lost_entries) < len(lost):
                return len(lost_entries), Refusal(
                    "UNAVAILABLE", f"{why}; its stored sessions will be restored; try again"
                )
        return len(lost), Refusal("SESSION_NOT_FOUND", f"the session is gone: {why}")

    def evict(self, entry: SessionEntry[Worker]) -> None:
        """Evict a session whose memory is unusable; its files have all that was answered."""
        if self.persistence is not None:
            self.persistence.evict(entry)

    def moved(self, entry: SessionEntry[Worker]) -> None:
        """Free the memory of a session that another server owns."""
        if self.persistence is not None:
            self.persistence.moved(entry)

    def required_persistence(self) -> "Persistence":
        """The persistence of sessions. Raises Refusal: NOT_SUPPORTED, if the server stores no sessions."""
        if self.persistence is None:
            raise Refusal("NOT_SUPPORTED", "the server keeps no sessions: it has no --state-dir")
        return self.persistence

    async def save_session(self, request: snapshots_pb2.SaveSessionRequest, raw: bytes) -> bytes:
        """Store a session's own state, or a named snapshot of it."""
        entry = self.registry.find(request.session_id)
        return await self.required_persistence().save(entry, request, raw)

    async def restore_session(
        self, request: snapshots_pb2.RestoreSessionRequest, raw: bytes
    ) -> service_pb2.RestoreSessionResponse:
        """Open a session that begins as a named snapshot, or name the server that is to open it."""
        if other := await self._endpoint_for(request):
            return service_pb2.RestoreSessionResponse(session=service_pb2.OpenSessionResponse(endpoint=other))
        return await self.required_persistence().restore(request, raw)

    async def list_snapshots(self) -> snapshots_pb2.ListSnapshotsResponse:
        """The caller's named snapshots."""
        return await self.required_persistence().listed()

    async def delete_snapshot(self, name: str) -> int:
        """Delete one of the caller's named snapshots; bytes freed."""
        return await self.required_persistence().delete(name)

    def tidy(self) -> "list[asyncio.Future[None]]":
        """Tell all workers to recount what they hold and drop what was abandoned."""
        return [worker.notify("Tidy", 0, b"") for worker in self.workers if worker.alive]

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(_SWEEP_SECONDS)
            self.load.tick()
            self.sweep()
            active = Counter(self.registry.active())
            for worker in self.workers:
                worker.count_active(active[worker])
            self.tidy()


async def _nowhere() -> str:
    """The endpoint for a session whose client must find the server."""
    return ""


def _node(endpoint: str, load: dict[str, Any]) -> service_pb2.ClusterNode:
    """A node's report, which may be of another version, as an administrator sees it."""
    known = {name: load[name] for name in service_pb2.ClusterNode.DESCRIPTOR.fields_by_name if name in load}
    return service_pb2.ClusterNode(endpoint=endpoint, silent_ms=int(1000 * load["silent"]), **known)


def _page(found: list[service_pb2.SessionSummary], most: int) -> service_pb2.ListSessionsResponse:
    """A page of `most` sessions at most, and the next page's token if there are more."""
    page = found[:most]
    more = str(page[-1].number) if len(found) > most else ""
    return service_pb2.ListSessionsResponse(sessions=page, next_page_token=more)


def _summary_fields(report: list[Any] | None) -> dict[str, Any]:
    """A worker's numbers of a session as fields of SessionSummary; empty if there are none."""
    if report is None:
        return {}
    held, tensors, commands, computed, _ = report
    return {"bytes": held, "tensors": tensors, "commands": commands, "compute_us": int(computed * 1e6)}


def _unix_ms(seconds: float) -> int:
    """Wall time so many seconds from now, in milliseconds since the Unix epoch."""
    return int((time.time() + seconds) * 1000)


async def _freed(answer: "asyncio.Future[bytes]") -> int:
    try:
        freed: int = NUMBER.unpack(await answer)[0]
    except Refusal:  # the worker has ended, and its memory is free
        return 0
    return freed
