"""Persistence: lets sessions outlive their lease, their worker and the server. This is the front's side.

A lookup finds an evicted session like any other. The session gets a number and a worker. The worker restores the
session before the call that asked for it, so a returning client notices nothing.

The store may be slow, so its calls run in threads of their own, a bounded number. The event loop makes none.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Protocol, TypeVar
from weakref import WeakValueDictionary

from gradwire.v1 import service_pb2
from gradwire.v1 import snapshots_pb2 as pb
from gradwire_server.auth.principals import CALLER
from gradwire_server.common.errors import Refusal, refusal_of
from gradwire_server.common.limits import Limits
from gradwire_server.registry.cluster_quotas import ClusterQuotas
from gradwire_server.registry.groups import Groups
from gradwire_server.registry.handed_over import HandedOver
from gradwire_server.registry.principal_rows import PrincipalRows
from gradwire_server.registry.session_catalog import SessionCatalog, StoredSession, digest_of
from gradwire_server.registry.session_registry import SessionRegistry
from gradwire_server.registry.shared_catalog import Lookups, SharedCatalog
from gradwire_server.storage.instructions import LATER, StorageInstruction
from gradwire_server.worker.frames import KEEP, NUMBER
from gradwire_server.worker_pool.session_entry import SHORT_ID_LENGTH, SessionEntry
from gradwire_server.worker_pool.worker import Worker

_SWEEP_SECONDS = 60.0
_MOVED_SECONDS = 2.0  # between looks for sessions that another server took over
_SAVE_WAIT_SECONDS = 1.0  # a busy session delays the periodic snapshots of its worker's other sessions by at most this
_HAND_OVER_SECONDS = 0.02  # between looks for sessions whose calls are answered now
_HANDED_AT_ONCE = 16
_THREADS = 8  # calls of the store at once
_PERMANENT = ("SNAPSHOT_DAMAGED", "SNAPSHOT_NOT_FOUND", "DEVICE_UNAVAILABLE", "NOT_SUPPORTED")
T = TypeVar("T")

log = logging.getLogger("gradwire.server")


class OpenSessions(Protocol):
    """What persistence needs of the backend (backend.py): open sessions, workers, principals' counter rows."""

    limits: Limits
    registry: SessionRegistry[Worker]
    workers: Sequence[Worker]
    principal_rows: PrincipalRows
    groups: Groups
    cluster_quotas: ClusterQuotas

    def choose_worker(self) -> Worker:
        """The worker for a new session. Raises Refusal: UNAVAILABLE."""

    def opened(self, entry: SessionEntry[Worker]) -> service_pb2.OpenSessionResponse:
        """The answer to a session's newest writer."""

    async def not_opened(self, entry: SessionEntry[Worker], error: BaseException) -> None:
        """Remove a session whose id no client has, and its files. Raises Refusal: UNAVAILABLE, if its worker ended."""

    def drop(self, entry: SessionEntry[Worker], how: bytes = b"") -> asyncio.Future[int]:
        """Free the memory of a session removed from the registry; bytes freed."""


