"""Plans as CUDA graphs: the same bits as call by call, whatever moves, changes, fails or is freed."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import gradwire as torch
from gradwire_engine import Tensor, call, grad_mode, tensor
from gradwire_engine import backward as backpropagate
from gradwire_engine.backends.cublaslt import Batches
from gradwire_engine.compile.eager.library import SessionLoops
from gradwire_engine.compile.fusion import cuda_graph
from gradwire_engine.compile.fusion.cuda_graph import Arena, Numbers, captured
from gradwire_engine.compile.fusion.fused import OPTIONS
from gradwire_engine.compile.plan import Plan
from gradwire_engine.compile.plan_graph import PlanGraph, _uncaptured
from gradwire_engine.compile.trace import Instr
from gradwire_engine.core import device as devices
from gradwire_engine.core import dtypes, index_bounds
from gradwire_engine.core.context import CURRENT, Context, activate
from gradwire_engine.core.errors import EngineError
from gradwire_engine.ops.base.basic import cast
from tests.engine.compile.fusing import run as run_plan
from tests.engine.compile.test_fusion import call_in_place, detached, random_program
from tests.gpu import hostcupy
from tests.gpu.test_plans import on_gpu, quick_plan, values

if devices.cupy() is None:
    pytest.skip("needs CuPy and a CUDA GPU, or hostcupy", allow_module_level=True)

XP: Any = devices.cupy()


@pytest.fixture(autouse=True)
def gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A context on the GPU of this process."""
    monkeypatch.setattr(OPTIONS, "mode", "on")
    with activate(Context(loops=SessionLoops(lambda: True))), np.errstate(all="ignore"):
        yield


def training_step(x: Tensor, labels: Tensor, weight: Tensor, bias: Tensor, rate: Any) -> list[Tensor]:
    """A training step of a linear layer, with a learning rate that differs from run to run."""
    loss = call("cross_entropy", (call("relu", (call("linear", (x, weight, bias)),)), labels))
    backpropagate([loss])
    with grad_mode(False):
        for each in (weight, bias):
            call_in_place("add", each, each.grad, rate)
    return detached(loss)


def arrays_of_step(seed: int = 0) -> list[np.ndarray[Any, Any]]:
    rng = np.random.default_rng(seed)
    floats = [rng.standard_normal(shape).astype(np.float32) for shape in ((8, 6), (5, 6), (5,))]
    return [floats[0], rng.integers(0, 5, 8), *floats[1:]]


def clear(inputs: list[Tensor]) -> None:
    for each in inputs:
        each.grad = None


def run(plan: Plan, inputs: list[Tensor], numbers: tuple[float, ...] = ()) -> list[Tensor]:
    """The outputs of a run that begins without gradients."""
    clear(inputs)
    return run_plan(plan, inputs, numbers)


def bits(tensors: list[Tensor]) -> list[bytes | None]:
    return [None if each is None else each.tobytes() for each in values(tensors)]


def plans(program: Callable[..., Any], inputs: list[Tensor], numbers: tuple[float, ...] = ()) -> tuple[Plan, Plan]:
    """A plan that may become a graph, and the same one that runs call by call."""
    made = []
    for _ in range(2):
        apart = [tensor(each.array.copy(), each.requires_grad) for each in inputs]  # tracing runs the program
        made.append(quick_plan(program, apart, numbers))
    assert made[0].uncaptured == ""
    made[1].uncaptured = "the test compares with it"
    return made[0], made[1]


def both(
    pair: tuple[Plan, Plan], given: list[Tensor], others: list[Tensor], numbers: tuple[float, ...] = ()
) -> list[Tensor]:
    """Run both plans on equal inputs, and compare all bits. Returns the outputs of the first."""
    made, wanted = run(pair[0], given, numbers), run(pair[1], others, numbers)
    assert bits(made + given) == bits(wanted + others)
    return made


