"""Configured stores: the classes that hold stored sessions, for the front and its workers."""

from gradwire_server.storage.log_files import LogFiles
from gradwire_server.storage.snapshot_files import SnapshotFiles
from gradwire_server.storage.stores import LogStore, SnapshotStore

SNAPSHOTS: type[SnapshotStore] = SnapshotFiles
LOGS: type[LogStore] = LogFiles
