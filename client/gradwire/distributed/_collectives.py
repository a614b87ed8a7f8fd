"""Collectives: exchange tensors between the ranks of a group (torch.distributed).

Ranks in arguments, such as `src`, are numbers among all ranks; `group_src` is one of the group. With `async_op` a Work
is returned. A process that is not in the group does nothing. Collectives write in place and record no node.
"""

from __future__ import annotations

import enum
import warnings
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

from gradwire._base.errors import GradwireRuntimeError, GradwireValueError
from gradwire._tensor.tensor import Tensor
from gradwire.distributed._group import ProcessGroup, get_group_rank, group_of
from gradwire.v1 import collectives_pb2 as pb

_OUTSIDE = "Running {} on global rank which does not belong to the given group."


class ReduceOp(enum.Enum):
    """How values are reduced (torch.distributed.ReduceOp)."""

    SUM = pb.REDUCE_OP_SUM
    AVG = pb.REDUCE_OP_AVG
    PRODUCT = pb.REDUCE_OP_PRODUCT
    MIN = pb.REDUCE_OP_MIN
    MAX = pb.REDUCE_OP_MAX
    BAND = pb.REDUCE_OP_BAND
    BOR = pb.REDUCE_OP_BOR
    BXOR = pb.REDUCE_OP_BXOR


# PyTorch's class of the members, which libraries name in annotations.
ReduceOp.RedOpType = ReduceOp  # type: ignore[attr-defined]


class Work:
    """A collective that was begun (torch.distributed.Work)."""

    def __init__(self, group: ProcessGroup, begin: Callable[[], Any] | None = None) -> None:
        self._group = group
        self._begin = begin
        self._done = False

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Wait until it is done. Raises RuntimeError if it, or an earlier command, was refused."""
        if not self._done:
            self._done = True
            if self._begin is not None:
                self._begin()
            self._group.session.sync()
        return True

    synchronize = wait

    def is_completed(self) -> bool:
        """Whether `wait` has returned."""
        return self._done

    def is_success(self) -> bool:
        """Whether `wait` has returned."""
        return self._done

    def result(self) -> list[Any]:
        """No tensors: a collective writes to those that were given."""
        return []


def _begun(group: ProcessGroup, async_op: bool) -> Work | None:
    return Work(group) if async_op else None


def _member(group: Any, name: str) -> ProcessGroup | None:
    found = group_of(group)
    if found is None:
        warnings.warn(_OUTSIDE.format(name), UserWarning, stacklevel=3)
    return found


def _check(tensor: Any, name: str) -> None:
    if not isinstance(tensor, Tensor):
        raise TypeError(
            f"Invalid function argument. Expected parameter `{name}` of type torch.Tensor\n"
            f"             but got {type(tensor)} instead."
        )


def _check_list(tensors: Any, name: str) -> list[Tensor]:
    if not isinstance(tensors, (list, tuple)) or not all(isinstance(each, Tensor) for each in tensors):
        raise TypeError(
            f"Invalid function argument. Expected parameter `{name}` of type List[torch.Tensor]\n"
            f"             but got {type(tensors)} instead."
        )
    return list(tensors)


def _peer(group: ProcessGroup, rank: int | None, group_rank: int | None, name: str, default: int | None = None) -> int:
    """The group's rank of an argument and its `group_…` variant. Raises ValueError unless one of them is given."""
    if rank is not None and group_rank is not None:
        raise GradwireValueError("Can't specify both group_" + name + " and " + name)
    if group_rank is not None:
        if not 0 <= group_rank < group.size():
            raise GradwireValueError(f"Group rank {group_rank} is not part of group {group}")
        return group_rank
    if rank is None:
        rank = default
    if rank is None:
        raise GradwireValueError(f"Must specify {name} or group_{name}")
    return get_group_rank(group, rank)


def _reduction(op: Any) -> dict[str, Any]:
    if not isinstance(op, ReduceOp):
        raise TypeError(f"Invalid type for op: expected ReduceOp, but got {type(op).__name__}")
    return {"op": op.value}


def barrier(
    group: Any = None, async_op: bool = False, device_ids: Any = None, timeout: timedelta | None = None
) -> Work | None:
    """Wait until all ranks have called it, and have done what they issued before."""
    found = _member(group, "barrier")
    if found is None:
        return None
    fields = {} if timeout is None else {"timeout_ms": max(1, int(timeout.total_seconds() * 1000))}
    found.exchange(pb.COLLECTIVE_KIND_BARRIER, fields=fields, waits=not async_op)
    return _begun(found, async_op)


