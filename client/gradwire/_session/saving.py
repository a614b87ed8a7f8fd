"""Saving: stores a session on the server as a named snapshot, and restores it.

A snapshot contains the whole session: values, gradients, graph and random generator. The program names the tensors that
it needs after the restore. Python code is not stored. In the restored session, a backward that reaches a hook or a
custom function is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from gradwire._base.errors import GradwireTypeError, refuse
from gradwire._base.refused import refusal
from gradwire._base.wiring import wired
from gradwire._proxy.handle import UNKNOWN, Handle
from gradwire._proxy.memo import read_spec
from gradwire._proxy.results import new_proxy, watch_retained
from gradwire.v1 import errors_pb2, service_pb2, snapshots_pb2

if TYPE_CHECKING:
    from gradwire._proxy.protocols import SessionProtocol


@dataclass(frozen=True)
class Snapshot:
    """A stored session: name, bytes on the server's disk, number of tensors, creation time and remaining time."""

    name: str
    nbytes: int
    tensors: int
    saved: datetime
    #: Seconds until it expires; None for no limit.
    seconds_left: float | None
    #: Graph nodes that need Python code of the saving process.
    client_nodes: int


def save_session(session: SessionProtocol, name: str | None, tensors: Mapping[str, Any], ttl: float | None) -> Snapshot:
    """See Session.save."""
    request = snapshots_pb2.SaveSessionRequest(session_id=session._session_id, name=name or "")
    if ttl is not None:
        request.ttl_ms = max(1, int(ttl * 1000))
    for key, tensor in tensors.items():
        if not isinstance(key, str) or not isinstance(tensor, Handle):
            raise GradwireTypeError(f"save(): tensors is a dict of tensors by name, and {key!r} is none")
        if tensor._session is not session:
            raise refuse(f"save(): {key!r} is a tensor of another session", errors_pb2.REASON_RUNTIME)
        request.tensors.add(name=key, id=tensor._id)
    if any("_sparse_grad" in leaf.__dict__ for leaf in list(session.watched.values())):
        raise refusal("save of a session with sparse gradients", "the server has none of them; clear them before")
    session.sync()
    answer = session._transport.call("SaveSession", request, snapshots_pb2.SaveSessionResponse, timeout=None)
    return read_snapshot(answer.snapshot)


def restored_tensors(session: SessionProtocol, answer: service_pb2.RestoreSessionResponse) -> dict[str, Any]:
    """Proxies of the named tensors, by name."""
    wired("Tensor")  # registers itself as the class of proxies: restore() may be a program's first call
    made: dict[str, Any] = {}
    by_id: dict[int, Any] = {}
    for told in answer.tensors:
        tensor = by_id.get(told.spec.id)
        if tensor is None:
            tensor = by_id[told.spec.id] = new_proxy(session, told.spec.id, read_spec(told.spec))
            if told.spec.retains_grad and not told.spec.is_leaf:
                watch_retained(tensor)
            if told.has_grad:
                tensor._grad = UNKNOWN
        made[told.name] = tensor
    return made


def read_snapshot(told: snapshots_pb2.SnapshotSummary) -> Snapshot:
    """Convert the server's summary of a snapshot."""
    return Snapshot(
        name=told.name,
        nbytes=told.bytes,
        tensors=told.tensors,
        saved=datetime.fromtimestamp(told.saved_unix_ms / 1000, timezone.utc),
        seconds_left=told.ttl_left_ms / 1000 if told.ttl_left_ms else None,
        client_nodes=told.client_nodes,
    )
