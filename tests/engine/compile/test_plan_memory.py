"""A plan's results reuse memory after its last use, and only then."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from gradwire_engine import Account, EngineError, Tensor, call, tensor
from gradwire_engine.compile.plan_memory import PlanMemory
from gradwire_engine.core.context import Context, activate
from gradwire_engine.core.errors import Reason
from tests.engine.compile.fusing import run, traced

ROWS, COLUMNS = 16, 24


@pytest.fixture(autouse=True)
def context() -> Iterator[None]:
    with activate(Context()):
        yield


def given() -> Tensor:
    return tensor(np.random.default_rng(0).standard_normal((ROWS, COLUMNS)))


def chain(x: Tensor) -> list[Tensor]:
    for _ in range(4):
        x = call("tanh", (call("exp", (x,)),))
    return [x]


def test_a_chain_takes_the_memory_of_one_result() -> None:
    plan: PlanMemory = traced(chain, [given()])
    assert plan.bytes == given().array.nbytes
    assert len(plan.memory) == 8
    addresses = {array.__array_interface__["data"][0] for array in plan.memory.values()}
    assert len(addresses) == 1
    assert addresses.pop() % 64 == 0


def test_what_is_read_later_keeps_its_memory() -> None:
    def program(x: Tensor) -> list[Tensor]:
        first = call("exp", (x,))
        turned = call("t", (first,))
        second = call("tanh", (first,))
        return [call("mm", (turned, second)), call("exp", (turned,))]

    x = given()
    plan = traced(program, [x])
    product, turned = run(plan, [x])
    first = np.exp(x.array)
    np.testing.assert_allclose(product.array, first.T @ np.tanh(first), rtol=1e-12)
    np.testing.assert_allclose(turned.array, np.exp(first.T), rtol=1e-12)


def test_memory_beyond_the_limit_is_refused() -> None:
    plan = traced(chain, [given()])
    needed, account = plan.bytes, Account()
    account.limit = needed
    plan._prepare(account)
    account.limit = 2 * needed - 1  # the account still holds the first plan's memory
    with pytest.raises(EngineError) as refused:
        plan._prepare(account)
    assert refused.value.reason is Reason.MEMORY_LIMIT
