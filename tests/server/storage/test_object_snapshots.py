"""Sessions stored as objects: they are restored, damage is refused by name, and an unfinished generation is deleted."""

import asyncio
import errno
import threading
import zlib
from concurrent.futures import wait
from itertools import zip_longest
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from gradwire.v1 import snapshots_pb2 as pb
from gradwire_server.common.errors import Refusal
from gradwire_server.registry.persistence import Persistence
from gradwire_server.registry.session_catalog import SessionCatalog, digest_of
from gradwire_server.storage import object_snapshots
from gradwire_server.storage.instructions import StorageInstruction
from gradwire_server.storage.object_snapshots import ObjectSnapshots, name_of, sealed
from gradwire_server.storage.snapshot_files import FORMAT, PIECE
from gradwire_server.worker.frames import KEEP
from tests.server.memory_stores import MemoryObjects
from tests.server.test_stores import STATE, Stored, order_of

LOCATION = Path("/state/sessions/one")
VALUES = np.arange(PIECE // 4, dtype=np.float64)  # two pieces


@pytest.fixture
def objects() -> MemoryObjects:
    return MemoryObjects()


@pytest.fixture
def snapshots(objects: MemoryObjects) -> ObjectSnapshots:
    return ObjectSnapshots(objects)


@pytest.fixture(autouse=True)
def consecutive(monkeypatch: pytest.MonkeyPatch) -> None:
    """Generations are one apart, so tests know their numbers."""
    monkeypatch.setattr(object_snapshots, "_SPREAD", 1)


def written(snapshots: ObjectSnapshots, generation: int = 1, room: int | None = None):
    """A generation whose data is written and which is not committed."""
    state = pb.SessionState(epoch=generation, memories=[pb.StoredMemory(bytes=VALUES.nbytes)])
    writing = snapshots.begin(
        LOCATION, generation, pb.SnapshotHead(format=FORMAT, principal="alice"), state, LOCATION.parent
    )
    for _ in writing.data([VALUES], room):
        pass
    return writing


def loaded(snapshots: ObjectSnapshots, generation: int) -> np.ndarray:
    _, state = snapshots.read(LOCATION, generation)
    found = np.zeros_like(VALUES)
    for _ in snapshots.data(LOCATION, generation, state, [found]):
        pass
    return found


def test_a_session_is_restored_from_objects(snapshots: ObjectSnapshots, objects: MemoryObjects) -> None:
    catalog = SessionCatalog(STATE, 1000.0, 1, 0, store=snapshots)
    worker = Stored(False, snapshots)
    order = order_of(catalog, "one")
    worker.do("Open", order.pack())
    worker.compute()
    worker.do("Save", StorageInstruction().pack())
    worker.end(KEEP)
    assert catalog.put("one")
    found = catalog.find("one", "alice")
    assert found is not None
    order.folder = str(found.folder)
    again = Stored(False, snapshots)
    again.do("Restore", order.pack())
    np.testing.assert_array_equal(again.runtime.sessions[1].tensor(2).array, np.arange(3.0) * 2 + 1)
    again.end(b"")
    assert not objects.held


def test_a_generation_exists_when_it_is_committed(snapshots: ObjectSnapshots, objects: MemoryObjects) -> None:
    first = written(snapshots)
    assert (snapshots.list(LOCATION), snapshots.head(LOCATION), snapshots.exists(LOCATION)) == ([], None, True)
    assert first.commit() == first.head.bytes > VALUES.nbytes
    second = written(snapshots, 1)
    assert second.generation == 2  # the first one's data has this name
    assert snapshots.list(LOCATION) == [1]
    second.commit()
    assert snapshots.list(LOCATION) == [2]
    assert sorted(objects.held) == [
        name_of(LOCATION, key) for key in ("2.data/0.0", f"2.data/0.{PIECE}", "2.head", "2.state")
    ]
    found = snapshots.head(LOCATION)
    assert found is not None
    assert (found[0], found[1].principal) == (2, "alice")
    np.testing.assert_array_equal(loaded(snapshots, 2), VALUES)
    size, changed = snapshots.about(LOCATION)
    assert size == sum(map(len, objects.held.values()))
    assert changed > 0


def test_an_abandoned_generation_leaves_the_one_before(snapshots: ObjectSnapshots, objects: MemoryObjects) -> None:
    written(snapshots).commit()
    before = dict(objects.held)
    written(snapshots, 2).abandon()
    assert objects.held == before
    done = written(snapshots, 2)
    done.commit()
    done.abandon()  # it exists
    assert snapshots.list(LOCATION) == [2]


def test_a_store_that_cannot_be_reached_fails_the_commit(snapshots: ObjectSnapshots, objects: MemoryObjects) -> None:
    written(snapshots).commit()
    objects.broken = True
    writing = written(snapshots, 2)
    with pytest.raises(OSError, match="cannot be reached"):
        writing.commit()
    writing.abandon()
    assert snapshots.list(LOCATION) == [1]
    np.testing.assert_array_equal(loaded(snapshots, 1), VALUES)


def test_the_catalog_stays_usable_when_objects_cannot_be_deleted(
    snapshots: ObjectSnapshots,
    objects: MemoryObjects,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail(name: str) -> None:
        raise PermissionError(errno.EACCES, "denied")

    catalog = SessionCatalog(STATE, 1e12, 1, 0, max_sessions=1, store=snapshots)
    for name in ("one", "two"):
        head = pb.SnapshotHead(format=FORMAT, session_digest=digest_of(name), principal="alice")
        writing = snapshots.begin(catalog.home(name), 1, head, pb.SessionState(), STATE)
        for _ in writing.data([], None):
            pass
        writing.commit()
    assert catalog.put("one")
    with monkeypatch.context() as broken:
        broken.setattr(objects, "delete", fail)
        assert catalog.put("two")  # makes "one" the oldest over the limit
        assert list(catalog.stored_sessions) == [digest_of("two")]
        assert "stored files cannot be deleted" in caplog.text
        with pytest.raises(PermissionError):
            catalog.discard("two", "alice")
        assert catalog.find("two", "alice") is not None
    assert catalog.discard("two", "alice")
    assert catalog.find("two", "alice") is None


@pytest.mark.parametrize("failure", [KeyError("region"), OSError("no errno"), RuntimeError("down")])
def test_any_failure_of_a_store_is_an_oserror(
    snapshots: ObjectSnapshots, objects: MemoryObjects, monkeypatch: pytest.MonkeyPatch, failure: Exception
) -> None:
    def fail(*args: object) -> None:
        raise failure

    for method in ("put", "list", "delete"):
        monkeypatch.setattr(objects, method, fail)
    calls = [
        lambda: snapshots.set_running(LOCATION, True),
        lambda: snapshots.set_running(LOCATION, False),
        lambda: snapshots.list(LOCATION),
        lambda: snapshots.remove(LOCATION),
    ]
    for call in calls:
        with pytest.raises(OSError, match="the object store failed") as caught:
            call()
        assert caught.value.errno


def test_objects_of_others_are_left_alone(snapshots: ObjectSnapshots, objects: MemoryObjects) -> None:
    others = {
        name_of(LOCATION, ""): b"",
        name_of(LOCATION, "notes.txt"): b"x",
    }  # a bucket's mark of a folder, and a file
    objects.held.update(others)
    written(snapshots).commit()
    written(snapshots, 2).commit()
    written(snapshots, 3).abandon()
    assert snapshots.list(LOCATION) == [2]
    assert objects.held.items() >= others.items()


def test_a_commit_succeeds_if_earlier_generations_cannot_be_deleted(
    snapshots: ObjectSnapshots,
    objects: MemoryObjects,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail(name: str) -> None:
        raise PermissionError(errno.EACCES, "denied")

    written(snapshots).commit()
    with monkeypatch.context() as broken:
        broken.setattr(objects, "delete", fail)
        written(snapshots, 2).commit()
        assert snapshots.list(LOCATION) == [1, 2]
        assert "objects cannot be deleted" in caplog.text
        with pytest.raises(PermissionError):
            snapshots.remove(LOCATION)
    written(snapshots, 3).commit()
    assert snapshots.list(LOCATION) == [3]


def test_an_abandoned_generation_waits_only_for_the_puts_that_began(
    snapshots: ObjectSnapshots, objects: MemoryObjects, monkeypatch: pytest.MonkeyPatch
) -> None:
    many, opened, began = 20, threading.Event(), []

    def put(name: str, data: bytes) -> None:
        began.append(name)
        assert opened.wait(30)

    monkeypatch.setattr(objects, "put", put)
    state = pb.SessionState(memories=[pb.StoredMemory(bytes=many * PIECE)])
    writing = snapshots.begin(LOCATION, 1, pb.SnapshotHead(format=FORMAT), state, LOCATION.parent)
    for _ in writing.data([np.zeros(many * PIECE, np.uint8)], None):
        pass
    threading.Timer(0.2, opened.set).start()
    writing.abandon()
    assert len(began) < many


def test_all_writers_together_hold_a_bounded_number_of_pieces(
    snapshots: ObjectSnapshots, objects: MemoryObjects, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the store is slow, each session that is saved would hold copies of its tensors."""
    opened, put = threading.Event(), objects.put

    def slow_put(name: str, data: bytes) -> None:
        assert opened.wait(30)
        put(name, data)

    monkeypatch.setattr(object_snapshots, "PIECE", 1 << 10)
    monkeypatch.setattr(objects, "put", slow_put)
    values = np.arange(40 << 10, dtype=np.uint8)
    locations = [LOCATION.with_name(f"session{number}") for number in range(6)]
    writers = []
    for location in locations:
        state = pb.SessionState(memories=[pb.StoredMemory(bytes=values.nbytes)])
        writers.append(snapshots.begin(location, 1, pb.SnapshotHead(format=FORMAT), state, location.parent))
    going = [writer.data([values], None) for writer in writers]
    copied = 0
    for steps in going:
        for awaited in steps:
            if awaited is None:
                copied += 1
            elif wait([awaited], 0.5).not_done:
                break
    assert copied == 64
    opened.set()
    for steps, writer in zip(going, writers, strict=True):
        for awaited in steps:
            if awaited is not None:
                wait([awaited])
        writer.commit()
    for location in locations:
        assert snapshots.list(location) == [1]
        assert len([key for key in snapshots.about_all(location) if ".data/" in key]) == 40


@pytest.mark.parametrize("earlier", [0, 1])
def test_writers_at_the_same_time_do_not_mix(
    snapshots: ObjectSnapshots, objects: MemoryObjects, monkeypatch: pytest.MonkeyPatch, earlier: int
) -> None:
    def put(name: str, data: bytes) -> None:
        assert both_begun.wait(30)
        objects.held[name] = data

    both_begun = threading.Event()
    monkeypatch.setattr(object_snapshots, "_SPREAD", 1 << 32)
    monkeypatch.setattr(objects, "put", put)
    values = VALUES, VALUES + 1
    writers = []
    for _ in values:
        state = pb.SessionState(memories=[pb.StoredMemory(bytes=VALUES.nbytes)])
        writers.append(snapshots.begin(LOCATION, 1, pb.SnapshotHead(format=FORMAT), state, LOCATION.parent))
    for _ in zip_longest(*(writer.data([each], None) for writer, each in zip(writers, values, strict=True))):
        pass
    both_begun.set()
    for writer in (writers[earlier], writers[1 - earlier]):
        writer.commit()
    newest = snapshots.list(LOCATION)[-1]
    written_there = next(each for writer, each in zip(writers, values, strict=True) if writer.generation == newest)
    np.testing.assert_array_equal(loaded(snapshots, newest), written_there)


def test_a_head_that_a_newer_one_replaces_is_read_again(
    snapshots: ObjectSnapshots, objects: MemoryObjects, monkeypatch: pytest.MonkeyPatch
) -> None:
    def get(name: str) -> bytes:
        if name.endswith("1.head") and name in objects.held:
            written(snapshots, 2).commit()
        return objects.held[name]

    written(snapshots).commit()
    monkeypatch.setattr(objects, "get", get)
    found = snapshots.head(LOCATION)
    assert found is not None
    assert found[0] == 2


def test_a_snapshot_beyond_the_room_is_refused_before_anything_is_put(
    snapshots: ObjectSnapshots, objects: MemoryObjects
) -> None:
    with pytest.raises(Refusal, match=f"{VALUES.nbytes} are left") as caught:
        written(snapshots, room=VALUES.nbytes)
    assert caught.value.reason == "SNAPSHOT_LIMIT"
    assert not objects.held


@pytest.mark.parametrize(
    ("key", "change"),
    [
        ("1.head", lambda raw: b"\xff" * 8),
        ("1.head", lambda raw: sealed(pb.SnapshotHead(format=FORMAT + 1))),
        ("1.head", lambda raw: zlib.crc32(b"\xff").to_bytes(4, "little") + b"\xff"),
        ("1.state", lambda raw: raw[:-1] + bytes([raw[-1] ^ 1])),
        ("1.data/0.0", lambda raw: None),
        ("1.data/0.0", lambda raw: raw[:-1]),
        (f"1.data/0.{PIECE}", lambda raw: raw[:-1] + b"\xff"),
    ],
)
def test_damage_is_refused_by_name(snapshots: ObjectSnapshots, objects: MemoryObjects, key: str, change) -> None:
    written(snapshots).commit()
    name = name_of(LOCATION, key)
    raw = change(objects.held.pop(name))
    if raw is not None:
        objects.held[name] = raw
    with pytest.raises(Refusal, match=r"one/1.* is damaged") as caught:
        loaded(snapshots, 1)
    assert caught.value.reason == "SNAPSHOT_DAMAGED"


def test_locations_marks_and_removal(snapshots: ObjectSnapshots, objects: MemoryObjects) -> None:
    written(snapshots).commit()
    objects.put(name_of(LOCATION.with_name("one2"), "1.head"), b"")
    assert sorted(snapshots.locations(LOCATION.parent)) == [LOCATION, LOCATION.with_name("one2")]
    assert not snapshots.running(LOCATION)
    snapshots.set_running(LOCATION, True)
    assert snapshots.running(LOCATION)
    assert snapshots.list(LOCATION) == [1]
    snapshots.set_running(LOCATION, False)
    assert not snapshots.running(LOCATION)
    snapshots.remove(LOCATION)
    assert list(objects.held) == [name_of(LOCATION.with_name("one2"), "1.head")]
    assert not snapshots.exists(LOCATION)


def test_requests_are_refused_while_the_store_cannot_be_used(
    snapshots: ObjectSnapshots, objects: MemoryObjects, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(prefix: str) -> None:
        raise ConnectionError("no route")

    monkeypatch.setattr(objects, "list", fail)
    catalog = SessionCatalog(STATE, 1000.0, 1, 0, store=snapshots)
    backend: Any = SimpleNamespace(registry=SimpleNamespace())
    with pytest.raises(Refusal, match="cannot use its stored sessions") as caught:
        asyncio.run(Persistence(backend, catalog, False, 0.0).listed())
    assert caught.value.reason == "STORAGE"
