"""Activations: values and slopes on both sides of each kink, at it, far out, and on arrays longer than a block."""

import numpy as np
import pytest

from gradwire_engine import Reason, gradients, tensor
from gradwire_engine.ops.base.blocked import BLOCK
from gradwire_engine.ops.elementwise import activation
from tests.engine.oracle import Refused, Same, bools, given, integers, normal, refused, same, torch, uniform

F = torch.nn.functional
NAMES = [
    "relu",
    "hardtanh",
    "relu6",
    "leaky_relu",
    "elu",
    "celu",
    "selu",
    "gelu",
    "silu",
    "softplus",
    "mish",
    "logsigmoid",
    "hardsigmoid",
    "hardswish",
    "hardshrink",
    "softshrink",
    "softsign",
    "tanhshrink",
    "glu",
]
EDGES = given([0.0, -0.0, 1.0, -1.0, 6.0, 3.0, -3.0, 0.5, -0.5, 100.0, -100.0, np.nan])
SIMPLE = [name for name in NAMES if name != "glu"]


def _both(name: str) -> tuple:
    return getattr(activation, name), getattr(F, name)


def _factor(name: str) -> float:
    return 100 if name == "hardsigmoid" else 1  # PyTorch multiplies by 1 / 6 in float32


SAME = [
    *(same(*_both(name), normal(3, 4), factor=_factor(name)) for name in NAMES),
    *(same(*_both(name), EDGES, smooth=False, factor=_factor(name)) for name in SIMPLE),
    *(same(*_both(name), uniform(-4, 4, 5, 3, 2), smooth=False, factor=_factor(name)) for name in NAMES),
    *(same(*_both(name), normal(40, dtype="float32"), factor=5) for name in SIMPLE),
    *(same(*_both(name), normal(40, dtype="bfloat16").constant, factor=2) for name in SIMPLE),
    same(activation.threshold, F.threshold, normal(6), 0.1, -7.0, smooth=False),
    same(activation.threshold, F.threshold, integers(-4, 4, 6), 1, 20),
    same(activation.hardtanh, F.hardtanh, normal(6), -0.3, 0.2, smooth=False),
    same(activation.leaky_relu, F.leaky_relu, normal(6), 0.3),
    same(activation.elu, F.elu, normal(6), 1.7),
    same(activation.celu, F.celu, normal(6), -0.5),
    same(activation.gelu, F.gelu, normal(6), approximate="tanh"),
    same(activation.softplus, F.softplus, uniform(-9, 9, 6), 2.0, 5.0),
    same(activation.hardshrink, F.hardshrink, normal(6), 0.2, smooth=False),
    same(activation.softshrink, F.softshrink, normal(6), 0.2, smooth=False),
    same(activation.glu, F.glu, normal(4, 3), 0),
    same(activation.relu, F.relu, integers(-4, 4, 6)),
]
REFUSED = [
    refused(activation.relu, Reason.RUNTIME, "Boolean inputs", bools(2), theirs=F.relu),
    refused(activation.hardtanh, Reason.RUNTIME, "Bool inputs", bools(2), theirs=F.hardtanh),
    refused(
        activation.hardtanh, Reason.ARGUMENT_VALUE, "min_val cannot be greater", normal(2), 1.0, -1.0, theirs=F.hardtanh
    ),
    refused(activation.hardtanh, Reason.RUNTIME, "unsigned", given([1], "uint8"), theirs=F.hardtanh),
    refused(activation.leaky_relu, Reason.NOT_SUPPORTED, "'Long'", integers(0, 3, 2), theirs=F.leaky_relu),
    refused(activation.elu, Reason.NOT_SUPPORTED, "'ComplexDouble'", normal(2, dtype="complex128")),
    refused(activation.celu, Reason.RUNTIME, "alpha cannot be 0", normal(2), 0.0, theirs=F.celu),
    refused(activation.gelu, Reason.RUNTIME, "either none or tanh", normal(2), approximate="erf", theirs=F.gelu),
    refused(activation.softshrink, Reason.RUNTIME, "but found -1.0", normal(2), -1.0, theirs=F.softshrink),
    refused(activation.glu, Reason.SHAPE, "scalars", normal(), theirs=F.glu),
    refused(activation.glu, Reason.SHAPE, "3", normal(2, 3), theirs=F.glu),
]


@pytest.mark.parametrize("case", SAME, ids=str)
def test_values_and_gradients_equal_pytorch(case: Same) -> None:
    case.check()


@pytest.mark.parametrize("case", REFUSED, ids=str)
def test_a_refusal_names_what_is_wrong(case: Refused) -> None:
    case.check()


@pytest.mark.parametrize("name", ["relu", "elu", "selu", "gelu", "silu", "celu"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_an_array_longer_than_a_block_equals_its_parts(name: str, dtype: type) -> None:
    array = np.random.default_rng(3).standard_normal(BLOCK + 17).astype(dtype) * 3
    function = getattr(activation, name)
    whole = tensor(array, True)
    out = function(whole)
    (slopes,), _ = gradients([out], [whole], [tensor(np.ones(array.shape, dtype))])
    for start in (0, BLOCK - 9, BLOCK):
        part = tensor(array[start : start + 17].copy(), True)
        made = function(part)
        (found,), _ = gradients([made], [part], [tensor(np.ones(17, dtype))])
        tolerance = {"rtol": 8 * np.finfo(dtype).eps, "atol": 8 * np.finfo(dtype).eps}
        np.testing.assert_allclose(made.array, out.array[start : start + 17], **tolerance)
        np.testing.assert_allclose(found.array, slopes.array[start : start + 17], **tolerance)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.complex128])
def test_keep_gives_zero_for_what_is_masked_even_if_it_is_nan(dtype: type) -> None:
    values = np.array([1, np.nan, np.inf, 4]).astype(dtype)
    found = activation.keep(np, values, np.array([True, False, False, True]))
    assert found.dtype == dtype
    assert found.tolist() == [1, 0, 0, 4]
    assert activation.keep(np, np.float32(np.nan).reshape(()), np.array(False)) == 0


def test_masked_is_differentiated_by_its_mask() -> None:
    g = tensor(np.array([2.0, 3.0]), True)
    out = activation.masked(g, tensor(np.array([True, False])))
    (found,), _ = gradients([out], [g], [tensor(np.array([5.0, 7.0]))])
    assert (out.array.tolist(), found.array.tolist()) == ([2.0, 0.0], [5.0, 0.0])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("alpha", [1e-30, 0.3, -50.0, 1000.0, 1e8, 1e38, np.inf, -np.inf, np.nan])
@pytest.mark.parametrize("name", ["elu", "celu"])
def test_a_huge_or_infinite_factor_leaves_the_other_branch_alone(name: str, alpha: float, dtype: str) -> None:
    ours, theirs = _both(name)
    values = np.array([-np.inf, -3.0, -1e-3, -0.0, 0.0, 1e-3, 2.0, np.inf], dtype)
    x, y = tensor(values, requires_grad=True), torch.tensor(values, requires_grad=True)
    made, wanted = ours(x, alpha), theirs(y, alpha)
    (slopes,), _ = gradients([made], [x], [tensor(np.ones(8, dtype))])
    wanted.sum().backward()
    np.testing.assert_allclose(made.array, wanted.detach().numpy(), rtol=2e-6)
    np.testing.assert_allclose(slopes.array, y.grad.numpy(), rtol=2e-6)
