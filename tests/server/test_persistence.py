"""The front's persistence without a worker: periodic snapshots, and limits on evicted sessions."""

import asyncio
import time
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import pytest

from gradwire.v1 import commands_pb2, service_pb2, snapshots_pb2
from gradwire_server.registry import persistence
from gradwire_server.registry.persistence import Persistence
from gradwire_server.registry.session_catalog import SessionCatalog, digest_of
from gradwire_server.storage import snapshot_files
from tests.server.harness import refused, running
from tests.server.test_durability import Storing
from tests.server.test_principals import House


class Asked:
    """A worker that stores at once, but for sessions that are busy, and counts."""

    alive = True

    def __init__(self) -> None:
        self.stored: Counter[int] = Counter()
        self.busy = asyncio.Event()

    async def request(self, method: str, number: int, raw: bytes) -> bytes:
        self.stored[number] += 1
        if number % 2:
            await self.busy.wait()
        return b""


def test_busy_sessions_hold_up_nobody_elses_periodic_snapshots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(persistence, "_SAVE_WAIT_SECONDS", 0.01)

    async def watch() -> tuple[Counter[int], Counter[int]]:
        worker: Any = Asked()
        entries = {
            str(number): SimpleNamespace(
                id=str(number), number=number, worker=worker, saving=False, stored=False, short_id="", owner=""
            )
            for number in range(6)
        }
        backend: Any = SimpleNamespace(registry=SimpleNamespace(entries=entries), workers=[worker])
        keeps = Persistence(backend, SessionCatalog(tmp_path, 10.0, 0, 0), False, 0.01)
        await keeps.start()

        async def until(done: Any) -> None:
            while not done():
                await asyncio.sleep(0.01)

        await asyncio.wait_for(until(lambda: all(worker.stored[number] >= 3 for number in (0, 2, 4))), 30)
        while_busy = worker.stored.copy()
        worker.busy.set()
        await asyncio.wait_for(until(lambda: all(worker.stored[number] >= 2 for number in (1, 3, 5))), 30)
        await keeps.stop(1.0)
        return while_busy, worker.stored

    while_busy, at_last = asyncio.run(watch())
    assert [while_busy[number] for number in (1, 3, 5)] == [1, 1, 1]  # they are not asked again and again
    assert min(at_last.values()) >= 2


# Sessions that nobody uses.


def lay(catalog: SessionCatalog, name: str, saved: int = 0, principal: str = "alice", size: int = 100) -> None:
    """Store a session of that id, as it was at a time."""
    head = snapshots_pb2.SnapshotHead(
        format=snapshot_files.FORMAT, session_digest=digest_of(name), principal=principal, saved_unix_ms=saved
    )
    writing = snapshot_files.SnapshotFileWriter(catalog.home(name), 1, head, snapshots_pb2.SessionState())
    list(writing.data([], None))
    head.bytes = size
    writing.commit()


def test_of_too_many_sessions_that_nobody_uses_a_principals_oldest_give_way(tmp_path: Path) -> None:
    catalog = SessionCatalog(tmp_path, 1e12, 0, 0, max_sessions=2)
    catalog.open()
    lay(catalog, "bobs", principal="bob")
    assert catalog.put("bobs")
    for number in range(4):
        lay(catalog, str(number))
        assert catalog.put(str(number))
    assert [name for name in ("0", "1", "2", "3") if catalog.find(name, "alice")] == ["2", "3"]
    assert catalog.find("bobs", "bob")
    catalog.close()


@pytest.mark.parametrize("limit", [{"max_sessions": 3}, {"max_bytes": 300}])
def test_which_is_the_oldest_is_known_after_a_restart(tmp_path: Path, limit: dict[str, int]) -> None:
    now = int(time.time() * 1000)
    for restarted in (False, True):
        catalog = SessionCatalog(tmp_path, 1e9, 0, **{"max_bytes": 0, **limit})
        catalog.open()
        if not restarted:
            for number, age in enumerate((5000, 9000, 1000)):
                lay(catalog, str(number), now - age)
        else:
            lay(catalog, "new", now)
            assert catalog.put("new")
            assert [name for name in ("0", "1", "2", "new") if catalog.find(name, "alice")] == ["0", "2", "new"]
        catalog.close()


