"""Ops on large arrays by loops of machine code: values and gradients beside PyTorch's, and when NumPy computes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest

import gradwire_engine as engine
from gradwire_engine.compile.eager import column_dots, distances, forms, max_pool, normal
from gradwire_engine.compile.eager.library import Library
from gradwire_engine.compile.fusion.form import F4, F8
from gradwire_engine.compile.fusion.fused import OPTIONS
from gradwire_engine.compile.fusion.llvm_printer import printed
from gradwire_engine.core import threads
from gradwire_engine.core.context import CURRENT, Account, Context, Interrupt
from gradwire_engine.core.errors import EngineError, Reason
from gradwire_engine.core.threads import POOL
from gradwire_engine.op import op as op_module
from gradwire_engine.op import workload
from gradwire_engine.op.declaration import OPS
from gradwire_engine.ops.base import loops as op_loops
from gradwire_engine.ops.nn.pooling import max_loops
from gradwire_engine.ops.random import box_muller
from tests.engine.compile.fusing import NotedLoops

pytest.importorskip("llvmlite")
torch = pytest.importorskip("torch")
pytestmark = pytest.mark.usefixtures("machine_code")
functional = torch.nn.functional

Arrays = list["np.ndarray[Any, Any]"]
_ROWS = (48, 130)  # more than LEAST elements, and rows that fill no vector
_WIDE = (300, 130)  # more than LEAST_OF_CHEAP
_IMAGES = (7, 10, 9, 7)


@dataclass(frozen=True)
class _Case:
    """An op, PyTorch's function, shapes of the inputs that are differentiated, and the loops that it must use."""

    name: str
    theirs: Callable[..., Any]
    loops: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...] = (_ROWS,)
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    only_float32: bool = False

    def __repr__(self) -> str:
        return f"{self.name}-{'-'.join(self.loops)}"


_PROBABILITIES = np.random.default_rng(9).random(_ROWS)
_FOLDS = {"cumsum": ("cumsum",), "cumprod": ("cumprod", "cumsum")}
CASES = [
    _Case("gelu", functional.gelu, ("gelu", "gelu_backward"), only_float32=True),
    _Case("gelu", functional.gelu, ("gelu_tanh", "gelu_tanh_backward"), kwargs={"approximate": "tanh"}),
    _Case("silu", functional.silu, ("silu", "silu_backward")),
    _Case("sigmoid", torch.sigmoid, ("sigmoid", "sigmoid_backward"), (_WIDE,)),
    _Case("tanh", torch.tanh, ("tanh", "tanh_backward"), (_WIDE,)),
    _Case("exp", torch.exp, ("exp",)),
    _Case("log", torch.log, ("log",)),
    _Case("relu", torch.relu, ("relu", "relu_backward"), (_WIDE,)),
    _Case("softplus", functional.softplus, ("softplus", "softplus_backward")),
    _Case("softplus", functional.softplus, ("softplus", "softplus_backward"), args=(2.5, 1.5)),
    _Case("erf", torch.erf, ("erf", "erf_backward"), only_float32=True),
    *(_Case(name, getattr(torch, name), loops, args=(1,)) for name, loops in _FOLDS.items()),
    _Case("softmax", torch.softmax, ("softmax", "softmax_backward"), args=(-1,)),
    _Case("log_softmax", torch.log_softmax, ("log_softmax", "log_softmax_backward"), args=(1,)),
    *(
        _Case(
            "layer_norm",
            lambda x, *rest, names=names: functional.layer_norm(x, (130,), **dict(zip(names, rest, strict=True))),
            (
                f"layer_norm{''.join('_' + name for name in names)}",
                f"layer_norm_backward{'_weight' * ('weight' in names)}",
                *(["layer_norm_dots"] if "weight" in names else []),
            ),
            (_ROWS, *[(130,) for _ in names]),
            kwargs={"normalized_shape": (130,), "given": names},
        )
        for names in ((), ("weight",), ("bias",), ("weight", "bias"))
    ),
    *(
        _Case(
            "batch_norm",
            lambda x, *rest, names=names: functional.batch_norm(
                x, None, None, **dict(zip(names, rest, strict=True)), training=True
            ),
            (
                "batch_norm_total",
                "batch_norm_squares",
                f"batch_norm_apply{'_bias' * ('bias' in names)}",
                "batch_norm_dots",
                "batch_norm_slope",
            ),
            (_IMAGES, *[(10,) for _ in names]),
            kwargs={"running_mean": None, "running_var": None, "training": True, "given": names},
        )
        for names in ((), ("weight", "bias"))
    ),
    *(
        _Case(
            "binary_cross_entropy_with_logits",
            lambda x, reduction=reduction: functional.binary_cross_entropy_with_logits(
                x, torch.tensor(_PROBABILITIES, dtype=x.dtype), reduction=reduction
            ),
            ("bce_with_logits", "bce_with_logits_backward"),
            kwargs={"target": _PROBABILITIES, "reduction": reduction},
        )
        for reduction in ("mean", "sum")
    ),
    *(
        _Case("mse_loss", lambda *both, reduction=reduction: functional.mse_loss(*both, reduction=reduction),
              ("mse_backward",), (_WIDE, _WIDE), kwargs={"reduction": reduction})
        for reduction in ("mean", "sum")
    ),
    _Case("max_pool2d", functional.max_pool2d, ("max_pool", "max_unpool"), ((3, 20, 17, 23),), args=(3, 2, 1)),
    _Case("adaptive_max_pool2d", functional.adaptive_max_pool2d, ("max_pool",), ((3, 20, 16, 24),), args=((4, 8),)),
    _Case("max_pool3d", functional.max_pool3d, ("max_pool", "max_unpool"), ((4, 8, 9, 11, 14),), args=(3, 2, 1)),
    _Case("adaptive_max_pool3d", functional.adaptive_max_pool3d, ("max_pool",), ((2, 3, 8, 12, 16),),
          args=((4, 4, 8),)),
    *(
        _Case("cdist", torch.cdist, (f"cdist_{p:g}", f"cdist_{p:g}_backward"), ((70, 21), (75, 21)),
              (p, "donot_use_mm_for_euclid_dist"))
        for p in (1.0, 2.0, float("inf"))
    ),
]  # fmt: skip


