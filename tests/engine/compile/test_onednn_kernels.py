"""Convolutions in plans: oneDNN writes into the plan's memory, and computes the bits that the ops compute eagerly."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from gradwire_engine import Tensor, backward, call, tensor
from gradwire_engine.backends.onednn import library
from gradwire_engine.compile.fusion.fused import machine_of
from gradwire_engine.compile.fusion.kernel_cache import Kernel
from gradwire_engine.compile.kernels import onednn as kernels
from gradwire_engine.compile.plan import Plan
from gradwire_engine.core.context import Context, activate
from gradwire_engine.ops.nn.convolution import onednn
from tests.engine.compile.fusing import run, traced

pytestmark = pytest.mark.skipif(library() is None, reason="needs oneDNN: pip install gradwire[onednn]")


@pytest.fixture(autouse=True)
def context() -> Iterator[None]:
    with activate(Context()), np.errstate(all="ignore"):
        yield


def program(name: str, *arguments: Any) -> Any:
    """A convolution, its product with itself flipped, and their gradients."""

    def made(*given: Tensor) -> list[Tensor]:
        x, w, *bias = given
        y = call(name, (x, w, bias[0] if bias else None, *arguments))
        flipped = call("flip", (y, (0,)))
        backward([call("sum", (call("mul", (y, flipped)),))])
        return []

    return made


def inputs(*shapes: tuple[int, ...]) -> list[Any]:
    rng = np.random.default_rng(0)
    return [rng.standard_normal(shape).astype(np.float32) for shape in shapes]


def kinds(plan: Plan) -> list[str]:
    """The convolutions of a plan that have kernels."""
    names = []
    for instr, kernel in zip(plan.instrs, plan.kernels, strict=True):
        if kernel is not None and instr.kind in ("op", "formula"):
            what = instr.what
            names.append(what.name if instr.kind == "op" else f"{what[0]}.grad.{what[1]}")
    return sorted(name for name in names if "convolution" in name)


CASES = [
    ("conv2d", ((3, 8, 9, 7), (8, 4, 3, 3), (8,)), (2, 1, 1, 2)),
    ("conv2d", ((2, 16, 12, 12), (16, 1, 3, 3)), (1, 1, 1, 16)),
    ("conv1d", ((2, 5, 30), (7, 5, 4)), (1, 0, 2, 1)),
    ("conv3d", ((2, 4, 5, 6, 7), (8, 4, 2, 3, 2), (8,)), (1, 1, 1, 1)),
    ("conv_transpose2d", ((2, 8, 5, 5), (8, 4, 3, 3)), (2, 1, 1, 1)),
]


@pytest.mark.parametrize(("name", "shapes", "arguments"), CASES)
def test_a_plan_computes_the_bits_of_its_ops(name: str, shapes: Any, arguments: Any) -> None:
    arrays, made = inputs(*shapes), program(name, *arguments)
    plan = traced(made, [tensor(array.copy(), True) for array in arrays])
    first = "_convolution_transpose" if "transpose" in name else "_convolution"
    assert kinds(plan) == [first, f"{first}.grad.input", f"{first}.grad.weight"]
    for turn in range(3):
        planned, eager = ([tensor(np.roll(array, turn), True) for array in arrays] for _ in range(2))
        run(plan, planned)
        made(*eager)
        for one, other in zip(planned, eager, strict=True):
            assert one.grad is not None
            assert other.grad is not None
            np.testing.assert_array_equal(one.grad.array, other.grad.array)


def test_a_transposed_convolution_with_a_bias_and_other_dtypes_stay_ops() -> None:
    arrays = inputs((2, 8, 5, 5), (8, 4, 3, 3), (4,))
    plan = traced(program("conv_transpose2d"), [tensor(array, True) for array in arrays])
    assert kinds(plan) == ["_convolution_transpose.grad.input", "_convolution_transpose.grad.weight"]
    doubles = [array.astype(np.float64) for array in arrays]
    assert kinds(traced(program("conv_transpose2d"), [tensor(array, True) for array in doubles])) == []


def test_without_the_library_convolutions_stay_ops(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onednn, "library", lambda: None)
    arrays = inputs((2, 8, 6, 6), (8, 8, 3, 3))
    assert kinds(traced(program("conv2d"), [tensor(array, True) for array in arrays])) == []


def test_a_convolution_in_onednn_is_not_compiled() -> None:
    arrays = inputs((2, 16, 30, 30), (16, 1, 3, 3))
    plan = traced(program("conv2d", 1, 1, 1, 16), [tensor(array, True) for array in arrays])

    def built(source: str) -> Kernel:
        kernel = Kernel("", source)
        kernel.entry = lambda *args: None
        return kernel

    assert machine_of(plan, built).convolutions == []


def test_both_convolutions_have_kernels_for_all_three_passes() -> None:
    passes = ("", ".grad.input", ".grad.weight")
    assert set(kernels._KERNELS) == {
        f"{name}{part}" for name in ("_convolution", "_convolution_transpose") for part in passes
    }
