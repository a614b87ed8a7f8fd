"""Sessions that outlive their process: saved on the server under a name, and opened again from there.

A snapshot has all of the session: values, gradients, the graph, random numbers. Which of its tensors a program wants to
find again it names when it saves. Python is not stored: where a graph has hooks or custom functions, a backward in the
restored session that comes to one is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from gradwire._base.errors import GradwireTypeError, refuse
from gradwire._base.wiring import wired
from gradwire._proxy.handle import UNKNOWN, Handle
from gradwire._proxy.memo import read_spec
from gradwire._proxy.results import new_proxy, watch_retained
from gradwire._transport.transport import Transport
from gradwire.v1 import errors_pb2, service_pb2, snapshots_pb2

if TYPE_CHECKING:
    from gradwire._proxy.protocols import Session


@dataclass(frozen=True)
class Snapshot:
    """A stored session: its name, its size on the server's disk, when it was made and until when it is kept."""

    name: str
    nbytes: int
    tensors: int
    saved: datetime
    #: Seconds that it will still be kept; None for no end.
    seconds_left: float | None
    #: Nodes of its graph that need Python of the process that saved it.
    client_nodes: int


def save_session(session: Session, name: str | None, tensors: Mapping[str, Any], ttl: float | None) -> Snapshot:
    """See Session.save."""
    request = snapshots_pb2.SaveSessionRequest(session_id=session.session_id, name=name or "")
    if ttl is not None:
        request.ttl_ms = max(1, int(ttl * 1000))
    for key, tensor in tensors.items():
        if not isinstance(key, str) or not isinstance(tensor, Handle):
            raise GradwireTypeError(f"save(): tensors is a dict of tensors by name, and {key!r} is none")
        if tensor._session is not session:
            raise refuse(f"save(): {key!r} is a tensor of another session", errors_pb2.REASON_RUNTIME)
        request.tensors.add(name=key, id=tensor._id)
    session.sync()
    answer = session._transport.call("SaveSession", request, snapshots_pb2.SaveSessionResponse, timeout=None)
    return read_snapshot(answer.snapshot)


def restored_tensors(session: Session, answer: service_pb2.RestoreSessionResponse) -> dict[str, Any]:
    """Proxies of the tensors that were saved under names."""
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


def restore_on(transport: Transport, name: str, client: str) -> service_pb2.RestoreSessionResponse:
    """Have the server open a session that begins as a snapshot."""
    request = snapshots_pb2.RestoreSessionRequest(name=name, client=client, named_only=True)
    return transport.call("RestoreSession", request, service_pb2.RestoreSessionResponse, timeout=None)


def read_snapshot(told: snapshots_pb2.SnapshotSummary) -> Snapshot:
    """What the server tells of a snapshot."""
    return Snapshot(
        name=told.name,
        nbytes=told.bytes,
        tensors=told.tensors,
        saved=datetime.fromtimestamp(told.saved_unix_ms / 1000, timezone.utc),
        seconds_left=told.ttl_left_ms / 1000 if told.ttl_left_ms else None,
        client_nodes=told.client_nodes,
    )