def _drawn(case: _Case, dtype: Any) -> Arrays:
    rng = np.random.default_rng(3)
    drawn = [(rng.standard_normal(shape) * 2).astype(dtype) for shape in case.shapes]
    return [np.abs(each) for each in drawn] if case.name == "log" else drawn


def _called(case: _Case, inputs: Sequence[engine.Tensor]) -> engine.Tensor:
    kwargs = dict(case.kwargs)
    kwargs.update(zip(kwargs.pop("given", ()), inputs[1:], strict=False))
    if "target" in kwargs:
        kwargs["target"] = engine.tensor(kwargs["target"].astype(inputs[0].array.dtype))
    given = inputs if case.name in ("mse_loss", "cdist") else inputs[:1]
    made: engine.Tensor = engine.call(case.name, [*given, *case.args], kwargs)
    return made


def _gradient(shape: tuple[int, ...], dtype: Any) -> Any:
    return np.asarray(np.random.default_rng(4).standard_normal(shape)).astype(dtype)


def _ours(case: _Case, dtype: Any) -> Arrays:
    """The result and the gradients."""
    inputs = [engine.tensor(each, True) for each in _drawn(case, dtype)]
    output = _called(case, inputs)
    engine.backward([output], [engine.tensor(_gradient(output.shape, dtype))])
    return [np.asarray(output.array), *[np.asarray(each.grad.array) for each in inputs if each.grad is not None]]


def _theirs(case: _Case, dtype: Any) -> Arrays:
    inputs = [torch.tensor(each, requires_grad=True) for each in _drawn(case, dtype)]
    output = case.theirs(*inputs, *case.args, **(case.kwargs if case.name == "gelu" else {}))
    output.backward(torch.tensor(_gradient(tuple(output.shape), dtype)))
    return [output.detach().numpy(), *[each.grad.numpy() for each in inputs]]


def _assert_near(made: Arrays, expected: Arrays, tolerance: float) -> None:
    assert len(made) == len(expected)
    for one, other in zip(made, expected, strict=True):
        assert one.shape == other.shape
        assert one.dtype == other.dtype
        scale = max(1.0, float(np.abs(other).max()))
        np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance * scale)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("case", CASES, ids=repr)
def test_loops_compute_what_pytorch_does(case: _Case, dtype: Any, noted: NotedLoops) -> None:
    made = _ours(case, dtype)
    wanted = {(name, np.dtype(dtype).char) for name in case.loops}
    if case.only_float32 and dtype is np.float64:
        wanted = {("exp", "d")}  # of the gradient's formula
    assert noted.found == wanted
    _assert_near(made, _theirs(case, dtype), 3e-6 if dtype is np.float32 else 1e-12)