def monitored_barrier(group: Any = None, timeout: timedelta | None = None, wait_all_ranks: bool = False) -> None:
    """The same as `barrier`; a time-out names the ranks that are missing."""
    barrier(group, timeout=timeout)


def all_reduce(tensor: Tensor, op: ReduceOp = ReduceOp.SUM, group: Any = None, async_op: bool = False) -> Work | None:
    """Replace the tensor by the reduction over all ranks, with the same bits on each."""
    _check(tensor, "tensor")
    return all_reduce_coalesced([tensor], op, group, async_op)


def all_reduce_coalesced(
    tensors: Sequence[Tensor], op: ReduceOp = ReduceOp.SUM, group: Any = None, async_op: bool = False
) -> Work | None:
    """`all_reduce` of several tensors of one dtype at once."""
    given = _check_list([tensors] if isinstance(tensors, Tensor) else tensors, "tensors")
    found = _member(group, "all_reduce")
    if found is None:
        return None
    found.exchange(pb.COLLECTIVE_KIND_ALL_REDUCE, given, writes=given, fields=_reduction(op))
    return _begun(found, async_op)


def reduce(
    tensor: Tensor,
    dst: int | None = None,
    op: ReduceOp = ReduceOp.SUM,
    group: Any = None,
    async_op: bool = False,
    group_dst: int | None = None,
) -> Work | None:
    """Replace rank `dst`'s tensor by the reduction. Those of other ranks keep their values."""
    _check(tensor, "tensor")
    found = _member(group, "reduce")
    if found is None:
        return None
    peer = _peer(found, dst, group_dst, "dst")
    writes = [tensor] if peer == found.rank() else []
    found.exchange(pb.COLLECTIVE_KIND_REDUCE, [tensor], writes=writes, fields={"peer": peer, **_reduction(op)})
    return _begun(found, async_op)


def broadcast(
    tensor: Tensor, src: int | None = None, group: Any = None, async_op: bool = False, group_src: int | None = None
) -> Work | None:
    """Replace the tensor by that of rank `src`."""
    _check(tensor, "tensor")
    found = _member(group, "broadcast")
    if found is None:
        return None
    broadcast_coalesced([tensor], _peer(found, src, group_src, "src"), found)
    return _begun(found, async_op)


def broadcast_coalesced(tensors: Sequence[Tensor], peer: int, group: ProcessGroup) -> None:
    """Replace tensors of one dtype by those of a group's rank."""
    writes = [] if peer == group.rank() else tensors
    group.exchange(pb.COLLECTIVE_KIND_BROADCAST, tensors, writes=writes, fields={"peer": peer})


def all_gather(tensor_list: Sequence[Tensor], tensor: Tensor, group: Any = None, async_op: bool = False) -> Work | None:
    """Write the ranks' tensors to `tensor_list`, in order. All have one shape."""
    outputs = _check_list(tensor_list, "tensor_list")
    _check(tensor, "tensor")
    found = _member(group, "all_gather")
    if found is None:
        return None
    _check_count(outputs, found, "all_gather", "output")
    found.exchange(pb.COLLECTIVE_KIND_ALL_GATHER, [tensor], outputs, writes=outputs)
    return _begun(found, async_op)


def all_gather_into_tensor(
    output_tensor: Tensor, input_tensor: Tensor, group: Any = None, async_op: bool = False
) -> Work | None:
    """Write the ranks' tensors to one tensor, concatenated or stacked along its first dimension."""
    _check(output_tensor, "output_tensor")
    _check(input_tensor, "input_tensor")
    found = _member(group, "all_gather_into_tensor")
    if found is None:
        return None
    if output_tensor.numel() != input_tensor.numel() * found.size():
        raise GradwireRuntimeError("output tensor size must be equal to world_size times input tensor size")
    found.exchange(pb.COLLECTIVE_KIND_ALL_GATHER, [input_tensor], [output_tensor], writes=[output_tensor])
    return _begun(found, async_op)


def _check_count(tensors: Sequence[Any], group: ProcessGroup, name: str, what: str) -> None:
    if len(tensors) != group.size():
        raise GradwireValueError(
            f"{name}: {what} list has {len(tensors)} tensors, but the group has {group.size()} ranks"
        )