def test_a_step_is_one_launch_of_a_graph_and_waits_for_nothing() -> None:
    given, others = on_gpu(arrays_of_step()), on_gpu(arrays_of_step())
    pair = plans(training_step, given, (-0.1,))
    for turn in range(7):
        both(pair, given, others, (-0.1 / (turn + 1),))
    assert pair[0].way == "graph"
    if hostcupy.folder() is not None:
        with hostcupy.counted() as counts:
            run(pair[0], given, (-0.01,))
        assert (counts.graphs, counts.launches, counts.waits, counts.fills, counts.to_device) == (1, 0, 0, 0, 1)


@pytest.mark.parametrize("seed", range(8))
def test_random_programs_give_the_same_bits(seed: int) -> None:
    program, arrays = random_program(seed)
    given, others = on_gpu(arrays), on_gpu(arrays)
    made, wanted = (quick_plan(program, on_gpu(arrays)) for _ in range(2))
    wanted.uncaptured = "the test compares with it"
    for turn in range(5):
        for one, other, array in zip(given, others, arrays, strict=True):
            one.array[...] = other.array[...] = XP.asarray(np.roll(array.reshape(-1), turn).reshape(array.shape))
        both((made, wanted), given, others)
    assert made.uncaptured or made.way == "graph"


def test_inputs_that_move_are_copied() -> None:
    given, others = on_gpu(arrays_of_step()), on_gpu(arrays_of_step())
    pair = plans(training_step, given, (-0.1,))
    for turn in range(8):
        fresh = arrays_of_step(turn)[:2]
        both(pair, [*on_gpu(fresh), *given[2:]], [*on_gpu(fresh), *others[2:]], (-0.1,))
    assert pair[0].way == "graph"


def test_parameters_in_other_memory_are_captured_again() -> None:
    given, others = on_gpu(arrays_of_step()), on_gpu(arrays_of_step())
    pair = plans(training_step, given, (-0.1,))
    for turn in range(12):
        if turn % 4 == 3:
            held = [each.array.get() for each in given]
            given, others = on_gpu(held), on_gpu(held)
            gc.collect()
        both(pair, given, others, (-0.1,))
    assert pair[0].uncaptured == ""


def test_parameters_that_always_move_run_call_by_call() -> None:
    pair = plans(training_step, on_gpu(arrays_of_step()), (-0.1,))
    for turn in range(14):
        arrays = arrays_of_step(turn)
        both(pair, on_gpu(arrays), on_gpu(arrays), (-0.1,))
    assert "move" in pair[0].uncaptured


