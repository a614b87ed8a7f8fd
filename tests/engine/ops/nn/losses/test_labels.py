"""Losses of labels with margins and of pairs."""

import pytest

from gradwire_engine import Reason
from gradwire_engine.ops.nn.losses import labels
from tests.engine.oracle import Refused, Same, given, integers, normal, refused, same, torch, uniform

F = torch.nn.functional
X, SIGNS = normal(4, 3), given([[1, -1, 1], [-1, -1, 1], [1, 1, 1], [-1, 1, -1]], grad=False)
CLASSES = given([0, 2, 1, 2], "int64", False)
LISTS = given([[0, 2, -1], [1, -1, 0], [-1, 0, 1], [2, 1, 0]], "int64", False)
NAMES = ("none", "mean", "sum")
SAME = [
    *(same(labels.soft_margin_loss, F.soft_margin_loss, X, SIGNS, reduction=how) for how in NAMES),
    *(same(labels.multi_margin_loss, F.multi_margin_loss, X, CLASSES, reduction=how) for how in NAMES),
    same(labels.multi_margin_loss, F.multi_margin_loss, X, CLASSES, 2, 0.5, uniform(0.5, 2, 3).constant),
    same(labels.multi_margin_loss, F.multi_margin_loss, normal(3), given(1, "int64", False)),
    *(same(labels.multilabel_margin_loss, F.multilabel_margin_loss, X, LISTS, reduction=how) for how in NAMES),
    same(labels.multilabel_margin_loss, F.multilabel_margin_loss, normal(3), given([1, -1, 0], "int64", False)),
    *(
        same(labels.multilabel_soft_margin_loss, F.multilabel_soft_margin_loss, X, uniform(0, 1, 4, 3), reduction=how)
        for how in NAMES
    ),
    same(labels.multilabel_soft_margin_loss, F.multilabel_soft_margin_loss, X, uniform(0, 1, 4, 3), uniform(0.5, 2, 3)),
    *(
        same(
            labels.cosine_embedding_loss,
            F.cosine_embedding_loss,
            X,
            normal(4, 3),
            given([1, -1, 1, -1], grad=False),
            0.1,
            reduction=how,
        )
        for how in NAMES
    ),
    *(same(labels.pdist, torch.pdist, normal(5, 3), p) for p in (0.0, 1.0, 2.0, 3.0, float("inf"))),
    same(labels.pdist, torch.pdist, normal(1, 3).constant),
]
RUN = Reason.RUNTIME
REFUSED = [
    refused(
        labels.soft_margin_loss, Reason.SHAPE, "broadcast shape [4, 3]", normal(3), SIGNS, theirs=F.soft_margin_loss
    ),
    refused(
        labels.multi_margin_loss, Reason.ARGUMENT_VALUE, "p == 1 and p == 2", X, CLASSES, 3, theirs=F.multi_margin_loss
    ),
    refused(labels.multi_margin_loss, RUN, "target size [4]", X, integers(0, 3, 5), theirs=F.multi_margin_loss),
    refused(
        labels.multi_margin_loss,
        RUN,
        "target out of range",
        X,
        given([0, 3, 1, 1], "int64"),
        theirs=F.multi_margin_loss,
    ),
    refused(
        labels.multi_margin_loss,
        RUN,
        "expected 3 but got [2]",
        X,
        CLASSES,
        weight=normal(2),
        theirs=F.multi_margin_loss,
    ),
    refused(
        labels.multi_margin_loss,
        Reason.DTYPE,
        "Long but found Int",
        X,
        given([0, 1, 1, 1], "int32"),
        theirs=F.multi_margin_loss,
    ),
    refused(
        labels.multilabel_margin_loss, RUN, "out of range", X, integers(3, 4, 4, 3), theirs=F.multilabel_margin_loss
    ),
    refused(
        labels.multilabel_margin_loss,
        RUN,
        "[4, 2] for input of size: [4, 3]",
        X,
        integers(0, 2, 4, 2),
        theirs=F.multilabel_margin_loss,
    ),
    refused(
        labels.cosine_embedding_loss,
        RUN,
        "1D target tensor expects 2D input tensors",
        normal(3),
        normal(3),
        given([1.0]),
        theirs=F.cosine_embedding_loss,
    ),
    refused(labels.pdist, RUN, "got: 1D", normal(3), theirs=torch.pdist),
    refused(labels.pdist, RUN, "non-negative p", X, -1.0, theirs=torch.pdist),
]


@pytest.mark.parametrize("case", SAME, ids=str)
def test_values_and_gradients_equal_pytorch(case: Same) -> None:
    case.check()


@pytest.mark.parametrize("case", REFUSED, ids=str)
def test_a_refusal_names_what_is_wrong(case: Refused) -> None:
    case.check()
