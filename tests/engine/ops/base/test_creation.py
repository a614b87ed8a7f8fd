"""Factories: values and dtypes as PyTorch's, leaves that require grad on request, sizes refused before allocation."""

import numpy as np
import pytest

from gradwire_engine import Account, Context, EngineError, Reason, activate, tensor
from gradwire_engine.core import dtypes
from gradwire_engine.ops.base import creation
from tests.engine.oracle import Refused, Same, integers, normal, refused, same, torch

X = normal(2, 3, dtype="float32").constant
SAME = [
    same(creation.zeros, torch.zeros, (2, 3)),
    same(creation.zeros, torch.zeros, 3, dtype=dtypes.int8),
    same(creation.ones, torch.ones, (0, 2), dtype=dtypes.bool_),
    same(creation.full, torch.full, (2,), 3),
    same(creation.full, torch.full, (2,), 3.5),
    same(creation.full, torch.full, (2,), True),
    same(creation.full, torch.full, (2,), 1 + 2j),
    same(creation.scalar_tensor, torch.scalar_tensor, 3),
    same(creation.eye, torch.eye, 3, 2, dtype=dtypes.float64),
    same(creation.arange, lambda *args: torch.arange(*args), 5),
    same(creation.arange, lambda *args: torch.arange(*args), 2, -7, -3),
    same(creation.arange, lambda *args: torch.arange(*args), 0.5, 3.0, 0.7),
    same(creation.linspace, torch.linspace, -3, 11, 7),
    same(creation.linspace, torch.linspace, 0, 10, 4, dtype=dtypes.int64),
    same(creation.linspace, torch.linspace, 2.5, 9, 1),
    same(creation.linspace, torch.linspace, 2.5, 9, 0),
    same(creation.linspace, torch.linspace, 1j, 2, 5),
    same(creation.logspace, torch.logspace, -1, 2, 5, base=2.0),
    same(creation.zeros_like, torch.zeros_like, X),
    same(creation.ones_like, torch.ones_like, integers(0, 2, 3)),
    same(creation.full_like, torch.full_like, X, 7, dtype=dtypes.int32),
    same(creation.new_zeros, torch.Tensor.new_zeros, X, (4,)),
    same(creation.new_ones, torch.Tensor.new_ones, X, (4,), dtype=dtypes.uint8),
    same(creation.new_full, torch.Tensor.new_full, X, (1, 2), 0.25),
    same(creation.tril_indices, torch.tril_indices, 3, 4, -1),
    same(creation.triu_indices, torch.triu_indices, 4, 3, 1),
    same(creation.triu_indices, torch.triu_indices, 0, 3),
]
REFUSED = [
    refused(creation.zeros, Reason.RUNTIME, "negative dimension -1: [2, -1]", (2, -1), theirs=torch.zeros),
    refused(creation.zeros, Reason.DEVICE_UNAVAILABLE, "the server has cpu", (1,), device="cuda:9"),
    refused(creation.zeros, Reason.ARGUMENT_VALUE, "Expected one of cpu, cuda", (1,), device="tpu"),
    refused(creation.full, Reason.RUNTIME, "overflow: 300", (1,), 300, dtype=dtypes.uint8, theirs=torch.full),
    refused(creation.eye, Reason.RUNTIME, "got -2", -2, theirs=torch.eye),
    refused(creation.arange, Reason.RUNTIME, "step must be nonzero", 0, 5, 0, theirs=torch.arange),
    refused(creation.arange, Reason.RUNTIME, "inconsistent with step sign", 0, 5, -1, theirs=torch.arange),
    refused(creation.arange, Reason.RUNTIME, "0 -> inf", 0, float("inf"), theirs=torch.arange),
    refused(creation.arange, Reason.NOT_SUPPORTED, "'Bool'", 3, dtype=dtypes.bool_, theirs=torch.arange),
    refused(creation.linspace, Reason.RUNTIME, "non-negative", 0, 1, -1, theirs=torch.linspace),
    refused(creation.logspace, Reason.RUNTIME, "non-negative", 0, 1, -1, theirs=torch.logspace),
]


@pytest.mark.parametrize("case", SAME, ids=str)
def test_values_and_gradients_equal_pytorch(case: Same) -> None:
    case.check()


@pytest.mark.parametrize("case", REFUSED, ids=str)
def test_a_refusal_names_what_is_wrong(case: Refused) -> None:
    case.check()


def test_what_may_be_written_to_shows_zeros_and_no_others_memory() -> None:
    x = tensor(np.ones((2, 2), np.float32))
    made = [creation.empty((2, 2)), creation.empty_like(x), creation.new_empty(x, (2, 2))]
    assert [each.array.tolist() for each in made] == [[[0, 0], [0, 0]]] * 3


def test_a_factory_makes_a_leaf_that_requires_grad_on_request() -> None:
    made = creation.ones((2,), requires_grad=True)
    assert (made.requires_grad, made.is_leaf, made.grad_fn) == (True, True, None)
    assert not creation.ones((2,)).requires_grad


def test_the_default_dtype_is_that_of_the_context() -> None:
    with activate(Context(default_dtype=dtypes.float64)):
        assert creation.zeros((1,)).dtype == dtypes.float64
        assert creation.arange(0, 1, 0.5).dtype == dtypes.float64


@pytest.mark.parametrize(
    "make",
    [
        lambda: creation.zeros((1000, 1000)),
        lambda: creation.arange(10**9),
        lambda: creation.linspace(0, 1, 10**9),
        lambda: creation.eye(10**5),
        lambda: creation.tril_indices(10**5, 10**5),
    ],
)
def test_a_size_beyond_the_limit_is_refused_before_it_is_allocated(make) -> None:
    context = Context(account=Account(limit=1 << 20))
    with activate(context), pytest.raises(EngineError, match="limit of 1048576") as refusal:
        make()
    assert refusal.value.reason is Reason.MEMORY_LIMIT
    assert context.account.bytes == 0


def test_linspace_of_float32_has_the_last_digits_of_pytorch() -> None:
    generator = np.random.default_rng(0)
    for _ in range(200):
        start, end = generator.normal(size=2) * 10
        steps = int(generator.integers(2, 300))
        found = creation.linspace(float(start), float(end), steps)
        expected = torch.linspace(float(start), float(end), steps).numpy()
        assert np.array_equal(np.asarray(getattr(found, "array", found)), expected), (start, end, steps)
