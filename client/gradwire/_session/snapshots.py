"""Snapshots: lists and deletes the snapshots on the current session's server."""

from __future__ import annotations

from gradwire._session.saving import Snapshot, read_snapshot
from gradwire._session.sessions import current_session
from gradwire.v1 import snapshots_pb2

__all__ = ["Snapshot", "delete_snapshot", "snapshots"]


def snapshots() -> list[Snapshot]:
    """The caller's snapshots on the current session's server, by name."""
    request = snapshots_pb2.ListSnapshotsRequest()
    answer = current_session()._transport.call("ListSnapshots", request, snapshots_pb2.ListSnapshotsResponse)
    return [read_snapshot(each) for each in answer.snapshots]


def delete_snapshot(name: str) -> None:
    """Delete a snapshot on the current session's server. Raises RuntimeError if the caller has none of that name."""
    request = snapshots_pb2.DeleteSnapshotRequest(name=name)
    current_session()._transport.call("DeleteSnapshot", request, snapshots_pb2.DeleteSnapshotResponse)
