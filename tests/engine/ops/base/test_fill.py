"""Selection by a mask and overwriting: values, gradients, and what is refused."""

import numpy as np
import pytest

from gradwire_engine import EngineError, Reason, gradients, tensor
from gradwire_engine.ops.base import fill
from tests.engine.oracle import Refused, Same, bools, given, integers, normal, refused, same, torch

SAME = [
    same(fill.where, torch.where, bools(3, 4), normal(4), normal(3, 1)),
    same(fill.where, torch.where, bools(3), normal(3), 2.0),
    same(fill.where, torch.where, bools(3), integers(0, 9, 3), 2.5),
    same(fill.masked_fill, torch.masked_fill, normal(3, 4), bools(4), 7.0),
    same(fill.masked_fill, torch.masked_fill, normal(3, 1), bools(3, 4), normal()),
    same(fill.fill, torch.fill, normal(2, 3), 4.0),
    same(fill.fill, torch.fill, normal(2, 3), normal()),
    same(fill.zero, lambda x: x * 0, normal(2, 3)),
    same(fill.copy, lambda x, y: x.clone().copy_(y), normal(2, 3), normal(3)),
]
REFUSED = [
    refused(fill.where, Reason.RUNTIME, "dtype Double", normal(2), 1.0, 2.0, theirs=torch.where),
    refused(fill.where, Reason.SHAPE, "[2], [3]", bools(2), normal(3), 0.0),
    refused(
        fill.masked_fill, Reason.RUNTIME, "dtype long int", normal(2), integers(0, 2, 2), 1.0, theirs=torch.masked_fill
    ),
    refused(fill.masked_fill, Reason.RUNTIME, "got tensor with 1 dimension", normal(2), bools(2), given([1.0, 2.0])),
    refused(fill.masked_fill, Reason.RUNTIME, "without overflow: 300", given([1], "uint8"), bools(1), 300),
    refused(fill.fill, Reason.RUNTIME, "got tensor with 1 dimensions", normal(2), normal(1)),
    refused(fill.fill, Reason.RUNTIME, "without overflow: 1e+40", normal(2, dtype="float32"), 1e40),
]


@pytest.mark.parametrize("case", SAME, ids=str)
def test_values_and_gradients_equal_pytorch(case: Same) -> None:
    case.check()


@pytest.mark.parametrize("case", REFUSED, ids=str)
def test_a_refusal_names_what_is_wrong(case: Refused) -> None:
    case.check()


def test_zeros_are_what_the_gradient_is_in_another_shape() -> None:
    made = fill.zeros(np.ones(3, np.float32), (2, 1))
    assert (type(made), made.dtype, made.tolist()) == (np.ndarray, np.float32, [[0.0], [0.0]])
    assert fill.zeros(tensor(np.ones(3))).array.tolist() == [0.0, 0.0, 0.0]


def test_in_place_forms_write_into_the_storage() -> None:
    x = tensor(np.arange(6.0).reshape(2, 3))
    array = x.array
    fill.copy.in_place((x, tensor(np.array([7.0, 8.0, 9.0])), False))
    assert array.tolist() == [[7, 8, 9], [7, 8, 9]]
    fill.masked_fill.in_place((x, tensor(np.array([True, False, False])), 0.5))
    assert array.tolist() == [[0.5, 8, 9], [0.5, 8, 9]]
    fill.zero.in_place((x,))
    assert not array.any()


def test_copying_into_memory_that_overlaps_is_refused() -> None:
    whole = np.arange(4.0)
    x = tensor(whole[:3])
    with pytest.raises(EngineError, match="refer to a single memory location"):
        fill.copy.in_place((x, tensor(whole[1:]), False))
    assert whole.tolist() == [0, 1, 2, 3]


def test_the_gradient_of_an_overwritten_tensor_is_zero_and_the_source_gets_all() -> None:
    leaf, source = tensor(np.ones(2), True), tensor(np.full(2, 3.0), True)
    x = leaf * 1.0
    fill.copy.in_place((x, source, False))
    (first, second), _ = gradients([x], [leaf, source], [tensor(np.array([2.0, 5.0]))])
    assert (first.array.tolist(), second.array.tolist()) == ([0.0, 0.0], [2.0, 5.0])


def test_a_gradient_already_on_the_device_is_returned_itself() -> None:
    g = tensor(np.ones(2))
    assert fill.on_device(g, "cpu") is g
