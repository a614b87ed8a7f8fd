"""Diagonals, products and combinations of vectors."""

import pytest

from gradwire_engine import Reason
from gradwire_engine.ops.index import arrange
from tests.engine.oracle import Refused, Same, integers, normal, refused, same, torch

SAME = [
    same(arrange.diagflat, torch.diagflat, normal(2, 2), 1),
    same(arrange.diagflat, torch.diagflat, normal(3), -2),
    same(arrange.block_diag, lambda parts: torch.block_diag(*parts), [normal(2, 3), normal(2), normal(), normal(0, 2)]),
    same(arrange.cartesian_prod, lambda parts: torch.cartesian_prod(*parts), [normal(2), normal(3), normal(2)]),
    same(arrange.cartesian_prod, lambda parts: torch.cartesian_prod(*parts), [normal(4)]),
    same(arrange.combinations, torch.combinations, normal(5), 3),
    same(arrange.combinations, torch.combinations, normal(3), 2, True),
    same(arrange.combinations, torch.combinations, integers(0, 9, 2), 3),
    same(arrange.combinations, torch.combinations, normal(3).constant, 0),
]
REFUSED = [
    refused(arrange.block_diag, Reason.RUNTIME, "Input 1 has 3 dimensions", [normal(2, 2), normal(1, 1, 1)]),
    refused(arrange.cartesian_prod, Reason.RUNTIME, "Expect a 1D vector, but got shape [2, 2]", [normal(2, 2)]),
    refused(arrange.cartesian_prod, Reason.RUNTIME, "same dtype", [normal(2), integers(0, 2, 2)]),
    refused(arrange.combinations, Reason.RUNTIME, "[2, 2]", normal(2, 2), theirs=torch.combinations),
    refused(arrange.combinations, Reason.RUNTIME, "but got -1", normal(3), -1, theirs=torch.combinations),
]


@pytest.mark.parametrize("case", SAME, ids=str)
def test_values_and_gradients_equal_pytorch(case: Same) -> None:
    case.check()


@pytest.mark.parametrize("case", REFUSED, ids=str)
def test_a_refusal_names_what_is_wrong(case: Refused) -> None:
    case.check()
