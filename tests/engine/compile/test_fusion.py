"""Fused plans compute what interpreted plans and PyTorch compute: each pattern, random programs, special values."""

from __future__ import annotations

import gc
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from gradwire_engine import EngineError, Tensor, backward, call, grad_mode, gradients, tensor
from gradwire_engine.compile.fusion import functions
from gradwire_engine.compile.fusion import fused as fused_plans
from gradwire_engine.compile.fusion.form import WHOLE, Loop
from gradwire_engine.compile.fusion.fused import FusedCall, check_equal
from gradwire_engine.compile.fusion.grouping import Group, Index
from gradwire_engine.compile.fusion.llvm_printer import printed
from gradwire_engine.compile.fusion.rules import RULES
from gradwire_engine.core.context import CURRENT, Context, activate
from gradwire_engine.op.declaration import OPS
from tests.engine.compile.fusing import KERNELS, Program, built, fused, run, traced

pytest.importorskip("llvmlite")
DTYPES = ["float32", "float64"]
TOLERANCE = {"float32": 3e-5, "float64": 1e-12}


@pytest.fixture(autouse=True)
def context() -> Iterator[None]:
    with activate(Context()), np.errstate(all="ignore"):
        yield


def copies(arrays: list[np.ndarray]) -> list[Tensor]:
    return [tensor(array.copy(), array.dtype.kind == "f") for array in arrays]


def same(one: np.ndarray, other: np.ndarray, units: float = 1.0) -> None:
    """Equal within rounding, by the largest finite value."""
    assert one.shape == other.shape
    assert one.dtype == other.dtype
    finite = np.isfinite(other)
    scale = float(np.abs(other[finite]).max(initial=1.0))
    tolerance = TOLERANCE.get(str(other.dtype), 0.0) * units
    np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance * scale)


def compare(program: Program, arrays: list[np.ndarray], numbers: tuple[float, ...] = ()) -> list[Group]:
    """A program's plan and its fused plan, on the traced values, then on others; returns the groups."""
    plan = traced(program, copies(arrays), numbers)
    quick, groups = fused(plan)
    for turn in range(2):
        turned = [np.roll(array.reshape(-1), turn).reshape(array.shape) for array in arrays]
        given, expected = copies(turned), copies(turned)
        made, wanted = run(quick, given, numbers), run(plan, expected, numbers)
        for one, other in zip(made, wanted, strict=True):
            same(one.array, other.array)
        for one, other in zip(given, expected, strict=True):
            same(one.array, other.array)
            assert (one.grad is None) == (other.grad is None)
            if other.grad is not None:
                same(one.grad.array, other.grad.array)
    return groups


def names(groups: list[Group]) -> set[str]:
    """The rules of the groups' members."""
    found = set()
    for group in groups:
        for instr in group.members:
            what = instr.what
            if instr.kind == "formula":
                found.add(f"{what[0]}.grad.{what[1]}")
            else:
                found.add({"sum": "gradient_sum", "accumulate": "accumulate"}.get(instr.kind) or what.name)
    return found


# The functions.


def _applied(name: str, values: np.ndarray) -> np.ndarray:
    loop = Loop()
    given, made = (loop.operand(values.dtype.char.replace("f", "f4").replace("d", "f8"), WHOLE) for _ in range(2))
    loop.store(made, getattr(functions, name)(loop, loop.load(given)))
    kernel = built(printed(loop))
    assert kernel.entry is not None
    out = np.empty_like(values)
    table = np.array([values.size, values.ctypes.data, 0, out.ctypes.data, 0], np.int64)
    kernel.entry(0, values.size, None, table.ctypes.data)
    return out


def _drawn(name: str, dtype: str) -> np.ndarray:
    rng = np.random.default_rng(0)
    if name == "log1p":  # as it is used: of what exp answers for what is not positive
        return np.concatenate([rng.random(20_000), 10.0 ** rng.uniform(-30, 0, 20_000)]).astype(dtype)
    spread = 10.0 ** rng.uniform(-37, 37, 20_000)
    parts = [rng.standard_normal(40_000) * 3, rng.standard_normal(20_000) * 40, rng.standard_normal(20_000) * 1e-3]
    return np.concatenate([*parts, np.linspace(-760, 760, 20_001), spread]).astype(dtype)


