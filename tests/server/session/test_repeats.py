"""Repeats: a prepared op that alternates between sizes repeats each of them, and keeps a bounded number."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from gradwire.v1 import commands_pb2 as c
from gradwire.v1 import service_pb2, types_pb2
from gradwire_engine import Context, Tensor, activate, tensor
from gradwire_server.session.prepared import repeats
from gradwire_server.session.prepared.ops import Prepared
from gradwire_server.session.prepared.repeats import RepeatRoom, describe, described_gradient
from tests.server.harness import Id, argument, op
from tests.server.session.test_prepared_ops import CONTEXT, SCOPE
from tests.server.session.test_repeated_steps import Side, seen


@pytest.fixture(autouse=True)
def repeated_early(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repeats, "_FIRST", 1)
    monkeypatch.setattr(repeats, "_recipes", {})
    monkeypatch.setattr(repeats, "_failures", {})


def given(*shape: int, grad: bool = False) -> Tensor:
    return tensor(np.ones(shape, np.float32), grad)


def known(prepared: Prepared, *arguments: Any) -> bool:
    """Call as `_run` does; whether no op was applied."""
    applied: list[Any] = []
    apply, prepared.call.apply = prepared.call.apply, lambda args: applied.append(args) or apply(args)
    try:
        call(prepared, *arguments)
    finally:
        prepared.call.apply = apply
    return not applied


def call(prepared: Prepared, *arguments: Any) -> bool:
    """Call as `_run` does; whether the likely repeated call took the arguments."""
    likely = prepared.repeats.last.following
    with activate(CONTEXT):
        made = likely.call(arguments, prepared.context)
        if made is None:
            prepared.apply(arguments)
            return False
    prepared.repeats.last = likely
    return True


def mul() -> Prepared:
    return Prepared(op("mul", Id(1), Id(2), outputs=[9]), SCOPE)


@pytest.mark.parametrize("order", [(3, 4), (3, 4, 5), (3, 3, 4), (7, 6, 5, 4, 3, 2)])
def test_sizes_that_take_turns_are_all_repeated(order: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    made, applied = mul(), []
    for size in order * 3:
        call(made, given(size), given(size))
    monkeypatch.setattr(made.call, "apply", lambda args: applied.append(args))
    found = [call(made, given(size), given(size)) for size in order * 4]
    assert not applied
    if len(set(order)) == len(order):
        assert all(found)  # each foretells the next, so that no other is tried


def test_in_place_changes_of_several_sizes_are_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    made, applied = Prepared(op("mul_", Id(1), 2.0), SCOPE), []
    for size in (3, 4) * 3:
        call(made, given(size), 2.0)
    monkeypatch.setattr(made.call, "apply", lambda args: applied.append(args))
    for size in (3, 4) * 3:
        target = given(size)
        call(made, target, 3.0)
        assert target.array.tolist() == [3.0] * size
    assert not applied


def test_the_number_of_repeated_calls_is_bounded() -> None:
    made = mul()
    for size in range(1, 200):
        for _ in range(3):
            call(made, given(size), given(size))
        assert len(made.repeats._known) <= repeats._MOST_KNOWN
        assert sum(each.call is not repeats._nothing for each in made.repeats._known.values()) == made.repeats.made
        assert made.repeats.made <= repeats._MOST
    assert call(made, given(199), given(199))


def test_sizes_that_never_come_again_make_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    made, asked = mul(), []
    make: Callable[..., Any] = repeats.recipe_of_call
    monkeypatch.setattr(repeats, "recipe_of_call", lambda *args: asked.append(args) or make(*args))
    for size in range(1, 300):
        call(made, given(size), given(size))
    assert not asked


def test_a_call_that_cannot_be_repeated_is_tried_again_less_and_less(monkeypatch: pytest.MonkeyPatch) -> None:
    made, asked = mul(), []
    monkeypatch.setattr(repeats, "recipe_of_call", lambda op, args, context: (op.apply(args), asked.append(args)))
    for _ in range(300):
        call(made, given(3), given(3))
    assert 5 < len(asked) < 10


def test_a_listing_is_that_of_the_operands() -> None:
    made = mul()
    for size in (3, 4) * 2:
        call(made, given(size), given(size))
    for size in (3, 4):
        found = made.listing_for([describe(given(size))] * 2, [])
        assert found is not None
        assert [each.shape for each in found.operands] == [(size,)] * 2
        assert found.result is not None
        assert found.result.shape == (size,)
    assert made.listing_for([describe(given(5))] * 2, []) is None
    assert made.listing_for([describe(given(3, grad=True)), describe(given(3))], []) is None


def test_numbers_that_a_repeated_call_fixes_are_part_of_what_it_is_known_by() -> None:
    made = Prepared(op("softplus", Id(1), 1.0, 20.0, outputs=[9]), SCOPE)
    for beta in (1.0, 2.0) * 3:
        call(made, given(3), beta, 20.0)
    assert made.repeats.made == 2
    assert all(call(made, given(3), beta, 20.0) for beta in (1.0, 2.0) * 2)


def test_a_listing_is_that_of_the_sign_of_zero() -> None:
    made = Prepared(op("leaky_relu", Id(1), 0.0, outputs=[9]), SCOPE)
    for _ in range(4):
        call(made, given(3), 0.0)
    operands = [describe(given(3))]
    assert made.listing_for(operands, [0.0]) is not None
    assert made.listing_for(operands, [-0.0]) is None
    assert made.listing_for(operands, [1.0]) is None


@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (1, 4, 1), (2, 3, 4)])
def test_a_gradient_is_described_like_a_contiguous_array(shape: tuple[int, ...]) -> None:
    leaf = tensor(np.asarray(np.ones(shape, np.float32), order="F"), True)
    assert described_gradient(describe(leaf)) == describe(given(*shape))


class Other:
    """Another session."""

    def __init__(self, made: Context) -> None:
        self.store, self.made, self.repeat_room = SCOPE.store, made, RepeatRoom()

    def context(self, grad_mode: int, default_dtype: int = 0) -> Context:
        return self.made

    def tensor(self, tensor_id: int) -> Any:
        return self.store[tensor_id]


def test_what_one_session_has_made_serves_the_first_call_of_another() -> None:
    first, context = mul(), Context()
    for _ in range(3):
        call(first, given(3), given(3))
    second = Prepared(op("mul", Id(1), Id(2), outputs=[9]), Other(context))
    with activate(context):
        before = context.account.bytes
        made = second.repeats.apply((given(3, grad=True), given(3)))
        assert second.repeats.made == 0  # another description
        made = second.repeats.apply((given(3), given(3)))
        assert second.repeats.made == 1
        assert made.storage.account is context.account
        assert context.account.bytes > before
    assert known(first, given(3), given(3))


@pytest.mark.parametrize(
    "settings", [{"grad_enabled": False}, {"default_dtype": np.dtype(np.float64)}, {"inference": True}]
)
def test_other_settings_have_other_recipes(settings: dict[str, Any]) -> None:
    first = mul()
    for _ in range(3):
        call(first, given(3), given(3))
    context = Context(**settings)
    second = Prepared(op("mul", Id(1), Id(2), outputs=[9]), Other(context))
    with activate(context):
        second.repeats.apply((given(3), given(3)))
    assert second.repeats.made == 0


def test_arguments_that_differ_have_other_recipes() -> None:
    for dim in (0, 1, -1):
        made = Prepared(op("sum", Id(1), argument(dim), outputs=[9]), SCOPE)
        assert not known(made, given(3, 3), *made.values[1:])
        for _ in range(3):
            call(made, given(3, 3), *made.values[1:])
        again = Prepared(op("sum", Id(1), argument(dim), outputs=[9]), SCOPE)
        assert known(again, given(3, 3), *again.values[1:])


def test_recipes_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repeats, "_MOST_SHARED", 5)
    monkeypatch.setattr(repeats, "_fixed", {})
    for size in range(1, 30):
        made = mul()
        for _ in range(3):
            call(made, given(size), given(size))
    assert len(repeats._recipes) == 5
    assert len(repeats._fixed) == 1


def test_a_recipe_that_holds_an_array_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Prepared(op("relu", Id(1), outputs=[9]), SCOPE)
    held = np.ones(4096)
    monkeypatch.setattr(made.call.op, "direct", lambda *args: lambda xp, input: xp.maximum(input, held[0]))
    for _ in range(4):
        call(made, given(3))
    assert (made.repeats.made, len(repeats._recipes)) == (1, 0)


@pytest.mark.parametrize("name", ["nll_loss", "cross_entropy"])
def test_losses_of_many_samples_hold_no_arrays(name: str) -> None:
    """Else thousands of repeated calls would hold gigabytes beside the account."""
    made = Prepared(op(name, Id(1), Id(2), outputs=[9]), SCOPE)
    args = (given(4096, 2), tensor(np.zeros(4096, np.int64)), *made.values[2:])
    for _ in range(4):
        call(made, *args)
    assert (made.repeats.made, len(repeats._recipes)) == (1, 1)


def test_the_descriptions_of_a_session_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The op that first took room loses its own, and makes them again when it is called."""
    monkeypatch.setattr(repeats, "_MOST_OF_SESSION", 50)
    session = Other(CONTEXT)
    every = [Prepared(op("mul", Id(1), Id(2), outputs=[9]), session) for _ in range(9)]
    for made in every * 2:
        for size in range(1, 13):
            for _ in range(4):
                call(made, given(size), given(size))
        assert call(made, given(12), given(12))
        kept = sum(len(each.repeats._known) for each in every)
        assert kept == session.repeat_room._used <= 50
        assert all(sum(one.call is not repeats._nothing for one in each.repeats._known.values()) == each.repeats.made
                   for each in every)  # fmt: skip


