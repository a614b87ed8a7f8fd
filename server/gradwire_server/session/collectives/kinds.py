"""Kinds: the collectives and reductions by their numbers in the contract, and what the kinds have in common."""

from typing import Any

from gradwire.v1 import collectives_pb2 as pb

KINDS = {number: name.removeprefix("COLLECTIVE_KIND_").lower() for name, number in pb.CollectiveKind.items()}
OPS = {number: name.removeprefix("REDUCE_OP_").lower() for name, number in pb.ReduceOp.items() if number}
REDUCING = (
    pb.COLLECTIVE_KIND_ALL_REDUCE,
    pb.COLLECTIVE_KIND_REDUCE,
    pb.COLLECTIVE_KIND_REDUCE_SCATTER,
)
ROOTED = (
    pb.COLLECTIVE_KIND_REDUCE,
    pb.COLLECTIVE_KIND_BROADCAST,
    pb.COLLECTIVE_KIND_GATHER,
    pb.COLLECTIVE_KIND_SCATTER,
)
WRITING_NOTHING = (
    pb.COLLECTIVE_KIND_JOIN,
    pb.COLLECTIVE_KIND_LEAVE,
    pb.COLLECTIVE_KIND_BARRIER,
    pb.COLLECTIVE_KIND_SEND,
)
IN_PLACE = (
    pb.COLLECTIVE_KIND_ALL_REDUCE,
    pb.COLLECTIVE_KIND_REDUCE,
    pb.COLLECTIVE_KIND_BROADCAST,
)
#: Which of their tensors receive values depends on the rank.
WRITING_BY_RANK = (pb.COLLECTIVE_KIND_REDUCE, pb.COLLECTIVE_KIND_BROADCAST)


def written_of(request: pb.CollectiveRequest, rank: int | None, inputs: Any, outputs: Any) -> Any:
    """Those of a collective's tensors that receive values at a rank."""
    if request.kind in WRITING_BY_RANK:
        is_root = rank == request.peer
        return inputs if is_root is (request.kind == pb.COLLECTIVE_KIND_REDUCE) else []
    return inputs if request.kind in IN_PLACE else outputs
