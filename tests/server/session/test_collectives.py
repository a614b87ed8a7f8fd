"""What a rank of a collective refuses before it meets the others, and how a wait ends."""

from concurrent.futures import Future
from typing import Any

import numpy as np
import pytest

from gradwire.v1 import collectives_pb2 as pb
from gradwire_engine import Account, EngineError, tensor
from gradwire_server.common.errors import Refusal
from gradwire_server.session.collectives import handler, kinds, meeting, membership, messages, operands, received
from gradwire_server.session.state.cancel_token import CancelToken
from gradwire_server.session.state.durability import Durability, Received
from gradwire_server.session.state.group_table import GroupTable, Membership, RankMemory


@pytest.fixture
def groups() -> GroupTable:
    return GroupTable(1, Account(), CancelToken(), Durability())


def test_which_tensors_receive_values_depends_on_kind_and_rank() -> None:
    def written(kind: str, rank: int) -> Any:
        request = pb.CollectiveRequest(kind=f"COLLECTIVE_KIND_{kind}", peer=1)  # type: ignore[arg-type]
        return kinds.written_of(request, rank, "inputs", "outputs")

    assert [written("REDUCE", rank) for rank in (0, 1)] == [[], "inputs"]
    assert [written("BROADCAST", rank) for rank in (0, 1)] == ["inputs", []]
    assert [written(kind, 0) for kind in ("ALL_REDUCE", "ALL_GATHER")] == ["inputs", "outputs"]


def test_a_wait_gives_the_answer_or_ends_with_the_command(groups: GroupTable) -> None:
    future: Future[Any] = Future()
    waiting = meeting.answer_of(groups, future)
    next(waiting)
    assert groups.cancel_token.awaited is future
    future.set_result({"offers": 3})
    with pytest.raises(StopIteration) as ended:
        next(waiting)
    assert ended.value.value == {"offers": 3}
    waiting = meeting.answer_of(groups, Future())
    next(waiting)
    groups.cancel_token.cancel_ticket = groups.cancel_token.ticket
    with pytest.raises(Refusal, match="cancelled by the client"):
        next(waiting)


def test_a_group_has_a_short_name_and_its_ranks_lie_within_it(groups: GroupTable) -> None:
    for name in ("", "a" * 201, "a\n"):
        with pytest.raises(Refusal, match="1 to 200 printable characters"):
            membership._check_name(name)
    member = Membership("g", 1, 0, 2, RankMemory(groups.account))
    for rank in (0, 2):
        with pytest.raises(Refusal, match=f"not with rank {rank}"):
            messages._other_rank(member, rank)
    messages._other_rank(member, 1)
    member.close()


def test_a_collective_that_was_refused_alone_breaks_the_group(groups: GroupTable) -> None:
    groups.joined["g"] = member = Membership("g", 1, 0, 2, RankMemory(groups.account))
    groups.channel = Told()
    request = pb.CollectiveRequest(group="g")
    refusal = Refusal("SHAPE", "too large")
    refusal.in_step = True
    handler.left_out(groups, request, refusal)
    assert member.broken is None
    refusal.in_step = False
    handler.left_out(groups, request, refusal)
    assert member.broken is not None
    assert "left out a collective of group 'g': too large" in member.broken.message


class Told:
    """A front that is told of a group's end."""

    def ask(self, session: int, do: str, **fields: Any) -> Any:
        raise AssertionError(do)

    def tell(self, session: int, do: str, **fields: Any) -> None:
        assert do == "abandon"


class Notes:
    """What a log is told of one call."""

    def __init__(self) -> None:
        self.told: list[Received] = []
        self.received_bytes = 0

    def received(self, what: Received) -> None:
        self.told.append(what)


def test_room_for_the_log_is_made_before_values_are_written(groups: GroupTable) -> None:
    target = tensor(np.arange(3.0))
    assert received.room_to_log(groups, [target]) is None
    groups.durability.log_notes = Notes()  # type: ignore[assignment]
    room = received.room_to_log(groups, [target])
    assert room is not None
    received.note_received(groups, [target], room, peer=1)
    assert room.view(np.float64).tolist() == [0, 1, 2]
    groups.account.limit = 1
    with pytest.raises(EngineError, match="out of memory"):
        received.room_to_log(groups, [target])


def test_a_description_names_dtype_and_shapes_and_stays_short() -> None:
    one, two = tensor(np.zeros((2, 3), np.float32)), tensor(np.zeros(4, np.float32))
    assert operands.described("all_reduce", [one, two]) == "all_reduce of float32 [2, 3], [4]"
    assert operands.described("barrier", []) == "barrier"
    many = operands.described("all_reduce", [one] * 500)
    assert len(many) < operands._MAX_SHOWN + 60
    assert many != operands.described("all_reduce", [one] * 499 + [two])  # the hash tells them apart


def test_tensors_of_two_dtypes_are_refused() -> None:
    one, two = tensor(np.zeros(2, np.float32)), tensor(np.zeros(2))
    with pytest.raises(Refusal, match="one dtype, not float32, float64"):
        operands.one_dtype([one, two])
    with pytest.raises(Refusal, match="not none"):
        operands.one_dtype([])


def test_a_tensor_whose_elements_share_memory_is_not_written() -> None:
    spread = tensor(np.zeros(1))
    spread.array = np.broadcast_to(spread.array, (3,))
    with pytest.raises(Refusal, match=r"clone\(\)"):
        operands.check_written([spread])
    operands.check_written([tensor(np.zeros(3))])
