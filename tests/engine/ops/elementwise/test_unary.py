"""Functions of one tensor: values, gradients, edges and dtypes."""

import numpy as np
import pytest

from gradwire_engine import EngineError, Reason, tensor
from gradwire_engine.ops.elementwise import unary
from tests.engine.oracle import Refused, Same, bools, given, integers, normal, refused, same, torch, uniform

EDGES = given([0.0, -0.0, np.inf, -np.inf, np.nan, 1e-300, 1e300], grad=False)
ANYWHERE = [
    "abs",
    "sgn",
    "square",
    "exp",
    "exp2",
    "expm1",
    "sin",
    "cos",
    "tan",
    "atan",
    "sinh",
    "cosh",
    "tanh",
    "asinh",
    "sigmoid",
    "deg2rad",
    "rad2deg",
]
POSITIVE = ["sqrt", "rsqrt", "reciprocal", "log", "log2", "log10", "log1p"]
INSIDE = ["asin", "acos", "atanh"]
PIECEWISE = ["sign", "floor", "ceil", "trunc", "round", "frac"]
TESTS = ["isnan", "isinf", "isfinite", "isreal", "isposinf", "isneginf", "signbit"]
COMPLEX = ["abs", "sgn", "square", "exp", "log", "sin", "cos", "tanh", "sqrt", "reciprocal", "sigmoid"]


def _both(name: str) -> tuple:
    return getattr(unary, name), getattr(torch, name)


SAME = [
    *(same(*_both(name), normal(3, 4)) for name in ANYWHERE),
    *(same(*_both(name), uniform(0.1, 4, 3, 4)) for name in POSITIVE),
    *(same(*_both(name), uniform(-0.9, 0.9, 5)) for name in INSIDE),
    same(unary.acosh, torch.acosh, uniform(1.1, 4, 5)),
    *(same(*_both(name), normal(3, 4)) for name in PIECEWISE),
    *(same(*_both(name), EDGES) for name in ANYWHERE + POSITIVE + INSIDE + PIECEWISE + TESTS),
    *(same(*_both(name), integers(-4, 5, 6)) for name in [*ANYWHERE, "sign", "floor", "trunc", "isnan", "signbit"]),
    *(same(*_both(name), normal(4, dtype="complex128")) for name in COMPLEX),
    same(unary.abs, torch.abs, given([0.0, 0j], "complex128"), smooth=False),
    same(unary.round, torch.round, given([0.5, 1.5, 2.5, -0.5, -1.5], grad=False)),
    same(unary.round, torch.round, uniform(-9, 9, 6), decimals=2, smooth=False),
    same(unary.round, torch.round, uniform(-900, 900, 6), decimals=-2, smooth=False),
    same(unary.sigmoid, torch.sigmoid, given([-800.0, 800.0], "float32")),
    same(unary.rsqrt, torch.rsqrt, uniform(1, 9, 20, dtype="float16").constant),
    same(unary.sign, torch.sign, bools(4)),
]
REFUSED = [
    refused(unary.abs, Reason.NOT_SUPPORTED, "'Bool'", bools(2), theirs=torch.abs),
    refused(unary.sign, Reason.NOT_SUPPORTED, "use torch.sgn", normal(2, dtype="complex128"), theirs=torch.sign),
    refused(unary.positive, Reason.RUNTIME, "on a bool tensor", bools(2), theirs=torch.positive),
    refused(unary.floor, Reason.NOT_SUPPORTED, "'Bool'", bools(2), theirs=torch.floor),
]


@pytest.mark.parametrize("case", SAME, ids=str)
def test_values_and_gradients_equal_pytorch(case: Same) -> None:
    case.check()


@pytest.mark.parametrize("case", REFUSED, ids=str)
def test_a_refusal_names_what_is_wrong(case: Refused) -> None:
    case.check()


def test_positive_returns_the_tensor_itself() -> None:
    x = tensor(np.ones(2))
    assert unary.positive(x) is x


def test_the_absolute_value_of_complex_numbers_is_not_written_over_them() -> None:
    z = tensor(np.array([3 + 4j]))
    with pytest.raises(EngineError, match="In-place abs is not supported for complex"):
        unary.abs.in_place((z,))
    x = tensor(np.array([-3.0]))
    unary.abs.in_place((x,))
    assert x.array.tolist() == [3.0]
