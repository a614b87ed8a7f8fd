"""The bilinear layer: broadcast inputs, both gradients, and sizes that do not fit."""

import pytest

from gradwire_engine import Reason
from gradwire_engine.ops.nn.bilinear import bilinear
from tests.engine.oracle import Refused, Same, normal, refused, same, torch

F = torch.nn.functional
ONE, TWO, WEIGHT = normal(5, 3), normal(5, 4), normal(2, 3, 4)
SAME = [
    same(bilinear, F.bilinear, ONE, TWO, WEIGHT),
    same(bilinear, F.bilinear, normal(2, 5, 3), normal(2, 5, 4), WEIGHT, normal(2)),
    same(bilinear, F.bilinear, normal(3), normal(4), WEIGHT),
]
REFUSED = [
    refused(bilinear, Reason.RUNTIME, "got 2 and 1", ONE, normal(4), WEIGHT, theirs=F.bilinear),
    refused(bilinear, Reason.RUNTIME, "at dim 0: got 5 and 6", ONE, normal(6, 4), WEIGHT, theirs=F.bilinear),
    refused(bilinear, Reason.RUNTIME, "got 4 but expected 3", TWO, TWO, WEIGHT, theirs=F.bilinear),
    refused(bilinear, Reason.RUNTIME, "got 3 but expected 2", ONE, TWO, WEIGHT, normal(3), theirs=F.bilinear),
]


@pytest.mark.parametrize("case", SAME, ids=str)
def test_values_and_gradients_equal_pytorch(case: Same) -> None:
    case.check()


@pytest.mark.parametrize("case", REFUSED, ids=str)
def test_a_refusal_names_what_is_wrong(case: Refused) -> None:
    case.check()
