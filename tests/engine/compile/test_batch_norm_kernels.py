"""Batch normalization as kernels: outputs, running statistics and gradients are those of the ops."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from gradwire_engine import EngineError, Tensor, backward, call, grad_mode, tensor
from gradwire_engine.compile.fusion import batch_norm as batch_norm_kernels
from gradwire_engine.compile.fusion import fused as fused_plans
from gradwire_engine.compile.fusion.batch_norm import BatchNormCall, batch_norms
from gradwire_engine.compile.plan import Plan
from gradwire_engine.compile.trace import Instr, Ref
from gradwire_engine.core import threads
from gradwire_engine.core.context import Context, activate
from gradwire_engine.core.threads import POOL
from gradwire_engine.op.declaration import OPS
from tests.engine.compile.fusing import fused, run, traced

pytest.importorskip("llvmlite")
SHAPES = [(3, 5, 7, 6), (1, 5, 40), (4, 5, 3, 4, 2), (2, 1, 9, 9)]


@pytest.fixture(autouse=True)
def context(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(batch_norm_kernels, "_LEAST", 1)
    with activate(Context()), np.errstate(all="ignore"):
        yield


def normalized(x: Tensor, weight: Tensor, bias: Tensor, mean: Tensor, variance: Tensor) -> list[Tensor]:
    y = call("batch_norm", (x, mean, variance, weight, bias, True, 0.3, 1e-4))
    y = call("tanh", (y,)) * y
    backward([call("sum", (y * y,))])
    return []


def plain(x: Tensor, *_: Tensor) -> list[Tensor]:
    y = call("batch_norm", (x * 1.5, None, None, None, None, True))
    backward([call("sum", (y * y * y,))])
    return []


def frozen(x: Tensor, weight: Tensor, bias: Tensor, *_: Tensor) -> list[Tensor]:
    """Only the parameters have gradients, so no gradient of the input computes the sums."""
    with grad_mode(False):
        given = call("clone", (x,))
    y = call("batch_norm", (given, None, None, weight, bias, True))
    backward([call("sum", (y * y * y,))])
    return []


def inputs(shape: tuple[int, ...], dtype: str) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(shape) * 2 + 1, *(rng.random(shape[1]) + 0.5 for _ in range(4))]
    return [array.astype(dtype) for array in arrays]


def tensors(arrays: list[np.ndarray]) -> list[Tensor]:
    return [tensor(array.copy(), place < 3) for place, array in enumerate(arrays)]


def agree(program: Any, arrays: list[np.ndarray]) -> tuple[Plan, Plan]:
    """Compare a plan and its fused plan, in values and gradients; return them."""
    plan = traced(program, tensors(arrays))
    quick, _ = fused(plan)
    for turn in range(2):
        turned = [np.roll(array.reshape(-1), turn).reshape(array.shape) for array in arrays]
        given, expected = tensors(turned), tensors(turned)
        run(quick, given)
        run(plan, expected)
        for one, other in zip(given, expected, strict=True):
            close(one.array, other.array)
            assert (one.grad is None) == (other.grad is None)
            if one.grad is not None and other.grad is not None:
                close(one.grad.array, other.grad.array)
    return plan, quick


def close(one: np.ndarray, other: np.ndarray) -> None:
    finite = np.isfinite(other)
    tolerance = (2e-5 if other.dtype == np.float32 else 1e-12) * float(np.abs(other[finite]).max(initial=1))
    np.testing.assert_allclose(one, other, rtol=0, atol=tolerance)


def kinds(plan: Plan) -> list[tuple[str, bool]]:
    return sorted((norm.what, norm.computes) for _, norm in batch_norms(plan))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", SHAPES)
def test_batch_norm_and_its_gradients_are_kernels(shape: tuple[int, ...], dtype: str) -> None:
    plan, quick = agree(normalized, inputs(shape, dtype))
    found = kinds(plan)
    assert [what for what, _ in found] == ["bias", "input", "output", "weight"]
    assert sum(computes for what, computes in found if what in ("input", "weight")) == 1
    assert sum(type(instr.what) is BatchNormCall for instr in quick.instrs) == 4


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_without_parameters_and_without_the_inputs_gradient(dtype: str) -> None:
    assert kinds(agree(plain, inputs(SHAPES[0], dtype))[0]) == [("input", True), ("output", True)]
    assert ("weight", True) in kinds(agree(frozen, inputs(SHAPES[0], dtype))[0])


def test_values_that_are_not_finite_spoil_their_channel_only() -> None:
    for bad in (np.inf, np.nan):
        arrays = inputs(SHAPES[0], "float64")
        arrays[0][1, 2, 3, 4] = bad
        agree(normalized, arrays)


def test_two_layers_have_their_own_sums() -> None:
    def program(x: Tensor, weight: Tensor, bias: Tensor, mean: Tensor, variance: Tensor) -> list[Tensor]:
        y = call("batch_norm", (x, mean, variance, weight, bias, True))
        y = call("batch_norm", (call("tanh", (y,)), None, None, bias, weight, True))
        backward([call("sum", (y * y * y,))])
        return []

    plan, _ = agree(program, inputs(SHAPES[0], "float64"))
    assert len(kinds(plan)) == 8


def test_sums_are_not_shared_over_a_change_of_what_they_are_of() -> None:
    plan = traced(normalized, tensors(inputs(SHAPES[0], "float64")))
    place = next(place for place, norm in batch_norms(plan) if norm.what == "weight")
    (x,) = [number for number in plan.instrs[place].reads() if number in plan.input_regs and number == 0]
    change = Instr("write", OPS["zero"], (Ref(x),), ())
    plan.instrs.insert(place, change)
    assert ("weight", True) in kinds(plan)
    plan.instrs[place] = Instr("call", None, (Ref(x),), ())
    assert ("weight", True) in kinds(plan)


@pytest.mark.parametrize("shape", [(8, 5), (3, 5, 7, 6)])
def test_small_and_flat_inputs_stay_ops(shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_norm_kernels, "_LEAST", 1 if len(shape) == 2 else 4096)
    assert kinds(agree(normalized, inputs(shape, "float32"))[0]) == []


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_any_number_of_threads_computes_the_same_bits(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "SHARED", 1)
    monkeypatch.setattr(threads, "LARGE", 1)
    monkeypatch.setattr(fused_plans, "SHARED", 1)
    arrays = inputs(SHAPES[0], dtype)
    quick, _ = fused(traced(normalized, tensors(arrays)))
    made = []
    for number in (1, 2, 5):
        monkeypatch.setattr(POOL, "threads", number)
        given = tensors(arrays)
        run(quick, given)
        made.append([each.array.tobytes() for each in given] + [each.grad.array.tobytes() for each in given[:3]])
    assert made[0] == made[1] == made[2]


def test_a_plan_that_verifies_finds_a_wrong_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fused_plans.OPTIONS, "mode", "verify")
    arrays = inputs(SHAPES[0], "float32")
    agree(normalized, arrays)
    right = BatchNormCall._slope

    def wrong(self: BatchNormCall, given: Any, out: Any) -> None:
        right(self, given, out)
        out.reshape(-1)[3] += 1

    monkeypatch.setattr(BatchNormCall, "_slope", wrong)
    with pytest.raises(EngineError, match="another value than its ops"):
        agree(normalized, arrays)
