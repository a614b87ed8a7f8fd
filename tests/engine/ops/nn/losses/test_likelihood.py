"""Losses that are the negative logarithm of a density."""

import pytest

from gradwire_engine import Reason
from gradwire_engine.ops.nn.losses import likelihood
from tests.engine.oracle import Refused, Same, given, normal, refused, same, torch, uniform

F = torch.nn.functional
POISSON, GAUSS = (likelihood.poisson_nll_loss, F.poisson_nll_loss), (likelihood.gaussian_nll_loss, F.gaussian_nll_loss)
X, COUNTS = normal(4, 3), given([[0, 1, 2], [3, 0, 5], [1, 1, 9], [2, 4, 0]], grad=False)
SAME = [
    *(same(*POISSON, X, COUNTS, reduction=how) for how in ("none", "mean", "sum")),
    same(*POISSON, X, COUNTS, full=True),
    same(*POISSON, uniform(0.5, 4, 4, 3), COUNTS, log_input=False),
    same(*POISSON, given([0.0, 0.0], grad=False), given([0.0, 1.0], grad=False), log_input=False, reduction="none"),
    *(same(*GAUSS, X, normal(4, 3), uniform(0.5, 2, 4, 3), reduction=how) for how in ("none", "mean", "sum")),
    same(*GAUSS, X, normal(4, 3), uniform(0.5, 2, 4, 1), full=True),
    same(*GAUSS, X, normal(4, 3), uniform(0.5, 2, 4)),
    same(*GAUSS, X, normal(4, 3), 0.7),
    same(*GAUSS, X, normal(4, 3), given([0.0, 1.0, 1.0, 2.0]), eps=0.1, smooth=False),
]
BAD = Reason.ARGUMENT_VALUE
REFUSED = [
    refused(GAUSS[0], BAD, "negative", X, X, given([-1.0, 1.0, 1.0, 1.0]), theirs=GAUSS[1]),
    refused(GAUSS[0], BAD, "negative", X, X, -0.5, theirs=GAUSS[1]),
    refused(GAUSS[0], BAD, "incorrect size", X, X, uniform(1, 2, 2), theirs=GAUSS[1]),
    refused(GAUSS[0], BAD, "most is not valid", X, X, 1.0, reduction="most", theirs=GAUSS[1]),
    refused(POISSON[0], BAD, "most is not a valid value", X, COUNTS, reduction="most", theirs=POISSON[1]),
]


@pytest.mark.parametrize("case", SAME, ids=str)
def test_values_and_gradients_equal_pytorch(case: Same) -> None:
    case.check()


@pytest.mark.parametrize("case", REFUSED, ids=str)
def test_a_refusal_names_what_is_wrong(case: Refused) -> None:
    case.check()
