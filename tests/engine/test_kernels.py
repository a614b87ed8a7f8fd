"""The kernel registry: names of kernels, and plans of a backend with and without kernels."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import gradwire_engine as engine
from gradwire_engine.compile.kernels import registry
from gradwire_engine.compile.plan import Plan
from gradwire_engine.compile.trace import Instr, Reg
from gradwire_engine.compile.tracing import Tracer
from gradwire_engine.core.context import CURRENT
from gradwire_engine.op.declaration import OPS
from tests.steps import through

Arrays = list["np.ndarray[Any, Any]"]


def arrays(seed: int) -> Arrays:
    """Rows, weights and a vector, in that order."""
    rng = np.random.default_rng(seed)
    return [rng.normal(size=shape).astype(np.float32) for shape in ((6, 4), (4, 3), (3,))]


def step(x: engine.Tensor, weight: engine.Tensor, bias: engine.Tensor, target: engine.Tensor) -> list[engine.Tensor]:
    """A training step with forward, gradients that are added, a fused loss, and updates in place."""
    hidden = engine.call("tanh", [engine.call("addmm", [bias, x, weight])])
    logs = engine.call("log_softmax", [engine.call("add", [hidden, engine.call("square", [hidden])]), 1])
    loss = engine.call("nll_loss", [logs, target])
    engine.backward([loss])
    with engine.activate(replace(CURRENT.get(), grad_enabled=False)):
        for leaf in (weight, bias):
            assert leaf.grad is not None
            engine.call("sub_", [leaf, leaf.grad], {"alpha": 0.5})
    return [engine.detach(loss)]


def inputs(seed: int) -> list[engine.Tensor]:
    """Fresh tensors for `step`."""
    x, weight, bias = arrays(seed)
    target = np.arange(6, dtype=np.int64) % 3
    return [engine.tensor(x), engine.tensor(weight, True), engine.tensor(bias, True), engine.tensor(target)]


def planned(backend: str | None) -> Plan:
    """The plan of `step`, for this backend or for that of its arrays."""
    given = inputs(0)
    tracer = Tracer(given)
    if backend is not None:
        tracer.backend = backend
    with engine.activate(replace(CURRENT.get(), tracer=tracer)):
        outputs = step(*given)
    return Plan(tracer, outputs, 0, CURRENT.get().account)


@pytest.mark.parametrize(("backend", "has_kernels"), [(None, True), ("cupy", False)])
def test_a_plan_computes_what_the_program_does(backend: str | None, has_kernels: bool) -> None:
    plan, given, expected = planned(backend), inputs(1), inputs(1)
    assert any(kernel is not None for kernel in plan.kernels) is has_kernels
    assert any(instr.kind == "loss" for instr in plan.instrs) is has_kernels
    (loss,) = through(plan.run(given, [], CURRENT.get()))
    (wanted,) = step(*expected)
    np.testing.assert_allclose(loss.array, wanted.array, rtol=1e-5)
    for one, other in zip(given, expected, strict=True):
        np.testing.assert_allclose(one.array, other.array, rtol=1e-5, atol=1e-6)
        if other.grad is not None:
            assert one.grad is not None
            np.testing.assert_allclose(one.grad.array, other.grad.array, rtol=1e-5, atol=1e-6)


def test_each_kernel_belongs_to_an_op_a_formula_or_an_in_place_op() -> None:
    names = {name for op in OPS.values() for name in (op.name, *(f"{op.name}.grad.{of}" for of in op.formulas))}
    names |= {f"{op.name}_" for op in OPS.values() if op.has_in_place}
    assert {op for _, op in registry._CHOICES} <= {*names, registry.GRADIENT_SUM}


def test_a_kernel_is_registered_once_for_a_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_CHOICES", {})

    @registry.kernel("cupy", "exp")
    def choice(instr: Instr, regs: Any) -> registry.Kernel | None:
        return registry.Kernel(np.exp)

    assert registry.lookup("cupy", "exp") is choice
    assert registry.lookup("numpy", "exp") is None
    with pytest.raises(ValueError, match="exp has a kernel of cupy already"):
        registry.kernel("cupy", "exp")(choice)
    regs = [Reg((2,), np.dtype(np.float32), frozenset((place,)), True) for place in range(2)]
    found = [registry.choose(backend, Instr("op", OPS["exp"], (), (1,)), regs) for backend in ("cupy", "numpy")]
    assert [each is not None for each in found] == [True, False]


def test_a_large_update_is_split_into_blocks() -> None:
    kernel = registry.Kernel(lambda out, target, other: np.add(target, other, target), block=8)
    target, other = np.zeros(40), np.arange(40.0)
    assert (kernel.splits(31), kernel.splits(32), registry.Kernel(np.add).splits(1 << 20)) == (False, True, False)
    calls = kernel.in_blocks([target, other])
    for call in calls:
        call()
    assert len(calls) == 5
    np.testing.assert_array_equal(target, other)
