"""Rows of a table reduced over bags of indices."""

import pytest

from gradwire_engine import Reason
from gradwire_engine.ops.index.embedding_bag import embedding_bag
from tests.engine.oracle import Refused, Same, given, integers, normal, refused, same, torch

F = torch.nn.functional
TABLE = normal(6, 3)
FLAT = given([1, 2, 5, 5, 0, 1], "int64", False)
STARTS = given([0, 2, 2, 5], "int64", False)
SAME = [
    *(same(embedding_bag, F.embedding_bag, integers(0, 6, 3, 4), TABLE, mode=mode) for mode in ("sum", "mean", "max")),
    *(same(embedding_bag, F.embedding_bag, FLAT, TABLE, STARTS, mode=mode) for mode in ("sum", "mean", "max")),
    same(embedding_bag, F.embedding_bag, FLAT, TABLE, STARTS, mode="sum", per_sample_weights=normal(6)),
    same(embedding_bag, F.embedding_bag, FLAT, TABLE, given([0, 3, 6], "int64", False), include_last_offset=True),
    same(embedding_bag, F.embedding_bag, FLAT, TABLE, STARTS, mode="mean", padding_idx=5),
    same(embedding_bag, F.embedding_bag, FLAT, TABLE, STARTS, mode="max", padding_idx=5),
    *(  # no row is looked up; the result has a history all the same
        same(embedding_bag, F.embedding_bag, given([[5, 5]], "int64", False), TABLE, mode=mode, padding_idx=5)
        for mode in ("sum", "mean", "max")
    ),
]
REFUSED = [
    refused(
        embedding_bag,
        Reason.ARGUMENT_VALUE,
        "sum, mean or max",
        FLAT,
        TABLE,
        STARTS,
        mode="min",
        theirs=F.embedding_bag,
    ),
    refused(
        embedding_bag,
        Reason.ARGUMENT_VALUE,
        "offsets has to be a 1D Tensor but got None",
        FLAT,
        TABLE,
        theirs=F.embedding_bag,
    ),
    refused(
        embedding_bag,
        Reason.ARGUMENT_VALUE,
        "offsets has to be None",
        integers(0, 2, 2, 2),
        TABLE,
        STARTS,
        theirs=F.embedding_bag,
    ),
    refused(embedding_bag, Reason.ARGUMENT_VALUE, "Tensor of dimension 1", FLAT, normal(6), STARTS),
    refused(
        embedding_bag,
        Reason.ARGUMENT_VALUE,
        "Tensor of dimension 3",
        integers(0, 2, 1, 1, 1),
        TABLE,
        theirs=F.embedding_bag,
    ),
    refused(
        embedding_bag,
        Reason.ARGUMENT_VALUE,
        "([2])",
        FLAT,
        TABLE,
        STARTS,
        per_sample_weights=normal(2),
        mode="sum",
        theirs=F.embedding_bag,
    ),
    refused(
        embedding_bag,
        Reason.NOT_SUPPORTED,
        "(got mode='mean')",
        FLAT,
        TABLE,
        STARTS,
        per_sample_weights=normal(6),
        theirs=F.embedding_bag,
    ),
    refused(embedding_bag, Reason.RUNTIME, "However, got 1", FLAT, TABLE, given([1], "int64"), theirs=F.embedding_bag),
    refused(
        embedding_bag, Reason.RUNTIME, "offsets[-1] of 9", FLAT, TABLE, given([0, 9], "int64"), theirs=F.embedding_bag
    ),
    refused(
        embedding_bag,
        Reason.RUNTIME,
        "found idx to be 7, of 6",
        given([7], "int64"),
        TABLE,
        given([0], "int64"),
        theirs=F.embedding_bag,
    ),
]


@pytest.mark.parametrize("case", SAME, ids=str)
def test_values_and_gradients_equal_pytorch(case: Same) -> None:
    case.check()


@pytest.mark.parametrize("case", REFUSED, ids=str)
def test_a_refusal_names_what_is_wrong(case: Refused) -> None:
    case.check()