def test_every_loop_has_a_case() -> None:
    named = {name for case in CASES for name in case.loops}
    pools = {*max_pool.NAMES} - {"max_pick"}  # of second derivatives, which has its own test
    others = {*pools, *distances.NAMES, *column_dots.NAMES, *_FOLDS}  # scans and scatters have tests of their own
    assert named == {*forms.FORMS, *(f"batch_norm_{name}" for name in forms.BATCH_NORM), *others}


@pytest.mark.parametrize("case", CASES, ids=repr)
def test_an_op_declares_its_loops(case: _Case) -> None:
    primitives = {"batch_norm": "_batch_norm", "layer_norm": "_layer_norm"}
    for dims in (2, 3):
        primitives |= {f"max_pool{dims}d": "_max_pool", f"adaptive_max_pool{dims}d": "_adaptive_max_pool"}
    name = {**primitives, "mse_loss": "_mse_loss", "cdist": "_cdist"}.get(case.name, case.name)
    declared = OPS[name.replace("binary_cross_entropy", "_bce")].loops
    assert {*case.loops} <= {*declared}


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", ["gelu", "silu", "sigmoid", "erf"])
def test_half_types_are_computed_in_float32_and_rounded_once(name: str, dtype: str, noted: NotedLoops) -> None:
    half = engine.core.dtypes.BY_NAME[dtype]
    values = np.random.default_rng(0).standard_normal(_WIDE).astype(half)
    made = engine.call(name, [engine.tensor(values)]).array
    wide = engine.call(name, [engine.tensor(values.astype(np.float32))]).array
    assert noted.found == {(name, "f")}
    assert made.dtype == half
    assert made.tobytes() == wide.astype(half).tobytes()


@pytest.mark.parametrize("name", ["gelu", "silu", "sigmoid", "erf", "relu", "softplus", "exp", "log", "tanh"])
def test_special_values_are_pytorchs(name: str, noted: NotedLoops) -> None:
    special = [np.inf, -np.inf, np.nan, 0.0, -0.0, 1e-38, -1e-42, 88.0, -88.0, 105.0, -105.0, 3e38, -3e38, 20.0, 20.1]
    values = np.resize(np.array(special, np.float32), 1 << 15)
    made = engine.call(name, [engine.tensor(values)]).array
    theirs = getattr(torch, name, None) or getattr(functional, name)
    with torch.backends.mkldnn.flags(enabled=False):  # oneDNN's gelu(inf) is nan with AVX-512
        expected = theirs(torch.tensor(values)).numpy()
    assert noted.found == {(name, "f")}
    np.testing.assert_allclose(made, expected, rtol=2e-6, atol=1e-37)


@pytest.mark.parametrize("case", CASES, ids=repr)
def test_results_do_not_depend_on_the_threads(case: _Case, noted: NotedLoops, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "SHARED", 1)
    monkeypatch.setattr(threads, "LARGE", 1)
    found = []
    for number in (1, 3):
        monkeypatch.setattr(POOL, "threads", number)
        found.append([each.tobytes() for each in _ours(case, np.float32)])
    assert found[0] == found[1]
    assert noted.found


def test_small_and_strided_operands_are_computed_by_numpy(noted: NotedLoops) -> None:
    small = np.ones((8, 8), np.float32)
    engine.call("gelu", [engine.tensor(small)])
    turned = engine.call("t", [engine.tensor(np.ones(_ROWS, np.float32))])
    engine.call("silu", [turned])
    engine.call("softmax", [engine.tensor(np.ones(_ROWS, np.float32)), 0])
    assert noted.found == set()


def test_rows_too_long_for_the_scratch_memory_are_computed_by_numpy(noted: NotedLoops) -> None:
    x = engine.tensor(np.zeros((1, op_loops._SCRATCH + 1), np.float32))
    made = engine.call("softmax", [x, 1]).array
    assert np.allclose(made, 1 / x.array.size)


@pytest.mark.parametrize("case", CASES, ids=repr)
def test_a_session_with_a_log_computes_the_same_bits_as_without_machine_code(case: _Case) -> None:
    plain = _ours(case, np.float32)
    with engine.activate(replace(CURRENT.get(), loops=NotedLoops(applies=False))):
        logged = _ours(case, np.float32)
    assert [each.tobytes() for each in plain] == [each.tobytes() for each in logged]


