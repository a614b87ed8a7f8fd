"""Margin losses and the distances they are made of."""

import pytest

from gradwire_engine import Reason
from gradwire_engine.ops.nn.losses import margin
from tests.engine.oracle import Refused, Same, given, normal, refused, same, torch

F = torch.nn.functional
A, B, C = normal(4, 3), normal(4, 3), normal(4, 3)
SIGNS = given([1, -1, -1, 1], grad=False)
HOW = ("none", "mean", "sum")
SAME = [
    *(same(margin.hinge_embedding_loss, F.hinge_embedding_loss, normal(4), SIGNS, 0.8, reduction=how) for how in HOW),
    *(
        same(margin.margin_ranking_loss, F.margin_ranking_loss, normal(4), normal(4), SIGNS, 0.3, reduction=how)
        for how in HOW
    ),
    *(same(margin.pairwise_distance, F.pairwise_distance, A, B, p) for p in (1.0, 2.0, 3.0)),
    same(margin.pairwise_distance, F.pairwise_distance, A, normal(3), 2.0, 0.1, True),
    *(same(margin.triplet_margin_loss, F.triplet_margin_loss, A, B, C, reduction=how) for how in HOW),
    same(margin.triplet_margin_loss, F.triplet_margin_loss, A, B, C, 2.0, 1.0, swap=True),
]
REFUSED = [
    refused(
        margin.margin_ranking_loss,
        Reason.RUNTIME,
        "input1: [4, 3], input2: [4]",
        A,
        normal(4),
        SIGNS,
        theirs=F.margin_ranking_loss,
    ),
    refused(
        margin.triplet_margin_loss,
        Reason.RUNTIME,
        "anchor 2D, positive 1D",
        A,
        normal(3),
        C,
        theirs=F.triplet_margin_loss,
    ),
    refused(margin.triplet_margin_loss, Reason.ARGUMENT_VALUE, "got -1.0", A, B, C, -1.0, theirs=F.triplet_margin_loss),
    refused(
        margin.hinge_embedding_loss,
        Reason.ARGUMENT_VALUE,
        "most",
        normal(4),
        SIGNS,
        reduction="most",
        theirs=F.hinge_embedding_loss,
    ),
]


@pytest.mark.parametrize("case", SAME, ids=str)
def test_values_and_gradients_equal_pytorch(case: Same) -> None:
    case.check()


@pytest.mark.parametrize("case", REFUSED, ids=str)
def test_a_refusal_names_what_is_wrong(case: Refused) -> None:
    case.check()
