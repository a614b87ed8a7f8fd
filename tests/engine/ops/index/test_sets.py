"""Distinct values, membership, counts and bins."""

import numpy as np
import pytest

from gradwire_engine import EngineError, Reason, gradients, tensor
from gradwire_engine.ops.base.checks import refuse_derivative
from gradwire_engine.ops.index import sets
from tests.engine.oracle import Refused, Same, given, integers, normal, refused, same, torch

FEW, NAN = integers(0, 4, 12), np.nan
EDGES = given([-1.0, 0.0, 0.0, 2.0], grad=False)
SAME = [
    same(sets.unique, torch.unique, FEW, return_inverse=True, return_counts=True),
    same(sets.unique, torch.unique, integers(0, 2, 6, 2), dim=0, return_inverse=True, return_counts=True),
    same(sets.unique, torch.unique, given([NAN, 1.0, NAN], grad=False)),
    same(sets.unique_consecutive, torch.unique_consecutive, FEW, return_inverse=True, return_counts=True),
    same(sets.unique_consecutive, torch.unique_consecutive, integers(0, 2, 8, 1), dim=0, return_counts=True),
    same(sets.unique_consecutive, torch.unique_consecutive, integers(0, 2, 0)),
    same(sets.isin, torch.isin, FEW, integers(0, 2, 2)),
    same(sets.isin, torch.isin, FEW, 3, invert=True),
    same(sets.isin, torch.isin, 2, FEW),
    same(sets.bincount, torch.bincount, FEW),
    same(sets.bincount, torch.bincount, FEW, normal(12).constant, 7),
    same(sets.bincount, torch.bincount, integers(0, 1, 0), minlength=3),
    same(sets.searchsorted, torch.searchsorted, EDGES, normal(3, 2).constant),
    same(sets.searchsorted, torch.searchsorted, EDGES, 0.0, right=True),
    same(sets.searchsorted, torch.searchsorted, EDGES, 0.0, side="left", out_int32=True),
    same(
        sets.searchsorted,
        torch.searchsorted,
        given([[1.0, 2.0], [5.0, 6.0]], grad=False),
        given([[1.5], [0.0]], grad=False),
    ),
    same(
        sets.searchsorted,
        torch.searchsorted,
        given([3.0, 1.0, 2.0], grad=False),
        given([1.5], grad=False),
        sorter=given([1, 2, 0], "int64", False),
    ),
    same(sets.bucketize, torch.bucketize, normal(4).constant, EDGES, right=True),
]
REFUSED = [
    refused(sets.unique, Reason.NOT_SUPPORTED, "'ComplexDouble'", normal(2, dtype="complex128"), theirs=torch.unique),
    refused(sets.unique, Reason.RUNTIME, "0 sized dimensions", normal(2, 0), dim=0, theirs=torch.unique),
    refused(sets.bincount, Reason.RUNTIME, "1-d non-negative integral", given([-1], "int64"), theirs=torch.bincount),
    refused(sets.bincount, Reason.NOT_SUPPORTED, "'Double'", normal(2), theirs=torch.bincount),
    refused(sets.bincount, Reason.RUNTIME, "minlength should be >= 0", FEW, minlength=-1, theirs=torch.bincount),
    refused(sets.bincount, Reason.RUNTIME, "same length as input", FEW, normal(2), theirs=torch.bincount),
    refused(
        sets.searchsorted,
        Reason.RUNTIME,
        "'left' or 'right' but got up",
        EDGES,
        0.0,
        side="up",
        theirs=torch.searchsorted,
    ),
    refused(
        sets.searchsorted, Reason.RUNTIME, "opposites", EDGES, 0.0, side="left", right=True, theirs=torch.searchsorted
    ),
    refused(
        sets.searchsorted, Reason.RUNTIME, "positive dimension, but got 0", normal(), 0.0, theirs=torch.searchsorted
    ),
    refused(sets.bucketize, Reason.RUNTIME, "but got dim(2)", normal(2), normal(2, 2), theirs=torch.bucketize),
]


@pytest.mark.parametrize("case", SAME, ids=str)
def test_values_and_gradients_equal_pytorch(case: Same) -> None:
    case.check()


@pytest.mark.parametrize("case", REFUSED, ids=str)
def test_a_refusal_names_what_is_wrong(case: Refused) -> None:
    case.check()


def test_the_derivative_of_distinct_values_is_refused_by_name() -> None:
    x = tensor(np.array([1.0, 2.0]), True)
    out = sets.unique(x)
    with pytest.raises(EngineError, match="unique") as refusal:
        gradients([out], [x], [tensor(np.ones(2))])
    assert refusal.value.reason is Reason.NOT_SUPPORTED
    with pytest.raises(EngineError, match="the derivative for 'modes' is not implemented"):
        refuse_derivative("modes")
