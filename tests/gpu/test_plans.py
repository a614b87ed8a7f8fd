"""Plans on a GPU compute what their ops do, one by one: patterns, random programs, rows of equal updates."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import gradwire as torch
from gradwire_engine import EngineError, Tensor, call, grad_mode, tensor
from gradwire_engine import backward as backpropagate
from gradwire_engine.compile.eager.library import SessionLoops
from gradwire_engine.compile.fusion import biases
from gradwire_engine.compile.fusion.cuda_calls import CudaCall, cuda_groups, in_rows
from gradwire_engine.compile.fusion.fused import OPTIONS
from gradwire_engine.compile.fusion.grouping import Index
from gradwire_engine.compile.plan import Plan
from gradwire_engine.compile.schedule import NotPlannable
from gradwire_engine.compile.tracing import Tracer
from gradwire_engine.core import device as devices
from gradwire_engine.core.context import CURRENT, Context, activate
from gradwire_engine.op.declaration import OPS
from tests.engine.compile.fusing import Program, run, traced
from tests.engine.compile.test_fusion import PATTERNS as _PATTERNS
from tests.engine.compile.test_fusion import _adam, call_in_place, detached, names, random_program, same
from tests.gpu import hostcupy

if devices.cupy() is None:
    pytest.skip("needs CuPy and a CUDA GPU, or hostcupy: the stand-in compiles nothing", allow_module_level=True)

PATTERNS = {name: given for name, given in _PATTERNS.items() if name not in ("neg", "sub", "square", "exp", "sigmoid")}


@pytest.fixture(autouse=True)
def gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A context on the GPU of this process."""
    monkeypatch.setattr(OPTIONS, "mode", "on")
    with activate(Context(loops=SessionLoops(lambda: True))), np.errstate(all="ignore"):
        yield


def on_gpu(arrays: list[np.ndarray[Any, Any]], device: str = "cuda:0") -> list[Tensor]:
    return [tensor(devices.to_device(array.copy(), device), array.dtype.kind == "f") for array in arrays]


def values(tensors: list[Tensor]) -> list[np.ndarray[Any, Any] | None]:
    """What these tensors and their gradients hold now, in host memory."""
    grads = [None if each.grad is None else each.grad for each in tensors]
    return [None if each is None else devices.host(each.array).copy() for each in (*tensors, *grads)]


def quick_plan(program: Program, inputs: list[Tensor], numbers: tuple[float, ...] = ()) -> Plan:
    """The plan of a program, with kernels."""
    return traced(program, inputs, numbers).fastest(CURRENT.get().account)


def equal(made: list[Any], expected: list[Any]) -> None:
    for one, other in zip(made, expected, strict=True):
        assert (one is None) == (other is None)
        if other is not None:
            same(one, other)


def compare(
    program: Program, arrays: list[np.ndarray[Any, Any]], numbers: tuple[float, ...] = (), device: str = "cuda:0"
) -> Plan:
    """A program's plan beside its ops, in runs on other values; nothing that left a run may change in a later one."""
    plan = quick_plan(program, on_gpu(arrays, device), numbers)
    left = []
    for turn in range(6):  # call by call, in the plan's memory, and by its graph
        turned = [np.roll(array.reshape(-1), turn).reshape(array.shape) for array in arrays]
        given, expected = on_gpu(turned, device), on_gpu(turned, device)
        made, wanted = run(plan, given, numbers), list(program(*expected, *numbers))
        left.append((made + given, values(wanted + expected)))
        equal(values(made + given), left[-1][1])
    for tensors, wanted_values in left:
        equal(values(tensors), wanted_values)
    return plan


def calls(plan: Plan) -> list[CudaCall]:
    return [instr.what for instr in plan.instrs if instr.kind == "fused"]


@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_pattern_is_fused_and_computes_the_same(pattern: str) -> None:
    program, shapes, wanted = PATTERNS[pattern]
    rng = np.random.default_rng(1)
    drawn = [rng.standard_normal(shape) + (2.0 if len(shape) == 1 else 0.0) for shape in shapes]
    arrays = [(np.abs(array) + 0.5 if pattern == "div" else array).astype(np.float32) for array in drawn]
    plan = compare(program, arrays)
    assert wanted <= names([group for each in calls(plan) for group in each.groups])


@pytest.mark.parametrize("seed", range(16))
def test_random_programs_compute_what_their_ops_do(seed: int) -> None:
    program, arrays = random_program(seed)
    compare(program, arrays)


def _linear(x: Tensor, weight: Tensor, bias: Tensor) -> list[Tensor]:
    y = call("relu", (call("linear", (x, weight, bias)),))
    backpropagate([call("sum", (y * y,))])
    return detached(y)


def _linear_twice(x: Tensor, weight: Tensor, bias: Tensor) -> list[Tensor]:
    """The result has two uses, and leaves the plan."""
    y = call("linear", (x, weight, bias))
    z = call("tanh", (y,)) * call("relu", (y,))
    backpropagate([call("sum", (z,))])
    return detached(y, z)


