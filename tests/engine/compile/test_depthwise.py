"""Depthwise convolutions as kernels compute what the ops compute, and the others stay ops."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from gradwire_engine import EngineError, Tensor, backward, call, tensor
from gradwire_engine.compile.fusion import depthwise as depthwise_convolutions
from gradwire_engine.compile.fusion import fused as fused_plans
from gradwire_engine.compile.fusion.depthwise import DepthwiseCall, depthwise
from gradwire_engine.core.context import CURRENT, Context, activate
from gradwire_engine.ops.nn.convolution import onednn
from tests.engine.compile.fusing import fused, run, traced

pytest.importorskip("llvmlite")


@pytest.fixture(autouse=True)
def context(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(depthwise_convolutions, "_LEAST", 1)
    monkeypatch.setattr(onednn, "library", lambda: None)  # it precedes the compiled kernels
    with activate(Context()), np.errstate(all="ignore"):
        yield


def program(padding: Any, dilation: Any, groups: int, stride: Any = 1) -> Any:
    """A convolution and its gradients."""

    def convolve(x: Tensor, w: Tensor, bias: Tensor) -> list[Tensor]:
        y = call("conv2d", (x, w, bias, stride, padding, dilation, groups))
        backward([call("sum", (y * y,))])
        return []

    return convolve


def inputs(dtype: str, images: int, size: tuple[int, int], kernel: tuple[int, int], channels: int = 5) -> list[Any]:
    rng = np.random.default_rng(0)
    shapes = ((images, channels, *size), (channels, 1, *kernel), (channels,))
    return [rng.standard_normal(shape).astype(dtype) for shape in shapes]


def tensors(arrays: list[Any]) -> list[Tensor]:
    return [tensor(array.copy(), True) for array in arrays]


def agree(made: Any, arrays: list[Any]) -> list[str]:
    """Compare the gradients of the plan and the fused plan; return what is computed by kernels."""
    plan = traced(made, tensors(arrays))
    quick, _ = fused(plan)
    found = [conv.what for conv in (depthwise(instr, plan.regs) for instr in plan.instrs) if conv is not None]
    for turn in range(2):
        given, expected = ([tensor(np.roll(array, turn), True) for array in arrays] for _ in range(2))
        run(quick, given)
        run(plan, expected)
        for one, other in zip(given, expected, strict=True):
            assert one.grad is not None
            assert other.grad is not None
            wanted = other.grad.array
            finite = np.isfinite(wanted)
            tolerance = (1e-4 if wanted.dtype == np.float32 else 1e-12) * float(np.abs(wanted[finite]).max(initial=1))
            np.testing.assert_allclose(one.grad.array, wanted, rtol=0, atol=tolerance)
    return sorted(found)


ALL = ["_convolution", "_convolution.grad.input", "_convolution.grad.weight"]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    ("size", "kernel", "padding", "dilation"),
    [
        ((9, 7), (3, 3), 1, 1),
        ((8, 11), (5, 2), (2, 1), 1),
        ((13, 12), (3, 3), 2, (2, 2)),
        ((6, 20), (1, 7), (0, 3), 1),
        ((40, 33), (7, 7), 3, 1),
    ],
)
def test_a_depthwise_convolution_and_its_gradients_are_kernels(
    size: Any, kernel: Any, padding: Any, dilation: Any, dtype: str
) -> None:
    assert agree(program(padding, dilation, 5), inputs(dtype, 3, size, kernel)) == ALL


def test_values_that_are_not_finite_reach_only_what_they_touch() -> None:
    for place in range(2):
        for bad in (np.inf, np.nan):
            arrays = inputs("float64", 2, (9, 8), (3, 3))
            arrays[place][0, 0, 0, 0] = bad
            agree(program(1, 1, 5), arrays)


@pytest.mark.parametrize(
    ("padding", "stride", "groups", "channels", "left"),
    [
        (1, 2, 5, 5, []),  # a stride
        (0, 1, 1, 1, ALL),  # one channel is depthwise too
        (4, 1, 5, 5, ["_convolution", "_convolution.grad.weight"]),  # the gradient would be cut
    ],
)
def test_other_convolutions_stay_ops(padding: int, stride: int, groups: int, channels: int, left: list[str]) -> None:
    arrays = inputs("float64", 2, (9, 8), (3, 3), channels)
    found = agree(program(padding, 1, groups, stride), arrays)
    assert found == left


def test_small_images_stay_ops(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(depthwise_convolutions, "_LEAST", 1024)
    assert agree(program(1, 1, 5), inputs("float32", 3, (8, 8), (3, 3))) == []
    assert agree(program(1, 1, 5), inputs("float32", 3, (16, 16), (3, 3))) == ALL


def test_several_channels_per_group_stay_ops() -> None:
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(shape) for shape in ((2, 4, 6, 6), (4, 2, 3, 3), (4,))]
    assert agree(program(1, 1, 2), arrays) == []


def test_a_plan_that_verifies_finds_a_wrong_convolution(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fused_plans.OPTIONS, "mode", "verify")
    arrays = inputs("float32", 2, (9, 8), (3, 3))
    assert agree(program(1, 1, 5), arrays) == ALL
    right = DepthwiseCall.run

    def wrong(self: DepthwiseCall, out: Any, *args: Any) -> None:
        right(self, out, *args)
        out.reshape(-1)[3] *= 1.01

    monkeypatch.setattr(DepthwiseCall, "run", wrong)
    with pytest.raises(EngineError, match="another value than its op"):
        agree(program(1, 1, 5), arrays)


def test_the_kernels_memory_is_counted() -> None:
    arrays = inputs("float32", 2, (64, 64), (3, 3))
    plan = traced(program(1, 1, 5), tensors(arrays))
    before = CURRENT.get().account.bytes
    quick, _ = fused(plan)
    assert CURRENT.get().account.bytes - before == quick.bytes
    assert quick.bytes > 3 * 2 * 5 * 64 * 64 * 4  # an image and its result, for each of the three
