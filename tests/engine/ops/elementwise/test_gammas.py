"""Incomplete and multivariate gamma functions and the zeta function."""

import numpy as np
import pytest

from gradwire_engine import EngineError, Reason, gradients, tensor
from gradwire_engine.ops.elementwise import gammas
from tests.engine.oracle import Refused, Same, given, integers, normal, refused, same, torch, uniform

A, X = uniform(0.3, 4, 3, 1).constant, uniform(0.3, 4, 3, 4)
SAME = [
    same(gammas.igamma, torch.igamma, A, X, factor=100),
    same(gammas.igammac, torch.igammac, A, X, factor=100),
    same(gammas.igamma, torch.igamma, given([1.0, 2.0], grad=False), given([0.0, np.inf], grad=False)),
    same(gammas.zeta, torch.special.zeta, uniform(1.5, 4, 3).constant, uniform(0.5, 3, 3)),
    same(gammas.zeta, torch.special.zeta, 2.5, uniform(0.5, 3, 3)),
    same(gammas.mvlgamma, torch.mvlgamma, uniform(2, 5, 2, 3), 3),
    same(gammas.mvlgamma, torch.mvlgamma, integers(4, 9, 3), 2),
]
REFUSED = [
    refused(gammas.igamma, Reason.NOT_SUPPORTED, "'Long'", integers(1, 4, 2), integers(1, 4, 2), theirs=torch.igamma),
    refused(
        gammas.igammac,
        Reason.NOT_SUPPORTED,
        "'ComplexDouble'",
        normal(2, dtype="complex128"),
        normal(2, dtype="complex128"),
    ),
    refused(gammas.mvlgamma, Reason.RUNTIME, "p has to be greater than or equal to 1", X, 0, theirs=torch.mvlgamma),
    refused(gammas.zeta, Reason.NOT_SUPPORTED, "zeta_cpu", normal(2, dtype="complex128"), 1.0),
]


@pytest.mark.parametrize("case", SAME, ids=str)
def test_values_and_gradients_equal_pytorch(case: Same) -> None:
    case.check()


@pytest.mark.parametrize("case", REFUSED, ids=str)
def test_a_refusal_names_what_is_wrong(case: Refused) -> None:
    case.check()


@pytest.mark.parametrize(
    ("function", "theirs"),
    [(gammas.igamma, torch.igamma), (gammas.igammac, torch.igammac), (gammas.zeta, torch.special.zeta)],
)
def test_the_derivative_by_the_order_is_refused_as_in_pytorch(function, theirs) -> None:
    order, x = tensor(np.array([2.0]), True), tensor(np.array([1.5]))
    with pytest.raises(EngineError, match="is not implemented") as refusal:
        gradients([function(order, x)], [order], [tensor(np.ones(1))])
    with pytest.raises(NotImplementedError) as expected:
        theirs(torch.tensor([2.0], requires_grad=True), torch.tensor([1.5])).backward()
    assert refusal.value.reason is Reason.NOT_SUPPORTED
    assert refusal.value.message == str(expected.value)