def _changed_bias(x: Tensor, weight: Tensor, bias: Tensor) -> list[Tensor]:
    with grad_mode(False):
        y = call("linear", (x, weight, bias))
        call_in_place("add", bias, 1.5)
        return [call("relu", (y,)), call("relu", (call("linear", (x, weight, bias)),))]


@pytest.mark.parametrize("rows", [(7,), (2, 3), (2, 2, 3)], ids=len)
@pytest.mark.parametrize("program", [_linear, _linear_twice, _changed_bias], ids=lambda each: each.__name__)
def test_a_bias_is_added_with_what_follows(program: Program, rows: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(shape).astype(np.float32) for shape in ((*rows, 6), (5, 6), (5,))]
    plan = compare(program, arrays)
    assert not any(instr.kind == "op" and instr.what.name == "_linear_addmm" for instr in plan.instrs)
    if program is _linear:
        made = traced(program, on_gpu(arrays))
        assert len(biases.split(made.instrs, list(made.regs), dict(made.roots), made.leaving)) == len(rows[:2])
        assert {"add", "relu"} <= set.intersection(
            *[names(each.groups) for each in calls(plan) if "relu" in names(each.groups)]
        )


def adams(*given: Any) -> list[Tensor]:
    """Adam on several parameters; each has four tensors. The last two are numbers."""
    *tensors, rate, correction = given
    for place in range(0, len(tensors), 4):
        _adam(*tensors[place : place + 4], rate, correction)
    return []


def drawn_for_adam(shapes: list[tuple[int, ...]], dtype: Any = np.float32) -> list[np.ndarray[Any, Any]]:
    rng = np.random.default_rng(2)
    return [rng.random(shape).astype(dtype) for shape in shapes for _ in range(4)]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_an_optimizers_step_is_one_kernel(dtype: Any) -> None:
    arrays = drawn_for_adam([(37, 5), (5,), (8, 3, 2), (700, 101), (2,)], dtype)
    plan = compare(adams, arrays, (-0.01, 0.7))
    assert [len(each.groups) for each in calls(plan)] == [5]
    assert len(plan.instrs) == 1


def test_a_kernel_takes_a_limited_number_of_parameters() -> None:
    plan = compare(adams, drawn_for_adam([(3, 2)] * 70), (-0.01, 0.7))
    assert [len(each.groups) for each in calls(plan)] == [64, 6]


@pytest.mark.skipif(hostcupy.folder() is None, reason="needs hostcupy, which counts")
def test_a_step_of_adam_is_one_launch() -> None:
    given = on_gpu(drawn_for_adam([(37, 5), (5,), (8, 3, 2)]))
    plan = quick_plan(adams, given, (-0.01, 0.7))
    run(plan, given, (-0.01, 0.7))
    with hostcupy.counted() as counts:
        run(plan, given, (-0.02, 0.6))
    assert (counts.launches, counts.waits, counts.to_device, counts.on_device) == (1, 0, 0, 0)


def test_an_update_stays_behind_what_it_depends_on() -> None:
    def program(a: Tensor, b: Tensor, c: Tensor) -> list[Tensor]:
        with grad_mode(False):
            call_in_place("mul", a, 2.0)
            call_in_place("mul", b, 2.0)
            call_in_place("add", c, a, 0.5)
            call_in_place("mul", a, 2.0)  # reads and writes what the last one read
            call_in_place("add", b, c, 0.5)
            call_in_place("mul", c, 2.0)
        return []

    compare(program, [np.random.default_rng(place).random((4, 5)).astype(np.float32) for place in range(3)])


def test_parts_of_one_tensor_are_no_row() -> None:
    def program(x: Tensor) -> list[Tensor]:
        with grad_mode(False):
            for begin in (0, 2, 4):
                call_in_place("mul", call("narrow", (x, 0, begin, 4)), 1.5)
        return []

    compare(program, [np.random.default_rng(0).random((8, 3)).astype(np.float32)])


def test_gradients_of_one_run_are_added_to_in_the_next() -> None:
    def program(x: Tensor, w: Tensor) -> list[Tensor]:
        loss = call("sum", (call("tanh", (call("mm", (x, w)),)),))
        backpropagate([loss])
        return detached(loss)

    rng = np.random.default_rng(0)
    arrays = [rng.random(shape).astype(np.float32) for shape in ((4, 6), (6, 3))]
    given, expected = on_gpu(arrays), on_gpu(arrays)
    for each in (given, expected):
        run(traced(program, each), each)  # from here on there are gradients, which are added to
    plan = quick_plan(program, on_gpu_with_grads(arrays))
    for _ in range(3):
        made, wanted = run(plan, given), list(program(*expected))
        equal(values(made + given), values(wanted + expected))


def on_gpu_with_grads(arrays: list[np.ndarray[Any, Any]]) -> list[Tensor]:
    made = on_gpu(arrays)
    for each in made:
        each.grad = tensor(each.array * 0)
    return made


@pytest.mark.skipif(not devices.several(), reason="needs two GPUs")
def test_a_plan_runs_on_the_gpu_of_its_inputs() -> None:
    program, arrays = random_program(3)
    plan = compare(program, arrays, device="cuda:1")
    assert plan.device == "cuda:1"
    assert calls(plan)


