"""Running extremes and logarithms of sums, differences, and sums that skip nan."""

import numpy as np
import pytest

from gradwire_engine import Reason
from gradwire_engine.core import dtypes
from gradwire_engine.ops.reduce import cumulative
from tests.engine.oracle import Refused, Same, given, integers, normal, refused, same, torch

X, NANS = normal(3, 5), given([2.0, 2.0, np.nan, -1.0, 5.0])
INF = np.inf
SAME = [
    *(
        same(getattr(cumulative, name), getattr(torch, name), X, dim)
        for name in ("cummax", "cummin", "logcumsumexp")
        for dim in (0, -1)
    ),
    *(same(getattr(cumulative, name), getattr(torch, name), NANS, 0, smooth=False) for name in ("cummax", "cummin")),
    same(cumulative.cummax, torch.cummax, integers(0, 3, 9), 0),
    same(cumulative.cummin, torch.cummin, normal(), 0),
    same(cumulative.logcumsumexp, torch.logcumsumexp, given([-INF, -INF, 1.0, 1000.0], grad=False), 0),
    same(cumulative.diff, torch.diff, X),
    same(cumulative.diff, torch.diff, X, 3, 1),
    same(cumulative.diff, torch.diff, X, 1, 0, normal(1, 5), normal(2, 5)),
    same(cumulative.diff, torch.diff, given([1, 0, 1], "bool", False)),
    same(cumulative.diff, torch.diff, X, 0),
    same(cumulative.nansum, torch.nansum, NANS, smooth=False),
    same(cumulative.nansum, torch.nansum, X, (0, 1), True),
    same(cumulative.nansum, torch.nansum, integers(0, 9, 4), dtype=dtypes.float32),
]
REFUSED = [
    refused(cumulative.cummax, Reason.DIM_OUT_OF_RANGE, "but got 2", X, 2, theirs=torch.cummax),
    refused(
        cumulative.cummin,
        Reason.NOT_SUPPORTED,
        "'ComplexDouble'",
        normal(2, dtype="complex128"),
        0,
        theirs=torch.cummin,
    ),
    refused(cumulative.logcumsumexp, Reason.NOT_SUPPORTED, "'Long'", integers(0, 3, 2), 0, theirs=torch.logcumsumexp),
    refused(cumulative.diff, Reason.RUNTIME, "at least one-dimensional", normal(), theirs=torch.diff),
    refused(cumulative.diff, Reason.RUNTIME, "but got -1", X, -1, theirs=torch.diff),
    refused(cumulative.diff, Reason.RUNTIME, "same dimension", X, prepend=normal(5), theirs=torch.diff),
    refused(cumulative.nansum, Reason.RUNTIME, "complex", normal(2, dtype="complex128"), theirs=torch.nansum),
]


@pytest.mark.parametrize("case", SAME, ids=str)
def test_values_and_gradients_equal_pytorch(case: Same) -> None:
    case.check()


@pytest.mark.parametrize("case", REFUSED, ids=str)
def test_a_refusal_names_what_is_wrong(case: Refused) -> None:
    case.check()


@pytest.mark.parametrize("length", [0, 1, 2, 3, 16, 17])
def test_steps_of_doubled_width_accumulate_as_numpy_does(length: int) -> None:
    class Other:  # an array module other than NumPy, whose ufuncs do not accumulate
        maximum = staticmethod(np.maximum)

    array = np.random.default_rng(length).standard_normal((3, length))
    expected = np.maximum.accumulate(array, 1)
    np.testing.assert_array_equal(cumulative.accumulated(Other, np.maximum, array, 1), expected)
    np.testing.assert_array_equal(cumulative.accumulated(np, np.maximum, array, 1), expected)