def test_an_op_that_gives_descriptions_back_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repeats, "_MOST_KNOWN", 4)
    session = Other(CONTEXT)
    made = Prepared(op("mul", Id(1), Id(2), outputs=[9]), session)
    for size in range(1, 40):
        call(made, given(size), given(size))
        assert session.repeat_room._used == len(made.repeats._known) <= 4
    made.repeats.clear()
    assert session.repeat_room._used == len(session.repeat_room._taken) == 0


def test_lists_several_results_indices_and_draws_leave_the_same_state() -> None:
    """Sessions of which one repeats such calls: in tensors, nodes, bytes, ids and the generator."""
    key, parts = types_pb2.Argument(), types_pb2.Argument()
    key.index.items.add(slice=types_pb2.Slice())
    key.index.items.add(tensor=4)
    parts.tensors.ids.extend([0, 0])
    prepared = [
        op("cat", parts, argument(0), outputs=[0]),
        op("chunk", Id(0), argument(2), outputs=[0, 0]),
        op("getitem", Id(0), key, outputs=[0]),
        op("dropout", Id(0), outputs=[0]),
        op("layer_norm", Id(0), argument((4,)), outputs=[0]),
        op("max", Id(0), argument(1), outputs=[0, 0]),
    ]
    sides = [Side(repeated) for repeated in (False, True)]
    for side in sides:
        side.session.grad_context.generator.manual_seed(3)
        with activate(side.session.grad_context):
            side.session.bind(1, tensor(np.arange(8, dtype=np.float32).reshape(2, 4), True))
            side.session.bind(2, tensor(np.ones((2, 4), np.float32), True))
            side.session.bind(3, tensor(np.array([0, 2])))
        side.run([
            service_pb2.Command(prepare=c.Prepare(number=number, op=each), quiet=True)
            for number, each in enumerate(prepared)
        ])  # fmt: skip
    for turn in range(6):
        at = 100 * (turn + 1)
        words = [0, 1, 2, at, 1, at, at + 1, at + 2, 2, at + 1, 3, at + 3, 3, at, at + 4, 4, at + 4, at + 5]
        words += [5, at + 5, at + 6, at + 7]
        calls = c.Calls(count=6, words=struct.pack(f"<{len(words)}Q", *words))
        answers = [side.run([service_pb2.Command(calls=calls)]) for side in sides]
        assert answers[0] == answers[1]
        assert seen(sides[0]) == seen(sides[1])
        assert at + 7 in sides[0].session.store
        states = [side.session.grad_context.generator.get_state() for side in sides]
        assert states[0] == states[1]
    made = [each.repeats.made for each in sides[1].session.writers[1].prepared.values()]
    assert all(made)


