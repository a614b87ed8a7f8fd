"""GPU exchange: a collective by NCCL, if each rank's tensors are on a GPU that no other rank uses.

A rank that could do so says so when it arrives: it offers its GPU. Rank 0 adds a new communicator's id. The front tells
all offers to all ranks, so all decide the same. If one of them has another device, values go through the host's memory,
and no GPU is offered in this group again.
"""

from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

from gradwire.v1 import collectives_pb2 as pb
from gradwire_engine import EngineError, Tensor
from gradwire_engine.core import nccl
from gradwire_engine.core.device import CPU, selected
from gradwire_engine.core.errors import Reason
from gradwire_server.session.state.group_table import GroupTable, Membership

_LONGEST_SECONDS = 1800.0  # as torch.distributed waits for another rank
_KINDS = frozenset(
    (
        pb.COLLECTIVE_KIND_ALL_REDUCE,
        pb.COLLECTIVE_KIND_REDUCE,
        pb.COLLECTIVE_KIND_BROADCAST,
        pb.COLLECTIVE_KIND_ALL_GATHER,
        pb.COLLECTIVE_KIND_REDUCE_SCATTER,
    )
)
_REDUCTIONS = {number: name.removeprefix("REDUCE_OP_").lower() for name, number in pb.ReduceOp.items() if number}


class GpuExchange:
    """One collective of a rank."""

    def __init__(self, groups: GroupTable, member: Membership, request: pb.CollectiveRequest) -> None:
        self._groups = groups
        self._member = member
        self._request = request
        self._inputs: Sequence[Tensor] = ()
        self._outputs: Sequence[Tensor] = ()
        self._written: Sequence[Tensor] = ()
        self._encoding: nccl.Encoding | None = None
        self._device = CPU
        self._held: nccl.InPlace | nccl.Joined | None = None

    def offer(
        self, inputs: Sequence[Tensor], outputs: Sequence[Tensor], written: Sequence[Tensor]
    ) -> dict[str, Any] | None:
        """What this rank offers; None if its values go through the host's memory."""
        kind, member = self._request.kind, self._member
        tensors = [*inputs, *outputs]
        if kind not in _KINDS or not tensors or tensors[0].device == CPU or member.by_host or member.size < 2:
            return None
        device = tensors[0].device
        known = member.gpus is None or member.gpus.device == device
        if not known or any(each.device != device for each in tensors) or nccl.library() is None:
            return None
        moves = kind in (pb.COLLECTIVE_KIND_BROADCAST, pb.COLLECTIVE_KIND_ALL_GATHER)
        self._encoding = nccl.encoding(tensors[0].dtype, None if moves else _REDUCTIONS[self._request.op])
        if self._encoding is None:
            return None
        self._inputs, self._outputs, self._written, self._device = inputs, outputs, written, device
        offered: dict[str, Any] = {"gpu": nccl.identity(device)}
        if member.rank == 0 and member.gpus is None:
            offered["id"] = list(nccl.library().get_unique_id())
        return offered

    def suits(self, offers: Sequence[dict[str, Any] | None]) -> bool:
        """Whether all ranks offer GPUs, and each another one. Else none is offered again."""
        gpus = [None if each is None else each["gpu"] for each in offers]
        if None not in gpus and len(set(gpus)) == len(gpus):
            return True
        # With equal dtypes and kinds, all ranks could have offered one. Only their devices differ.
        self._member.by_host = True
        return False

    def begin(self, offers: Sequence[dict[str, Any]]) -> "Future[Any]":
        """Begin it; a future of its end, which raises Refusal or EngineError.

        Raises Refusal: GROUP_BROKEN, if that has come since all ranks met; EngineError: MEMORY_LIMIT.
        """
        member, request = self._member, self._request
        if member.broken is not None:
            raise member.broken.copy()
        if member.gpus is None:
            member.gpus = nccl.Communicator(self._device, member.size, member.rank, offers[0]["id"])
        arrays = [each.array for each in (*self._inputs, *self._outputs)]
        self._groups.account.admit(nccl.nbytes_of(arrays))
        with selected(self._device):
            self._held = held = (
                nccl.Joined([each.array for each in self._inputs], [each.array for each in self._outputs])
                if self._outputs
                else nccl.InPlace(arrays, bool(self._written))
            )
        seconds = request.timeout_ms / 1000 or _LONGEST_SECONDS
        ended: Future[Any] = Future()
        member.gpus.exchange(held.calls(self._call), seconds).add_done_callback(lambda done: self._pass_on(done, ended))
        return ended

    def _pass_on(self, done: "Future[None]", ended: "Future[Any]") -> None:
        """Called by the communicator's thread."""
        error = done.exception()
        if error is None:
            ended.set_result({})
        elif self._member.broken is not None:
            ended.set_exception(self._member.broken.copy())
        else:
            ended.set_exception(EngineError(Reason.RUNTIME, f"NCCL: {error}"))

    def _call(self, held: Any, given: int, taken: int, count: int) -> nccl.Call:
        """A call of NCCL. It keeps the arrays whose addresses it has."""
        encoding, kind, root = self._encoding, self._request.kind, self._request.peer
        assert encoding is not None
        number, dtype, op = count * encoding.per_element, encoding.type, encoding.op

        def call(comm: Any, stream: int) -> None:
            _ = held
            if kind == pb.COLLECTIVE_KIND_ALL_REDUCE:
                comm.allReduce(given, taken, number, dtype, op, stream)
            elif kind == pb.COLLECTIVE_KIND_REDUCE:
                comm.reduce(given, taken, number, dtype, op, root, stream)
            elif kind == pb.COLLECTIVE_KIND_BROADCAST:
                comm.broadcast(given, taken, number, dtype, root, stream)
            elif kind == pb.COLLECTIVE_KIND_ALL_GATHER:
                comm.allGather(given, taken, number, dtype, stream)
            else:
                comm.reduceScatter(given, taken, number, dtype, op, stream)

        return call

    def finish(self) -> None:
        """Write the results to the tensors."""
        assert self._held is not None
        with selected(self._device):
            self._held.finish()
        self.note_changes()

    def note_changes(self) -> None:
        """Note that the tensors may have changed: also if it failed, when NCCL may have written some values."""
        for each in self._written:
            each.storage.changed()