def test_inputs_on_two_devices_are_run_step_by_step() -> None:
    inputs = [*on_gpu([np.ones((4, 4), np.float32)]), tensor(np.ones((4, 4), np.float32))]
    tracer = Tracer(inputs, True)
    with activate(Context(tracer=tracer)):
        outputs = [call("mul", (inputs[0], OPS["_to_device"].apply((inputs[1], "cuda:0"))))]
    with pytest.raises(NotPlannable, match="in host memory"):
        Plan(tracer, outputs, 0, CURRENT.get().account)


def test_without_kernels_there_is_no_plan() -> None:
    assert Tracer(on_gpu([np.ones(3, np.float32)]), False).failed is not None


def test_verification_refuses_a_wrong_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OPTIONS, "mode", "verify")
    arrays = drawn_for_adam([(37, 5), (5,)])
    compare(adams, arrays, (-0.01, 0.7))
    program, shapes, _ = PATTERNS["layer norm"]
    drawn = [np.random.default_rng(0).random(shape).astype(np.float32) for shape in shapes]
    compare(program, drawn)
    called = CudaCall.__call__

    def wrong(self: CudaCall) -> None:
        called(self)
        group = self.groups[-1]
        for what, operand in zip(group.operands, group.loop.operands, strict=True):
            if operand.written and type(what) is Index:
                self._values[what.register][...] += 1

    monkeypatch.setattr(CudaCall, "__call__", wrong)
    for made, given, numbers in ((adams, arrays, (-0.01, 0.7)), (program, drawn, ())):
        with pytest.raises(EngineError, match="another value than its ops"):
            compare(made, given, numbers)


@pytest.mark.parametrize("mode", ["on", "verify"])
def test_a_plan_is_freed_without_garbage_collection(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OPTIONS, "mode", mode)
    program, shapes, _ = PATTERNS["layer norm"]
    arrays = [np.random.default_rng(0).random(shape).astype(np.float32) for shape in shapes]
    account = CURRENT.get().account
    before = account.bytes
    gc.disable()
    try:
        plan = quick_plan(program, on_gpu(arrays))
        run(plan, on_gpu(arrays))
        assert account.bytes > before
        del plan
        assert account.bytes == before
    finally:
        gc.enable()


def test_rows_keep_the_order_of_what_they_pass() -> None:
    """Each row is at its first member's place, and every group is in one call."""
    plan = traced(adams, on_gpu(drawn_for_adam([(3, 2)] * 3)), (-0.01, 0.7))
    groups = cuda_groups(plan)
    assert len(groups) == 3
    pairs = [plan._called(CudaCall([group])) for group in groups]
    ((instr, _),) = in_rows(pairs, plan.roots)
    assert instr.what.groups == groups


@pytest.mark.skipif(hostcupy.folder() is None, reason="needs hostcupy, which counts")
@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW"])
def test_a_compiled_step_gives_the_weights_of_an_eager_one(session: Any, name: str) -> None:
    weights = []
    for compiled in (False, True):
        torch.manual_seed(0)
        nn = torch.nn
        model = nn.Sequential(nn.Linear(6, 5), nn.GELU(), nn.LayerNorm(5), nn.Linear(5, 3)).to("cuda")
        x, labels = torch.randn(8, 6).to("cuda"), torch.randint(0, 3, (8,)).to("cuda")
        options = {"momentum": 0.9} if name == "SGD" else {}
        optimize = getattr(torch.optim, name)(model.parameters(), lr=0.05, **options)

        def step(model: Any = model, x: Any = x, labels: Any = labels, optimize: Any = optimize) -> Any:
            optimize.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(x), labels)
            loss.backward()
            optimize.step()
            return loss.detach()

        turn = torch.compile(step) if compiled else step
        losses = [turn() for _ in range(7)]
        weights.append([each.detach().cpu().numpy() for each in (*model.parameters(), *losses)])
    for one, other in zip(*weights, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def test_a_refused_label_leaves_the_weights_as_they_were(session: Any) -> None:
    torch.manual_seed(0)
    model = torch.nn.Linear(6, 3).to("cuda")
    optimize = torch.optim.Adam(model.parameters(), lr=0.05)

    @torch.compile
    def step(x: Any, labels: Any) -> Any:
        optimize.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x), labels)
        loss.backward()
        optimize.step()
        return loss.detach()

    x = torch.randn(8, 6).to("cuda")
    labels = [torch.full((8,), label).to("cuda") for label in (1, 7)]
    losses = [step(x, labels[0]).item() for _ in range(5)]
    before = [each.detach().cpu().numpy() for each in model.parameters()]
    with pytest.raises((IndexError, RuntimeError), match="out of bounds"):
        step(x, labels[1]).item()
    for one, other in zip(model.parameters(), before, strict=True):
        np.testing.assert_array_equal(one.detach().cpu().numpy(), other)
    assert step(x, labels[0]).item() < losses[-1]
