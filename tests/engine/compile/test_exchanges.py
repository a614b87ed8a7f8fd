"""Exchanges with other sessions in a plan: the plan waits for them, and what follows has the same bits in all modes."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from gradwire_engine import EngineError, Tensor, backward, call, grad_mode, tensor
from gradwire_engine.compile.fusion.grouping import equal_places, groups_of
from gradwire_engine.compile.plan import Plan
from gradwire_engine.compile.trace import Exchange
from gradwire_engine.core.context import CURRENT
from gradwire_engine.core.errors import Reason
from tests.engine.compile.fusing import fused, run, traced
from tests.engine.compile.test_fusion import call_in_place

PAUSES = 3
RUNS = 5
VALUES = np.sin(np.arange(1, 4) * 0.7)  # of an exchange of three elements


class Others:
    """The other sessions: an exchange takes three pauses, and gives all the same values."""

    def __init__(self, equals: bool = True) -> None:
        self.exchange = Exchange(self.begin, equals)
        self.refuses = False

    def begin(self, arrays: Sequence[Any]) -> Iterator[None]:
        for _ in range(PAUSES):
            yield
        if self.refuses:
            raise EngineError(Reason.RUNTIME, "a rank is gone")
        for array in arrays:
            array[...] = np.sin(np.arange(1, array.size + 1, dtype=array.dtype) * 0.7).reshape(array.shape)

    def meet(self, tensors: Sequence[Tensor]) -> None:
        """An exchange outside of plans, as a handler makes it."""
        for _ in self.begin([each.array for each in tensors]):
            pass
        if CURRENT.get().tracer is not None:
            CURRENT.get().tracer.exchanged(tensors, tensors, self.exchange)

    def step(self, weight: Tensor, bias: Tensor, m: Tensor, v: Tensor, x: Tensor) -> Sequence[Tensor]:
        """A training step: Adam of clipped gradients, which are exchanged before."""
        loss = call("mean", (call("square", (call("tanh", (call("linear", (x, weight, bias)),)),)),))
        backward([loss])
        gradients: Any = [weight.grad, bias.grad]
        self.meet(gradients)
        with grad_mode(False):
            squares = [call("sum", (call("square", (each,)),)) for each in gradients]
            norm = call("sqrt", (call("add", tuple(squares)),))
            scale = call("div", (1.0, call("add", (norm, 1.0))))
            call_in_place("mul", bias, 0.9)
            call_in_place("add", bias, gradients[1], -0.1)
            clipped = call("mul", (gradients[0], scale))
            call_in_place("mul", m, 0.9)
            call_in_place("add", m, clipped, 0.1)
            call_in_place("mul", v, 0.99)
            call_in_place("addcmul", v, clipped, clipped, 0.01)
            divisor = call("div", (call("sqrt", (v,)), 0.7))
            call_in_place("add", divisor, 1e-8)
            call_in_place("addcdiv", weight, m, divisor, -0.01)
        return [norm]


def inputs() -> list[Tensor]:
    draw = np.random.default_rng(3).standard_normal
    arrays = [draw(shape).astype(np.float32) for shape in ((90, 64), (90,), (90, 64), (90, 64), (16, 64))]
    return [tensor(np.square(each) if place == 3 else each, place < 2) for place, each in enumerate(arrays)]


def training(work: Any, given: list[Tensor]) -> list[bytes]:
    """What some runs change: the bytes of all inputs, gradients and results."""
    for _ in range(RUNS):
        for each in given:
            each.grad = None
        made = work(given)
    gradients = [each.grad.array for each in given if each.grad is not None]
    return [array.tobytes() for array in (*[each.array for each in (*given, *made)], *gradients)]


def plan_of(others: Others) -> Plan:
    return traced(others.step, inputs())


def test_what_follows_an_exchange_has_the_same_bits_by_ops_by_plan_and_by_machine_code() -> None:
    others = Others()
    by_ops = training(lambda given: others.step(*given), inputs())
    plan = plan_of(others)
    by_plan = training(lambda given: run(plan, given), inputs())
    faster, groups = fused(plan_of(others))
    assert len(groups) > 1
    by_machine_code = training(lambda given: run(faster, given), inputs())
    assert by_ops == by_plan == by_machine_code


def test_a_weight_that_changes_before_the_exchange_has_the_same_bits_in_all_modes() -> None:
    others = Others()

    def step(weight: Tensor, *rest: Tensor) -> Sequence[Tensor]:
        with grad_mode(False):
            norm = call("sqrt", (call("sum", (call("square", (weight,)),)),))
            call_in_place("mul", weight, call("div", (3.0, norm)))
        return others.step(weight, *rest)

    by_ops = training(lambda given: step(*given), inputs())
    faster, groups = fused(traced(step, inputs()))
    assert training(lambda given: run(faster, given), inputs()) == by_ops
    names = [getattr(each.what, "name", "") for group in groups for each in group.members]
    assert "tanh" in names  # of the rows, whose gradients are exchanged


def clipped(weight: Tensor, gradient: Tensor) -> Sequence[Tensor]:
    """An update by a clipped gradient, which an earlier program has exchanged."""
    with grad_mode(False):
        scale = call("div", (1.0, call("sqrt", (call("sum", (call("square", (gradient,)),)),))))
        call_in_place("sub", weight, call("mul", (gradient, scale)))
        return [call("mean", (call("tanh", (weight,)),))]


def test_a_change_by_a_program_without_exchange_has_the_same_bits_in_all_modes() -> None:
    def given() -> list[Tensor]:
        return [tensor(each.array) for each in inputs()[:3:2]]

    by_ops = training(lambda tensors: clipped(*tensors), given())
    faster, groups = fused(traced(clipped, given(), shared=True))
    made = training(lambda tensors: run(faster, tensors), given())
    assert made[:2] == by_ops[:2]
    names = [getattr(each.what, "name", "") for group in groups for each in group.members]
    assert "tanh" in names  # changes nothing
    assert "sum" not in names
    _, groups = fused(traced(clipped, given()))
    assert any(getattr(each.what, "name", "") == "sum" for group in groups for each in group.members)


@pytest.mark.parametrize("equals", [True, False])
def test_sums_behind_an_exchange_are_machine_code_only_if_no_equal_bits_are_needed(equals: bool) -> None:
    plan = plan_of(Others(equals))
    place = next(at for at, each in enumerate(plan.instrs) if each.kind == "exchange")
    assert equal_places(plan) == (set(range(place, len(plan.instrs))) if equals else set())
    behind = [
        each for group in groups_of(plan) for each, at in zip(group.members, group.places, strict=True) if at > place
    ]
    assert behind
    assert any(getattr(each.what, "name", "") == "sum" for each in behind) is not equals


def test_a_plan_pauses_until_the_exchange_is_done_and_stops_with_it() -> None:
    others = Others()
    plan, given = plan_of(others), inputs()
    before = given[0].array.copy()
    assert sum(1 for _ in plan.run(given, (), CURRENT.get())) == PAUSES
    assert not np.array_equal(given[0].array, before)
    others.refuses, given = True, inputs()
    with pytest.raises(EngineError, match="a rank is gone"):
        run(plan, given)
    assert np.array_equal(given[0].array, before)  # the update that follows was not made
    others.refuses = False
    run(plan, given)


def test_a_view_that_is_exchanged_changes_what_shares_its_memory() -> None:
    """Its memory is not reused before, and what is read afterwards is new."""
    others = Others()

    def program(x: Tensor) -> list[Tensor]:
        doubled = call("mul", (x, 2.0))
        others.meet([call("select", (doubled, 0, 1))])
        return [call("add", (doubled, 0.0))]

    given = tensor(np.arange(6, dtype=np.float32).reshape(2, 3))
    plan = traced(program, [given])
    for _ in range(2):
        (made,) = run(plan, [given])
        assert made.array[0].tolist() == [0, 2, 4]
        assert made.array[1] == pytest.approx(VALUES)


def test_an_input_that_is_exchanged_is_changed_and_counted() -> None:
    others = Others()

    def program(x: Tensor) -> list[Tensor]:
        others.meet([x])
        return []

    plan = traced(program, [tensor(np.ones(3, np.float32))])
    for _ in range(3):  # other tensors in each run: none is copied to a buffer instead
        given = tensor(np.ones(3, np.float32))
        version = given.storage.version
        run(plan, [given])
        assert given.array == pytest.approx(VALUES)
        assert given.storage.version == version + 1
