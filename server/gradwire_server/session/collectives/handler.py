"""Handler of Collective, by which sessions of a group exchange values (collectives.proto).

A session that waits for other ranks waits for a future, as for a store's answer, so its worker computes other sessions.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from gradwire.v1 import collectives_pb2 as pb
from gradwire_engine import Tensor
from gradwire_engine.compile.trace import Exchange as Step
from gradwire_engine.compile.tracing import Tracer
from gradwire_server.common.errors import Refusal
from gradwire_server.session.collectives.exchange import Exchange
from gradwire_server.session.collectives.kinds import KINDS, WRITING_NOTHING, written_of
from gradwire_server.session.collectives.membership import join, leave
from gradwire_server.session.collectives.messages import receive, send
from gradwire_server.session.collectives.operands import ExchangeScope
from gradwire_server.session.collectives.received import replay
from gradwire_server.session.scope import TensorScope
from gradwire_server.session.state.group_table import GroupTable


def collective(
    scope: ExchangeScope, request: pb.CollectiveRequest, answer: pb.CollectiveResponse | None
) -> Iterator[None]:
    """Join or leave a group, or exchange values with its ranks. Raises Refusal."""
    groups, kind = scope.groups, request.kind
    if groups.durability.replayed is not None:
        peer = replay(scope, request, groups.durability.replayed)
        if answer is not None:
            answer.peer = peer
        return
    if kind == pb.COLLECTIVE_KIND_JOIN:
        yield from join(groups, request)
        return
    if kind == pb.COLLECTIVE_KIND_LEAVE:
        leave(groups, request.group)
        return
    if kind not in KINDS or not kind:
        raise Refusal("ARGUMENT_VALUE", f"there is no collective {kind}", argument="kind")
    member = groups.find(request.group)
    member.in_use = True
    try:
        if kind == pb.COLLECTIVE_KIND_SEND:
            yield from send(scope, member, request)
        elif kind == pb.COLLECTIVE_KIND_RECV:
            sender = yield from receive(scope, member, request)
            if answer is not None:
                answer.peer = sender
        else:
            yield from Exchange(scope, member, request).run()
    finally:
        member.in_use = False
        if member.broken is not None:
            member.close()


def trace_collective(tracer: Tracer, scope: TensorScope, request: pb.CollectiveRequest) -> None:
    """Tell the tracer of a plan about a collective. The plan exchanges its arrays in the same way."""
    groups, kind = scope.groups, request.kind
    slots = (*request.inputs, *request.outputs)
    rank = groups.rank_in(request.group)
    written: Sequence[int] = ()
    if kind not in WRITING_NOTHING:
        written = written_of(request, rank, request.inputs, request.outputs)

    def begin(arrays: Sequence[Any]) -> Iterator[None]:
        return collective(_PlanScope(groups, dict(zip(slots, map(Tensor, arrays), strict=True))), request, None)

    exchange = Step(begin, kind == pb.COLLECTIVE_KIND_ALL_REDUCE, lambda: groups.rank_in(request.group) in (rank, None))
    tracer.exchanged(scope.tensors(slots), scope.tensors(written), exchange)


class _PlanScope:
    """The arrays of a plan as tensors, by slot."""

    def __init__(self, groups: GroupTable, held: dict[int, Tensor]) -> None:
        self.groups = groups
        self._held = held

    def tensors(self, slots: Iterable[int], /) -> list[Tensor]:
        """The tensors of slots."""
        return [self._held[slot] for slot in slots]


def left_out(groups: GroupTable, request: pb.CollectiveRequest, refusal: Refusal) -> None:
    """Break the group of a collective that was refused before it took part, or whose program ended before it."""
    if not refusal.in_step:
        groups.skipped(request.group, refusal.message)
