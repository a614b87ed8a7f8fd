"""The gradient of a weight that is used several times is one product, and equals the sum of products."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from gradwire_engine import EngineError, Tensor, backward, call, tensor
from gradwire_engine.compile import shared_weights
from gradwire_engine.compile.plan import Plan
from gradwire_engine.compile.trace import Instr, Ref, Reg
from gradwire_engine.core.context import CURRENT, Context, activate
from tests.engine.compile.fusing import run, traced

STEPS = 6


@pytest.fixture(autouse=True)
def context() -> Iterator[None]:
    with activate(Context()):
        yield


def recurrent(steps: int = STEPS, **other: Any) -> Any:
    """A recurrent net; other: what is done with the weight besides."""

    def program(x: Tensor, weight: Tensor, bias: Tensor) -> list[Tensor]:
        state = x
        for _ in range(steps):
            state = call("tanh", (call("linear", (state, weight, bias)),)) + x
        loss = call("sum", (state * state,))
        if other.get("penalty"):
            loss = loss + call("sum", (weight * weight,))
        backward([loss])
        return []

    return program


def inputs(rows: int = 3, dtype: str = "float64") -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.standard_normal(shape).astype(dtype) * 0.5 for shape in ((rows, 5), (5, 5), (5,))]


def agree(program: Any, arrays: list[np.ndarray]) -> Plan:
    """Compare a plan with the program run step by step."""
    plan = traced(program, [tensor(array.copy(), True) for array in arrays])
    for turn in range(2):
        turned = [np.roll(array, turn) for array in arrays]
        given, expected = ([tensor(array.copy(), True) for array in turned] for _ in range(2))
        run(plan, given)
        program(*expected)
        for one, other in zip(given, expected, strict=True):
            assert one.grad is not None
            assert other.grad is not None
            tolerance = 1e-12 if one.dtype == np.float64 else 1e-5
            np.testing.assert_allclose(one.grad.array, other.grad.array, rtol=tolerance, atol=10 * tolerance)
    return plan


def merged(plan: Plan) -> list[int]:
    """How many uses each merged instruction has."""
    return [len(instr.args[0]) for instr in plan.instrs if instr.kind == "kernel" and type(instr.args[0]) is list]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_uses_of_a_weight_and_bias_become_one_product_each(dtype: str) -> None:
    plan = agree(recurrent(), inputs(dtype=dtype))
    assert merged(plan) == [STEPS, STEPS]
    assert plan.bytes >= STEPS * 3 * (5 + 5) * plan.regs[0].dtype.itemsize  # the rows are counted


@pytest.mark.parametrize(
    ("program", "rows"),
    [
        (recurrent(3), 3),  # few uses
        (recurrent(), 65),  # products of many rows
    ],
)
def test_other_sums_stay(program: Any, rows: int) -> None:
    assert merged(agree(program, inputs(rows))) == []


def test_a_sum_with_another_addend_stays() -> None:
    assert merged(agree(recurrent(penalty=True), inputs())) == [STEPS]  # the bias's


def test_the_rows_are_refused_where_memory_is_short() -> None:
    arrays, account = inputs(), CURRENT.get().account
    plan = traced(recurrent(), [tensor(array.copy(), True) for array in arrays])
    needed = plan.bytes
    del plan
    account.limit = account.bytes + needed - 1
    with pytest.raises(EngineError, match="out of memory"):
        traced(recurrent(), [tensor(array.copy(), True) for array in arrays])


def test_a_weight_without_bias() -> None:
    def program(x: Tensor, weight: Tensor, bias: Tensor) -> list[Tensor]:
        state = x
        for _ in range(STEPS):
            state = call("tanh", (call("linear", (state, weight)) + bias,))
        backward([call("sum", (state * state,))])
        return []

    assert STEPS in merged(agree(program, inputs()))


@pytest.mark.parametrize(("kind", "changed"), [("", 0), ("write", 0), ("call", 1), ("accumulate", 1), ("write", 9)])
def test_products_are_not_moved_over_a_change_of_what_they_read(kind: str, changed: int) -> None:
    """Four products of registers 0 to 7, summed; before the last sum, one may be changed in place. 9 is another one."""
    regs = [Reg((3, 5), np.dtype(np.float64), frozenset((number,)), True) for number in range(10)]
    instrs: list[Instr] = []
    for place in range(4):
        regs.append(Reg((5, 5), np.dtype(np.float64), frozenset((10 + place,)), True))
        what = ("_linear_mm", "mat2", None)
        instrs.append(Instr("formula", what, (Ref(place), Ref(4 + place)), (10 + place,)))
    for place, pair in enumerate(((10, 11), (14, 12), (15, 13))):
        regs.append(Reg((5, 5), np.dtype(np.float64), frozenset((14 + place,)), True))
        instrs.append(Instr("sum", None, tuple(map(Ref, pair)), (14 + place,)))
    if kind:
        instrs.insert(-1, Instr(kind, None, (Ref(changed), Ref(8)), ()))
    left = shared_weights.merge(instrs, [None] * len(instrs), regs, [16])
    made = [instr for instr, kernel in left if kernel is not None]
    assert len(made) == (not kind or changed == 9)
    assert len(left) == (len(instrs) if not made else 1 + bool(kind))
    if made:
        assert made[0].outs == (16,)
