"""Special functions of one tensor, at ordinary points and at their edges."""

import numpy as np
import pytest

from gradwire_engine import Reason, tensor
from gradwire_engine.ops.elementwise import special
from tests.engine.oracle import Refused, Same, given, integers, normal, refused, same, torch, uniform

INF, NAN = np.inf, np.nan
SAME = [
    same(special.erf, torch.erf, normal(3, 4)),
    same(special.erf, torch.erf, given([INF, -INF, NAN, 0.0], grad=False)),
    same(special.erfc, torch.erfc, uniform(-3, 25, 5)),
    same(special.erfinv, torch.erfinv, uniform(-0.9, 0.9, 5)),
    same(special.erfinv, torch.erfinv, given([1.0, -1.0, 1.5], grad=False)),
    same(special.lgamma, torch.lgamma, uniform(0.2, 6, 5), factor=10),
    same(special.lgamma, torch.lgamma, given([-0.5, -1.5, 0.0, -2.0], grad=False)),
    same(special.digamma, torch.digamma, uniform(0.2, 6, 5), factor=10),
    same(special.digamma, torch.digamma, given([0.0, -0.0, -1.0], grad=False)),
    same(special.polygamma, torch.polygamma, 1, uniform(0.5, 4, 3), factor=100),
    same(special.polygamma, torch.polygamma, 2, uniform(0.5, 4, 3), factor=100),
    same(special.logit, torch.logit, uniform(0.1, 0.9, 4)),
    same(special.logit, torch.logit, given([-0.5, 0.05, 0.5, 1.5]), eps=0.1, smooth=False),
    same(special.logit, torch.logit, given([0.0, 1.0, -1.0, 2.0]), smooth=False),
    same(special.sinc, torch.sinc, normal(4)),
    same(special.sinc, torch.sinc, given([0.0]), smooth=False),
    same(special.sinc, torch.sinc, normal(3, dtype="complex128")),
    same(special.nan_to_num, torch.nan_to_num, given([NAN, INF, -INF, 2.0]), smooth=False),
    same(special.nan_to_num, torch.nan_to_num, given([NAN, INF, -INF]), 1.0, 2.0, 3.0, smooth=False),
    same(special.nan_to_num, torch.nan_to_num, given([NAN, INF], "float32", False)),
    same(special.nan_to_num, torch.nan_to_num, integers(0, 4, 3)),
    same(special.erf, torch.erf, integers(-2, 3, 4)),
    same(special.erfc, torch.erfc, normal(6, dtype="float16")),
    same(special.lgamma, torch.lgamma, uniform(1, 5, 6, dtype="bfloat16")),
]
REFUSED = [
    *(
        refused(function, Reason.NOT_SUPPORTED, "'ComplexDouble'", normal(2, dtype="complex128"))
        for function in (special.erf, special.erfc, special.erfinv, special.lgamma, special.digamma, special.logit)
    ),
    refused(special.polygamma, Reason.RUNTIME, "negative n", -1, normal(2), theirs=torch.polygamma),
]


@pytest.mark.parametrize("case", SAME, ids=str)
def test_values_and_gradients_equal_pytorch(case: Same) -> None:
    case.check()


@pytest.mark.parametrize("case", REFUSED, ids=str)
def test_a_refusal_names_what_is_wrong(case: Refused) -> None:
    case.check()


def test_trigamma_in_single_precision_has_pytorchs_digits() -> None:
    array = np.random.default_rng(4).uniform(-9, 9, 2000).astype(np.float32)
    ours = special.polygamma(1, tensor(array)).array
    np.testing.assert_allclose(ours, torch.polygamma(1, torch.tensor(array)).numpy(), rtol=1.3e-6, atol=1e-6)
