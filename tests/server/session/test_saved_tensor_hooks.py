"""Saved values: packed by the client's hooks, unpacked when backward needs them, and shown to who looks."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from gradwire.v1 import hooks_pb2
from gradwire_engine import EngineError, Reason, Tensor, backward, call
from gradwire_server.common.errors import Refusal
from gradwire_server.session import hook_commands, saved_tensor_hooks
from tests.server.session.opened import bound, opened


@pytest.fixture
def session() -> Iterator[Any]:
    with opened() as made:
        yield made


def pack(session: Any, step: str, quiet: bool = False, **fields: Any) -> hooks_pb2.PackSavedResponse:
    answer = hooks_pb2.PackSavedResponse()
    request = hooks_pb2.PackSavedRequest(step=hooks_pb2.PackStep.Value(f"PACK_STEP_{step}"), **fields)
    saved_tensor_hooks.pack_saved(session, request, None if quiet else answer)
    return answer


def show(session: Any, name: str, **fields: Any) -> hooks_pb2.SavedValueResponse:
    answer = hooks_pb2.SavedValueResponse()
    request = hooks_pb2.SavedValueRequest(tensor=2, name=name, **fields)
    saved_tensor_hooks.saved_value(session, request, answer)
    return answer


def packed(session: Any) -> Tensor:
    """exp(x) * x, known as 2, whose saved values are shown but not yet replaced."""
    x = bound(session, 1, 1.0, 2.0)
    pack(session, "BEGIN", number=3)
    made = x * call("exp", (x,))
    session.bind(2, made)
    return made


def test_values_are_shown_once_and_replaced_by_what_hooks_hold(session: Any) -> None:
    made = packed(session)
    values = pack(session, "SHOW", number=3, outputs=[2]).values
    shown = [session.tensor(value.id).array.tolist() for value in values]
    assert [1.0, 2.0] in shown
    assert any(np.allclose(each, np.exp([1.0, 2.0])) for each in shown)
    pack(session, "KEEP", number=3, outputs=[2], hooks=list(range(10, 10 + len(values))))
    assert session.hooks.moments == {}
    mul = made.grad_fn
    asks = [part.callback.number for part in mul.saved]
    assert set(asks) <= set(range(10, 10 + len(values)))
    answer = show(session, "self")
    assert (answer.known, list(answer.tensors)) == (True, [])
    assert next(iter(answer.hooks)) in asks
    unpacked = show(session, "self", unpacked=[1])
    assert session.tensor(unpacked.tensors[0].id).array.tolist() == [1.0, 2.0]


def test_a_value_that_is_a_tensor_of_the_request_is_told(session: Any) -> None:
    packed(session)
    bound(session, 5, 1.0, 2.0)  # alike, but of other memory
    values = pack(session, "SHOW", number=3, outputs=[2, 5, 1]).values
    told = {value.same_as: session.tensor(value.id).array.tolist() for value in values}
    assert told[1] == [1.0, 2.0]
    assert set(told) == {0, 1}


def test_an_op_that_saved_nothing_has_nothing_to_pack(session: Any) -> None:
    x = bound(session, 1, 1.0)
    pack(session, "BEGIN", number=3)
    session.bind(2, x + 1.0)
    assert list(pack(session, "SHOW", number=3, outputs=[2]).values) == []
    assert session.hooks.moments == {}


def test_keeping_without_hooks_ends_the_packing(session: Any) -> None:
    pack(session, "BEGIN", number=3)
    pack(session, "KEEP", number=3)
    pack(session, "BEGIN", number=3)


@pytest.mark.parametrize(
    ("begun", "step", "fields", "says"),
    [
        (False, "BEGIN", {"number": 0}, "0 is no number for packing"),
        (True, "BEGIN", {"number": 3}, "3 is no number for packing"),
        (False, "SHOW", {"number": 3}, "packing 3 has not begun"),
        (False, "KEEP", {"number": 3, "hooks": [1]}, "packing 3 has not begun"),
        (True, "UNSPECIFIED", {"number": 3}, "no step 0 of packing"),
        (True, "SHOW", {"number": 3, "quiet": True}, "a quiet command shows nothing"),
    ],
)
def test_steps_out_of_turn_are_refused(session: Any, begun: bool, step: str, fields: dict, says: str) -> None:
    if begun:
        pack(session, "BEGIN", number=3)
    with pytest.raises(Refusal, match=says) as refusal:
        pack(session, step, **fields)
    assert refusal.value.reason == "ARGUMENT_VALUE"


def test_only_so_many_ops_are_packed_at_once(session: Any) -> None:
    for number in range(1, saved_tensor_hooks.MAX_SUSPENDED + 1):
        pack(session, "BEGIN", number=number)
    with pytest.raises(Refusal, match=f"at most {saved_tensor_hooks.MAX_SUSPENDED}") as refusal:
        pack(session, "BEGIN", number=number + 1)
    assert refusal.value.reason == "TENSOR_LIMIT"


def test_a_saved_value_is_shown_by_pytorchs_name_and_ours_and_by_no_other(session: Any) -> None:
    x = bound(session, 1, 1.0, 2.0)
    session.bind(2, call("exp", (x,)))
    for name in ("result", "out"):
        answer = show(session, name)
        assert (answer.known, answer.several) == (True, False)
        assert session.tensor(answer.tensors[0].id).array.tolist() == np.exp([1.0, 2.0]).tolist()
    assert not show(session, "self").known
    assert not show(session, "bogus").known


def test_a_value_that_was_freed_is_refused(session: Any) -> None:
    x = bound(session, 1, 1.0, 2.0)
    made = call("exp", (x,))
    session.bind(2, made)
    backward([call("sum", (made,))])
    with pytest.raises(EngineError) as refusal:
        show(session, "result")
    assert refusal.value.reason is Reason.GRAPH_FREED


def test_one_value_is_packed_later_and_only_once(session: Any) -> None:
    x = bound(session, 1, 1.0, 2.0)
    made = call("mul", (x, x))
    session.bind(2, made)
    assert list(show(session, "self", pack=[10]).tensors) == []
    assert list(show(session, "self").hooks) == [10]
    assert len(show(session, "other").tensors) == 1
    for name, pack, phrase in (
        ("self", [11], "already been set"),
        ("other", [11, 12], "saved 1 tensors, not 2"),
    ):
        with pytest.raises(EngineError, match=phrase):
            show(session, name, pack=pack)
    x.storage.changed()
    with pytest.raises(EngineError, match="modifying its input in place"):
        show(session, "other", pack=[13])


def test_what_a_checkpoint_dropped_is_shown_after_a_recomputation_and_dropped_again(session: Any) -> None:
    x = bound(session, 1, 1.0, 2.0)

    def mark(name: str, outputs: Any = ()) -> None:
        request = hooks_pb2.CheckpointRequest(hook=9, mark=f"CHECKPOINT_MARK_{name}", outputs=outputs)
        hook_commands.checkpoint(session, request, hooks_pb2.CheckpointResponse())

    for number, begin, end in ((2, "BEGIN", "END"), (5, "BEGIN_AGAIN", "END_AGAIN"), (6, "BEGIN_AGAIN", "END_AGAIN")):
        if number > 2:
            answer = show(session, "result")
            assert (answer.known, answer.checkpoint, list(answer.tensors)) == (True, 9, [])
        mark(begin)
        session.bind(number, call("exp", (x,)))
        mark(end, [number])
        if number > 2:
            answer = show(session, "result", recomputed=9)
            assert session.tensor(answer.tensors[0].id).array.tolist() == np.exp([1.0, 2.0]).tolist()
            assert list(answer.nodes) == [session.graph_walks.node_id(session.tensor(2).grad_fn)]
    assert session.tensor(2).grad_fn.saved == ()
