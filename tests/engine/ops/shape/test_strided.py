"""Windows and strided views over an array's memory, with gradients added where they overlap."""

import numpy as np
import pytest

from gradwire_engine import Reason, gradients, tensor
from gradwire_engine.ops.shape import strided
from tests.engine.oracle import Refused, Same, normal, refused, same, torch

X = normal(3, 7)
UNFOLD, AS = (strided.unfold, torch.Tensor.unfold), (strided.as_strided, torch.as_strided)
SAME = [
    same(*UNFOLD, X, 1, 3, 2),
    same(*UNFOLD, X, -2, 2, 1),
    same(*UNFOLD, X, 1, 0, 3),
    same(*UNFOLD, normal(), 0, 1, 1),
    same(*AS, X, (2, 3), (7, 2)),
    same(*AS, X, (4, 3), (1, 1), 2),
    same(*AS, X, (2, 2, 2), (0, 1, 1)),
    same(*AS, X, (), (), 5),
    same(*AS, X, (0, 3), (1, 1)),
]
RUN = Reason.RUNTIME
REFUSED = [
    refused(UNFOLD[0], RUN, "dimension 1 is 7 but size is 8", X, 1, 8, 1, theirs=UNFOLD[1]),
    refused(UNFOLD[0], RUN, "step is 0", X, 1, 2, 0, theirs=UNFOLD[1]),
    refused(UNFOLD[0], RUN, "size is -1", X, 1, -1, 1, theirs=UNFOLD[1]),
    refused(AS[0], RUN, "length of strides", X, (2,), (1, 1), theirs=AS[1]),
    refused(AS[0], RUN, "got strides: [-1]", X, (2,), (-1,), theirs=AS[1]),
    refused(
        AS[0],
        RUN,
        "requiring a storage size of 176 are out of bounds for storage of size 168",
        X,
        (22,),
        (1,),
        theirs=AS[1],
    ),
    refused(AS[0], RUN, "storage offset -1", X, (1,), (1,), -1, theirs=AS[1]),
]


@pytest.mark.parametrize("case", SAME, ids=str)
def test_values_and_gradients_equal_pytorch(case: Same) -> None:
    case.check()


@pytest.mark.parametrize("case", REFUSED, ids=str)
def test_a_refusal_names_what_is_wrong(case: Refused) -> None:
    case.check()


def test_strided_views_share_the_memory_of_the_whole_storage() -> None:
    x = tensor(np.arange(6.0))
    part = x[4:6]
    found = strided.as_strided(part, (3,), (2,), 0)
    assert found.array.tolist() == [0, 2, 4]
    found.array[...] = -1
    assert x.array.tolist() == [-1, 1, -1, 3, -1, 5]


def test_windows_are_views_and_their_adjoint_adds_overlaps() -> None:
    x = tensor(np.arange(5.0), True)
    windows = strided.unfold(x, 0, 3, 1)
    assert np.shares_memory(windows.array, x.array)
    (found,), _ = gradients([windows], [x], [tensor(np.ones((3, 3)))])
    assert found.array.tolist() == [1, 2, 3, 2, 1]
    assert strided.unfold_backward(np.ones((2, 2)), (5,), 0, 2, 3).tolist() == [1, 1, 0, 1, 1]
