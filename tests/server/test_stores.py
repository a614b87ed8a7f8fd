"""Sessions stored in stores that are no directories: the logic of stored sessions is the same."""

import threading
from pathlib import Path

import numpy as np
import pytest

from gradwire.v1 import commands_pb2, service_pb2
from gradwire.v1 import snapshots_pb2 as pb
from gradwire_server.common.limits import Limits
from gradwire_server.common.shared_counters import SharedCounters
from gradwire_server.registry.session_catalog import SessionCatalog, digest_of
from gradwire_server.storage.checkpointer import Checkpointer
from gradwire_server.storage.instructions import StorageInstruction
from gradwire_server.storage.stores import SnapshotStore
from gradwire_server.worker.frames import KEEP
from gradwire_server.worker.runtime import Runtime
from tests.server.harness import Id, command, op, payload
from tests.server.memory_stores import MemoryLogs, MemorySnapshots

STATE = Path("/nowhere/state")


class Stored:
    """A worker whose sessions are in memory stores, which another worker may have too."""

    def __init__(self, logs: bool, snapshots: SnapshotStore) -> None:
        log_store = snapshots.logs if isinstance(snapshots, MemorySnapshots) else None
        self.runtime = Runtime(
            Limits().resolved(), SharedCounters(1), checkpointer=Checkpointer(logs, snapshots, log_store)
        )
        self.ticket = 0

    def do(self, method: str, raw: bytes) -> bytes:
        """Carry a call out, and wait for the store where its answer does. Raises Refusal."""
        self.ticket += 1
        call = self.runtime.make_call(method, 1, raw, self.ticket, None)
        steps = self.runtime.execute(call)
        try:
            while True:
                next(steps)
        except StopIteration as done:
            answer: bytes = done.value
        if call.hold is None:
            return answer
        told: list[tuple[bytes, Exception | None]] = []
        is_told = threading.Event()
        call.hold(lambda result, failure: (told.append((result, failure)), is_told.set()), answer)  # type: ignore[func-returns-value]
        assert is_told.wait(30)
        ((result, failure),) = told
        if failure is not None:
            raise failure
        return result

    def compute(self) -> None:
        """Store x, and make y = 2 x + 1 of it afterwards."""
        create = commands_pb2.CreateRequest(id=1, payload=payload(np.arange(3.0)))
        self.do("Create", create.SerializeToString())
        self.do("Save", StorageInstruction().pack())
        batch = command(op("mul", Id(1), 2.0, outputs=[2])), command(op("add_", Id(2), 1.0))
        self.do("Run", service_pb2.RunRequest(writer=1, first_seq=1, commands=batch).SerializeToString())

    def end(self, how: bytes) -> None:
        """Let the session and the worker go."""
        self.do("Drop", how)
        assert self.runtime.checkpointer is not None
        self.runtime.checkpointer.stop(10.0)


@pytest.fixture
def snapshots() -> MemorySnapshots:
    return MemorySnapshots(MemoryLogs())


@pytest.fixture
def catalog(snapshots: MemorySnapshots) -> SessionCatalog:
    return SessionCatalog(STATE, 1000.0, 1, 0, store=snapshots)


def order_of(catalog: SessionCatalog, session_id: str) -> StorageInstruction:
    head = pb.SnapshotHead(session_digest=digest_of(session_id), principal="alice")
    return StorageInstruction(home=str(catalog.home(session_id)), home_head=head.SerializeToString())


@pytest.mark.parametrize("logs", [False, True])
def test_a_session_is_restored_from_stores_that_are_no_files(
    logs: bool, snapshots: MemorySnapshots, catalog: SessionCatalog
) -> None:
    worker = Stored(logs, snapshots)
    order = order_of(catalog, "one")
    worker.do("Open", order.pack())
    worker.compute()
    worker.end(KEEP)
    assert catalog.put("one")
    found = catalog.find("one", "alice")
    assert found is not None
    assert catalog.find("one", "bob") is None
    order.folder = str(found.folder)
    again = Stored(logs, snapshots)
    again.do("Restore", order.pack())
    session = again.runtime.sessions[1]
    np.testing.assert_array_equal(session.tensor(1).array, np.arange(3.0))
    assert (2 in session.store) is logs  # a snapshot alone knows nothing of what came after it
    if logs:
        np.testing.assert_array_equal(session.tensor(2).array, np.arange(3.0) * 2 + 1)
    again.end(b"")
    assert not snapshots.memory.held
    assert not snapshots.logs.held
    assert not STATE.exists()


def test_a_log_that_ends_within_a_record_is_cut_where_the_last_whole_one_ends(
    snapshots: MemorySnapshots, catalog: SessionCatalog
) -> None:
    worker = Stored(True, snapshots)
    order = order_of(catalog, "one")
    worker.do("Open", order.pack())
    worker.compute()
    worker.end(KEEP)
    (log,) = snapshots.logs.held.values()
    whole = bytes(log)
    log.extend(b"half of a record")
    order.folder = order.home
    Stored(True, snapshots).do("Restore", order.pack())
    assert bytes(log) == whole


def test_a_named_snapshot_is_listed_and_deleted(snapshots: MemorySnapshots, catalog: SessionCatalog) -> None:
    worker = Stored(False, snapshots)
    worker.do("Open", order_of(catalog, "one").pack())
    worker.compute()
    head = pb.SnapshotHead(principal="alice", name="best").SerializeToString()
    request = pb.SaveSessionRequest(name="best", tensors=[pb.NamedTensor(name="y", id=2)]).SerializeToString()
    folder = catalog.named("alice", "best")
    worker.do("Save", StorageInstruction(folder=str(folder), head=head, request=request).pack())
    ((listed, left),) = catalog.listed("alice")
    assert (listed.name, listed.tensors, left) == ("best", 2, None)
    assert not catalog.listed("bob")
    assert catalog.found("alice", "best")[0] == folder
    assert catalog.delete("alice", "best") > 0
    assert not catalog.listed("alice")
    worker.end(b"")