class Persistence:
    """The front's side of stored sessions.

    `logs`: whether workers log what they answer. `every`: seconds between snapshots, 0 for none.
    """

    def __init__(self, backend: OpenSessions, catalog: SessionCatalog, logs: bool, every: float) -> None:
        self.backend = backend
        self.catalog = catalog
        self.logs = logs
        self.every = every
        self.failures = 0  # failed saves
        self._tasks: list[asyncio.Task[None]] = []
        self._saving: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()  # by principal
        self._closing: set[asyncio.Task[None]] = set()  # evictions and confirmations under way
        self._threads = ThreadPoolExecutor(_THREADS, "gradwire-catalog")  # each thread starts when it is needed
        self._storing: dict[str, asyncio.Task[bool]] = {}  # periodic snapshots under way, by session
        self._lookups = Lookups(catalog, self._in_thread) if isinstance(catalog, SharedCatalog) else None
        self.handed_over = HandedOver()
        backend.registry.restore_evicted = self.restore_evicted

    async def start(self) -> None:
        """Start the periodic snapshots and the sweep of the session catalog."""
        self._tasks = [asyncio.create_task(self._sweep())]
        if self.every:
            self._tasks.append(asyncio.create_task(self._snapshots()))
        if isinstance(self.catalog, SharedCatalog):
            self._tasks.append(asyncio.create_task(self._look_for_moved(self.catalog)))

    async def stop(self, grace: float) -> int:
        """Store all sessions within the grace, in seconds. Returns how many sessions are lost.

        Calls of the store that have not begun by then are not made.
        """
        deadline = time.monotonic() + grace
        ending = (*self._tasks, *self._storing.values())
        for task in ending:
            task.cancel()
        if ending:
            await asyncio.wait(ending)
        entries = {entry.id: entry for entry in self.backend.registry.entries.values()}
        saving = {each: asyncio.ensure_future(self._save(entry, last=True)) for each, entry in entries.items()}
        if saving:
            await asyncio.wait(saving.values(), timeout=grace)
        lost = 0
        for session_id, task in saving.items():
            entry = entries[session_id]
            if not task.cancel() and not task.cancelled() and task.exception() is None and task.result():
                continue
            # A session that could not be restored still has its files; with a log, the disk has all that was answered.
            if self.logs or self.backend.registry.entries.get(session_id) is not entry:
                continue
            lost += 1
            why = entry.unstored or f"it was not written within {grace:.0f} seconds"
            log.error("session is lost", extra={"session": entry.short_id, "principal": entry.owner, "error": why})
        if self._closing:
            await asyncio.wait(self._closing, timeout=max(0.0, deadline - time.monotonic()))
        self._threads.shutdown(wait=False, cancel_futures=True)
        return lost

    async def _save(self, entry: SessionEntry[Worker], last: bool = False) -> bool:
        """Store a session; whether it succeeded. The log, the metrics and the list of sessions show a failure."""
        try:
            await entry.worker.request("Save", entry.number, StorageInstruction(last=last).pack())
        except Exception as error:  # noqa: BLE001 - whatever it was, the session is not stored
            self._failed(entry, refusal_of(error, "Save"))
            return False
        entry.stored, entry.unstored = True, ""
        return True

    def _failed(self, entry: SessionEntry[Worker], refusal: Refusal) -> None:
        details = {"session": entry.short_id, "principal": entry.owner, "error": refusal.message}
        if LATER in refusal.metadata:
            log.info("session is stored later", extra=details)
            return
        if refusal.reason == "SESSION_MOVED":
            self.moved(entry)
            return
        self.failures += 1
        entry.unstored = refusal.message
        log.error("session is not stored", extra=details)

    @property
    def unstored(self) -> int:
        """Number of sessions whose last save failed."""
        return sum(bool(entry.unstored) for entry in self.backend.registry.entries.values())

    # Opening.

    def instruction(
        self, entry: SessionEntry[Worker], counter_row: int, folder: str = "", request: bytes = b""
    ) -> StorageInstruction:
        """The instruction that announces to a worker a new or restored session."""
        head = pb.SnapshotHead(
            session_digest=digest_of(entry.id), principal=CALLER.get().name, client=entry.client,
            lease_ms=int(entry.lease * 1000),
        )  # fmt: skip
        instruction = instruction_of(entry, counter_row)
        instruction.home, instruction.home_head = str(self.catalog.home(entry.id)), head.SerializeToString()
        instruction.folder, instruction.request = folder, request
        return instruction

    async def opened(self, entry: SessionEntry[Worker], counter_row: int) -> None:
        """Tell a worker of a new session. With a log, the session is stored before its client gets the answer."""
        await self._claim(entry)
        answer = entry.worker.request("Open", entry.number, self.instruction(entry, counter_row).pack())
        if self.logs:
            await answer
            self._stored_first(entry)
        else:
            answer.add_done_callback(partial(_log_failure, entry))

    async def _claim(self, entry: SessionEntry[Worker]) -> None:
        """Become a new session's owner, where servers share the directory. Raises Refusal: STORAGE, UNAVAILABLE."""
        if not isinstance(self.catalog, SharedCatalog):
            return
        try:
            await self._use_store(self.catalog.claim, entry.id)
        except BaseException:
            if self.backend.registry.entries.get(entry.id) is entry:  # no worker knows the session yet
                self.backend.registry.remove(entry)
                entry.worker.remove_session()
            raise
        self._check_open(entry)

    def _stored_first(self, entry: SessionEntry[Worker]) -> None:
        """Note that a new session is stored. Raises Refusal: UNAVAILABLE, if its worker ended after it answered."""
        self._check_open(entry)
        entry.stored = True

    def _check_open(self, entry: SessionEntry[Worker]) -> None:
        if self.backend.registry.entries.get(entry.id) is not entry:
            raise Refusal("UNAVAILABLE", "the worker process of the session ended; try again")

    async def forget(self, entry: SessionEntry[Worker]) -> None:
        """Delete the files of a session that its ended worker may have stored, and whose id no client has."""
        await self._use_store(self.catalog.forget, entry.id)

    async def attached(self, entry: SessionEntry[Worker]) -> None:
        """Tell a session's worker of another writer."""
        await entry.worker.request("Attach", entry.number, NUMBER.pack(entry.writers))

    def restore_evicted(self, session_id: str) -> SessionEntry[Worker] | None:
        """Restore the caller's session from the session catalog; None if it is not there. Raises Refusal."""
        self.handed_over.check(session_id)
        stored = self.catalog.find(session_id, CALLER.get().name)
        if stored is None:
            if self._lookups is not None:
                self._lookups.check(session_id, CALLER.get().name)
            return None
        backend = self.backend
        head = stored.head
        counter_row = backend.principal_rows.of(stored.head.principal, backend.registry.has_sessions)
        if isinstance(self.catalog, SharedCatalog) and self.catalog.was_taken_over(session_id):
            backend.cluster_quotas.took_over(stored.head.principal)
        entry = backend.registry.add_restored(session_id, backend.choose_worker, head.lease_ms / 1000, head.client)
        self.catalog.remove(session_id)
        entry.worker.add_session()
        entry.writers, entry.stored = backend.limits.writers, True
        instruction = self.instruction(entry, counter_row, str(stored.folder))
        entry.restoring = entry.worker.request("Restore", entry.number, instruction.pack())
        entry.restoring.add_done_callback(lambda done: self._restored(entry, head, done))
        log.info("session is being restored", extra={"session": entry.short_id, "principal": entry.owner})
        return entry

    def _restored(self, entry: SessionEntry[Worker], head: pb.SnapshotHead, done: asyncio.Future[bytes]) -> None:
        entry.restoring = None
        if done.cancelled():
            return
        failure = done.exception()
        if failure is None:
            answer = service_pb2.RestoreSessionResponse.FromString(done.result())
            entry.writers, entry.epoch = answer.session.writer, answer.session.epoch
            return
        if isinstance(failure, Refusal) and failure.reason == "SESSION_MOVED":
            self.moved(entry)
            return
        log.error("session cannot be restored", extra={"session": entry.short_id, "error": str(failure)})
        if self.backend.registry.entries.get(entry.id) is not entry:
            return
        why = failure if isinstance(failure, Refusal) and failure.reason in _PERMANENT else None
        reason, message = (failure.reason, failure.message) if isinstance(failure, Refusal) else ("INTERNAL", "")
        self.backend.registry.remove_with_tombstone(entry, reason, message)
        self._drop(entry)
        self._in_background(self._confirm(entry, self.catalog.put_unread(head, why), deletes_oldest=False))

    async def _confirm(self, entry: SessionEntry[Worker], stored: StoredSession, deletes_oldest: bool) -> None:
        """Check that a session that was put in the catalog unread is stored; its tombstone then goes."""
        if not await self._in_thread(self.catalog.confirm, stored, deletes_oldest):
            log.error("session is lost: nothing of it is stored", extra={"session": entry.short_id})
        elif stored.why is None:
            self.backend.registry.tombstones.pop(entry.id, None)

    def _in_background(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    def _drop(self, entry: SessionEntry[Worker]) -> asyncio.Future[Any]:
        """Free a session's memory and keep its files. Returns what is done when its worker writes no more."""
        self.backend.groups.session_ended(entry, "its session was put away")
        entry.worker.remove_session()
        entry.worker.close(entry)
        answer = entry.worker.call(entry, "Drop", KEEP)
        answer.add_done_callback(_ignore_failure)
        return asyncio.gather(answer, return_exceptions=True)

    # Other servers.

    def moved(self, entry: SessionEntry[Worker]) -> None:
        """Free the memory of a session that another server owns. Its files are that server's."""
        if self.backend.registry.entries.get(entry.id) is entry:
            self.backend.registry.remove(entry)
            self._drop(entry)
            log.info("session is at another server", extra={"session": entry.short_id, "principal": entry.owner})

    async def hand_over(self, choose: Callable[[], Awaitable[str]], finishing: frozenset[str]) -> None:
        """Give all sessions to the servers that `choose` names, each once its calls are answered.

        Does nothing where no other server has the directory. Sessions that cannot be stored stay. So do those that are
        `finishing`: their clients' calls are still answered, also after a snapshot.
        """
        if not isinstance(self.catalog, SharedCatalog):
            return
        entries, kept = self.backend.registry.entries, set(finishing)
        at_once = asyncio.Semaphore(_HANDED_AT_ONCE)
        self.handed_over.begin()

        async def give(entry: SessionEntry[Worker], catalog: SharedCatalog) -> None:
            async with at_once:
                if not await self._hand_over(entry, catalog, choose):
                    kept.add(entry.id)

        while left := [each for each in entries.values() if each.id not in kept]:
            idle = [each for each in left if not (each.pending or each.restoring or each.saving)]
            await asyncio.gather(*(give(each, self.catalog) for each in idle))
            await asyncio.sleep(_HAND_OVER_SECONDS)

    async def _hand_over(
        self, entry: SessionEntry[Worker], catalog: SharedCatalog, choose: Callable[[], Awaitable[str]]
    ) -> bool:
        """Store a session, free its memory and give it up; False if it cannot be stored."""
        if not await self._save(entry, last=True) and not self.logs:
            return False
        if self.backend.registry.entries.get(entry.id) is not entry:
            return True
        self.backend.registry.remove(entry)
        self.handed_over.leaving(entry.id)
        await self._drop(entry)
        try:
            await self._in_thread(catalog.release, entry.id)
        except OSError as error:  # others take it over when this server has ended
            log.error("session is not given up", extra={"session": entry.short_id, "error": str(error)})
            return True
        self.handed_over.left(entry.id, await choose())
        log.info("session handed over", extra={"session": entry.short_id, "principal": entry.owner})
        return True

    async def _look_for_moved(self, catalog: SharedCatalog) -> None:
        """Free sessions that were taken over while their clients were silent, or that have no log."""
        while True:
            await asyncio.sleep(_MOVED_SECONDS)
            entries = [each for each in self.backend.registry.entries.values() if each.stored]
            lost = await self._in_thread(catalog.lost, [entry.id for entry in entries])
            for entry in entries:
                if entry.id in lost:
                    self.moved(entry)

    # Ending.

    def expired(self, entries: list[SessionEntry[Worker]]) -> None:
        """Store sessions whose lease ran out, then evict them."""
        for entry in entries:
            if not entry.saving:
                entry.saving = True
                self._in_background(self._evict(entry))

    async def _evict(self, entry: SessionEntry[Worker]) -> None:
        try:
            await self._store_and_evict(entry)
        finally:
            entry.saving = False  # last: a second eviction in parallel would take this one's entry out of the catalog

    async def _store_and_evict(self, entry: SessionEntry[Worker]) -> None:
        expires = entry.expires
        stored = await self._save(entry, last=True) or self.logs
        directory = self.backend.registry
        if directory.entries.get(entry.id) is not entry or entry.expires != expires or entry.pending:
            return  # the client used the session again, or the session was ended
        if stored:
            stored = await self._in_thread(self.catalog.put, entry.id)
            if not entry.saving:
                return  # its worker ended meanwhile: `lost` has put it in the catalog
            if entry.expires != expires or entry.pending or directory.entries.get(entry.id) is not entry:
                self.catalog.remove(entry.id)
                return
            directory.remove(entry)
            self._drop(entry)
            log.info("session evicted", extra={"session": entry.short_id, "principal": entry.owner})
        else:
            directory.expire(entry)
            self.backend.drop(entry)

    def lost(self, entries: list[SessionEntry[Worker]], why: str) -> list[SessionEntry[Worker]]:
        """Put the stored sessions of an ended worker in the catalog. Returns the sessions that are not stored."""
        lost_entries = []
        for entry in entries:
            entry.saving = False
            if entry.stored:
                self._in_background(self._confirm(entry, self.catalog.put_unread(_head_of(entry)), deletes_oldest=True))
            else:
                lost_entries.append(entry)
        return lost_entries

    def evict(self, entry: SessionEntry[Worker]) -> None:
        """Evict a stored session; the next lookup restores it."""
        if self.backend.registry.entries.get(entry.id) is entry:
            stored = self.catalog.put_unread(_head_of(entry))
            self.backend.registry.remove(entry)
            self._drop(entry)
            self._in_background(self._confirm(entry, stored, deletes_oldest=False))

    async def close(self, session_id: str) -> bool:
        """Delete the caller's session from the session catalog; whether there was one."""
        return await self._use_store(self.catalog.discard, session_id, CALLER.get().name)

    # Administration.

    def stored(self, after: int, principal: str, most: int) -> list[service_pb2.SessionSummary]:
        """Evicted sessions with numbers above `after`, `most` at most."""
        now = time.monotonic()
        return [
            service_pb2.SessionSummary(
                number=stored.number, principal=stored.head.principal, client=stored.head.client,
                bytes=stored.head.bytes, tensors=stored.head.tensors,
                stored=service_pb2.StoredSession(
                    saved_unix_ms=stored.head.saved_unix_ms, left_ms=max(0, int((stored.until - now) * 1000)),
                    damage="" if stored.why is None else stored.why.message,
                ),
            )
            for stored in self.catalog.numbered(after, principal, most)
        ]  # fmt: skip

    async def end(self, number: int) -> int:
        """Delete any principal's evicted session; bytes freed. Raises Refusal: SESSION_NOT_FOUND."""
        stored = self.catalog.remove_numbered(number)  # before the first await, so no lookup restores it meanwhile
        await self._use_store(self.catalog.remove_files, stored.folder)
        short_id = stored.head.session_digest.hex()[:SHORT_ID_LENGTH]
        log.info(
            "stored session ended",
            extra={"file": short_id, "principal": stored.head.principal, "by": CALLER.get().name},
        )
        return stored.head.bytes

    # Periodically.

    async def _snapshots(self) -> None:
        while True:
            await asyncio.sleep(self.every)
            await asyncio.gather(*(self._save_all(worker) for worker in self.backend.workers))

    async def _save_all(self, worker: Worker) -> None:
        """Store a worker's sessions, one after the other.

        A busy session delays the others by _SAVE_WAIT_SECONDS at most. Its save stays queued and is not repeated.
        """
        entries = self.backend.registry.entries
        for entry in [each for each in entries.values() if each.worker is worker]:
            if worker.alive and entries.get(entry.id) is entry and not entry.saving and entry.id not in self._storing:
                self._storing[entry.id] = task = asyncio.create_task(self._save(entry))
                task.add_done_callback(partial(self._stored, entry.id))
                await asyncio.wait((task,), timeout=_SAVE_WAIT_SECONDS)

    def _stored(self, session_id: str, task: asyncio.Task[bool]) -> None:
        del self._storing[session_id]
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("session is not stored", extra={"session": session_id[:SHORT_ID_LENGTH], "error": repr(error)})

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(_SWEEP_SECONDS)
            try:
                await self._use_store(self.catalog.sweep)
            except Exception:
                log.exception("the state directory was not swept")

    # Client requests.

    async def _in_thread(self, function: Callable[..., T], *args: Any) -> T:
        """Run a function that waits for the store off the event loop."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, function, *args)

    async def _use_store(self, function: Callable[..., T], *args: Any) -> T:
        """Run a function that waits for the store, for a client. Raises Refusal: STORAGE, and others."""
        try:
            return await self._in_thread(function, *args)
        except OSError as error:
            log.error("the stored sessions cannot be used", extra={"error": str(error)})
            why = os.strerror(error.errno or errno.EIO)
            raise Refusal("STORAGE", f"the server cannot use its stored sessions: {why}") from None

    async def save(self, entry: SessionEntry[Worker], request: pb.SaveSessionRequest, raw: bytes) -> bytes:
        """Answer SaveSession."""
        if request.name:
            key = entry.owner  # not by name: parallel saves under several names would exceed the quotas
            lock = self._saving.setdefault(key, asyncio.Lock())
            async with lock:
                return await self._save_named(entry, request, raw)
        answer = await entry.worker.call(entry, "Save", StorageInstruction(request=raw).pack())
        entry.stored, entry.unstored = True, ""
        return answer

    async def _save_named(self, entry: SessionEntry[Worker], request: pb.SaveSessionRequest, raw: bytes) -> bytes:
        """Save under a name. The caller holds the principal's lock, so quotas count earlier saves."""
        instruction = StorageInstruction(request=raw)
        instruction.room = await self._use_store(self.catalog.room, entry.owner, request.name)
        most = int(self.catalog.max_ttl * 1000)
        ttl = min(request.ttl_ms or most, most) if most else request.ttl_ms
        head = pb.SnapshotHead(principal=entry.owner, client=entry.client, name=request.name, ttl_ms=ttl)
        instruction.folder, instruction.head = (
            str(self.catalog.named(entry.owner, request.name)),
            head.SerializeToString(),
        )
        return await entry.worker.call(entry, "Save", instruction.pack())

    async def restore(self, request: pb.RestoreSessionRequest, raw: bytes) -> service_pb2.RestoreSessionResponse:
        """Answer RestoreSession: open a session that begins as a named snapshot."""
        owner, backend = CALLER.get().name, self.backend
        folder, _ = await self._use_store(self.catalog.found, owner, request.name)
        opening = service_pb2.OpenSessionRequest(lease_ms=request.lease_ms, client=request.client)
        entry = backend.registry.open(opening, backend.choose_worker)
        entry.worker.add_session()
        try:
            counter_row = backend.principal_rows.of(owner, backend.registry.has_sessions)
            await self._claim(entry)
            instruction = self.instruction(entry, counter_row, str(folder), raw)
            answer = await entry.worker.call(entry, "Restore", instruction.pack())
            if self.logs:
                await entry.worker.call(entry, "Save", StorageInstruction().pack())
                self._stored_first(entry)
        except BaseException as error:
            await backend.not_opened(entry, error)
            raise
        response = service_pb2.RestoreSessionResponse.FromString(answer)
        entry.writers, entry.epoch = response.session.writer, response.session.epoch
        response.session.CopyFrom(backend.opened(entry))
        return response

    async def listed(self) -> pb.ListSnapshotsResponse:
        """Answer ListSnapshots."""
        found = await self._use_store(self.catalog.listed, CALLER.get().name)
        return pb.ListSnapshotsResponse(
            snapshots=[
                pb.SnapshotSummary(
                    name=head.name, bytes=head.bytes, tensors=head.tensors, saved_unix_ms=head.saved_unix_ms,
                    ttl_left_ms=0 if left is None else max(1, int(left * 1000)), client_nodes=head.client_nodes,
                )
                for head, left in found
            ]
        )  # fmt: skip

    async def delete(self, name: str) -> int:
        """Answer DeleteSnapshot."""
        return await self._use_store(self.catalog.delete, CALLER.get().name, name)


def instruction_of(entry: SessionEntry[Worker], counter_row: int) -> StorageInstruction:
    """The instruction to open a session, with its principal and the principal's row in the shared counters."""
    return StorageInstruction(
        counter_row=counter_row, owner=entry.owner_number, short_id=entry.short_id, principal=entry.owner
    )


def _head_of(entry: SessionEntry[Worker]) -> pb.SnapshotHead:
    """What the front knows of a stored session's head."""
    return pb.SnapshotHead(
        session_digest=digest_of(entry.id), principal=entry.owner, client=entry.client,
        lease_ms=int(entry.lease * 1000), saved_unix_ms=int(time.time() * 1000),
    )  # fmt: skip


def _log_failure(entry: SessionEntry[Worker], done: asyncio.Future[Any]) -> None:
    failure = None if done.cancelled() else done.exception()
    if failure is not None:
        log.error("session is not opened", extra={"session": entry.short_id, "error": str(failure)})


def _ignore_failure(done: asyncio.Future[Any]) -> None:
    if not done.cancelled():
        done.exception()
