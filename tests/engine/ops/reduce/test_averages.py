"""Means and medians that pass over nan, and the most frequent values."""

import numpy as np
import pytest

from gradwire_engine import Reason
from gradwire_engine.ops.reduce import averages
from tests.engine.oracle import Refused, Same, bools, given, integers, normal, refused, same, torch

NAN = np.nan
NANS = given([[1.0, NAN, 3.0, 2.0], [NAN, NAN, NAN, NAN], [4.0, 3.0, 2.0, 1.0]])
SAME = [
    same(averages.nanmean, torch.nanmean, normal(3, 4)),
    same(averages.nanmean, torch.nanmean, NANS, 1, smooth=False),
    same(averages.nanmean, torch.nanmean, NANS, (0, 1), True, smooth=False),
    same(averages.nanmedian, torch.nanmedian, normal(3, 4)),
    same(averages.nanmedian, torch.nanmedian, given([1.0, NAN, 3.0, 2.0]), smooth=False),
    same(averages.nanmedian, torch.nanmedian, given([[1.0, NAN, 3.0], [5.0, 3.0, 2.0]]), 1, smooth=False),
    same(averages.nanmedian, torch.nanmedian, NANS.constant, 0, True),
    same(averages.nanmedian, torch.nanmedian, integers(0, 9, 3, 4), 0),
    same(averages.nanmedian, torch.nanmedian, normal(0).constant),
    same(averages.nanmedian, torch.nanmedian, normal(), 0),
    same(lambda x: averages.mode(x)[0], lambda x: torch.mode(x)[0], integers(0, 3, 6, 9)),
    same(lambda x: averages.mode(x, 0, True)[0], lambda x: torch.mode(x, 0, True)[0], integers(0, 3, 9, 4)),
    same(averages.mode, torch.mode, normal(3, 1)),
]
REFUSED = [
    refused(averages.nanmean, Reason.RUNTIME, "but got Long", integers(0, 3, 2), theirs=torch.nanmean),
    refused(averages.nanmedian, Reason.NOT_SUPPORTED, "'Bool'", bools(3), theirs=torch.nanmedian),
    refused(
        averages.nanmedian,
        Reason.INDEX_OUT_OF_RANGE,
        "dim 1 to have non-zero size",
        normal(2, 0),
        1,
        theirs=torch.nanmedian,
    ),
    refused(averages.mode, Reason.INDEX_OUT_OF_RANGE, "dim 1 to have non-zero size", normal(2, 0), theirs=torch.mode),
    refused(averages.mode, Reason.NOT_SUPPORTED, "'ComplexDouble'", normal(2, dtype="complex128")),
]


@pytest.mark.parametrize("case", SAME, ids=str)
def test_values_and_gradients_equal_pytorch(case: Same) -> None:
    case.check()


@pytest.mark.parametrize("case", REFUSED, ids=str)
def test_a_refusal_names_what_is_wrong(case: Refused) -> None:
    case.check()


def test_the_mode_is_the_smallest_of_the_most_frequent_and_its_last_place() -> None:
    values, places = averages.mode(np.array([[3, 1, 3, 1, 2], [5, 4, 4, 5, 4]]))
    assert (values.tolist(), places.tolist()) == ([1, 4], [3, 4])
