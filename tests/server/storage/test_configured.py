"""The configured stores are stores: they implement all that the interfaces ask. A setting chooses the snapshots'."""

import pytest

from gradwire_server.storage import configured
from gradwire_server.storage.configured import snapshot_store
from gradwire_server.storage.log_files import LogFiles
from gradwire_server.storage.object_snapshots import ObjectSnapshots
from gradwire_server.storage.snapshot_files import SnapshotFiles
from gradwire_server.storage.stores import LogStore, SnapshotStore
from tests.server.memory_stores import MemoryObjects

MEMORY = f"{MemoryObjects.__module__}:MemoryObjects"


@pytest.mark.parametrize(
    ("chosen", "interface", "files"),
    [(type(snapshot_store()), SnapshotStore, SnapshotFiles), (configured.LOGS, LogStore, LogFiles)],
)
def test_sessions_are_stored_in_files_that_implement_the_whole_interface(chosen, interface, files) -> None:
    assert chosen is files
    asked = [name for name in vars(interface) if not name.startswith("_")]
    assert asked
    assert [name for name in asked if getattr(chosen, name) is getattr(interface, name)] == []
    assert isinstance(chosen(), interface)


def test_a_setting_names_a_factory_and_its_arguments() -> None:
    made = snapshot_store(f"{MEMORY}?bucket=a%26b&region=")
    assert isinstance(made, ObjectSnapshots)
    assert isinstance(made.objects, MemoryObjects)
    assert made.objects.told == {"bucket": "a&b", "region": ""}
    assert isinstance(snapshot_store("gradwire_server.storage.snapshot_files:SnapshotFiles"), SnapshotFiles)


@pytest.mark.parametrize(
    ("setting", "why"),
    [
        ("Memory", "module:factory"),
        (":Memory", "module:factory"),
        ("no.such.module:Store", "no"),
        ("gradwire_server.storage.stores:NoStore", "NoStore"),
        ("gradwire_server.storage.snapshot_files:SnapshotFiles?bucket=a", "argument"),
        (f"{MEMORY}?bucket", "bucket"),
        ("gradwire_server.storage.stores:SnapshotStore", "abstract"),
        ("gradwire_server.storage.log_files:LogFiles", "LogFiles, not a SnapshotStore"),
    ],
)
def test_a_setting_that_makes_no_store_is_refused(setting: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        snapshot_store(setting)
