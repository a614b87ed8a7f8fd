"""Gradients that are views of fixed memory are computed once, when a plan is bound."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from gradwire_engine import Tensor, backward, call, tensor
from gradwire_engine.core.context import Context, activate
from tests.engine.compile.fusing import Program, run, traced


@pytest.fixture(autouse=True)
def context() -> Iterator[None]:
    with activate(Context()):
        yield


def _joined(name: str, dim: int) -> Program:
    def program(x: Tensor, y: Tensor) -> list[Tensor]:
        made = call(name, ([x * 2.0, y * 3.0, x * y], dim))
        backward([call("sum", (made * made,))])
        return []

    return program


def _permuted(x: Tensor, y: Tensor) -> list[Tensor]:
    made = call("permute", (x * y, (1, 0)))
    backward([call("sum", (made * 3.0,))])
    return []


PROGRAMS: dict[str, tuple[Program, set[str]]] = {
    "stack": (_joined("stack", 0), {"stack", "sum"}),
    "stack along the last dimension": (_joined("stack", -1), {"stack", "sum"}),
    "cat": (_joined("cat", 1), {"cat", "sum"}),
    "permute": (_permuted, {"permute", "sum"}),
}


def given() -> list[Any]:
    rng = np.random.default_rng(0)
    return [tensor(rng.standard_normal((3, 4)), True) for _ in range(2)]


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_gradient_that_is_a_view_takes_no_call(name: str) -> None:
    program, wanted = PROGRAMS[name]
    plan = traced(program, given())
    for _ in range(2):
        made, expected = given(), given()
        run(plan, made)
        program(*expected)
        for one, other in zip(made, expected, strict=True):
            np.testing.assert_allclose(one.grad.array, other.grad.array, rtol=1e-12)
    views = [instr for instr in plan.instrs if instr.kind in ("formula", "spread") and instr.what[0] in wanted]
    assert {instr.what[0] for instr in views} == wanted
    assert not {out for instr in views for out in instr.outs} & set(plan._dynamic)
