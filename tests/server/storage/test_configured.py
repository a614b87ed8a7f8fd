"""The configured stores are stores: they implement all that the interfaces ask."""

import pytest

from gradwire_server.storage import configured
from gradwire_server.storage.log_files import LogFiles
from gradwire_server.storage.snapshot_files import SnapshotFiles
from gradwire_server.storage.stores import LogStore, SnapshotStore


@pytest.mark.parametrize(
    ("chosen", "interface", "files"),
    [(configured.SNAPSHOTS, SnapshotStore, SnapshotFiles), (configured.LOGS, LogStore, LogFiles)],
)
def test_sessions_are_stored_in_files_that_implement_the_whole_interface(chosen, interface, files) -> None:
    assert chosen is files
    asked = [name for name in vars(interface) if not name.startswith("_")]
    assert asked
    assert [name for name in asked if getattr(chosen, name) is getattr(interface, name)] == []
    assert isinstance(chosen(), interface)