def test_what_failed_in_one_session_is_tried_later_in_another(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(repeats, "recipe_of_call", lambda op, args, context: (op.apply(args), asked.append(args)))
    counts = []
    for _ in range(3):
        made = mul()
        for _ in range(40):
            call(made, given(3), given(3))
        counts.append(len(asked))
    assert counts[0] > counts[1] - counts[0] >= counts[2] - counts[1]


def test_a_failure_that_another_thread_forgets_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    class Forgotten(dict[Any, int]):
        def __contains__(self, key: object) -> bool:
            return True

    monkeypatch.setattr(repeats, "_failures", Forgotten())
    assert not call(mul(), given(3), given(3))


def test_failures_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repeats, "_MOST_SHARED", 5)
    monkeypatch.setattr(repeats, "recipe_of_call", lambda op, args, context: (op.apply(args), None))
    made = mul()
    for size in range(1, 30):
        for _ in range(3):
            call(made, given(size), given(size))
    assert len(repeats._failures) == 5


def test_one_tensor_for_two_operands_of_a_composite_has_a_recipe_of_its_own() -> None:
    made = Prepared(op("mse_loss", Id(1), Id(2), outputs=[9]), SCOPE)
    for _ in range(4):
        one, other = given(3), given(3)
        call(made, one, one, *made.values[2:])
        call(made, one, other, *made.values[2:])
    assert made.repeats.made == 2
    assert known(made, one, one, *made.values[2:])
    assert known(made, one, other, *made.values[2:])