def gather(
    tensor: Tensor,
    gather_list: Sequence[Tensor] | None = None,
    dst: int | None = None,
    group: Any = None,
    async_op: bool = False,
    group_dst: int | None = None,
) -> Work | None:
    """Write the ranks' tensors to rank `dst`'s `gather_list`."""
    _check(tensor, "tensor")
    found = _member(group, "gather")
    if found is None:
        return None
    peer = _peer(found, dst, group_dst, "dst", 0)
    outputs = _check_list(gather_list or [], "gather_list")
    if peer != found.rank() and outputs:
        raise GradwireValueError("Argument ``gather_list`` must NOT be specified on non-destination ranks.")
    if peer == found.rank():
        if not outputs:
            raise GradwireValueError("Argument ``gather_list`` must be specified on destination rank.")
        _check_count(outputs, found, "gather", "output")
    found.exchange(pb.COLLECTIVE_KIND_GATHER, [tensor], outputs, writes=outputs, fields={"peer": peer})
    return _begun(found, async_op)


def reduce_scatter(
    output: Tensor,
    input_list: Sequence[Tensor],
    op: ReduceOp = ReduceOp.SUM,
    group: Any = None,
    async_op: bool = False,
) -> Work | None:
    """Reduce the ranks' lists, and write this rank's element to `output`."""
    _check(output, "output")
    inputs = _check_list(input_list, "input_list")
    found = _member(group, "reduce_scatter")
    if found is None:
        return None
    _check_count(inputs, found, "reduce_scatter", "input")
    found.exchange(pb.COLLECTIVE_KIND_REDUCE_SCATTER, inputs, [output], writes=[output], fields=_reduction(op))
    return _begun(found, async_op)


def reduce_scatter_tensor(
    output: Tensor, input: Tensor, op: ReduceOp = ReduceOp.SUM, group: Any = None, async_op: bool = False
) -> Work | None:
    """Reduce the ranks' inputs, cut into as many parts as there are ranks, and write this rank's part to `output`."""
    _check(output, "output")
    _check(input, "input")
    found = _member(group, "reduce_scatter_tensor")
    if found is None:
        return None
    if output.numel() * found.size() != input.numel():
        raise GradwireRuntimeError("input tensor must be the same size as output size times world size")
    found.exchange(pb.COLLECTIVE_KIND_REDUCE_SCATTER, [input], [output], writes=[output], fields=_reduction(op))
    return _begun(found, async_op)


def scatter(
    tensor: Tensor,
    scatter_list: Sequence[Tensor] | None = None,
    src: int | None = None,
    group: Any = None,
    async_op: bool = False,
    group_src: int | None = None,
) -> Work | None:
    """Write to the tensor this rank's element of rank `src`'s list."""
    _check(tensor, "tensor")
    found = _member(group, "scatter")
    if found is None:
        return None
    peer = _peer(found, src, group_src, "src", 0)
    inputs = _check_list(scatter_list or [], "scatter_list")
    if peer != found.rank() and inputs:
        raise GradwireValueError("Argument ``scatter_list`` must NOT be specified on non-source ranks.")
    if peer == found.rank():
        if not inputs:
            raise GradwireValueError("Argument ``scatter_list`` must be specified on source rank.")
        _check_count(inputs, found, "scatter", "input")
    found.exchange(pb.COLLECTIVE_KIND_SCATTER, inputs, [tensor], writes=[tensor], fields={"peer": peer})
    return _begun(found, async_op)


def all_to_all(
    output_tensor_list: Sequence[Tensor],
    input_tensor_list: Sequence[Tensor],
    group: Any = None,
    async_op: bool = False,
) -> Work | None:
    """Send an element of the input list to each rank, and receive one of each. All have one number of elements."""
    outputs = _check_list(output_tensor_list, "output_tensor_list")
    inputs = _check_list(input_tensor_list, "input_tensor_list")
    found = _member(group, "all_to_all")
    if found is None:
        return None
    _check_count(outputs, found, "all_to_all", "output")
    _check_count(inputs, found, "all_to_all", "input")
    if len({each.numel() for each in (*outputs, *inputs)}) != 1:
        raise NotImplementedError("all_to_all: gradwire exchanges parts of equal size only")
    found.exchange(pb.COLLECTIVE_KIND_ALL_TO_ALL, inputs, outputs, writes=outputs)
    return _begun(found, async_op)