_EXACT: dict[str, Any] = {"exp": np.exp, "log": np.log, "log1p": np.log1p, "tanh": np.tanh}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", _EXACT)
def test_a_function_is_within_two_units_in_the_last_place(name: str, dtype: str) -> None:
    if np.finfo(np.longdouble).eps >= np.finfo(np.float64).eps:
        pytest.skip("long double is no wider than double here")
    values = _drawn(name, dtype)
    found = _applied(name, values)
    exact = _EXACT[name](values.astype(np.longdouble))
    rounded = exact.astype(dtype)
    finite = np.isfinite(rounded)
    np.testing.assert_array_equal(found[~finite], rounded[~finite])
    units = np.abs(found[finite] - exact[finite]) / np.spacing(np.abs(rounded[finite]))
    assert float(units.max()) <= 2.0


SPECIAL = [0.0, -0.0, math.inf, -math.inf, math.nan, 1e-40, -1e-40, 5e-324, 1.0, -1.0, 88.8, 89.5, -104.5, 709.9, 1e38]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", [name for name in _EXACT if name != "log1p"])
def test_a_function_treats_special_values_as_numpy_does(name: str, dtype: str) -> None:
    values = np.array(SPECIAL * 5, dtype)  # so that some are in a vector and some are behind the last whole one
    found, expected = _applied(name, values), _EXACT[name](values)
    np.testing.assert_allclose(found, expected, rtol=1e-6 if dtype == "float32" else 1e-15)
    zero = expected == 0
    np.testing.assert_array_equal(np.signbit(found[zero]), np.signbit(expected[zero]))


# Each pattern.

S, ROW, COLUMN = (6, 40), (40,), (6, 1)


def _step(loss: Any) -> list[Tensor]:
    backward([call("sum", (loss,))])
    return []


def detached(*given: Tensor) -> list[Tensor]:
    """Copies without history."""
    with grad_mode(False):
        return [call("clone", (each,)) for each in given]


def _chain(name: str, *rest: Any) -> Program:
    """An op between elementwise ops, and its gradient."""

    def program(x: Tensor, w: Tensor) -> list[Tensor]:
        return _step(call(name, (x * 1.5, *rest)) * w)

    return program


def _binary(name: str) -> Program:
    def program(x: Tensor, row: Tensor, column: Tensor) -> list[Tensor]:
        y = call(name, (call(name, (x, row)), column))
        y = call(name, (y, 2.5))
        return _step(call(name, (y, x)) * 0.5)

    return program


def _branches(x: Tensor, w: Tensor) -> list[Tensor]:
    mask = call("gt", (x, 0.1))
    one = call("where", (mask, x * w, 0.25))
    return _step(call("where", (mask, 1.0, one * x)))


def _normalized(x: Tensor, weight: Tensor, bias: Tensor) -> list[Tensor]:
    y = call("layer_norm", (x, (40,), weight, bias)) * x
    return _step(call("layer_norm", (y, (40,))) * weight)


def _loss(name: str, reduction: str) -> Program:
    def program(x: Tensor, w: Tensor) -> list[Tensor]:
        (target,) = detached(call("sigmoid", (w,)))
        loss = call(name, (x * 2.0, target), {"reduction": reduction})
        backward([loss])
        return detached(loss)

    return program


def _reduced(name: str) -> Program:
    def program(x: Tensor, w: Tensor) -> list[Tensor]:
        total = call(name, (call("tanh", (x,)) * w,))
        y = x * total  # a value of all elements, used again
        backward([call("sum", (y * w,))])
        return detached(total, y)

    return program


def _twice(x: Tensor, w: Tensor) -> list[Tensor]:
    y = call("sum", (call("tanh", (x * w,)) * call("sigmoid", (x,)),))
    (slope,), _ = gradients([y], [x], create_graph=True)
    backward([call("sum", (slope * slope,))])
    return []