@pytest.mark.parametrize("case", CASES, ids=repr)
def test_verification_accepts_rounding(case: _Case, noted: NotedLoops, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OPTIONS, "mode", "verify")
    _ours(case, np.float32)
    assert noted.found


def test_verification_refuses_another_value(monkeypatch: pytest.MonkeyPatch) -> None:
    class Wrong(NotedLoops):
        def find(self, name: str, dtype: str) -> Any:
            return super().find("sigmoid" if name == "silu" else name, dtype)

    monkeypatch.setattr(OPTIONS, "mode", "verify")
    with engine.activate(replace(CURRENT.get(), loops=Wrong())), pytest.raises(EngineError) as refusal:
        engine.call("silu", [engine.tensor(np.full(_WIDE, 2, np.float32))])
    assert refusal.value.reason is Reason.RUNTIME
    assert "silu" in str(refusal.value)


@pytest.mark.parametrize("case", [CASES[1], CASES[2], CASES[9], CASES[14]], ids=repr)
def test_second_derivatives_are_pytorchs(case: _Case, noted: NotedLoops) -> None:
    (values, *rest) = _drawn(case, np.float64)
    x = engine.tensor(values, True)
    others = [engine.tensor(each, True) for each in rest]
    (slope,), _ = engine.gradients([engine.call("sum", [_called(case, [x, *others])])], [x], create_graph=True)
    assert slope is not None
    engine.backward([engine.call("sum", [engine.call("square", [slope])])])
    y, *theirs = (torch.tensor(each, requires_grad=True) for each in (values, *rest))
    output = case.theirs(y, *theirs, *case.args, **(case.kwargs if case.name == "gelu" else {}))
    (bent,) = torch.autograd.grad(output.sum(), y, create_graph=True)
    bent.square().sum().backward()
    assert noted.found
    assert x.grad is not None
    _assert_near([x.grad.array], [y.grad.numpy()], 1e-9)