def test_a_graph_uses_no_memory_that_was_freed() -> None:
    given, others = on_gpu(arrays_of_step()), on_gpu(arrays_of_step())
    pair = plans(training_step, given, (-0.1,))
    for turn in range(8):
        # Whatever is free is given out and filled.
        filled = [XP.full(size // 4, np.nan, np.float32) for size in (512, 1024, 2048, 4096) for _ in range(40)]
        both(pair, given, others, (-0.1,))
        assert all(bool(XP.isnan(each).all()) for each in filled), turn
        del filled
    assert pair[0].way == "graph"


def test_labels_that_overlap_what_a_run_changes_are_not_checked_before_it() -> None:
    """A plan of labels apart from what it changes is not one of labels that it changes."""

    def program(x: Tensor, changed: Tensor, labels: Tensor) -> list[Tensor]:
        with grad_mode(False):
            call_in_place("add", changed, 100)
            return [call("add", (call("mul", (call("cross_entropy", (call("relu", (x,)), labels)), 2.0)), 1.0))]

    def inputs(at: int) -> list[Tensor]:
        held = tensor(XP.asarray(np.arange(16) % 5))
        x = tensor(XP.asarray(np.ones((8, 5), np.float32)))
        return [x, call("narrow", (held, 0, 0, 8)), call("narrow", (held, 0, at, 8))]

    plan = quick_plan(program, inputs(8))
    assert plan.fits(inputs(8))
    assert not plan.fits(inputs(4))


def test_what_left_a_run_does_not_change_in_the_next() -> None:
    given = on_gpu(arrays_of_step())
    plan, _ = plans(training_step, given, (-0.1,))
    left, expected = [], []
    for _ in range(6):
        made = [*run(plan, given, (-0.1,)), *[each.grad for each in given[2:]]]
        left.append(made)
        expected.append([each.array.get() for each in made])
    for tensors, wanted in zip(left, expected, strict=True):
        for one, other in zip(tensors, wanted, strict=True):
            np.testing.assert_array_equal(one.array.get(), other)


def test_a_label_out_of_bounds_is_refused_and_changes_no_weight() -> None:
    given = on_gpu(arrays_of_step())
    plan, _ = plans(training_step, given, (-0.1,))
    for turn in range(8):
        run(plan, given, (-0.1,))
        before = [each.array.get() for each in given[2:]]
        wrong = tensor(XP.full(8, 5 + turn if turn % 2 else -1, np.int64))
        with pytest.raises(EngineError, match="out of bounds"):
            run(plan, [given[0], wrong, *given[2:]], (-0.1,))
        for one, other in zip(given[2:], before, strict=True):
            np.testing.assert_array_equal(one.array.get(), other)
    assert run(plan, given, (-0.1,))
    assert plan.way == "graph"


def test_labels_that_change_in_place_are_checked_again() -> None:
    given = on_gpu(arrays_of_step())
    plan, _ = plans(training_step, given, (-0.1,))
    for _ in range(4):
        run(plan, given, (-0.1,))
    with grad_mode(False):
        call_in_place("add", given[1], 100)
    with pytest.raises(EngineError, match="out of bounds"):
        run(plan, given, (-0.1,))
    with grad_mode(False):
        call_in_place("sub", given[1], 100)
    run(plan, given, (-0.1,))
    assert plan.way == "graph"


def test_ignored_labels_are_no_indices() -> None:
    arrays = arrays_of_step()
    arrays[1][2:4] = index_bounds.IGNORED
    given, others = on_gpu(arrays), on_gpu(arrays)
    pair = plans(training_step, given, (-0.1,))
    for _ in range(5):
        both(pair, given, others, (-0.1,))
    assert pair[0].way == "graph"


def test_bounds_end_with_a_change_and_are_unknown_where_others_write() -> None:
    labels = on_gpu([np.array([3, 1, 2])])[0]
    index_bounds.note(labels.storage, labels.array, np.array([3, 1, 2]))
    found = index_bounds.bounds_of(labels.storage, labels.array[1:])
    assert (found.least, found.most, found.ignored) == (1, 3, False)
    labels.array[0] = 7
    labels.storage.changed()
    assert index_bounds.bounds_of(labels.storage, labels.array).most == 7
    type(labels.storage)(0, labels.storage.account, owner=labels.storage)
    labels.array[0] = 9  # by another storage
    assert index_bounds.bounds_of(labels.storage, labels.array).most == 9


def test_a_capture_that_fails_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    given, others = on_gpu(arrays_of_step()), on_gpu(arrays_of_step())
    pair = plans(training_step, given, (-0.1,))
    launched = PlanGraph._capture

    def waiting(self: PlanGraph, *args: Any) -> bool:
        self.code.insert(len(self.code) // 2, lambda: given[0].array.get())
        return launched(self, *args)

    monkeypatch.setattr(PlanGraph, "_capture", waiting)
    for _ in range(6):
        both(pair, given, others, (-0.1,))
    assert "capture failed" in pair[0].uncaptured
    assert pair[0].way == "calls"


def test_a_graphs_memory_is_counted_and_freed() -> None:
    account = CURRENT.get().account
    given = on_gpu(arrays_of_step())
    before = account.bytes
    gc.disable()
    try:
        plan = quick_plan(training_step, given, (-0.1,))
        for _ in range(5):
            run(plan, given, (-0.1,))
        assert plan.way == "graph"
        assert plan.graph is not None
        assert account.bytes > before + plan.graph.arena.bytes
        clear(given)
        del plan
        assert account.bytes == before
    finally:
        gc.enable()


def test_a_plan_too_large_for_the_account_runs_call_by_call(monkeypatch: pytest.MonkeyPatch) -> None:
    given, others = on_gpu(arrays_of_step()), on_gpu(arrays_of_step())
    pair = plans(training_step, given, (-0.1,))
    account = CURRENT.get().account
    for turn in range(6):
        if turn == 1:
            monkeypatch.setattr(account, "limit", account.bytes + 2000)
        both(pair, given, others, (-0.1,))
    assert pair[0].way == "calls"
    assert "memory" in pair[0].uncaptured


REFUSED: dict[str, Callable[[], Any]] = {
    "a wait": lambda: XP.cuda.runtime.deviceSynchronize(),
    "a copy to the host": lambda: XP.ones(3).get(),
    "a copy from the host": lambda: XP.asarray(np.ones(3)),
    "an allocation": lambda: XP.cuda.memory.Memory(1 << 20),
    "another stream": lambda: _on_default_stream(),
}


def _on_default_stream() -> None:
    with XP.cuda.Stream.null:
        XP.arange(3)


def test_host_memory_is_refused_before_cuda_captures_it() -> None:
    """CUDA would capture the copy, and the graph would read memory that is used for something else."""
    arena = Arena()
    with arena.allocating():
        XP.ones(3)
    with pytest.raises(RuntimeError, match="host memory"):
        captured(lambda: XP.asarray(np.ones(3)), arena)
    np.testing.assert_array_equal(XP.asarray(np.arange(3.0)).get(), np.arange(3.0))


@pytest.mark.skipif(hostcupy.folder() is None, reason="a GPU computes what runs on the default stream")
@pytest.mark.parametrize("name", REFUSED)
def test_what_no_graph_can_hold_ends_a_capture(name: str) -> None:
    arena = Arena()
    with arena.allocating():
        held = [XP.ones(3) for _ in range(2)], XP.ones(3, np.int64)
    del held
    with pytest.raises((RuntimeError, MemoryError)):
        captured(lambda: REFUSED[name](), arena)
    assert float((XP.ones(3) * 2).sum()) == 6


LAYOUTS: list[tuple[Any, ...]] = [
    ((4, 6), (6, 5)),
    ((2, 3, 4, 6), (2, 3, 6, 5)),
    ((2, 3, 4, 6), (6, 5)),
    ((1, 6), (6, 1)),
]


@pytest.mark.parametrize("dtype", ["f", "d", "e"])
@pytest.mark.parametrize("turned", [(False, False), (True, False), (False, True), (True, True)])
@pytest.mark.parametrize("shapes", LAYOUTS)
def test_products_of_all_layouts(shapes: Any, turned: tuple[bool, bool], dtype: str) -> None:
    rng = np.random.default_rng(0)
    drawn = [rng.standard_normal(shape).astype(dtype) for shape in shapes]
    host = [
        np.ascontiguousarray(each.swapaxes(-1, -2)) if turn else each for each, turn in zip(drawn, turned, strict=True)
    ]
    a, b = (
        XP.asarray(each).swapaxes(-1, -2) if turn else XP.asarray(each) for each, turn in zip(host, turned, strict=True)
    )
    assert Batches.of(a, b, None, "fde") is not None
    wanted = np.matmul(*(each.astype("d") for each in drawn))
    tolerance = {"f": 1e-5, "d": 1e-12, "e": 2e-2}[dtype]
    np.testing.assert_allclose(XP.matmul(a, b).get(), wanted, rtol=tolerance, atol=tolerance)


def test_a_session_trains_by_graphs_with_uploaded_batches(session: Any) -> None:
    """Weights of a compiled step, with new batches, are those of an eager one; a refused batch changes none."""
    made = []
    for compiled in (False, True):
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.ReLU(), torch.nn.Linear(5, 3)).to("cuda")
        optimize = torch.optim.Adam(model.parameters(), lr=0.05)

        def train(x: Any, labels: Any, model: Any = model, optimize: Any = optimize) -> Any:
            optimize.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(x), labels)
            loss.backward()
            optimize.step()
            return loss.detach()

        turn = torch.compile(train) if compiled else train
        batches = [(torch.randn(8, 6), torch.randint(0, 3, (8,))) for _ in range(9)]
        losses = [turn(x.to("cuda"), labels.to("cuda")) for x, labels in batches]
        made.append([each.detach().cpu().numpy() for each in (*losses, *model.parameters())])
        with pytest.raises((IndexError, RuntimeError), match="out of bounds"):
            turn(batches[0][0].to("cuda"), torch.full((8,), 3).to("cuda")).item()
        for one, other in zip(model.parameters(), made[-1][len(losses) :], strict=True):
            np.testing.assert_array_equal(one.detach().cpu().numpy(), other)
    for one, other in zip(*made, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def test_a_compiled_function_tells_why_it_is_no_graph(session: Any) -> None:
    def graph(x: Any) -> Any:
        return ((x * 2).tanh() @ x.t()).sum(0).exp()

    def none(x: Any) -> Any:
        return ((x * 2).tanh() @ x.t()).cumsum(0).exp()

    told = []
    for function in (graph, none):
        compiled = torch.compile(function)
        for _ in range(6):
            compiled(torch.ones(3, 3, device="cuda")).sum().item()
        told.append("".join(compiled.describe()))
    assert "no CUDA graph" not in told[0]
    assert "no CUDA graph since cumsum may wait for the GPU or read host memory" in told[1]


def test_an_exchange_between_sessions_is_not_captured() -> None:
    """A captured one would be made with the ranks of its first run only."""
    assert "exchange" in _uncaptured(Instr("exchange", None, ((), ()), ()), set())


def test_pinned_memory_of_a_plan_that_is_gone_stays_until_it_is_copied() -> None:
    class Unfinished:
        done = False

    numbers = Numbers(4)
    numbers.array(0, np.dtype("d"))
    numbers.write(np.ones(1))
    address, size = numbers._ring.ctypes.data, numbers._ring.nbytes
    copy = numbers._copied[0] = Unfinished()
    del numbers
    gc.collect()
    assert XP.cuda.alloc_pinned_memory(size).ptr != address
    copy.done = True
    Numbers(4)
    assert all(each[0] is not copy for each in cuda_graph._LEFT)


def test_a_plans_memory_is_counted_from_its_first_run_in_it() -> None:
    account = CURRENT.get().account
    given = on_gpu(arrays_of_step())
    plan = quick_plan(training_step, given, (-0.1,))
    run(plan, given, (-0.1,))
    clear(given)
    before = account.bytes
    run(plan, given, (-0.1,))
    clear(given)
    assert plan.way == "arena"
    assert plan.graph is not None
    assert account.bytes >= before + plan.graph.arena.bytes


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_a_step_in_a_half_type_is_one_launch(dtype: str) -> None:
    """Mixed precision: casts of inputs and weights, and of the gradients back."""

    def step(x: Tensor, weight: Tensor) -> list[Tensor]:
        half = [cast(each, dtypes.BY_NAME[dtype]) for each in (x, weight)]
        made = cast(call("relu", (call("linear", (*half, None)),)), dtypes.float32)
        loss = call("mean", (call("pow", (made, 2.0)),))
        backpropagate([loss])
        return detached(loss)

    rng = np.random.default_rng(3)
    arrays = [rng.standard_normal(shape).astype(np.float32) for shape in ((8, 6), (5, 6))]
    given, others = on_gpu(arrays), on_gpu(arrays)
    given[1].requires_grad = others[1].requires_grad = True
    pair = plans(step, given)
    for _ in range(5):
        both(pair, given, others)
    assert (pair[0].uncaptured, pair[0].way) == ("", "graph")