def _adam(p: Tensor, m: Tensor, v: Tensor, g: Tensor, rate: Any, correction: Any) -> list[Tensor]:
    with grad_mode(False):
        for name, target, *rest in (("mul", m, 0.9), ("add", m, g, 0.1), ("mul", v, 0.99), ("addcmul", v, g, g, 0.01)):
            call_in_place(name, target, *rest)
        divisor = call("div", (call("sqrt", (v,)), correction))
        call_in_place("add", divisor, 1e-8)
        call_in_place("addcdiv", p, m, divisor, rate)
    return [divisor]


def call_in_place(name: str, target: Tensor, *rest: Any) -> None:
    op, options = OPS[name], _options(name, rest)
    op.in_place(op.bind((target, *(rest[:-1] if options else rest)), options))


def _options(name: str, rest: tuple[Any, ...]) -> dict[str, Any]:
    if name in ("addcmul", "addcdiv"):
        return {"value": rest[-1]}
    if name in ("add", "sub") and len(rest) == 2:
        return {"alpha": rest[-1]}
    return {}


PATTERNS: dict[str, tuple[Program, tuple[tuple[int, ...], ...], set[str]]] = {
    **{
        name: (_chain(name), (S, S), {name, f"{name}.grad.input"})
        for name in ("exp", "tanh", "sigmoid", "silu", "relu", "square", "neg")
    },
    **{
        name: (_chain(name, *rest), (S, S), {name, f"{name}.grad.input"})
        for name, rest in (("softmax", (-1,)), ("log_softmax", (1,)))
    },
    "gelu": (_chain("gelu"), (S, S), set()),
    **{name: (_binary(name), (S, ROW, COLUMN), {name}) for name in ("add", "sub", "mul", "div")},
    "where": (_branches, (S, S), {"where", "where.grad.input", "where.grad.other"}),
    "layer norm": (_normalized, (S, ROW, ROW), {"_layer_norm", "_layer_norm.grad.input"}),
    **{
        f"{name} of a {reduction}": (_loss(name, reduction), (S, S), {op, f"{op}.grad.input"})
        for name, op in (("binary_cross_entropy_with_logits", "_bce_with_logits"), ("mse_loss", "_mse_loss"))
        for reduction in ("sum", "mean")
    },
    "sum": (_reduced("sum"), (S, S), {"sum"}),
    "mean": (_reduced("mean"), (S, S), {"mean"}),
    "second derivatives": (_twice, (S, S), {"_tanh_backward", "_tanh_backward.grad.g", "_sigmoid_backward.grad.g"}),
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_pattern_is_fused_and_computes_the_same(pattern: str, dtype: str) -> None:
    program, shapes, wanted = PATTERNS[pattern]
    rng = np.random.default_rng(1)
    arrays = [(rng.standard_normal(shape) + (2.0 if len(shape) == 1 else 0.0)).astype(dtype) for shape in shapes]
    if pattern == "div":
        arrays = [np.abs(array) + 0.5 for array in arrays]
    assert wanted <= names(compare(program, arrays))


@pytest.mark.parametrize("dtype", DTYPES)
def test_special_values_come_out_as_interpreted(dtype: str) -> None:
    values = np.array(SPECIAL * 16, dtype).reshape(16, -1)
    for name, rest in (("softmax", (-1,)), ("log_softmax", (-1,)), ("relu", ()), ("gelu", ()), ("tanh", ())):
        if name == "gelu" and dtype == "float64":
            continue
        for array in (values, values.T.copy()):
            plan = traced(_chain(name, *rest), copies([array, np.ones_like(array)]))
            quick, groups = fused(plan)
            assert groups
            given, expected = copies([array, np.ones_like(array)]), copies([array, np.ones_like(array)])
            run(quick, given)
            run(plan, expected)
            same(given[1].grad.array, expected[1].grad.array)  # type: ignore[union-attr]
            same(given[0].grad.array, expected[0].grad.array)  # type: ignore[union-attr]


def test_layer_norm_of_squares_that_overflow_is_that_of_the_op() -> None:
    values = np.random.default_rng(0).standard_normal((3, 8)).astype(np.float32)
    values[1, 2] = 1e25
    compare(lambda x: detached(call("layer_norm", (x, (8,)))), [values])


@pytest.mark.parametrize("dtype", DTYPES)
def test_an_optimizers_update_is_one_loop(dtype: str) -> None:
    rng = np.random.default_rng(2)
    arrays = [rng.random((37, 5)).astype(dtype) for _ in range(4)]

    def program(*given: Any) -> list[Tensor]:
        return _adam(*given)

    plan = traced(program, [tensor(array.copy()) for array in arrays], (-0.01, 0.7))
    quick, groups = fused(plan)
    assert [len(group.members) for group in groups] == [8]
    for numbers in ((-0.01, 0.7), (-0.5, 0.25)):
        given, expected = ([tensor(array.copy()) for array in arrays] for _ in range(2))
        run(quick, given, numbers)
        run(plan, expected, numbers)
        for one, other in zip(given, expected, strict=True):
            np.testing.assert_array_equal(one.array, other.array)  # only correctly rounded operations


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_change_in_two_passes_is_a_loop_of_the_same_bits(dtype: str) -> None:
    rng = np.random.default_rng(5)
    for shape in ((7,), (33, 65), (300, 1000)):
        arrays = [rng.normal(0, 3, shape).astype(dtype) for _ in range(2)]
        arrays[1].reshape(-1)[:3] = np.inf, np.nan, -0.0
        plan = traced(_changed, copies(arrays), (0.01,))
        quick, groups = fused(plan)
        assert len(groups) == 1
        for number in (0.01, -0.3, math.inf):
            given, expected = copies(arrays), copies(arrays)
            run(quick, given, (number,))
            run(plan, expected, (number,))
            assert given[0].array.tobytes() == expected[0].array.tobytes()


def _changed(target: Tensor, other: Tensor, rate: Any) -> list[Tensor]:
    with grad_mode(False):
        call_in_place("add", target, other, rate)
    return []


def test_a_change_in_one_pass_stays_numpys() -> None:
    def program(target: Tensor, other: Tensor) -> list[Tensor]:
        with grad_mode(False):
            call_in_place("mul", target, other)
        return []

    arrays = [np.ones((3, 4), np.float32), np.ones((3, 4), np.float32)]
    assert not compare(program, arrays)


@pytest.mark.parametrize(("name", "kept"), [("softmax", 1), ("log_softmax", 0)])
def test_a_row_keeps_only_what_a_later_pass_reads(name: str, kept: int) -> None:
    """The exponentials of a softmax are kept for its division, and none of the values that they are computed of."""

    def program(x: Tensor) -> list[Tensor]:
        return [call(name, (x * 1.5, -1))]

    _, groups = fused(traced(program, [tensor(np.random.default_rng(0).standard_normal(S))]))
    (loop,) = [group.loop for group in groups]
    assert len(loop.kept()) == kept
    assert all(len(each.elements) <= 4 for each in loop.passes()[2:])


# What must not be fused.


@pytest.mark.parametrize("dtype", ["float16", "int64", "complex64"])
def test_other_dtypes_are_not_fused(dtype: str) -> None:
    def program(x: Tensor) -> list[Tensor]:
        return [x * x + x]

    plan = traced(program, [tensor(np.arange(12).reshape(3, 4).astype(dtype))])
    assert fused(plan)[1] == []


def test_a_change_is_not_moved_over_what_may_fail() -> None:
    """An update after an op that may refuse its values stays after it."""

    def program(x: Tensor, index: Tensor, p: Tensor) -> list[Tensor]:
        y = call("exp", (x,)) * x
        z = call("index_select", (y, 0, index))
        call_in_place("mul", p, 0.5)
        call_in_place("add", p, x, 2.0)
        return [z]

    def inputs(place: int) -> list[Tensor]:
        return [tensor(np.ones((3, 4))), tensor(np.array([place])), tensor(np.ones((3, 4)))]

    quick, _ = fused(traced(program, inputs(0)))
    given = inputs(7)
    with pytest.raises(EngineError):
        run(quick, given)
    np.testing.assert_array_equal(given[2].array, np.ones((3, 4)))


def test_a_changed_view_is_not_fused() -> None:
    """Two registers on the same memory, one of which is changed."""

    def program(x: Tensor) -> list[Tensor]:
        part = call("transpose", (x, 0, 1))
        y = part * 2.0 + part
        call_in_place("mul", x, 3.0)
        call_in_place("add", x, 1.0)
        return [y + call("exp", (part,))]

    values = np.random.default_rng(0).random((4, 4))
    plan = traced(program, [tensor(values.copy())])
    quick, _ = fused(plan)
    given, expected = [tensor(values.copy())], [tensor(values.copy())]
    found, wanted = run(quick, given), run(plan, expected)
    np.testing.assert_allclose(found[0].array, wanted[0].array, rtol=1e-12)
    np.testing.assert_allclose(given[0].array, expected[0].array, rtol=1e-12)


# Verification.


def test_verification_refuses_a_wrong_value() -> None:
    def program(x: Tensor, w: Tensor) -> list[Tensor]:
        return [call("exp", (x * w,)) + w]

    arrays = [np.random.default_rng(0).random((5, 8)) for _ in range(2)]
    plan = traced(program, [tensor(array) for array in arrays])
    quick, groups = fused(plan)
    group = groups[0]
    expected = run(quick, [tensor(array) for array in arrays])[0].array
    check_equal(group, 0, expected, expected.copy())
    wrong = expected.copy()
    wrong[2, 3] *= 1 + 1e-9
    with pytest.raises(EngineError, match="another value than its ops"):
        check_equal(group, 0, wrong, expected)
    wrong[2, 3] = np.nan
    with pytest.raises(EngineError, match="nan"):
        check_equal(group, 0, wrong, expected)


def test_verification_allows_the_rounding_of_operands(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sum of large values may be small, and its rounding is theirs."""
    monkeypatch.setattr(fused_plans.OPTIONS, "mode", "verify")

    def program(x: Tensor, w: Tensor) -> list[Tensor]:
        return [call("sum", (x * w * w,))]

    x = np.asarray([[1000, 0.123456789, -1000, 0.000987654321]], np.float32)
    w = np.full_like(x, 1.1)
    quick, groups = fused(traced(program, [tensor(x), tensor(w)]))
    assert groups
    for shift in range(20):
        run(quick, [tensor(x + np.float32(shift) * x[:, ::-1] / 7), tensor(w)])


def test_a_plan_that_verifies_computes_the_same_and_finds_a_wrong_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fused_plans.OPTIONS, "mode", "verify")
    compare(_normalized, [np.random.default_rng(0).random(shape) for shape in (S, ROW, ROW)])
    called = FusedCall.__call__

    def wrong(self: FusedCall) -> None:
        called(self)
        for what, operand in zip(self.group.operands, self.group.loop.operands, strict=True):
            if operand.written and type(what) is Index:
                self._held[self.group.operands.index(what)][...] += 1

    monkeypatch.setattr(FusedCall, "__call__", wrong)
    with pytest.raises(EngineError, match="another value than its ops"):
        compare(_normalized, [np.random.default_rng(0).random(shape) for shape in (S, ROW, ROW)])


def test_an_op_that_reads_a_single_row_value_runs_after_the_op_that_makes_it() -> None:
    def program(x: Tensor, y: Tensor) -> list[Tensor]:
        with grad_mode(False):
            z = call("exp", (y,))  # before the norm, and in a loop with the product after it
            made, _, scale = OPS["_layer_norm"].apply((x, None, None, 1, 1e-5))
            return [z * scale, made]

    groups = compare(program, [np.random.default_rng(0).random((1, 24)) for _ in range(2)])
    assert {"exp", "_layer_norm", "mul"} <= names(groups)


@pytest.mark.parametrize("mode", ["on", "verify"])
def test_a_fused_plan_is_freed_without_garbage_collection(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fused_plans.OPTIONS, "mode", mode)
    arrays = [np.random.default_rng(0).random(shape) for shape in (S, ROW, ROW)]
    account = CURRENT.get().account
    before = account.bytes
    gc.disable()
    try:
        quick, _ = fused(traced(_normalized, copies(arrays)))
        run(quick, copies(arrays))
        assert account.bytes > before
        del quick
        assert account.bytes == before
    finally:
        gc.enable()


def test_a_job_of_the_kernels_thread_does_not_hold_the_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs: list[Any] = []
    sources: list[str] = []
    monkeypatch.setattr(fused_plans.OPTIONS, "mode", "on")
    monkeypatch.setattr(fused_plans, "replaced_after", lambda schedule: 4)
    monkeypatch.setattr(KERNELS, "later", lambda job: jobs.append(job) or True)
    monkeypatch.setattr(KERNELS, "built", sources.append)
    monkeypatch.setattr(fused_plans.OPTIONS, "kernels", KERNELS)
    arrays = [np.random.default_rng(0).random(shape) for shape in (S, ROW, ROW)]
    account = CURRENT.get().account
    before = account.bytes
    plan = traced(_normalized, copies(arrays))
    for _ in range(2):
        run(plan, copies(arrays))
    assert len(jobs) == 1
    del plan
    assert account.bytes == before
    jobs[0]()
    assert not sources


# Random programs.

_UNARY = ("exp", "tanh", "sigmoid", "silu", "relu", "square", "neg", "sqrt", "softmax", "log_softmax", "norm", "gelu")
_SHAPES = ((5, 24), (24,), (5, 1), (1, 24), (2, 5, 24), (1,))


def random_program(seed: int) -> tuple[Program, list[np.ndarray]]:
    """Elementwise and row-wise ops of broadcast operands, a backward, and updates of what was read."""
    rng = np.random.default_rng(seed)
    dtype = DTYPES[seed % 2]
    arrays = [rng.standard_normal(_SHAPES[rng.integers(len(_SHAPES))]).astype(dtype) for _ in range(3)]
    arrays.append(rng.standard_normal((5, 24)).astype(dtype))
    steps = [(int(rng.integers(6)), *map(int, rng.integers(1 << 20, size=3))) for _ in range(int(rng.integers(4, 14)))]

    def program(*given: Any) -> list[Tensor]:
        made = list(given)
        for kind, one, other, which in steps:
            x, y = made[one % len(made)], made[other % len(made)]
            made.append(_drawn_op(kind, x, y, which))
        loss = call("sum", (call("tanh", (made[-1],)) + made[-2] * 0.1,))
        backward([loss])
        _update(given, steps)
        return detached(loss, *made[len(given) :])

    return program, arrays


def _drawn_op(kind: int, x: Any, y: Any, which: int) -> Any:
    if kind < 3:
        name = _UNARY[which % len(_UNARY)]
        if name == "sqrt":
            return call("sqrt", (x * x + 0.5,))
        if name == "norm":
            return call("layer_norm", (x, (x.shape[-1],)))
        rest = (-1,) if "softmax" in name else ()
        return call(name, (call("tanh", (x,)) if name in ("exp", "square") else x, *rest))
    if kind == 3:
        return call("where", (call("gt", (x, 0.0)), x, y)) if which % 2 else call("div", (x, y * y + 1.0))
    return call(("add", "sub", "mul")[which % 3], (x, y if which % 4 else 0.75))


def _update(given: Any, steps: Any) -> None:
    with grad_mode(False):
        for place, leaf in enumerate(given):
            if leaf.grad is not None and steps[0][1] >> place & 1:
                call_in_place("mul", leaf, 0.9)
                call_in_place("add", leaf, leaf.grad, -0.05)


@pytest.mark.parametrize("seed", range(60))
def test_random_programs_compute_what_their_plans_do(seed: int) -> None:
    program, arrays = random_program(seed)
    compare(program, arrays)


def test_random_programs_use_most_rules() -> None:
    used: set[str] = set()
    for seed in range(40):
        program, arrays = random_program(seed)
        from gradwire_engine.compile.fusion.grouping import groups_of

        used |= names(groups_of(traced(program, copies(arrays))))
    assert len(used) > len(RULES) // 2