def test_administrators_list_and_end_sessions_that_are_stored_and_damaged_ones_too(tmp_path: Path) -> None:
    house = House(tmp_path)
    alice, root = (house.metadata(name) for name in ("alice", "root"))
    first = Storing(tmp_path / "state", tokens=house.known)
    opened = [first.stub.OpenSession(service_pb2.OpenSessionRequest(client="mine"), metadata=alice) for _ in range(3)]
    first.stop()
    (damaged,) = (tmp_path / "state" / "sessions" / digest_of(opened[2].session_id).hex()).glob("*.session")
    damaged.write_bytes(damaged.read_bytes()[:-1])
    (headless,) = (tmp_path / "state" / "sessions" / digest_of(opened[1].session_id).hex()).glob("*.session")
    headless.write_bytes(b"")
    server = Storing(tmp_path / "state", tokens=house.known)
    stub = server.stub
    ask = service_pb2.ListSessionsRequest(stored=True, page_size=2)
    assert refused(stub.ListSessions, ask, metadata=alice)[1] == "PERMISSION_DENIED"
    end = service_pb2.EndSessionRequest(number=1, stored=True)
    assert refused(stub.EndSession, end, metadata=alice)[1] == "PERMISSION_DENIED"
    page = stub.ListSessions(ask, metadata=root)
    assert len(page.sessions) == 2
    ask.page_token = page.next_page_token
    rest = stub.ListSessions(ask, metadata=root)
    assert not rest.next_page_token
    found = [*page.sessions, *rest.sessions]
    assert sorted(each.principal for each in found) == ["", "alice", "alice"]
    assert all(each.stored.left_ms > 0 and each.stored.saved_unix_ms > 0 for each in found)
    (unknown,) = [each for each in found if not each.principal]
    assert f"{headless.name} is damaged" in unknown.stored.damage
    for each in opened[1:]:
        describe = commands_pb2.DescribeRequest(session_id=each.session_id)
        for _ in range(2):
            with pytest.raises(grpc.RpcError) as caught:
                stub.Describe(describe, metadata=alice)
            assert "is damaged" in str(caught.value.details())
        # What is damaged is not a client's to delete, who does so as its program ends.
        stub.CloseSession(service_pb2.CloseSessionRequest(session_id=each.session_id), metadata=alice)
    bobs = service_pb2.KeepAliveRequest(session_id=opened[2].session_id)
    assert refused(stub.KeepAlive, bobs, metadata=house.metadata("bob"))[1] == "SESSION_NOT_FOUND"
    for each in stub.ListSessions(service_pb2.ListSessionsRequest(stored=True), metadata=root).sessions:
        assert (
            stub.EndSession(service_pb2.EndSessionRequest(number=each.number, stored=True), metadata=root).freed_bytes
            == each.bytes
        )
    assert not stub.ListSessions(service_pb2.ListSessionsRequest(stored=True), metadata=root).sessions
    gone = refused(stub.EndSession, service_pb2.EndSessionRequest(number=99, stored=True), metadata=root)
    assert gone[1] == "SESSION_NOT_FOUND"
    assert not list((tmp_path / "state" / "sessions").iterdir())
    server.stop()


def test_a_server_that_stores_nothing_lists_nothing_stored(tmp_path: Path) -> None:
    house = House(tmp_path)
    with running(0, tokens=house.known) as guarded:
        ask = service_pb2.ListSessionsRequest(stored=True)
        assert refused(guarded.stub.ListSessions, ask, metadata=house.metadata("root"))[1] == "NOT_SUPPORTED"


# Sessions put in the catalog before their heads are read.


def test_a_session_put_unread_has_its_stored_head_once_it_is_confirmed(tmp_path: Path) -> None:
    catalog = SessionCatalog(tmp_path, 1e12, 0, 0, max_sessions=1)
    catalog.open()
    lay(catalog, "older", saved=1)
    assert catalog.put("older")
    lay(catalog, "one", saved=2000, size=300)
    stored = catalog.put_unread(snapshots_pb2.SnapshotHead(session_digest=digest_of("one"), principal="alice"))
    assert catalog.find("one", "alice") is stored
    assert catalog.find("older", "alice") is not None
    assert catalog.confirm(stored, deletes_oldest=True)
    assert (stored.head.bytes, stored.head.saved_unix_ms) == (300, 2000)
    assert catalog.find("older", "alice") is None
    catalog.close()


def test_a_session_put_unread_of_which_nothing_is_stored_leaves_the_catalog(tmp_path: Path) -> None:
    catalog = SessionCatalog(tmp_path, 1e12, 0, 0)
    catalog.open()
    head = snapshots_pb2.SnapshotHead(session_digest=digest_of("one"), principal="alice")
    assert not catalog.confirm(catalog.put_unread(head), deletes_oldest=True)
    assert catalog.find("one", "alice") is None
    restored = catalog.put_unread(head)
    catalog.remove("one")  # a lookup restores it meanwhile
    assert catalog.confirm(restored, deletes_oldest=True)
    catalog.close()


def test_a_session_put_unread_stays_while_its_head_cannot_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(location: Path) -> None:
        raise OSError(5, "Input/output error")

    catalog = SessionCatalog(tmp_path, 1e12, 0, 0)
    catalog.open()
    monkeypatch.setattr(catalog.store, "head", fail)
    stored = catalog.put_unread(snapshots_pb2.SnapshotHead(session_digest=digest_of("one"), principal="alice"))
    assert catalog.confirm(stored, deletes_oldest=True)
    assert catalog.find("one", "alice") is stored
    assert "stored session cannot be read" in caplog.text
    catalog.close()
