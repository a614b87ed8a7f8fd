"""Copies of a tensor with a part replaced, and reductions at places."""

import numpy as np
import pytest

from gradwire_engine import EngineError, Reason, gradients, tensor
from gradwire_engine.ops.index import scatters
from tests.engine.oracle import Refused, Same, bools, given, integers, normal, refused, same, torch

X, WHERE, SRC = normal(3, 4), integers(0, 3, 2, 4), normal(2, 4)
LINE = given([2, 0, 2], "int64", False)
SAME = [
    same(scatters.select_scatter, torch.select_scatter, X, normal(3), 1, -1),
    same(scatters.slice_scatter, torch.slice_scatter, X, normal(3, 2), 1, 0, 4, 2),
    same(scatters.slice_scatter, torch.slice_scatter, X, normal(2, 4), start=1),
    same(scatters.diagonal_scatter, torch.diagonal_scatter, X, normal(3), 1),
    same(scatters.masked_scatter, torch.masked_scatter, X, bools(3, 4), normal(13)),
    same(scatters.masked_scatter, torch.masked_scatter, X, bools(4), normal(3, 4)),
    *(
        same(scatters.scatter_reduce, torch.scatter_reduce, X, 0, WHERE, SRC, reduce, include_self=own)
        for reduce in ("sum", "prod", "mean", "amax", "amin")
        for own in (True, False)
    ),
    same(
        scatters.scatter_reduce,
        torch.scatter_reduce,
        given([1.0, 5.0]),
        0,
        given([0, 0, 1], "int64", False),
        given([1.0, 1.0, 5.0]),
        "amax",
        smooth=False,
    ),
    same(
        scatters.scatter_reduce,
        torch.scatter_reduce,
        given([2.0, 5.0]),
        0,
        given([0, 0, 1], "int64", False),
        given([0.0, 3.0, 0.0]),
        "prod",
    ),
    same(
        scatters.scatter_reduce,
        torch.scatter_reduce,
        integers(0, 9, 3),
        0,
        LINE,
        integers(0, 9, 3),
        "amin",
        include_self=False,
    ),
    *(
        same(scatters.index_reduce, torch.index_reduce, X, 0, LINE, normal(3, 4), reduce, include_self=own)
        for reduce in ("prod", "mean", "amax", "amin")
        for own in (True, False)
    ),
    same(scatters.put, torch.put, X, given([11, 0], "int64", False), normal(2)),
    same(scatters.put, torch.put, X, given([1, 1, -1], "int64", False), normal(3), True),
]
REFUSED = [
    refused(
        scatters.select_scatter,
        Reason.RUNTIME,
        "src size = [4], slice size = [3]",
        X,
        normal(4),
        1,
        0,
        theirs=torch.select_scatter,
    ),
    refused(
        scatters.masked_scatter,
        Reason.RUNTIME,
        "boolean masks, but got mask with dtype Long",
        X,
        integers(0, 2, 3, 4),
        SRC,
        theirs=torch.masked_scatter,
    ),
    refused(
        scatters.masked_scatter,
        Reason.RUNTIME,
        "Number of elements of source",
        given([1.0, 2.0]),
        given([1, 1], "bool"),
        normal(1),
        theirs=torch.masked_scatter,
    ),
    refused(
        scatters.scatter_reduce,
        Reason.RUNTIME,
        "mean, amax or amin, got median",
        X,
        0,
        WHERE,
        SRC,
        "median",
        theirs=torch.scatter_reduce,
    ),
    refused(
        scatters.index_reduce,
        Reason.RUNTIME,
        "prod, mean, amax or amin but got sum",
        X,
        0,
        LINE,
        X,
        "sum",
        theirs=torch.index_reduce,
    ),
    refused(
        scatters.put,
        Reason.RUNTIME,
        "long tensor for index, but got Int",
        X,
        given([1], "int32"),
        normal(1),
        theirs=torch.put,
    ),
    refused(
        scatters.put,
        Reason.RUNTIME,
        "source.dtype = Float",
        X,
        given([1], "int64"),
        normal(1, dtype="float32"),
        theirs=torch.put,
    ),
    refused(
        scatters.put,
        Reason.INDEX_OUT_OF_RANGE,
        "source.numel() = 2, index.numel() = 1",
        X,
        given([1], "int64"),
        normal(2),
        theirs=torch.put,
    ),
    refused(scatters.put, Reason.INDEX_OUT_OF_RANGE, "index 12", X, given([12], "int64"), normal(1), theirs=torch.put),
]


@pytest.mark.parametrize("case", SAME, ids=str)
def test_values_and_gradients_equal_pytorch(case: Same) -> None:
    case.check()


@pytest.mark.parametrize("case", REFUSED, ids=str)
def test_a_refusal_names_what_is_wrong(case: Refused) -> None:
    case.check()


def test_the_derivative_is_refused_again_where_two_factors_of_one_product_are_zero() -> None:
    x = tensor(np.array([2.0]), True)
    src = tensor(np.array([0.0, 0.0]), True)
    out = scatters.scatter_reduce(x, 0, tensor(np.array([0, 0])), src, "prod")
    first, _ = gradients([out], [src], [tensor(np.ones(1))], create_graph=True)
    with pytest.raises(EngineError, match="Double backward is unsupported"):
        gradients(first, [src], [tensor(np.ones(2))])
