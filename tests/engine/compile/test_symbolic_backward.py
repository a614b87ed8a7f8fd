"""A backward in a trace: a plan repeats its gradients, and a pass that a plan cannot repeat ends the trace."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from gradwire_engine import Tensor, activate, backward, call, gradients, tensor
from gradwire_engine.compile import symbolic_backward
from gradwire_engine.compile.plan import Plan
from gradwire_engine.compile.tracing import Tracer
from gradwire_engine.core.context import CURRENT
from tests.steps import through


def inputs(seed: int) -> list[Tensor]:
    """Two leaves."""
    rng = np.random.default_rng(seed)
    return [tensor(rng.uniform(0.5, 2.0, shape), True) for shape in ((3, 4), (4,))]


def traced(program: Callable[..., Any]) -> tuple[Tracer, list[Tensor]]:
    """A tracer that a run of the program reported to, and the results."""
    given = inputs(0)
    tracer = Tracer(given)
    with activate(replace(CURRENT.get(), tracer=tracer)):
        return tracer, program(*given)


def _accumulated(x: Tensor, w: Tensor) -> list[Tensor]:
    y = x * w
    backward([call("sum", (call("exp", (y,)) * y,))])
    return []


def _asked(x: Tensor, w: Tensor) -> list[Tensor]:
    found, _ = gradients([call("sum", (call("sin", (x * w,)),))], [x, w])
    return list(found)


def _listed(x: Tensor, w: Tensor) -> list[Tensor]:
    joined = call("cat", ([x, x * 2.0], 0))
    found, _ = gradients([call("sum", (joined * w,))], [x, w])
    return list(found)


def _twice(x: Tensor, w: Tensor) -> list[Tensor]:
    (first,), _ = gradients([call("sum", (x * x * x * w,))], [x], create_graph=True)
    found, _ = gradients([call("sum", (first,))], [x, w])
    return list(found)


def _one_of_several(x: Tensor, w: Tensor) -> list[Tensor]:
    values, _ = call("sort", (x,))
    found, _ = gradients([call("sum", (values * w,))], [x, w])
    return list(found)


PROGRAMS = {each.__name__: each for each in (_accumulated, _asked, _listed, _twice, _one_of_several)}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_plan_repeats_the_gradients_on_other_values(name: str) -> None:
    program = PROGRAMS[name]
    tracer, outputs = traced(program)
    assert tracer.failed is None
    plan = Plan(tracer, outputs, 0, CURRENT.get().account)
    given, expected = inputs(1), inputs(1)
    found = through(plan.run(given, [], CURRENT.get()))
    wanted = program(*expected)
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one.array, other.array, rtol=1e-12)
    for one, other in zip(given, expected, strict=True):
        assert (one.grad is None) == (other.grad is None)
        if other.grad is not None:
            np.testing.assert_allclose(one.grad.array, other.grad.array, rtol=1e-12)


def _checked(x: Tensor, w: Tensor) -> list[Tensor]:
    return list(gradients([call("sum", (x * w,))], [x], check_nan=True)[0])


def test_a_backward_that_looks_for_nan_ends_the_trace() -> None:
    tracer, _ = traced(_checked)
    assert "nan" in str(tracer.failed)


def test_an_expensive_derivative_ends_the_trace_by_the_name_of_its_op(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(symbolic_backward, "LONG", 0.0)
    tracer, _ = traced(_asked)
    assert "takes so long" in str(tracer.failed)
