"""Inputs of plans: a plan takes those of its last run without the checks, and checks all others."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from gradwire_engine import Tensor, call, set_data, set_grad, tensor
from gradwire_engine.compile.plan import Plan
from gradwire_engine.core.context import Context, activate
from gradwire_engine.graph.tensor import data
from tests.engine.compile.fusing import run, traced


@pytest.fixture(autouse=True)
def context() -> Iterator[None]:
    with activate(Context()):
        yield


def made(seed: int = 0, grad: bool = False) -> Tensor:
    return tensor(np.random.default_rng(seed).standard_normal((3, 4)), grad)


def program(x: Tensor, y: Tensor) -> list[Tensor]:
    return [call("sum", (x * y + x,))]


@pytest.fixture
def inputs() -> list[Tensor]:
    return [made(1), made(2)]


@pytest.fixture
def plan(inputs: list[Tensor]) -> Plan:
    """A plan that ran with `inputs`."""
    found = traced(program, inputs)
    assert not found._are_bound(inputs)
    run(found, inputs)
    return found


def test_inputs_of_the_last_run_are_not_checked_again(plan: Plan, inputs: list[Tensor]) -> None:
    assert plan._are_bound(inputs)
    assert plan.fits(inputs)
    inputs[0].array[...] = 2.0  # other values
    (result,) = run(plan, inputs)
    assert result.array == program(*inputs)[0].array


def test_other_inputs_are_checked(plan: Plan, inputs: list[Tensor]) -> None:
    one, other = inputs
    apart = Tensor(np.asfortranarray(one.array))
    locked = made(3)
    locked.array.flags.writeable = False
    for given, fits in (
        ([made(3), made(4)], True),
        ([other, one], True),
        ([one, one], False),  # they share memory
        ([one, data(one)], False),
        ([apart, other], False),
        ([locked, other], False),
        ([one, made(3, grad=True) * 2.0], False),  # it has a history
    ):
        assert not plan._are_bound(given)
        assert plan.fits(given) is fits


def test_what_happened_to_an_input_since_is_seen(plan: Plan, inputs: list[Tensor]) -> None:
    one, other = inputs
    set_grad(one, made(3))
    assert not plan.fits(inputs)
    set_grad(one, None)
    assert plan.fits(inputs)
    array = other.array
    set_data(other, one)  # now they share memory
    assert not plan.fits(inputs)
    set_data(other, Tensor(array))  # the array of before, in other storage
    assert not plan._are_bound(inputs)
    assert plan.fits(inputs)
