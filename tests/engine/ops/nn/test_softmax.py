"""softmax and its logarithm along any dimension, short rows and long ones, without overflow."""

import numpy as np
import pytest

from gradwire_engine import Reason
from gradwire_engine.core import dtypes
from gradwire_engine.ops.nn import softmax
from tests.engine.oracle import Refused, Same, given, integers, normal, refused, same, torch

F = torch.nn.functional
BOTH = [(softmax.softmax, torch.softmax), (softmax.log_softmax, torch.log_softmax), (softmax.softmin, F.softmin)]
INF = np.inf
SAME = [
    *(same(*pair, normal(3, 4, 5), dim) for pair in BOTH for dim in (0, 1, -1)),
    *(same(*pair, normal(4, 100), 1) for pair in BOTH),
    *(same(*pair, normal(), 0) for pair in BOTH),
    *(same(*pair, normal(2, 0), 1) for pair in BOTH),
    *(same(*pair, given([[1000.0, -1000.0], [-INF, 0.0], [-INF, -INF], [INF, 0.0]], grad=False), 1) for pair in BOTH),
    *(same(*pair, integers(0, 4, 3), 0, dtype=dtypes.float64) for pair in BOTH),
    *(same(*pair, normal(3, 4, dtype="bfloat16"), 1) for pair in BOTH[:2]),
]
REFUSED = [
    refused(softmax.softmax, Reason.NOT_SUPPORTED, "'Long'", integers(0, 3, 2), 0, theirs=torch.softmax),
    refused(softmax.log_softmax, Reason.NOT_SUPPORTED, "'ComplexDouble'", normal(2, dtype="complex128"), 0),
    refused(softmax.softmax, Reason.DIM_OUT_OF_RANGE, "[-2, 1], but got 2", normal(2, 2), 2, theirs=torch.softmax),
]


@pytest.mark.parametrize("case", SAME, ids=str)
def test_values_and_gradients_equal_pytorch(case: Same) -> None:
    case.check()


@pytest.mark.parametrize("case", REFUSED, ids=str)
def test_a_refusal_names_what_is_wrong(case: Refused) -> None:
    case.check()


@pytest.mark.parametrize("shape", [(5, 7), (5, 100), (2, 3, 48), (2, 3, 49), (9,), (4, 1)])
@pytest.mark.parametrize("layout", ["rows", "columns"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
def test_reductions_along_rows_equal_numpys_whatever_the_layout(shape: tuple, layout: str, dtype: type) -> None:
    rng = np.random.default_rng(5)
    one, other = (rng.standard_normal(shape).astype(dtype) for _ in range(2))
    if layout == "columns":
        one, other = (np.asfortranarray(each) for each in (one, other))
    for dim in range(len(shape)):
        tolerance = {"rtol": 40 * np.finfo(dtype).eps, "atol": 40 * np.finfo(dtype).eps}
        np.testing.assert_array_equal(softmax.max_along(np, one, dim), one.max(dim, keepdims=True))
        summed = softmax.sum_along(np, one, dim)
        np.testing.assert_allclose(summed, one.sum(dim, keepdims=True), **tolerance)
        dots = softmax.dot_along(np, one, other, dim)
        np.testing.assert_allclose(dots, (one * other).sum(dim, keepdims=True), **tolerance)
        assert summed.dtype == dots.dtype == dtype
