"""Configured stores: what holds stored sessions, for the front and for its workers."""

from __future__ import annotations

from importlib import import_module
from urllib.parse import parse_qsl

from gradwire_server.storage.log_files import LogFiles
from gradwire_server.storage.object_snapshots import ObjectSnapshots, ObjectStore
from gradwire_server.storage.snapshot_files import SnapshotFiles
from gradwire_server.storage.stores import LogStore, SnapshotStore

LOGS: type[LogStore] = LogFiles


def snapshot_store(setting: str = "") -> SnapshotStore:
    """Make the store that `--snapshot-store` names, as module:factory?name=value&…; the directory if empty.

    The factory gets the values as strings, by keyword. It makes a SnapshotStore or an ObjectStore. The front and each
    worker make one of their own. Raises ValueError if it cannot be made.
    """
    if not setting:
        return SnapshotFiles()
    factory, _, arguments = setting.partition("?")
    module, colon, name = factory.partition(":")
    if not (module and colon and name):
        raise ValueError(f"a snapshot store is module:factory?name=value&…, not {setting!r}")
    try:
        pairs = parse_qsl(arguments, keep_blank_values=True, strict_parsing=bool(arguments))
        made = getattr(import_module(module), name)(**dict(pairs))
    except (ImportError, AttributeError, TypeError, ValueError) as error:
        raise ValueError(f"the snapshot store {factory} cannot be made: {error}") from error
    if isinstance(made, ObjectStore):
        return ObjectSnapshots(made)
    if not isinstance(made, SnapshotStore):
        raise ValueError(f"{factory} makes a {type(made).__name__}, not a SnapshotStore or an ObjectStore")
    return made
