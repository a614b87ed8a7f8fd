"""local_response_norm: means of squares over neighbouring channels."""

import pytest

from gradwire_engine import Reason
from gradwire_engine.ops.nn.norms.local_norm import local_response_norm
from tests.engine.oracle import Refused, Same, normal, refused, same, torch

F = torch.nn.functional
SAME = [
    same(local_response_norm, F.local_response_norm, normal(2, 5, 3), 3),
    same(local_response_norm, F.local_response_norm, normal(2, 5, 3, 2), 2, 0.5, 0.9, 2.0),
    same(local_response_norm, F.local_response_norm, normal(1, 3, 2, 2, 2), 5),
    same(local_response_norm, F.local_response_norm, normal(0, 3, 2), 2),
]
REFUSED = [
    refused(
        local_response_norm, Reason.ARGUMENT_VALUE, "got 2 dimensions", normal(2, 3), 2, theirs=F.local_response_norm
    ),
    refused(local_response_norm, Reason.RUNTIME, "but got 0", normal(2, 3, 4), 0, theirs=F.local_response_norm),
]


@pytest.mark.parametrize("case", SAME, ids=str)
def test_values_and_gradients_equal_pytorch(case: Same) -> None:
    case.check()


@pytest.mark.parametrize("case", REFUSED, ids=str)
def test_a_refusal_names_what_is_wrong(case: Refused) -> None:
    case.check()
