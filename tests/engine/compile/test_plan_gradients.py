"""Gradients that a plan reads: those that differ from run to run are copied, and the plan is not bound again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from gradwire_engine import Account, Tensor, call, set_grad, tensor
from gradwire_engine.compile import plan as plans
from gradwire_engine.compile.plan import Plan
from gradwire_engine.core.context import CURRENT, Context, activate
from tests.engine.compile.fusing import Program, run, traced

SIZE = 12


@pytest.fixture(autouse=True)
def context() -> Iterator[None]:
    with activate(Context()):
        yield


def drawn(seed: int, count: int = 2) -> list[Tensor]:
    """Tensors with gradients."""
    rng = np.random.default_rng(seed)
    made = [tensor(rng.standard_normal((3, 4))) for _ in range(count)]
    for each in made:
        set_grad(each, tensor(rng.standard_normal((3, 4))))
    return made


def step(x: Tensor, y: Tensor) -> list[Tensor]:
    """As an optimizer: x and y change in place, their gradients do not."""
    call("sub_", (x, call("mul", (x.grad, 0.1))))
    call("sub_", (y, call("mul", (y.grad, y.grad))))
    return [call("sum", (x.grad,))]


def scaled(x: Tensor, y: Tensor) -> list[Tensor]:
    """Changes a gradient in place."""
    call("mul_", (x.grad, 0.5))
    return step(x, y)


@pytest.fixture
def binds(monkeypatch: pytest.MonkeyPatch) -> list[Plan]:
    """The plans that were bound, in order."""
    made: list[Plan] = []
    bind = Plan.bind

    def noted(plan: Plan, arrays: list[Any]) -> None:
        made.append(plan)
        bind(plan, arrays)

    monkeypatch.setattr(Plan, "bind", noted)
    return made


def slope(tensor: Tensor) -> Any:
    """The array of a gradient."""
    assert tensor.grad is not None
    return tensor.grad.array


def renewed(inputs: list[Tensor], seed: int) -> None:
    """Give the inputs other gradients, in other arrays."""
    rng = np.random.default_rng(seed)
    for each in inputs:
        set_grad(each, tensor(rng.standard_normal((3, 4))))


def copies_of(inputs: list[Tensor]) -> list[Tensor]:
    made = [tensor(each.array.copy()) for each in inputs]
    for one, other in zip(made, inputs, strict=True):
        set_grad(one, tensor(slope(other).copy()))
    return made


def train(program: Program, inputs: list[Tensor], plan: Plan, steps: int = 6) -> None:
    """Run a plan with new gradients each time; values and gradients are those of the program itself."""
    for seed in range(steps):
        renewed(inputs, seed)
        assert plan.fits(inputs)
        expected = copies_of(inputs)
        (result,), (wanted,) = run(plan, inputs), program(*expected)
        np.testing.assert_array_equal(result.array, wanted.array)
        for one, other in zip(inputs, expected, strict=True):
            np.testing.assert_array_equal(one.array, other.array)
            np.testing.assert_array_equal(slope(one), slope(other))


def test_a_plan_is_bound_once_for_any_number_of_gradients(binds: list[Plan]) -> None:
    """Its first run is compared with the traced one, so that gradients that change are copied at once."""
    inputs = drawn(0)
    train(step, inputs, traced(step, inputs))
    assert len(binds) == 1


def test_a_plan_whose_gradients_change_later_is_bound_again(binds: list[Plan]) -> None:
    inputs = drawn(0)
    plan = traced(step, inputs)
    run(plan, inputs)
    assert not plan.copied
    train(step, inputs, plan)
    assert len(binds) == 2
    assert plan.copied


def test_a_gradient_that_changes_in_place_is_bound(binds: list[Plan]) -> None:
    inputs = drawn(0)
    train(scaled, inputs, traced(scaled, drawn(0)))
    assert len(binds) == 6


def test_a_gradient_that_shares_memory_is_bound(binds: list[Plan]) -> None:
    def shared() -> list[Tensor]:
        x, y = drawn(1)
        set_grad(y, x.grad)
        return [x, y]

    plan = traced(step, shared())
    for _ in range(4):
        inputs = shared()
        assert plan.fits(inputs)
        expected = shared()
        run(plan, inputs)
        step(*expected)
        for one, other in zip(inputs, expected, strict=True):
            np.testing.assert_array_equal(one.array, other.array)
    assert len(binds) == 4


def test_large_gradients_are_bound(binds: list[Plan], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plans, "_COPIED_GRADIENTS", 8 * SIZE)
    train(step, drawn(0), traced(step, drawn(0)))
    assert len(binds) == 6


def test_copies_are_counted_and_are_not_made_without_room(binds: list[Plan]) -> None:
    with activate(replace(CURRENT.get(), account=Account(limit=1 << 20))):
        inputs = drawn(0)
        plan = traced(step, inputs)
        run(plan, inputs)
        before = CURRENT.get().account.bytes
        train(step, inputs, plan, 3)
        assert CURRENT.get().account.bytes - before == 2 * 8 * SIZE
        assert len(binds) == 2
    with activate(replace(CURRENT.get(), account=Account(limit=1 << 20))):
        inputs = drawn(0)
        plan = traced(step, inputs)
        account = CURRENT.get().account
        account.limit = account.bytes + 12 * SIZE
        renewed(inputs, 9)
        run(plan, inputs)
        assert not plan.copied
