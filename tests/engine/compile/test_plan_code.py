"""The calls of a plan: one for each instruction that computes, none for views of fixed memory."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from gradwire_engine import Tensor, call, tensor
from gradwire_engine.compile.plan_code import PlanCode
from gradwire_engine.core.context import Context, activate
from tests.engine.compile.fusing import Program, run, traced


@pytest.fixture(autouse=True)
def context() -> Iterator[None]:
    with activate(Context()):
        yield


def given() -> Tensor:
    return tensor(np.random.default_rng(0).standard_normal((4, 6)))


def kernels(x: Tensor) -> list[Tensor]:
    return [call("exp", (call("tanh", (x,)),))]


def views(x: Tensor) -> list[Tensor]:
    turned = call("t", (call("tanh", (x,)),))
    return [call("exp", (call("narrow", (turned, 0, 1, 3)),))]


def ops(x: Tensor) -> list[Tensor]:
    return [call("exp", (call("cumsum", (x, 1)),))]  # cumsum has no kernel


EXPECTED = {
    "kernels": (kernels, 2, lambda x: np.exp(np.tanh(x))),
    "views": (views, 2, lambda x: np.exp(np.tanh(x).T[1:4])),
    "ops": (ops, 2, lambda x: np.exp(np.cumsum(x, 1))),
}


@pytest.mark.parametrize("name", EXPECTED)
def test_a_plan_makes_one_call_for_each_computation(name: str) -> None:
    program: Program
    program, calls, wanted = EXPECTED[name]
    plan = traced(program, [given()])
    for _ in range(2):
        x = given()
        np.testing.assert_allclose(run(plan, [x])[0].array, wanted(x.array), rtol=1e-12)
    code: PlanCode = plan
    assert len(code.code) == calls


def test_numbers_of_a_run_reach_kernels_and_ops() -> None:
    def program(x: Tensor, factor: float) -> list[Tensor]:
        return [call("cumsum", (x * factor, 0)) + x * factor]

    plan = traced(program, [given()], [2.0])
    for factor in (2.0, -3.5):
        x = given()
        wanted = np.cumsum(x.array * factor, 0) + factor * x.array
        np.testing.assert_allclose(run(plan, [x], [factor])[0].array, wanted, rtol=1e-12)
