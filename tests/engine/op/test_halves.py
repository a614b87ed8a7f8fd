"""Half types with numbers: equal to PyTorch's bits, whether a kernel rounds the number first or computes in float32."""

import numpy as np
import pytest

from gradwire_engine import call, tensor
from gradwire_engine.autograd.backward import backward
from gradwire_engine.core import dtypes
from gradwire_engine.op.declaration import OPS
from gradwire_engine.op.halves import half_of
from tests.engine.oracle import torch

SIZE = 4096  # a multiple of all vector widths: PyTorch rounds the elements after the last vector otherwise
NUMBERS = [1.7, -0.3, 3, 0.1, -2.37, 1e-3]
HALVES = ["float16", "bfloat16"]
FIRST = ["add", "sub", "mul", "div", "remainder", "fmod", "rsub", "floor_divide"]


def halves(dtype: str, seed: int = 0):
    """The same elements for both sides."""
    theirs = torch.tensor(np.random.default_rng(seed).normal(size=SIZE) * 3).to(getattr(torch, dtype))
    return theirs, tensor(theirs.double().numpy().astype(dtypes.BY_NAME[dtype]))


def bits(values) -> np.ndarray:
    return values.double().numpy() if isinstance(values, torch.Tensor) else values.array.astype(np.float64)


def same(theirs, ours) -> None:
    np.testing.assert_array_equal(bits(ours), bits(theirs))


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("number", NUMBERS, ids=str)
@pytest.mark.parametrize("name", FIRST)
def test_a_number_after_a_tensor_is_rounded_as_pytorchs_kernel_does(name: str, number: float, dtype: str) -> None:
    theirs, ours = halves(dtype)
    same(getattr(torch, name)(theirs, number), call(name, (ours, number)))


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("number", NUMBERS, ids=str)
@pytest.mark.parametrize("name", ["add", "sub", "mul", "div"])
def test_a_number_before_a_tensor_is_rounded_first(name: str, number: float, dtype: str) -> None:
    theirs, ours = halves(dtype)
    same(getattr(torch, name)(torch.tensor(number), theirs), call(name, (number, ours)))


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("name", ["add", "mul", "div"])
def test_a_tensor_without_dimensions_counts_as_a_number(name: str, dtype: str) -> None:
    theirs, ours = halves(dtype)
    same(getattr(torch, name)(theirs, torch.tensor(1.7345)), call(name, (ours, tensor(np.float32(1.7345)))))


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("number", NUMBERS, ids=str)
@pytest.mark.parametrize("mode", ["floor", "trunc"])
def test_a_rounded_quotient_is_computed_in_float32(mode: str, number: float, dtype: str) -> None:
    theirs, ours = halves(dtype)
    same(torch.div(theirs, number, rounding_mode=mode), call("div", (ours, number), {"rounding_mode": mode}))


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("name", ["add", "sub", "rsub"])
def test_alpha_is_rounded_and_the_sum_only_once(name: str, dtype: str) -> None:
    (theirs, ours), (other, one) = halves(dtype), halves(dtype, 1)
    same(getattr(torch, name)(theirs, other, alpha=0.37), call(name, (ours, one), {"alpha": 0.37}))
    same(getattr(torch, name)(theirs, 1.3, alpha=0.37), call(name, (ours, 1.3), {"alpha": 0.37}))


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("exponent", [2, 3, -1, 0.5, 1.7])
def test_powers_are_pytorchs(exponent: float, dtype: str) -> None:
    theirs, ours = halves(dtype)
    same(theirs.abs().pow(exponent), call("pow", (call("abs", (ours,)), exponent)))


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("name", ["mul", "div"])
def test_the_gradient_of_a_product_with_a_number_keeps_the_number(name: str, dtype: str) -> None:
    theirs, ours = halves(dtype)
    weight, one = halves(dtype, 1)
    theirs.requires_grad_()
    ours.requires_grad = True
    getattr(torch, name)(theirs, 1.7).backward(weight)

    backward([call(name, (ours, 1.7))], [one])
    same(theirs.grad, ours.grad)


@pytest.mark.parametrize("dtype", HALVES)
def test_the_gradient_of_an_expanded_operand_is_summed_in_float32(dtype: str) -> None:
    theirs = torch.ones((), dtype=getattr(torch, dtype), requires_grad=True)
    ours = tensor(np.ones((), dtypes.BY_NAME[dtype]), True)
    (weight, one), (other, two) = halves(dtype, 2), halves(dtype, 3)
    (theirs + other).backward(weight)

    backward([call("add", (ours, two))], [one])
    assert abs(float(bits(ours.grad)) - float(bits(theirs.grad))) <= 0.02 * abs(float(bits(theirs.grad)))


def test_rsub_of_a_number_takes_alpha() -> None:
    x = np.arange(4.0)
    assert call("rsub", (tensor(x), 1.5), {"alpha": 0.5}).array.tolist() == (1.5 - 0.5 * x).tolist()


@pytest.mark.parametrize(
    ("dtype", "half"), [("float16", True), ("bfloat16", True), ("float32", False), ("int64", False)]
)
def test_only_half_types_are_computed_by_this_rule(dtype: str, half: bool) -> None:
    array = np.ones(2, dtypes.BY_NAME[dtype])
    for operands in ((array, 1.5), (1.5, array)):
        assert half_of(OPS["mul"], operands) == (array.dtype if half else None)
