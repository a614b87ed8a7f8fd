"""Reductions over all dimensions, one, or several: values, dtypes, ties, empty inputs and their gradients."""

import numpy as np
import pytest

from gradwire_engine import Reason, tensor
from gradwire_engine.core import dtypes
from gradwire_engine.ops.reduce import reduce
from tests.engine.oracle import Refused, Same, bools, given, integers, normal, refused, same, torch

X = normal(3, 4, 5)
TIED = given([[1.0, 3.0, 3.0], [2.0, 2.0, 0.0]])
NANS = given([[1.0, np.nan, 3.0], [2.0, 2.0, 0.0]])
INF = float("inf")
OVER = [((), {}), ((1,), {}), (((0, 2),), {"keepdim": True}), ((-1,), {"keepdim": True})]


def _both(name: str) -> tuple:
    return getattr(reduce, name), getattr(torch, name)


SAME = [
    *(same(*_both(name), X, *args, **more) for name in ("sum", "mean", "std", "var") for args, more in OVER),
    *(same(*_both(name), X, *args, **more) for name in ("amax", "amin", "all", "any") for args, more in OVER),
    *(same(*_both(name), X, 1, True) for name in ("max", "min", "median", "prod")),
    *(
        same(*_both(name), X)
        for name in ("max", "min", "median", "prod", "argmax", "argmin", "count_nonzero", "aminmax")
    ),
    *(same(*_both(name), TIED, smooth=False) for name in ("max", "min", "amax", "amin", "argmax", "argmin", "median")),
    *(same(*_both(name), TIED, 1, smooth=False) for name in ("max", "min", "amax", "amin", "argmax", "argmin")),
    *(
        same(*_both(name), NANS, smooth=False)
        for name in ("max", "min", "amax", "amin", "argmax", "median", "any", "all")
    ),
    *(same(*_both(name), integers(0, 9, 6, dtype="uint8")) for name in ("sum", "prod", "max", "amin", "any", "median")),
    same(*_both("max"), normal(3), normal(3)),
    same(*_both("sum"), bools(6)),
    same(*_both("sum"), integers(0, 9, 6), dtype=dtypes.float32),
    same(*_both("mean"), integers(0, 9, 6), dtype=dtypes.float64),
    same(*_both("prod"), given([2.0, 0.0, 3.0])),
    same(*_both("prod"), given([0.0, 0.0, 3.0])),
    same(*_both("sum"), normal(0, 3), 0),
    same(*_both("prod"), normal(0).constant),
    same(*_both("mean"), normal(0).constant),
    same(*_both("var"), X, 1, correction=0),
    same(*_both("std"), X, 1, False),
    same(*_both("std"), given([2.0, 2.0]), smooth=False),
    same(*_both("var"), given([2.0], grad=False)),
    same(*_both("var_mean"), X, (0, 1)),
    same(*_both("std_mean"), X, 2, keepdim=True),
    same(*_both("aminmax"), X, dim=1, keepdim=True),
    same(*_both("count_nonzero"), integers(0, 2, 3, 4), 1),
    same(*_both("logsumexp"), X, 1),
    same(*_both("logsumexp"), X, (0, 2), True),
    same(*_both("logsumexp"), given([[1000.0, 1000.0], [-INF, -INF], [INF, 1.0]], grad=False), 1),
    *(same(reduce.vector_norm, torch.linalg.vector_norm, X, order) for order in (2, 1, 3.5, INF, -INF, 0.5)),
    same(reduce.vector_norm, torch.linalg.vector_norm, integers(0, 2, 9, dtype="float64"), 0),
    *(same(reduce.vector_norm, torch.linalg.vector_norm, X, order, (0, 2), True) for order in (2, 1, INF)),
    same(reduce.vector_norm, torch.linalg.vector_norm, given([0.0, 0.0]), smooth=False),
    same(reduce.sum, torch.sum, normal(3, 3, dtype="bfloat16").constant, 1, factor=3),
]
OUT, RUN = Reason.INDEX_OUT_OF_RANGE, Reason.RUNTIME
REFUSED = [
    refused(reduce.sum, Reason.DIM_OUT_OF_RANGE, "[-3, 2], but got 3", X, 3, theirs=torch.sum),
    refused(reduce.sum, RUN, "dim 1 appears multiple times", X, (1, 1), theirs=torch.sum),
    refused(reduce.mean, RUN, "Got: Long", integers(0, 3, 4), theirs=torch.mean),
    refused(reduce.amax, OUT, "dim 0 to have non-zero size", normal(0, 2), 0, theirs=torch.amax),
    refused(reduce.max, RUN, "numel() == 0", normal(0), theirs=torch.max),
    refused(reduce.argmax, OUT, "numel() == 0", normal(0), theirs=torch.argmax),
    refused(reduce.max, RUN, "complex", normal(2, dtype="complex128"), 0, theirs=torch.max),
    refused(reduce.aminmax, RUN, "numel() == 0", normal(0), theirs=torch.aminmax),
    refused(reduce.median, Reason.NOT_SUPPORTED, "'Bool'", bools(3), theirs=torch.median),
    refused(reduce.vector_norm, RUN, "Got Long", integers(0, 3, 4), theirs=torch.linalg.vector_norm),
    refused(reduce.vector_norm, RUN, "inf norm on an empty tensor", normal(0), INF, theirs=torch.linalg.vector_norm),
]


@pytest.mark.parametrize("case", SAME, ids=str)
def test_values_and_gradients_equal_pytorch(case: Same) -> None:
    case.check()


@pytest.mark.parametrize("case", REFUSED, ids=str)
def test_a_refusal_names_what_is_wrong(case: Refused) -> None:
    case.check()


@pytest.mark.parametrize(("dims", "kept"), [((), (2, 3, 4)), ((1,), (2, 1, 4)), ((0, 2), (1, 3, 1))])
def test_a_kept_shape_has_ones_where_it_was_reduced(dims: tuple, kept: tuple) -> None:
    assert reduce.kept_shape((2, 3, 4), dims) == kept


def test_a_result_gets_its_reduced_dimensions_back_and_a_gradient_the_inputs_shape() -> None:
    g = tensor(np.arange(2.0))
    assert reduce.restore_dims(g, (2, 3), 1, False).shape == (2, 1)
    spread = reduce.expand_gradient(g, (2, 3), 1)
    assert spread.array.tolist() == [[0, 0, 0], [1, 1, 1]]
    assert np.shares_memory(spread.array, g.array)


def test_totals_of_half_types_are_rounded_once() -> None:
    ones = np.ones((4096,), dtypes.float16)
    assert reduce.sum(ones) == 4096
    assert reduce.total(np, ones, (0,), False, dtypes.float32).dtype == dtypes.float32


def test_nan_takes_all_of_the_gradient_of_a_nan_result() -> None:
    found = reduce.split_among_all_ties(np.array(6.0), np.array([np.nan, 1.0, np.nan]), np.array(np.nan))
    assert found.tolist() == [3.0, 0.0, 3.0]
