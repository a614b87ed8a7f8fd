"""prelu: one slope, or one per channel."""

import pytest

from gradwire_engine import Reason
from gradwire_engine.ops.nn.prelu import prelu
from tests.engine.oracle import Refused, Same, given, integers, normal, refused, same, torch

X = normal(2, 3, 4)
SAME = [
    same(prelu, torch.prelu, X, normal(3)),
    same(prelu, torch.prelu, X, normal(1)),
    same(prelu, torch.prelu, X, normal()),
    same(prelu, torch.prelu, normal(5), normal(1)),
    same(prelu, torch.prelu, given([0.0, -1.0, 2.0]), given([0.3]), smooth=False),
]
REFUSED = [
    refused(prelu, Reason.DTYPE, "float64 and float32", X, normal(1, dtype="float32"), theirs=torch.prelu),
    refused(prelu, Reason.SHAPE, "ndim = 2", X, normal(1, 3), theirs=torch.prelu),
    refused(prelu, Reason.SHAPE, "parameter numbers = 2 and channel size = 3", X, normal(2), theirs=torch.prelu),
    refused(prelu, Reason.NOT_SUPPORTED, "'Long'", integers(0, 3, 2), integers(0, 3, 1), theirs=torch.prelu),
]


@pytest.mark.parametrize("case", SAME, ids=str)
def test_values_and_gradients_equal_pytorch(case: Same) -> None:
    case.check()


@pytest.mark.parametrize("case", REFUSED, ids=str)
def test_a_refusal_names_what_is_wrong(case: Refused) -> None:
    case.check()
