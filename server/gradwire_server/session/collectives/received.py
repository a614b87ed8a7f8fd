"""Received values: what a log notes of a collective, and writes again in a replay."""

import math
from collections import deque
from collections.abc import Sequence

import numpy as np

from gradwire.v1 import collectives_pb2 as pb
from gradwire_engine import Tensor
from gradwire_engine.core.device import host, selected, to_device
from gradwire_engine.core.reduction import HostArray
from gradwire_server.common.errors import Refusal
from gradwire_server.session.collectives.kinds import WRITING_NOTHING
from gradwire_server.session.collectives.operands import ExchangeScope, one_dtype
from gradwire_server.session.state.durability import Received
from gradwire_server.session.state.group_table import GroupTable

_MOST_LOGGED = 1 << 30  # bytes that the collectives of one call may receive, if the session has a log


def replay(scope: ExchangeScope, request: pb.CollectiveRequest, recorded: deque[Received]) -> int:
    """Write the values that the log has for a collective; the rank that sent them. The session is in no group then."""
    if request.kind in WRITING_NOTHING:
        return 0
    if not recorded:
        raise Refusal("GROUP_BROKEN", "the log lacks what a collective gave this session")
    what = recorded.popleft()
    if what.values is not None:
        targets = scope.tensors(request.outputs or request.inputs)
        values, begin = np.frombuffer(what.values, one_dtype(targets)), 0
        for target in targets:
            count = math.prod(target.shape)
            put(target, values[begin : begin + count])
            begin += count
    return what.peer


def put(target: Tensor, values: HostArray) -> None:
    """Write values of the host to a tensor, in row-major order."""
    with selected(target.device):
        target.array[...] = to_device(values.reshape(target.shape), target.device)
    target.storage.changed()


def room_to_log(groups: GroupTable, targets: Sequence[Tensor]) -> HostArray | None:
    """Memory for the values that targets will receive, made before any is written; None without a log.

    Raises Refusal, EngineError: MEMORY_LIMIT; MemoryError.
    """
    notes = groups.durability.log_notes
    if notes is None:
        return None
    size = sum(math.prod(each.shape) * each.dtype.itemsize for each in targets)
    held = notes.received_bytes + size
    if held > _MOST_LOGGED:
        raise Refusal("MEMORY_LIMIT", f"the collectives of one logged call receive at most {_MOST_LOGGED} bytes")
    groups.account.admit(held)
    return np.empty(size, np.uint8)


def note_received(groups: GroupTable, targets: Sequence[Tensor], room: HostArray | None, peer: int = 0) -> None:
    """Note for the log what was written to the targets."""
    notes = groups.durability.log_notes
    if notes is None or room is None:
        return
    begin = 0
    for each in targets:
        values = host(each.array)
        room[begin : begin + values.nbytes].view(values.dtype).reshape(values.shape)[...] = values
        begin += values.nbytes
    notes.received(Received(room.data if targets else None, peer))
