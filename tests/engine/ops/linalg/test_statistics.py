"""Histograms, covariances, distances, renorm, and areas under curves."""

import numpy as np
import pytest

from gradwire_engine import Reason
from gradwire_engine.ops.linalg import statistics
from tests.engine.oracle import Refused, Same, bools, given, integers, normal, refused, same, torch, uniform

X = normal(3, 6)
COUNTS = integers(1, 4, 6)
SAME = [
    same(statistics.histc, torch.histc, X.constant, 7),
    same(statistics.histc, torch.histc, X.constant, 4, -1.0, 1.0),
    same(statistics.histc, torch.histc, given([2.0, 2.0], grad=False), 3),
    same(statistics.cov, torch.cov, X),
    same(statistics.cov, torch.cov, normal(6), correction=0),
    same(statistics.cov, torch.cov, X, fweights=COUNTS, aweights=uniform(0.5, 2, 6).constant),
    same(statistics.cov, torch.cov, normal(2, 5, dtype="complex128")),
    same(statistics.corrcoef, torch.corrcoef, X),
    same(statistics.dist, torch.dist, X, normal(6)),
    same(statistics.dist, torch.dist, X, normal(6), 3.0),
    same(statistics.dist, torch.dist, X, normal(6), float("inf")),
    same(statistics.renorm, torch.renorm, X, 2.0, 0, 1.5),
    same(statistics.renorm, torch.renorm, X, 1.0, 1, 100.0),
    same(statistics.trapezoid, torch.trapezoid, X),
    same(statistics.trapezoid, torch.trapezoid, X, normal(6)),
    same(statistics.trapezoid, torch.trapezoid, X, dx=0.5, dim=0),
    same(statistics.cumulative_trapezoid, torch.cumulative_trapezoid, X, normal(3, 6)),
]
RUN = Reason.RUNTIME
REFUSED = [
    refused(statistics.histc, RUN, "max must be larger than min", X, 4, 2.0, 1.0, theirs=torch.histc),
    refused(statistics.histc, RUN, "but got 0 for dimension 0", X, 0, theirs=torch.histc),
    refused(statistics.histc, RUN, "range of [1.0, inf] is not finite", given([1.0, np.inf]), theirs=torch.histc),
    refused(statistics.histc, Reason.NOT_SUPPORTED, "'Long'", COUNTS, theirs=torch.histc),
    refused(statistics.cov, RUN, "an input with 3 dimensions", normal(2, 2, 2), theirs=torch.cov),
    refused(statistics.cov, RUN, "bool dtype", bools(2, 2), theirs=torch.cov),
    refused(statistics.cov, RUN, "fweights with Double dtype", X, fweights=uniform(1, 2, 6), theirs=torch.cov),
    refused(statistics.cov, RUN, "cannot be negative", X, fweights=given([-1] * 6, "int64"), theirs=torch.cov),
    refused(statistics.corrcoef, RUN, "an input with 3 dimensions", normal(2, 2, 2), theirs=torch.corrcoef),
    refused(statistics.renorm, RUN, "non-positive-norm", X, 0.0, 0, 1.0, theirs=torch.renorm),
    refused(statistics.renorm, RUN, "but got -1.0", X, 2.0, 0, -1.0, theirs=torch.renorm),
    refused(statistics.renorm, RUN, "got 1 dimensions", normal(3), 2.0, 0, 1.0, theirs=torch.renorm),
    refused(statistics.trapezoid, RUN, "got 5 and 6", X, normal(5), theirs=torch.trapezoid),
    refused(statistics.trapezoid, Reason.ARGUMENT_TYPE, "not both", X, normal(6), dx=1.0),
    refused(statistics.trapezoid, RUN, "bool", bools(4), theirs=torch.trapezoid),
]


@pytest.mark.parametrize("case", SAME, ids=str)
def test_values_and_gradients_equal_pytorch(case: Same) -> None:
    case.check()


@pytest.mark.parametrize("case", REFUSED, ids=str)
def test_a_refusal_names_what_is_wrong(case: Refused) -> None:
    case.check()
