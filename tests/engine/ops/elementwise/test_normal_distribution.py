"""The normal distribution's functions and x log x: exact in the tails."""

import numpy as np
import pytest

from gradwire_engine import Reason
from gradwire_engine.ops.elementwise.normal_distribution import entr, erfcx, log_ndtr, ndtr, ndtri, xlog1py
from tests.engine.oracle import Refused, Same, given, integers, normal, refused, same, torch, uniform

SAME = [
    same(ndtr, torch.special.ndtr, uniform(-5, 5, 4)),
    same(ndtri, torch.special.ndtri, uniform(0.05, 0.95, 4)),
    same(ndtri, torch.special.ndtri, given([0.0, 1.0, 1.5, np.nan], grad=False)),
    same(erfcx, torch.special.erfcx, uniform(-2, 20, 6)),
    same(log_ndtr, torch.special.log_ndtr, uniform(-40, 5, 6)),
    same(log_ndtr, torch.special.log_ndtr, given([-1e6, 40.0], grad=False)),
    same(entr, torch.special.entr, uniform(0.1, 3, 4)),
    same(entr, torch.special.entr, given([0.0, -1.0, np.nan], grad=False)),
    same(xlog1py, torch.special.xlog1py, normal(3, 1), uniform(-0.9, 3, 4)),
    same(xlog1py, torch.special.xlog1py, normal(3), 0.5),
    same(xlog1py, torch.special.xlog1py, 2.0, uniform(-0.9, 3, 4)),
    same(xlog1py, torch.special.xlog1py, given([0.0, 0.0, 1.0]), given([-1.0, np.nan, -1.0]), smooth=False),
    same(entr, torch.special.entr, integers(0, 5, 4)),
]
REFUSED = [
    refused(function, Reason.NOT_SUPPORTED, "'ComplexDouble'", normal(2, dtype="complex128"))
    for function in (ndtri, erfcx, log_ndtr, entr)
] + [refused(ndtri, Reason.NOT_SUPPORTED, "'Half'", normal(2, dtype="float16"), theirs=torch.special.ndtri)]


@pytest.mark.parametrize("case", SAME, ids=str)
def test_values_and_gradients_equal_pytorch(case: Same) -> None:
    case.check()


@pytest.mark.parametrize("case", REFUSED, ids=str)
def test_a_refusal_names_what_is_wrong(case: Refused) -> None:
    case.check()
