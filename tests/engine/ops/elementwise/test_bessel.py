"""Modified Bessel functions: values, derivatives in terms of each other, and the limits at 0 and far out."""

import numpy as np
import pytest

from gradwire_engine import Reason, gradients, tensor
from gradwire_engine.ops.elementwise import bessel
from tests.engine.oracle import Refused, Same, given, integers, normal, refused, same, torch, uniform

PAIRS = [
    (bessel.i0, torch.i0),
    (bessel.i1, torch.special.i1),
    (bessel.i0e, torch.special.i0e),
    (bessel.i1e, torch.special.i1e),
]
SAME = [
    *(same(ours, theirs, uniform(-8, 8, 4, 3)) for ours, theirs in PAIRS),
    *(same(ours, theirs, given([0.0, -0.0, 1e-9]), smooth=False) for ours, theirs in PAIRS),
    *(same(ours, theirs, given([700.0, -700.0, np.inf, np.nan], grad=False)) for ours, theirs in PAIRS),
    *(same(ours, theirs, integers(-3, 4, 5)) for ours, theirs in PAIRS),
    *(same(ours, theirs, normal(5, dtype="float32")) for ours, theirs in PAIRS),
    same(bessel.i0, torch.i0, normal(20, dtype="bfloat16").constant),
]
REFUSED = [
    refused(
        ours, Reason.NOT_SUPPORTED, "not implemented for 'ComplexDouble'", normal(2, dtype="complex128"), theirs=theirs
    )
    for ours, theirs in PAIRS
]


@pytest.mark.parametrize("case", SAME, ids=str)
def test_values_and_gradients_equal_pytorch(case: Same) -> None:
    case.check()


@pytest.mark.parametrize("case", REFUSED, ids=str)
def test_a_refusal_names_what_is_wrong(case: Refused) -> None:
    case.check()


@pytest.mark.parametrize("function", [bessel.i0, bessel.i1, bessel.i0e, bessel.i1e])
def test_the_second_derivative_equals_the_slope_of_the_first(function) -> None:
    def first(at: float, graph: bool = False):
        x = tensor(np.array(at), True)
        (found,), _ = gradients([function(x)], [x], create_graph=graph)
        return x, found

    x, slope = first(1.3, graph=True)
    (second,), _ = gradients([slope], [x])
    step = 1e-6
    difference = (first(1.3 + step)[1].array - first(1.3 - step)[1].array) / (2 * step)
    np.testing.assert_allclose(second.array, difference, rtol=1e-7)
