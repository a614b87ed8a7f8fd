"""Comparison and logic: bools without gradient, bits, closeness."""

import numpy as np
import pytest

from gradwire_engine import EngineError, Reason, gradients, tensor
from gradwire_engine.ops.base import compare
from tests.engine.oracle import Refused, Same, bools, given, integers, normal, refused, same, torch

NAN = float("nan")
FEW = (integers(-2, 3, 20), integers(-2, 3, 20))
BITS = (integers(-100, 100, 20, dtype="int32"), integers(-100, 100, 20, dtype="int64"))
SAME = [
    *(same(getattr(compare, name), getattr(torch, name), *FEW) for name in ("eq", "ne", "lt", "le", "gt", "ge")),
    *(
        same(getattr(compare, name), getattr(torch, name), given([NAN, 1.0, NAN]), given([NAN, NAN, 1.0]))
        for name in ("eq", "ne", "lt", "le", "gt", "ge")
    ),
    same(compare.lt, torch.lt, normal(3, 4), 0),
    *(
        same(getattr(compare, f"logical_{name}"), getattr(torch, f"logical_{name}"), *FEW)
        for name in ("and", "or", "xor")
    ),
    same(compare.logical_not, torch.logical_not, given([0.0, -0.0, NAN, 2.0], grad=False)),
    *(
        same(getattr(compare, f"bitwise_{name}"), getattr(torch, f"bitwise_{name}"), *BITS)
        for name in ("and", "or", "xor")
    ),
    same(compare.bitwise_and, torch.bitwise_and, bools(5), bools(5)),
    same(compare.bitwise_not, torch.bitwise_not, integers(-9, 9, 6, dtype="int8")),
    same(compare.bitwise_not, torch.bitwise_not, bools(6)),
    same(
        compare.bitwise_left_shift,
        torch.bitwise_left_shift,
        integers(-9, 9, 8, dtype="int32"),
        integers(0, 40, 8, dtype="int32"),
    ),
    same(
        compare.bitwise_right_shift,
        torch.bitwise_right_shift,
        integers(-99, 99, 8, dtype="int32"),
        integers(0, 40, 8, dtype="int32"),
    ),
    same(compare.isclose, torch.isclose, given([1.0, 1.0, NAN, np.inf]), given([1.0 + 1e-7, 1.1, NAN, np.inf])),
    same(compare.isclose, torch.isclose, given([NAN, 1.0]), given([NAN, 1.2]), rtol=0.1, atol=0.2, equal_nan=True),
    same(compare.allclose, torch.allclose, normal(3).constant, normal(3).constant),
    same(compare.equal, torch.equal, given([1, 2], "int64", False), given([1, 2], "int64", False)),
    same(compare.equal, torch.equal, given([1, 2], "int64", False), given([1], "int64", False)),
]
REFUSED = [
    refused(
        compare.bitwise_and,
        Reason.NOT_SUPPORTED,
        "not implemented for 'Double'",
        normal(2),
        normal(2),
        theirs=torch.bitwise_and,
    ),
    refused(compare.bitwise_left_shift, Reason.NOT_SUPPORTED, "not implemented for 'Bool'", bools(2), bools(2)),
    refused(
        compare.isclose, Reason.RUNTIME, "greater than or equal to zero, but got -1.0", normal(2), normal(2), rtol=-1.0
    ),
    refused(compare.isclose, Reason.DTYPE, "must have one dtype", normal(2), normal(2, dtype="float32")),
]


@pytest.mark.parametrize("case", SAME, ids=str)
def test_values_and_gradients_equal_pytorch(case: Same) -> None:
    case.check()


@pytest.mark.parametrize("case", REFUSED, ids=str)
def test_a_refusal_names_what_is_wrong(case: Refused) -> None:
    case.check()


def test_comparison_carries_no_gradient() -> None:
    x = tensor(np.ones(2), True)
    assert not compare.lt(x, 2.0).requires_grad


def test_an_in_place_comparison_gives_zero_gradients() -> None:
    leaf = tensor(np.array([1.0, 3.0]), True)
    x = leaf * 1.0
    compare.lt.in_place((x, 2.0))
    assert x.array.tolist() == [1.0, 0.0]
    (found,), _ = gradients([x], [leaf], [tensor(np.ones(2))])
    assert found.array.tolist() == [0.0, 0.0]


def test_negative_tolerances_are_named() -> None:
    with pytest.raises(EngineError, match="atol"):
        compare.isclose(np.ones(1), np.ones(1), atol=-0.5)