@pytest.mark.parametrize("dims", [2, 3])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("seed", range(12))
def test_max_pooling_and_its_derivatives_have_pytorchs_bits(
    seed: int, dtype: Any, dims: int, noted: NotedLoops
) -> None:
    rng = np.random.default_rng(seed)
    kernel, dilation = rng.integers(1, 5, dims), rng.integers(1, 3, dims)
    stride = rng.integers(1, 4, dims)
    padding = rng.integers(0, kernel // 2 + 1)
    args = [[int(each) for each in sizes] for sizes in (kernel, stride, padding, dilation)]
    args.append(bool(seed % 2))
    shape = (2, 12, *(int(each) for each in rng.integers(*((40, 60) if dims == 2 else (10, 18)), dims)))
    values = np.round(rng.standard_normal(shape) * 2).astype(dtype)  # windows with equal elements
    values[rng.random(shape) < 0.02] = [np.nan, np.inf, -np.inf, -0.0][seed % 4]
    ours, theirs = engine.tensor(values, True), torch.tensor(values, requires_grad=True)
    made, index = engine.call(f"max_pool{dims}d", [ours, *args], {"return_indices": True})
    expected, place = getattr(functional, f"max_pool{dims}d")(theirs, *args, return_indices=True)
    slope = rng.standard_normal(made.shape).astype(dtype)
    g, h = engine.tensor(slope, True), torch.tensor(slope, requires_grad=True)
    (grad,), _ = engine.gradients([made], [ours], [g], create_graph=True)
    (bent,) = torch.autograd.grad(expected, theirs, h, create_graph=True)
    assert grad is not None
    engine.backward([grad], [ours])
    bent.backward(theirs.detach())
    assert g.grad is not None
    pairs = [(made, expected), (index, place), (grad, bent), (g.grad, h.grad)]
    assert [one.array.tobytes() for one, _ in pairs] == [other.detach().numpy().tobytes() for _, other in pairs]
    assert {name for name, _ in noted.found} == {"max_pool", "max_unpool", "max_pick"}


@pytest.mark.parametrize("special", [np.nan, np.inf, -np.inf, 1e18, -0.0])
@pytest.mark.parametrize("shape", [(300, 17), (65, 130), (1030, 5)])
def test_layer_norms_of_special_values_have_pytorchs_ones(
    special: float, shape: tuple[int, int], noted: NotedLoops
) -> None:
    rng = np.random.default_rng(8)
    values, weight, bias = (rng.standard_normal(size).astype(np.float32) for size in (shape, shape[1], shape[1]))
    values[rng.integers(0, shape[0], 3), rng.integers(0, shape[1], 3)] = special
    given = [engine.tensor(each, True) for each in (values, weight, bias)]
    made = engine.call("layer_norm", [given[0], (shape[1],), *given[1:]])
    slope = rng.standard_normal(shape).astype(np.float32)
    engine.backward([made], [engine.tensor(slope)])
    theirs = [torch.tensor(each, requires_grad=True) for each in (values, weight, bias)]
    expected = functional.layer_norm(theirs[0], (shape[1],), *theirs[1:])
    expected.backward(torch.tensor(slope))
    assert ("layer_norm_dots", "f") in noted.found
    found = [made.array, *(each.grad.array for each in given if each.grad is not None)]
    for one, other in zip(found, [expected.detach(), *(each.grad for each in theirs)], strict=True):
        np.testing.assert_allclose(one, other.numpy(), rtol=2e-5, atol=2e-5)


def test_windows_of_many_elements_are_pooled_by_numpy(noted: NotedLoops) -> None:
    side = max_loops._MOST_TAPS // 2
    x = engine.tensor(np.random.default_rng(5).standard_normal((2, 3, 40, 40)).astype(np.float32))
    made = engine.call("max_pool2d", [x, [side, 3]]).array
    expected = functional.max_pool2d(torch.tensor(x.array), (side, 3)).numpy()
    assert made.tobytes() == expected.tobytes()
    assert noted.found == set()


def test_a_position_that_no_window_has_is_skipped(noted: NotedLoops) -> None:
    grad, which = np.ones((4, 40, 40), np.float32), np.full((4, 40, 40), 200, np.uint8)
    which[0, 0, 0] = 0
    sizes = [[2, 2], [2, 2], [0, 0], [1, 1], [80, 80]]
    made = OPS["_max_unpool"](engine.tensor(grad), engine.tensor(which), *sizes)
    assert noted.found == {("max_unpool", "f")}
    assert made.array.sum() == made.array[0, 0, 0] == 1


_WINDOWS_AT_THE_BORDER = [
    # kernel, stride, padding, dilation, size
    ([3, 3], [1, 1], [1, 1], [4, 4], [8, 70]),  # no row of windows lies inside
    ([2, 2], [1, 1], [1, 1], [9, 9], [9, 60]),  # some windows hold padding only
    ([3, 3, 3], [2, 1, 2], [1, 1, 1], [3, 2, 1], [6, 5, 40]),
    ([1, 4], [1, 4], [0, 2], [1, 1], [9, 130]),
]


@pytest.mark.parametrize("sizes", _WINDOWS_AT_THE_BORDER, ids=repr)
@pytest.mark.parametrize("ceil_mode", [False, True])
def test_windows_that_reach_outside_have_the_bits_of_numpy(
    sizes: tuple[list[int], ...], ceil_mode: bool, noted: NotedLoops
) -> None:
    *window, size = sizes
    rng = np.random.default_rng(6)
    x = rng.integers(-2, 3, (16, 32, *size)).astype(np.float32)
    x[rng.random(x.shape) < 0.1] = -np.inf
    found = []
    for loops in (noted, None):
        with engine.activate(replace(CURRENT.get(), loops=loops)):
            values, which = OPS["_max_pool"](engine.tensor(x), *window, ceil_mode)
            grad = np.random.default_rng(7).integers(-9, 9, values.shape).astype(np.float32)  # any order sums exactly
            added = OPS["_max_unpool"](engine.tensor(grad), which, *window, size)
            taken = OPS["_max_pick"](engine.tensor(x), which, *window)
            found.append([each.array.tobytes() for each in (values, which, added, taken)])
    assert found[0] == found[1]
    assert {name for name, _ in noted.found} == {*max_pool.NAMES}


def test_normal_numbers_have_a_loop_in_float32_only() -> None:
    assert forms.loop_of("normal", F8) is None
    made = forms.loop_of("normal", F4)
    assert made is not None
    assert printed(made) == printed(normal.loop())


def test_normal_numbers_have_the_same_digits(noted: NotedLoops) -> None:
    words = np.random.default_rng(2).integers(0, 1 << 24, 1 << 16)
    words[:16], words[16:32], words[32:64] = 0, (1 << 24) - 1, np.resize([1, 2, 1 << 23], 32)
    uniform = (words / np.float32(1 << 24)).astype(np.float32)
    made = box_muller.singles(uniform)
    assert noted.found == {("normal", "f")}
    with engine.activate(replace(CURRENT.get(), loops=None)):
        assert made.tobytes() == box_muller.singles(uniform).tobytes()


def test_a_few_normal_numbers_use_a_loop_that_is_loaded_and_wait_for_none() -> None:
    uniform = (np.random.default_rng(3).integers(0, 1 << 24, 1 << 13) / np.float32(1 << 24)).astype(np.float32)
    few, fresh = [uniform[:count] for count in (16, 48, 4080)], NotedLoops(library=Library())
    expected = [box_muller.singles(each).tobytes() for each in few]
    with engine.activate(replace(CURRENT.get(), loops=fresh)):
        assert [box_muller.singles(each).tobytes() for each in few] == expected
        assert not fresh.found
        box_muller.singles(uniform)
        fresh.found.clear()
        assert [box_muller.singles(each).tobytes() for each in few] == expected
        assert fresh.found == {("normal", "f")}


class _InFork:
    """Kernels in a fork."""

    def hurry(self, job: Callable[[], object]) -> bool:
        return False


class _Apart(Interrupt):
    """Computes what is expensive as in a fork, or as if none was free."""

    def __init__(self, forks: bool) -> None:
        super().__init__()
        self.forks = forks
        self.names: list[str] = []

    def offload(self, compute: Callable[[], Any], name: str, work: float, alone: bool, room: int = 0) -> Any:
        self.names.append(name)
        before = OPTIONS.kernels
        if self.forks:
            OPTIONS.kernels = _InFork()  # type: ignore[assignment]
        try:
            return compute()
        finally:
            OPTIONS.kernels = before


@pytest.mark.parametrize("case", CASES, ids=repr)
def test_an_expensive_op_computes_the_same_bits_in_a_fork(case: _Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(op_module, "LONG", 1)
    monkeypatch.setattr(workload, "LONG", 1)
    for each in OPS.values():
        monkeypatch.setattr(each, "cheap_size", 1)
    found = []
    for forks in (True, False):
        apart, noted = _Apart(forks), NotedLoops(library=Library())
        with engine.activate(replace(CURRENT.get(), loops=noted, interrupt=apart)):
            found.append([each.tobytes() for each in _ours(case, np.float32)])
        assert apart.names
        assert noted.found >= {(name, "f") for name in case.loops}
    assert found[0] == found[1]


class _NeverReady:
    """Kernels whose thread is busy."""

    def hurry(self, job: Callable[[], object]) -> bool:
        return True


def test_a_cancelled_command_does_not_wait_for_its_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    class Cancelled(Interrupt):
        def poll(self) -> None:
            raise EngineError(Reason.CANCELLED, "cancelled")

    monkeypatch.setattr(OPTIONS, "kernels", _NeverReady())
    fresh = Context(loops=NotedLoops(library=Library()), interrupt=Cancelled(), account=Account(pressed=True))
    with engine.activate(fresh), pytest.raises(EngineError) as refusal:
        fresh.loops.find("silu", "f")
    assert refusal.value.reason is Reason.CANCELLED


def test_a_fork_without_the_loop_computes_by_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OPTIONS, "kernels", _InFork())
    x = np.ones(_WIDE, np.float32)
    with engine.activate(Context(loops=NotedLoops(library=Library()))):
        made = engine.call("silu", [engine.tensor(x)]).array
    assert np.allclose(made, x / (1 + np.exp(-x)))


def test_a_loop_that_cannot_be_compiled_is_left_to_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    library = Library()
    monkeypatch.setattr("gradwire_engine.compile.eager.library.printed", lambda loop: "no assembly")
    with engine.activate(Context(loops=NotedLoops(library=library))):
        made = engine.call("silu", [engine.tensor(np.zeros(_WIDE, np.float32))]).array
    assert not made.any()
    assert library.loaded == {("silu", "f"): None, ("sigmoid", "f"): None}


def test_without_machine_code_nothing_is_asked_for(monkeypatch: pytest.MonkeyPatch, noted: NotedLoops) -> None:
    monkeypatch.setattr(OPTIONS, "mode", "off")
    engine.call("silu", [engine.tensor(np.ones(_WIDE, np.float32))])
    assert noted.found == set()
