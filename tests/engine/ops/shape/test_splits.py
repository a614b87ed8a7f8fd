"""Tensors split into parts of given sizes or counts."""

import numpy as np
import pytest

from gradwire_engine import Reason, tensor
from gradwire_engine.ops.shape import splits
from tests.engine.oracle import Refused, Same, normal, refused, same, torch

X = normal(4, 6, 2)
SAME = [
    same(splits.split_with_sizes, torch.split_with_sizes, X, (1, 0, 3)),
    same(splits.tensor_split, torch.tensor_split, X, 4, 1),
    same(splits.tensor_split, torch.tensor_split, X, (1, 3, -1, 9), -2),
    same(splits.tensor_split, torch.tensor_split, normal(2), 5),
    same(splits.hsplit, torch.hsplit, X, 3),
    same(splits.hsplit, torch.hsplit, normal(6), (2, 3)),
    same(splits.vsplit, torch.vsplit, X, 2),
    same(splits.dsplit, torch.dsplit, X, (1,)),
]
RUN = Reason.RUNTIME
REFUSED = [
    refused(splits.split_with_sizes, RUN, "split_sizes=[1, 2]", X, (1, 2), theirs=torch.split_with_sizes),
    refused(splits.tensor_split, RUN, "larger than 0, got 0", X, 0, theirs=torch.tensor_split),
    refused(splits.tensor_split, RUN, "tensor with 0 dims", normal(), 2, theirs=torch.tensor_split),
    refused(splits.hsplit, RUN, "dimension 6 is not divisible by the split_size 4", X, 4, theirs=torch.hsplit),
    refused(splits.vsplit, RUN, "at least 2 dimension, but got a tensor with 1", normal(4), 2, theirs=torch.vsplit),
    refused(splits.dsplit, RUN, "at least 3 dimension", normal(4, 4), 2, theirs=torch.dsplit),
]


@pytest.mark.parametrize("case", SAME, ids=str)
def test_values_and_gradients_equal_pytorch(case: Same) -> None:
    case.check()


@pytest.mark.parametrize("case", REFUSED, ids=str)
def test_a_refusal_names_what_is_wrong(case: Refused) -> None:
    case.check()


def test_parts_are_views() -> None:
    x = tensor(np.zeros(4))
    splits.tensor_split(x, 2)[1].array[...] = 1.0
    assert x.array.tolist() == [0, 0, 1, 1]
