"""Every op of the parity tables computes the same on a GPU as on the CPU, forward and backward.

Without CuPy and a GPU the tests on a GPU are skipped. The tests on the stand-in for CuPy run everywhere. They show what
would fail on a GPU because CuPy lacks a name, or because host arrays are mixed with CuPy's.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gradwire_engine as engine
from gradwire_engine.compile.plan import Plan
from gradwire_engine.compile.schedule import NotPlannable
from gradwire_engine.compile.tracing import Tracer
from gradwire_engine.core import device as devices
from gradwire_engine.core import dtypes
from gradwire_engine.core.context import Context, activate
from tests.parity import test_ops
from tests.parity.harness import FLOAT64, Case, _Call

# Ops that draw random numbers, whose streams differ between devices, and those that make tensors of nothing.
RANDOM = {
    "dropout",
    "rand",
    "randn",
    "randint",
    "randperm",
    "bernoulli",
    "normal",
    "multinomial",
    "exponential",
    "uniform",
}


def otherwise(made: Case) -> bool:
    """lstsq of less than full rank: like PyTorch, a GPU has only the driver that assumes full rank."""
    return made.op == "linalg.lstsq" and made.order == 0


CASES = [made for made in test_ops.CASES if made.op not in RANDOM and made.samples and not otherwise(made)]


def computed(made: Case, device: str) -> list[np.ndarray[Any, Any]]:
    """The results and the gradients of their sum, in host memory."""
    call = _Call(made, made.samples[0], FLOAT64)
    with activate(Context()):
        leaves = [
            engine.tensor(devices.to_device(each.array, device), each.requires_grad and made.order > 0)
            for each in call.ours()
        ]
        results = call.call_ours(leaves)
        assert all(each.device == device for each in results if leaves)
        roots = [each for each in results if each.requires_grad]
        if roots:
            engine.backward(roots, [engine.tensor(each.array * 0 + 1) for each in roots])
        grads = [each.grad for each in leaves if each.grad is not None]
        return [devices.host(each.array) for each in (*results, *grads)]


@pytest.mark.parametrize("made", CASES, ids=str)
def test_op_computes_on_the_gpu_what_it_computes_on_the_cpu(made: Case) -> None:
    for ours, expected in zip(computed(made, "cuda:0"), computed(made, "cpu"), strict=True):
        np.testing.assert_allclose(ours, expected, rtol=1e-8, atol=1e-10)


def test_an_index_out_of_range_is_refused_on_the_gpu_too() -> None:
    with activate(Context()):
        x = engine.tensor(devices.to_device(np.zeros(3), "cuda:0"))
        index = engine.tensor(devices.to_device(np.array([5]), "cuda:0"))
        with pytest.raises(engine.EngineError, match="out of"):
            engine.call("index_select", (x, 0, index))


def test_bytes_beyond_a_tensors_own_are_out_of_reach_though_the_pool_rounds_allocations_up() -> None:
    with activate(Context()):
        whole = engine.tensor(devices.to_device(np.arange(5.0), "cuda:0"))
        part = engine.call("narrow", (whole, 0, 1, 2))
        assert engine.call("as_strided", (part, (5,), (1,), 0)).array.tolist() == [0, 1, 2, 3, 4]
        for x in (whole, part, engine.call("as_strided", (part, (2, 2), (1, 1), 0))):
            with pytest.raises(engine.EngineError, match="out of bounds for storage of size 40"):
                engine.call("as_strided", (x, (6,), (1,), 0))


def test_a_trace_on_the_gpu_asks_for_no_kernel_of_numpy_and_ends() -> None:
    with activate(Context()):
        x = engine.tensor(devices.to_device(np.ones((2, 2), np.float32), "cuda:0"))
        tracer = Tracer([x])
        assert (tracer.backend, tracer.failed is not None) == ("cupy", True)
        with pytest.raises(NotPlannable, match="on a GPU"):
            Plan(tracer, [], 0, Context().account)


def test_tensors_of_two_devices_in_one_op_are_refused() -> None:
    with activate(Context()):
        x = engine.tensor(devices.to_device(np.zeros(3), "cuda:0"))
        for left, right in ((x, engine.tensor(np.zeros(3))), (engine.tensor(np.zeros(3)), engine.call("sum", (x,)))):
            with pytest.raises(engine.EngineError, match="Expected all tensors to be on the same device"):
                engine.call("add", (left, right))


def gpu_tensor(values: Any, dtype: str = "float64", requires_grad: bool = False) -> engine.Tensor:
    return engine.tensor(devices.to_device(np.array(values, dtype), "cuda:0"), requires_grad)


def test_a_number_of_the_host_joins_tensors_of_the_gpu_and_its_gradient_comes_home() -> None:
    with activate(Context()):
        x = gpu_tensor([1.0, 2.0, 3.0], requires_grad=True)
        scale = engine.tensor(np.array(2.0), True)
        result = engine.call("sum", (engine.call("mul", (x, scale)),))
        assert result.device == "cuda:0"
        engine.backward([result])
        assert (scale.grad.device, devices.host(scale.grad.array).item()) == ("cpu", 6.0)
        assert x.grad.device == "cuda:0"
        np.testing.assert_array_equal(devices.host(x.grad.array), [2.0, 2.0, 2.0])


@pytest.mark.parametrize("dtype", ["int8", "int64", "uint8", "float16", "float32", "complex128", "bool"])
def test_what_falls_on_one_place_is_added_in_every_dtype(dtype: str) -> None:
    with activate(Context()):
        values = np.array([1, 2, 3, 1, 5], dtype)
        places = np.array([0, 2, 0, 2, 2])
        expected = np.zeros(4, dtype)
        np.add.at(expected, places, values)
        target = gpu_tensor(np.zeros(4), dtype)
        index = gpu_tensor(places, "int64")
        made = engine.call("index_put", (target, [index], gpu_tensor(values, dtype)), {"accumulate": True})
        np.testing.assert_array_equal(devices.host(made.array), expected)


@pytest.mark.parametrize("reduce", ["sum", "prod", "amax", "amin", "mean"])
@pytest.mark.parametrize("dtype", ["int64", "float32"])
def test_scatter_reduces_on_the_gpu_as_on_the_cpu(reduce: str, dtype: str) -> None:
    rng = np.random.default_rng(3)
    base, src = rng.integers(1, 9, (4, 3)).astype(dtype), rng.integers(1, 9, (7, 3)).astype(dtype)
    index = rng.integers(0, 4, (7, 3))
    with activate(Context()):
        made = [
            engine.call("scatter_reduce", (place(base), 0, place(index), place(src), reduce))
            for place in (engine.tensor, lambda array: gpu_tensor(array, str(array.dtype)))
        ]
        np.testing.assert_array_equal(*(devices.host(each.array) for each in made))


@pytest.mark.parametrize("name", sorted(name for name, op in engine.REGISTRY.items() if op.has_in_place))
def test_an_op_in_place_computes_on_the_gpu_what_it_computes_on_the_cpu(name: str) -> None:
    found = next((made for made in CASES if made.op == name), None)
    if found is None:
        pytest.skip("its table has no sample of plain numbers")
    call = _Call(found, found.samples[0], FLOAT64)
    with activate(Context()):
        answers = []
        for device in ("cpu", "cuda:0"):
            leaves = [engine.tensor(devices.to_device(each.array.copy(), device)) for each in call.ours()]
            try:
                answers.append(devices.host(call.call_ours(leaves, f"{name}_")[0].array))
            except engine.EngineError as error:
                answers.append(error.reason)
        if isinstance(answers[0], np.ndarray):
            np.testing.assert_allclose(answers[1], answers[0], rtol=1e-8, atol=1e-10)
        else:
            assert answers[0] == answers[1]


@pytest.mark.parametrize("name", ["rand", "randn", "randperm"])
def test_random_numbers_are_drawn_on_the_gpu_and_repeat_with_the_seed(name: str) -> None:
    size = 6 if name == "randperm" else (6,)
    drawn = []
    for _ in range(2):
        context = Context()
        context.generator.manual_seed(5)
        with activate(context):
            drawn.append(engine.call(name, (size,), {"device": "cuda"}))
            assert drawn[-1].device == "cuda:0"
    np.testing.assert_array_equal(*(devices.host(each.array) for each in drawn))


def test_the_bytes_of_a_gpus_pool_are_reported(request: pytest.FixtureRequest) -> None:
    if request.node.callspec.params["gpu"] == "stand-in":
        pytest.skip("what stands in for CuPy has no pool of memory")
    before, _ = devices.pools().get("cuda:0", (0, 0))
    with activate(Context()):
        held = engine.call("zeros", ((1024, 1024),), {"device": "cuda"})
    used, total = devices.pools()["cuda:0"]
    assert used - before >= held.array.nbytes
    assert total >= used


# What CuPy lacks or does otherwise without an error; backends/cupy.py makes up for it.


def on_both(call: Any) -> tuple[Any, Any]:
    """What a call comes to on the GPU and on the CPU: host arrays, or the reason of the refusal."""
    answers = []
    for device in ("cuda:0", "cpu"):

        def place(values: Any, dtype: str, device: str = device) -> engine.Tensor:
            return engine.tensor(devices.to_device(np.asarray(values).astype(dtypes.BY_NAME[dtype]), device))

        with activate(Context()):
            try:
                answers.append(devices.host(call(place).array))
            except engine.EngineError as error:
                answers.append(error.reason)
    return answers[0], answers[1]


@pytest.mark.parametrize("name", ["atan2", "copysign"])
def test_complex_numbers_are_refused_where_pytorch_refuses_them(name: str) -> None:
    one, other = on_both(lambda place: engine.call(name, (place([1j], "complex64"), place([2.0], "complex64"))))
    assert one == other == engine.Reason.NOT_SUPPORTED


def test_logical_not_takes_complex_numbers_and_bfloat16() -> None:
    for dtype in ("complex64", "bfloat16"):
        one, other = on_both(lambda place, dtype=dtype: engine.call("logical_not", (place([0, 1], dtype),)))
        assert one.tolist() == other.tolist() == [True, False]


def test_a_choice_of_bfloat16_stays_bfloat16() -> None:
    for name, args in (("where", 2), ("masked_fill", 1)):

        def chosen(place: Any, name: str = name, args: int = args) -> Any:
            mask = place([True, False, True], "bool")
            x, y = place([1.5, 2.5, np.nan], "bfloat16"), place([-1, -2, -3], "bfloat16")
            return engine.call(name, (mask, x, y) if args == 2 else (x, mask, 0.5))

        one, other = on_both(chosen)
        assert one.dtype == other.dtype == dtypes.bfloat16
        np.testing.assert_array_equal(one.astype("float32"), other.astype("float32"))


def test_singular_and_indefinite_matrices_are_refused() -> None:
    zeros = np.zeros((2, 3, 3))
    for name, given in (
        ("linalg.inv", [zeros]),
        ("linalg.cholesky", [zeros]),
        ("linalg.solve", [zeros, zeros[..., :1]]),
    ):
        one, other = on_both(
            lambda place, name=name, given=given: engine.call(name, [place(each, "float64") for each in given])
        )
        assert one == other == engine.Reason.RUNTIME, name


def test_solve_broadcasts_batches_and_matrix_exp_takes_them() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(3, 3)) + 4 * np.eye(3), rng.normal(size=(2, 4, 3, 2))
    one, other = on_both(lambda place: engine.call("linalg.solve", (place(a, "float64"), place(b, "float64"))))
    np.testing.assert_allclose(one, other, rtol=1e-9)
    wide = rng.normal(size=(2, 2, 3, 3))
    one, other = on_both(lambda place: engine.call("linalg.matrix_exp", (place(wide, "float64"),)))
    np.testing.assert_allclose(one, other, rtol=1e-9)


def test_indices_of_the_cpu_select_from_a_tensor_of_the_gpu() -> None:
    with activate(Context()):
        x = gpu_tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
        for index in (engine.tensor(np.array([1, 0, 1])), engine.tensor(np.array([True, True]))):
            found = engine.call("getitem", (x, index))
            assert found.device == "cuda:0"
            np.testing.assert_array_equal(devices.host(found.array), devices.host(x.array)[index.array])
        engine.backward([engine.call("sum", (engine.call("getitem", (x, engine.tensor(np.array([1, 1])))),))])
        np.testing.assert_array_equal(devices.host(x.grad.array), [[0, 0], [2, 2]])
        target = gpu_tensor([1.0, 2.0, 3.0])
        engine.REGISTRY["setitem"].in_place((target, engine.tensor(np.array([2])), 9.0))
        np.testing.assert_array_equal(devices.host(target.array), [1, 2, 9])


@pytest.mark.parametrize("index", [3, -4])
def test_indices_out_of_range_are_refused_by_every_op_that_takes_them(index: int) -> None:
    with activate(Context()):
        x, places = gpu_tensor([1.0, 2.0, 3.0]), gpu_tensor([index], "int64")
        calls: dict[str, tuple[Any, ...]] = {
            "getitem": (x, places),
            "index_select": (x, 0, places),
            "gather": (x, 0, places),
            "take": (x, places),
            "index_add": (x, 0, places, gpu_tensor([1.0])),
            "scatter": (x, 0, places, gpu_tensor([1.0])),
            "index_put": (x, [places], gpu_tensor([1.0])),
        }
        for name, args in calls.items():
            with pytest.raises(engine.EngineError) as refused:
                engine.call(name, args)
            assert refused.value.reason in (engine.Reason.INDEX_OUT_OF_RANGE, engine.Reason.RUNTIME), name