def all_to_all_single(
    output: Tensor,
    input: Tensor,
    output_split_sizes: Sequence[int] | None = None,
    input_split_sizes: Sequence[int] | None = None,
    group: Any = None,
    async_op: bool = False,
) -> Work | None:
    """Send an equal part of the input to each rank, and receive one of each."""
    _check(output, "output")
    _check(input, "input")
    found = _member(group, "all_to_all_single")
    if found is None:
        return None
    if len({*(output_split_sizes or ()), *(input_split_sizes or ())}) > 1:
        raise NotImplementedError("all_to_all_single: gradwire exchanges parts of equal size only")
    found.exchange(pb.COLLECTIVE_KIND_ALL_TO_ALL, [input], [output], writes=[output])
    return _begun(found, async_op)


def send(tensor: Tensor, dst: int | None = None, group: Any = None, tag: int = 0, group_dst: int | None = None) -> None:
    """Send a tensor to a rank. Returns before that rank receives it."""
    _check(tensor, "tensor")
    found = _member(group, "send")
    if found is not None:
        peer = _peer(found, dst, group_dst, "dst")
        if peer == found.rank():
            raise GradwireValueError(
                "Invalid destination rank: destination rank should not be the same as the rank of the current process."
            )
        found.exchange(pb.COLLECTIVE_KIND_SEND, [tensor], fields={"peer": peer, "tag": tag})


def recv(tensor: Tensor, src: int | None = None, group: Any = None, tag: int = 0, group_src: int | None = None) -> int:
    """Receive a tensor from a rank, or without one from any; return the sender, a number among all ranks."""
    _check(tensor, "tensor")
    found = _member(group, "recv")
    if found is None:
        return -1
    if src is None and group_src is None:
        answer = found.exchange(
            pb.COLLECTIVE_KIND_RECV, (), [tensor], writes=[tensor], fields={"any_peer": True, "tag": tag}, waits=True
        )
        assert answer is not None
        return found.ranks[answer.peer]
    peer = _peer(found, src, group_src, "src")
    if peer == found.rank():
        raise GradwireValueError(
            "Invalid source rank: source rank should not be the same as the rank of the current process."
        )
    found.exchange(pb.COLLECTIVE_KIND_RECV, (), [tensor], writes=[tensor], fields={"peer": peer, "tag": tag})
    return found.ranks[peer]


def isend(
    tensor: Tensor, dst: int | None = None, group: Any = None, tag: int = 0, group_dst: int | None = None
) -> Work | None:
    """`send`, with a Work to wait for."""
    found = _member(group, "isend")
    if found is None:
        return None
    send(tensor, dst, found, tag, group_dst)
    return Work(found)


def irecv(
    tensor: Tensor, src: int | None = None, group: Any = None, tag: int = 0, group_src: int | None = None
) -> Work | None:
    """Receive a tensor when the Work is waited for. Earlier ones that were begun are received before."""
    _check(tensor, "tensor")
    found = _member(group, "irecv")
    if found is None:
        return None
    pending = found.pending

    def begin() -> None:
        while work in pending:
            pending.pop(0)._receive()

    work = Work(found, begin)
    work._receive = lambda: recv(tensor, src, found, tag, group_src)  # type: ignore[attr-defined]
    pending.append(work)
    return work


class P2POp:
    """A send or receive for `batch_isend_irecv` (torch.distributed.P2POp)."""

    def __init__(
        self,
        op: Callable[..., Any],
        tensor: Tensor,
        peer: int | None = None,
        group: Any = None,
        tag: int = 0,
        group_peer: int | None = None,
    ) -> None:
        if op not in (isend, irecv):
            raise GradwireValueError(
                "Invalid ``op``. Expected ``op`` to be of type ``torch.distributed.isend`` or "
                "``torch.distributed.irecv``."
            )
        self.op, self.tensor, self.peer, self.group, self.tag = op, tensor, peer, group, tag
        self.group_peer = group_peer


def batch_isend_irecv(p2p_op_list: Sequence[P2POp]) -> list[Work]:
    """Begin sends and receives; a Work for each."""
    if not p2p_op_list or not all(isinstance(each, P2POp) for each in p2p_op_list):
        raise GradwireValueError("Invalid ``p2p_op_list``. Each op is expected to to be of type P2POp.")
    begun = [each.op(each.tensor, each.peer, each.group, each.tag, each.group_peer) for each in p2p_op_list]
    return [each for each in begun if each is not None]
