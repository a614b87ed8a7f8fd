"""max_unpool undoes max_pool; lp_pool takes roots of sums of powers."""

import numpy as np
import pytest

from gradwire_engine import Reason
from gradwire_engine.ops.nn.pooling import unpool
from tests.engine.oracle import Refused, Same, given, integers, normal, refused, same, torch, uniform

F = torch.nn.functional
ONE, TWO, THREE = ((getattr(unpool, f"max_unpool{n}d"), getattr(F, f"max_unpool{n}d")) for n in (1, 2, 3))
PLACES = given([[[0, 3, 4]]], "int64", False)
SAME = [
    same(*ONE, normal(1, 1, 3), PLACES, 2),
    same(*ONE, normal(1, 1, 3), PLACES, 2, output_size=(7,)),
    same(*TWO, normal(1, 1, 2, 2), given([[[[0, 3], [8, 11]]]], "int64", False), 2),
    same(*TWO, normal(1, 2, 2), given([[[0, 3], [8, 10]]], "int64", False), 2, output_size=(5, 4)),
    same(*THREE, normal(1, 1, 1, 1, 2), given([[[[[0, 7]]]]], "int64", False), 2),
    same(unpool.lp_pool1d, F.lp_pool1d, uniform(0.2, 2, 2, 3, 7), 2.0, 3, 2),
    same(unpool.lp_pool1d, F.lp_pool1d, uniform(0.2, 2, 3, 7), 3.0, 3, ceil_mode=True),
    same(unpool.lp_pool2d, F.lp_pool2d, normal(2, 3, 5, 6), 2.0, (2, 3)),
    same(unpool.lp_pool3d, F.lp_pool3d, uniform(0.2, 2, 1, 2, 3, 4, 4), 1.0, 2),
    same(unpool.lp_pool1d, F.lp_pool1d, given([[[0.0, 0.0]]]), 2.0, 2, smooth=False),
]
REFUSED = [
    refused(
        ONE[0], Reason.RUNTIME, "invalid max index: 9", normal(1, 1, 3), given([[[0, 3, 9]]], "int64"), 2, theirs=ONE[1]
    ),
    refused(ONE[0], Reason.RUNTIME, "but got: Int", normal(1, 1, 3), given([[[0, 3, 4]]], "int32"), 2, theirs=ONE[1]),
    refused(
        ONE[0],
        Reason.RUNTIME,
        "([1, 1, 3]) but got indices tensor with shape: [1, 1, 2]",
        normal(1, 1, 3),
        integers(0, 2, 1, 1, 2),
        2,
        theirs=ONE[1],
    ),
    refused(
        ONE[0],
        Reason.ARGUMENT_VALUE,
        "(dim 0 must be between 4 and 8)",
        normal(1, 1, 3),
        PLACES,
        2,
        output_size=(9,),
        theirs=ONE[1],
    ),
    refused(
        TWO[0],
        Reason.ARGUMENT_VALUE,
        "2 or 4 elements, but it has a length of '1'",
        normal(1, 1, 2, 2),
        integers(0, 4, 1, 1, 2, 2),
        2,
        output_size=(4,),
        theirs=TWO[1],
    ),
    refused(TWO[0], Reason.RUNTIME, "3d or 4d Tensor, but got 2", normal(2, 2), integers(0, 4, 2, 2), 2, theirs=TWO[1]),
]


@pytest.mark.parametrize("case", SAME, ids=str)
def test_values_and_gradients_equal_pytorch(case: Same) -> None:
    case.check()


@pytest.mark.parametrize("case", REFUSED, ids=str)
def test_a_refusal_names_what_is_wrong(case: Refused) -> None:
    case.check()


def test_pooling_and_unpooling_keep_the_maxima_where_they_were() -> None:
    array = np.random.default_rng(1).standard_normal((1, 1, 4, 4))
    values, places = F.max_pool2d(torch.tensor(array), 2, return_indices=True)
    found = unpool.max_unpool2d(values.numpy(), places.numpy(), 2)
    np.testing.assert_array_equal(found, np.where(np.isin(array, values.numpy()), array, 0))
