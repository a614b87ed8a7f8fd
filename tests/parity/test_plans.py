"""Plans of every op of the tables, with first and second derivatives: made with some values, right for others.

So are the fused plans of the ops that are fused.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import gradwire_engine as engine
from gradwire_engine import Context, EngineError, Op, activate
from gradwire_engine.compile.fusion import kernel_cache
from gradwire_engine.compile.fusion.rules import RULES
from gradwire_engine.compile.plan import Plan
from gradwire_engine.compile.schedule import NotPlannable
from gradwire_engine.compile.tracing import Tracer
from gradwire_engine.core.context import CURRENT
from tests.engine.compile.fusing import fused
from tests.parity.harness import _Call, _engine_value, results
from tests.parity.test_ops import CASES
from tests.steps import through

#: Ops with no plan: shapes, results or derivatives that are decided by values, or arrays that no op made.
STEPWISE = {
    "argwhere", "as_strided", "bincount", "cholesky_inverse", "ctc_loss", "cumprod", "embedding_bag",
    "gaussian_nll_loss",
    "grid_sample", "istft", "linalg.householder_product", "linalg.lu", "linalg.lu_factor", "linalg.lu_factor_ex",
    "linalg.lu_solve",
    "linalg.svd", "linalg.vander", "masked_scatter", "masked_select", "nanmean", "nanquantile", "nonzero", "prod",
    "repeat_interleave", "stft", "unique", "unique_consecutive",
    "bitwise_not",  # the tables have other dtypes
}  # fmt: skip
_PARTS = 8  # of the ops, each a test


def applied(name: str, args: Any, kwargs: Any = None) -> list[engine.Tensor]:
    """An op's results, reported to the tracer as a program's step is."""
    op, in_place = engine.lookup(name)
    bound = op.bind(args, dict(kwargs or {}))
    tracer = CURRENT.get().tracer
    mark = None if tracer is None else tracer.mark()
    made = results(op.in_place(bound) if in_place else op.apply(bound))
    if tracer is not None and not isinstance(op, Op):
        if in_place:
            tracer.fail("a composite that works in place")
        tracer.record_composite(mark, op, bound, made)
    return made


def derivatives(call: _Call, given: list[engine.Tensor]) -> list[engine.Tensor]:
    """The results, the first derivatives and the second, out of any graph. `given`: what is called with, and seeds."""
    tensors, seeds = given[: len(call.arrays)], given[len(call.arrays) :]
    args, kwargs = call.with_tensors(tensors, _engine_value)
    outs = applied(call.case.op, args, kwargs)
    found = list(outs)
    inputs = [tensor for tensor in tensors if tensor.requires_grad]
    flowing = [out for out in outs if out.requires_grad]
    if flowing and call.case.order and inputs:
        used = [seed for seed, out in zip(seeds, outs, strict=True) if out.requires_grad]
        first, _ = engine.gradients(flowing, inputs, used, create_graph=True, allow_unused=True)
        found += [one for one in first if one is not None]
        roots = [one for one in first if one is not None and one.requires_grad]
        if roots and call.case.order > 1:
            weights = [applied("ones_like", [one])[0] for one in roots]
            again, _ = engine.gradients(roots, [*inputs, *used], weights, allow_unused=True)
            found += [one for one in again if one is not None]
    with engine.grad_mode(False):
        return [applied("clone", [one])[0] for one in found]


def leaves(call: _Call, outs: list[tuple[tuple[int, ...], Any]], shift: int) -> list[engine.Tensor]:
    """Leaves with the call's arguments, their values rolled by `shift`, and gradients for its results."""
    made = []
    for array, spec in zip(call.arrays, call.specs, strict=True):
        turned = np.roll(array.reshape(-1), shift).reshape(array.shape)
        made.append(engine.tensor(turned.copy(), spec.differentiable))
    rng = np.random.default_rng(shift)
    for shape, dtype in outs:
        seed = rng.standard_normal(shape).astype(dtype) if dtype.kind in "fc" else np.ones(shape, dtype)
        made.append(engine.tensor(seed, dtype.kind in "fc"))
    return made


def planned(call: _Call, fuses: bool = False) -> bool:
    """Compare a plan with what it stands for, for values that it was not made with; whether there was one.

    fuses: compare its fused plan instead.
    """
    try:
        outs = call.call_ours(call.ours())
    except EngineError:
        return False
    shapes = [(out.shape, out.dtype) for out in outs]
    given = leaves(call, shapes, 0)
    tracer = Tracer(given)
    if tracer.failed is not None:
        return False
    with activate(replace(CURRENT.get(), tracer=tracer)):
        try:
            plan = Plan(tracer, derivatives(call, given), 0, CURRENT.get().account)
        except (EngineError, NotPlannable):
            return False
    compare(fused(plan)[0] if fuses else plan, call, shapes)
    return True


def compare(plan: Plan, call: _Call, shapes: list[tuple[tuple[int, ...], Any]]) -> None:
    """Compare a plan's results with those of the calls, on values that it was not made with."""
    for shift in (1, 2):
        try:
            expected = derivatives(call, leaves(call, shapes, shift))
        except EngineError:
            continue  # values that it refuses
        found = through(plan.run(leaves(call, shapes, shift), [], CURRENT.get()))
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            assert one.array.dtype == other.array.dtype and one.shape == other.shape
            if other.array.dtype.kind in "fc":
                scale = float(np.max(np.abs(other.array[np.isfinite(other.array)]), initial=1.0))
                np.testing.assert_allclose(one.array, other.array, rtol=1e-9, atol=1e-9 * scale)
            else:
                np.testing.assert_array_equal(one.array, other.array)


@pytest.mark.parametrize("part", range(_PARTS))
def test_plans_hold_for_other_values(part: int) -> None:
    """Results, first and second derivatives, in double precision, of every op that has a plan."""
    ops = set(sorted({made.op for made in CASES})[part::_PARTS])
    with activate(Context()), np.errstate(all="ignore"):
        found = {
            made.op
            for made in CASES
            if made.op in ops
            for sample in made.samples
            for dtype in {"float64", "complex128", "int64", "bool"}.intersection(sample.dtypes)
            if planned(_Call(made, sample, dtype))
        }
    assert ops - found == STEPWISE & ops


def test_ops_without_a_plan_are_in_the_tables() -> None:
    assert {made.op for made in CASES} >= STEPWISE


@pytest.mark.skipif(not kernel_cache.available(), reason="llvmlite is not installed")
def test_fused_plans_hold_for_other_values() -> None:
    """The same of one sample of every op that is fused."""
    fusible = {name.split(".grad")[0].rstrip("_") for name in RULES}
    with activate(Context()), np.errstate(all="ignore"):
        found = {
            made.op
            for made in CASES
            if {made.op, f"_{made.op}"} & fusible
            for sample in [each for each in made.samples if "float64" in each.dtypes][:2]
            if planned(_Call(made, sample, "float64"), fuses=True)
        }
    assert len(found) >= 20
