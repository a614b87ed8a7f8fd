"""Which stores hold stored sessions. The front and its workers both take them from here."""

from gradwire_server.storage.log_files import LogFiles
from gradwire_server.storage.snapshot_files import SnapshotFiles
from gradwire_server.storage.stores import LogStore, SnapshotStore

SNAPSHOTS: type[SnapshotStore] = SnapshotFiles
LOGS: type[LogStore] = LogFiles
