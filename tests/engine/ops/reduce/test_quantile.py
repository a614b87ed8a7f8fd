"""Quantiles by each interpolation, of all elements or along a dimension, with and without nan."""

import numpy as np
import pytest

from gradwire_engine import Reason
from gradwire_engine.ops.reduce import quantile
from tests.engine.oracle import Refused, Same, given, integers, normal, refused, same, torch

X, Q = normal(4, 5), given([0.0, 0.13, 0.5, 1.0], grad=False)
HOW = ("linear", "lower", "higher", "midpoint", "nearest")
NANS = given([[1.0, np.nan, 3.0, 2.0], [7.0, 6.0, 5.0, 4.0]])
BOTH = [(quantile.quantile, torch.quantile), (quantile.nanquantile, torch.nanquantile)]
SAME = [
    *(same(*pair, X, Q, interpolation=how) for pair in BOTH for how in HOW),
    *(same(*pair, X, 0.3, 1, True) for pair in BOTH),
    *(same(*pair, X, Q, 0, interpolation="lower") for pair in BOTH),
    *(same(*pair, NANS, 0.4, 1, smooth=False) for pair in BOTH),
    same(*BOTH[1], given([np.nan, np.nan], grad=False), 0.5),
    same(*BOTH[0], normal(), 0.7),
]
RUN = Reason.RUNTIME
REFUSED = [
    refused(BOTH[0][0], RUN, "must be non-empty", normal(0), 0.5, theirs=torch.quantile),
    refused(BOTH[0][0], RUN, "float or double", integers(0, 3, 4), 0.5, theirs=torch.quantile),
    refused(BOTH[0][0], RUN, "midpoint or nearest, but got best", X, 0.5, interpolation="best", theirs=torch.quantile),
    refused(BOTH[0][0], RUN, "[0, 1] but got 1.5", X, 1.5, theirs=torch.quantile),
    refused(BOTH[0][0], RUN, "range [0, 1]", X, given([0.5, -1.0]), theirs=torch.quantile),
    refused(BOTH[0][0], RUN, "same dtype", X, normal(1, dtype="float32"), theirs=torch.quantile),
    refused(BOTH[1][0], RUN, "scalar or 1D", X, given([[0.5]]), theirs=torch.nanquantile),
]


@pytest.mark.parametrize("case", SAME, ids=str)
def test_values_and_gradients_equal_pytorch(case: Same) -> None:
    case.check()


@pytest.mark.parametrize("case", REFUSED, ids=str)
def test_a_refusal_names_what_is_wrong(case: Refused) -> None:
    case.check()
