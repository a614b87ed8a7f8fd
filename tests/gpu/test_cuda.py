"""Every op of the parity tables computes on a GPU what it computes on the CPU, forward and back.

Without CuPy and a GPU these tests skip and say so; nothing else depends on one.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gradwire_engine as engine
from gradwire_engine import device as devices
from gradwire_engine.context import Context, activate
from tests.parity import test_ops
from tests.parity.harness import FLOAT64, Case, _Call

pytestmark = pytest.mark.skipif(devices.cupy() is None, reason="needs CuPy and a CUDA GPU")
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
CASES = [made for made in test_ops.CASES if made.op not in RANDOM and made.samples]


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


def test_tensors_of_two_devices_in_one_op_are_refused() -> None:
    with activate(Context()):
        x = engine.tensor(devices.to_device(np.zeros(3), "cuda:0"))
        with pytest.raises(engine.EngineError, match="Expected all tensors to be on the same device"):
            engine.call("add", (x, engine.tensor(np.zeros(3))))
