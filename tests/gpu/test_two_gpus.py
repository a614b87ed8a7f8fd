"""Two GPUs in one process: each op and each formula computes on the device of its operands."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gradwire as torch
import gradwire_engine as engine
from gradwire_engine.core import device as devices
from gradwire_engine.core.context import Context, activate
from gradwire_engine.ops.base.basic import to_device

if len(devices.available()) < 3:
    pytest.skip("needs CuPy and two CUDA GPUs, or hostcupy", allow_module_level=True)


@pytest.fixture(autouse=True)
def gpu() -> None:
    """The devices of this process: no stand-in."""


def on(device: str, values: Any, requires_grad: bool = False) -> engine.Tensor:
    return engine.tensor(devices.to_device(np.array(values, np.float64), device), requires_grad)


def test_ops_and_backward_compute_on_the_second_gpu() -> None:
    with activate(Context()):
        x = on("cuda:1", [[1.0, 2.0], [3.0, 4.0]], True)
        y = engine.call("matmul", (x, engine.call("exp", (x,))))
        y = engine.call("sum", (engine.call("where", (engine.call("gt", (y, 3.0)), y, x)),))
        assert y.device == "cuda:1"
        engine.backward([y])
        engine.backward([engine.call("sum", (engine.call("mul", (x, x)),))])  # adds to what is held
        assert x.grad.device == "cuda:1"


def test_a_gradient_crosses_from_one_gpu_to_the_other() -> None:
    with activate(Context()):
        x = on("cuda:0", [1.0, 2.0], True)
        moved = to_device(x, "cuda:1")
        assert moved.device == "cuda:1"
        total = engine.call("sum", (engine.call("mul", (moved, moved)),))
        back = to_device(total, "cuda:0")
        engine.backward([engine.call("add", (back, engine.call("sum", (x,))))])
        assert x.grad.device == "cuda:0"
        np.testing.assert_array_equal(devices.host(x.grad.array), [3.0, 5.0])


def test_tensors_of_two_gpus_in_one_op_are_refused() -> None:
    with activate(Context()), pytest.raises(engine.EngineError, match="cuda:0 and cuda:1"):
        engine.call("add", (on("cuda:0", [1.0]), on("cuda:1", [1.0])))


def test_an_op_in_place_writes_on_the_second_gpu() -> None:
    with activate(Context()):
        x = on("cuda:1", [1.0, 2.0])
        engine.call("add_", (x, on("cuda:1", [10.0, 20.0])))
        np.testing.assert_array_equal(devices.host(x.array), [11.0, 22.0])


def test_both_gpus_draw_the_numbers_of_one_sequence() -> None:
    drawn = []
    for device in ("cuda:0", "cuda:1"):
        context = Context()
        context.generator.manual_seed(5)
        with activate(context):
            drawn.append(engine.call("randn", ((6,),), {"device": device}))
        assert drawn[-1].device == device
    np.testing.assert_array_equal(*(devices.host(each.array) for each in drawn))


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
def test_a_model_trains_on_the_second_gpu(session: Any, compiled: bool) -> None:
    weights = []
    for device in ("cuda:1", "cpu"):
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(4, 5), torch.nn.ReLU(), torch.nn.Linear(5, 3)).to(device)
        rng = np.random.default_rng(1)
        x = torch.tensor(rng.normal(size=(8, 4)).astype("float32"), device=device)
        labels = torch.tensor(rng.integers(0, 3, 8), device=device)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.05)

        def step(parts: Any = (model, x, labels, optimizer)) -> None:
            model, x, labels, optimizer = parts
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(x), labels).backward()
            optimizer.step()

        run = torch.compile(step) if compiled else step
        for _ in range(8):  # compiled: the last ones are launches of a graph
            run()
        weights.append([each.detach().cpu().numpy() for each in model.parameters()])
    for ours, expected in zip(*weights, strict=True):
        np.testing.assert_allclose(ours, expected, rtol=2e-4, atol=2e-5)
