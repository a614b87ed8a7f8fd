"""Running sums and products, and the gradient of a product whose factors may be zero."""

import numpy as np
import pytest

from gradwire_engine import Reason, gradients, tensor
from gradwire_engine.core import dtypes
from gradwire_engine.ops.reduce import scan
from tests.engine.oracle import Refused, Same, given, integers, normal, refused, same, torch

X = normal(3, 5)
SAME = [
    *(
        same(function, theirs, X, dim)
        for function, theirs in ((scan.cumsum, torch.cumsum), (scan.cumprod, torch.cumprod))
        for dim in (0, 1, -2)
    ),
    same(scan.cumsum, torch.cumsum, normal(4, 1500), 1, factor=100),
    same(scan.cumsum, torch.cumsum, normal(), 0),
    same(scan.cumsum, torch.cumsum, normal(0, 3), 1),
    same(scan.cumsum, torch.cumsum, integers(0, 9, 5, dtype="uint8"), 0),
    same(scan.cumsum, torch.cumsum, integers(0, 9, 5), 0, dtype=dtypes.float32),
    same(scan.cumprod, torch.cumprod, given([2.0, 0.0, 3.0, 0.0, 4.0]), 0),
    same(scan.cumprod, torch.cumprod, normal(4, dtype="complex128"), 0),
    same(scan.cumprod, torch.cumprod, integers(1, 4, 5), 0),
    same(scan.cumsum, torch.cumsum, normal(3, 50, dtype="float32"), 1, factor=10),
]
REFUSED = [
    refused(scan.cumsum, Reason.DIM_OUT_OF_RANGE, "but got 2", X, 2, theirs=torch.cumsum),
    refused(scan.cumprod, Reason.DIM_OUT_OF_RANGE, "but got -3", X, -3, theirs=torch.cumprod),
]


@pytest.mark.parametrize("case", SAME, ids=str)
def test_values_and_gradients_equal_pytorch(case: Same) -> None:
    case.check()


@pytest.mark.parametrize("case", REFUSED, ids=str)
def test_a_refusal_names_what_is_wrong(case: Refused) -> None:
    case.check()


@pytest.mark.parametrize("zeros", [0, 1, 2])
def test_the_gradient_of_a_product_is_the_product_of_the_others(zeros: int) -> None:
    factors = np.array([[2.0, 3.0, 5.0, 7.0]])
    factors[:, :zeros] = 0
    out, g = factors.prod(1, keepdims=True), np.array([[2.0]])
    found = scan.product_backward(g, factors, out, 1)
    expected = [2.0 * np.delete(factors[0], place).prod() for place in range(4)]
    np.testing.assert_allclose(found, [expected])


@pytest.mark.parametrize("length", [1, 100, 1023, 1024, 1025, 5000])
def test_long_running_sums_are_as_exact_as_sums_in_double(length: int) -> None:
    array = np.random.default_rng(length).standard_normal((3, length)).astype(np.float32)
    found = scan.cumsum(array, 1)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, array.astype(np.float64).cumsum(1), rtol=0, atol=3e-6 * np.sqrt(length) + 1e-6)


def test_the_number_of_turns_is_the_length_of_the_dimension() -> None:
    assert scan.loop_length(np.zeros((3, 7)), -1) == 7


@pytest.mark.parametrize("dtype", ["float64", "float32", "complex64", "float16"])
def test_gradients_of_products_with_zeros_and_infinities_are_nan_where_pytorchs_are(dtype: str) -> None:
    rng = np.random.default_rng()
    for _ in range(60):
        shape = tuple(int(n) for n in rng.integers(1, 6, rng.integers(1, 4)))
        dim = int(rng.integers(-len(shape), len(shape)))
        special = [0.0, -0.0, *([] if dtype == "complex64" else [np.inf, -np.inf, np.nan]), 1.5, -2.0, 0.5]
        x, g = rng.choice(special, shape).astype(dtype), rng.choice([0.0, 1.0, -2.0, 0.5], shape).astype(dtype)
        ours, theirs = tensor(x, requires_grad=True), torch.tensor(x, requires_grad=True)
        (found,), _ = gradients([scan.cumprod(ours, dim)], [ours], [tensor(g)])
        torch.cumprod(theirs, dim).backward(torch.tensor(g))
        np.testing.assert_allclose(found.array, theirs.grad.numpy(), rtol=1e-5, err_msg=f"{x!r} {g!r} {dim}")
