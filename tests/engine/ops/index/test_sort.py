"""Order along a dimension: nan last, ties in place, gradients to where values came from."""

import numpy as np
import pytest

from gradwire_engine import Reason, tensor
from gradwire_engine.core import dtypes
from gradwire_engine.ops.index import sort
from tests.engine.oracle import Refused, Same, bools, given, integers, normal, refused, same, torch

X, NANS = normal(3, 5), given([2.0, np.nan, -1.0, np.inf, 2.0])
SAME = [
    same(sort.sort, torch.sort, X),
    same(sort.sort, torch.sort, X, 0, True),
    same(sort.sort, torch.sort, NANS, stable=True, smooth=False),
    same(sort.sort, torch.sort, NANS, 0, True, smooth=False),
    same(sort.sort, torch.sort, normal()),
    same(sort.argsort, torch.argsort, X, 0),
    same(sort.argsort, torch.argsort, integers(0, 3, 9), stable=True),
    same(sort.msort, torch.msort, X),
    same(sort.topk, torch.topk, X, 3),
    same(sort.topk, torch.topk, X, 2, 0, False),
    same(sort.topk, torch.topk, normal(2, 300), 7),
    same(sort.topk, torch.topk, X, 0),
    same(sort.kthvalue, torch.kthvalue, X, 2),
    same(sort.kthvalue, torch.kthvalue, normal(2, 400), 150, keepdim=True),
    same(sort.kthvalue, torch.kthvalue, NANS, 4, smooth=False),
    same(sort.median_dim, torch.median, X, 1, False),
    same(sort.median_dim, torch.median, NANS, 0, True, smooth=False),
    same(sort.sort, torch.sort, normal(9, dtype="bfloat16").constant),
]
REFUSED = [
    refused(sort.sort, Reason.RUNTIME, "complex", normal(2, dtype="complex128"), theirs=torch.sort),
    refused(sort.topk, Reason.RUNTIME, "k out of range", X, 6, theirs=torch.topk),
    refused(sort.topk, Reason.RUNTIME, "bool", bools(3), 1),
    refused(sort.kthvalue, Reason.RUNTIME, "out of range for dimension 1", X, 6, theirs=torch.kthvalue),
    refused(sort.kthvalue, Reason.INDEX_OUT_OF_RANGE, "non-zero size", normal(0), 1, theirs=torch.kthvalue),
    refused(sort.median_dim, Reason.INDEX_OUT_OF_RANGE, "dim 1 to have non-zero size", normal(2, 0), 1, False),
]


@pytest.mark.parametrize("case", SAME, ids=str)
def test_values_and_gradients_equal_pytorch(case: Same) -> None:
    case.check()


@pytest.mark.parametrize("case", REFUSED, ids=str)
def test_a_refusal_names_what_is_wrong(case: Refused) -> None:
    case.check()


def test_equal_elements_keep_their_order_in_either_direction() -> None:
    x = tensor(np.array([1.0, 0.0, 1.0, 0.0]))
    assert sort.argsort(x).array.tolist() == [1, 3, 0, 2]
    assert sort.argsort(x, descending=True).array.tolist() == [0, 2, 1, 3]


@pytest.mark.parametrize(("dtype", "value"), [("int64", -(2**63)), ("int32", -(2**31)), ("uint8", 0), ("int16", 0)])
def test_the_median_of_nothing_is_nan_as_a_whole_number(dtype: str, value: int) -> None:
    found = sort.empty_median(np, dtypes.BY_NAME[dtype])
    assert (found.item(), found.dtype) == (value, dtypes.BY_NAME[dtype])
    assert torch.median(torch.zeros(0)).isnan()
    assert np.isnan(sort.empty_median(np, dtypes.float32))


def test_selected_gradients_go_where_the_values_were() -> None:
    found = sort.scatter_selected(np.array([5.0, 7.0]), np.array([2, 0]), (2, 3), 1, False)
    assert found.tolist() == [[0, 0, 5.0], [7.0, 0, 0]]
