"""Sliding blocks as columns and back: each the other's adjoint."""

import numpy as np
import pytest

from gradwire_engine import Reason, tensor
from gradwire_engine.ops.nn.convolution import blocks
from tests.engine.oracle import Refused, Same, integers, normal, refused, same, torch

F = torch.nn.functional
X = normal(2, 3, 5, 6)
UNFOLD, FOLD = (blocks.unfold_blocks, F.unfold), (blocks.fold_blocks, F.fold)
SAME = [
    same(*UNFOLD, X, 2),
    same(*UNFOLD, X, (2, 3), dilation=(2, 1), padding=(1, 2), stride=(2, 1)),
    same(*UNFOLD, normal(3, 5, 6), 3, stride=2),
    same(*UNFOLD, normal(0, 3, 5, 6), 2),
    same(*FOLD, normal(2, 12, 20), (5, 6), 2),
    same(*FOLD, normal(6, 15), (4, 5), (2, 3), dilation=1, padding=(0, 1), stride=1),
    same(*FOLD, normal(2, 4, 9), (6, 6), 2, stride=2),
]
RUN = Reason.RUNTIME
REFUSED = [
    refused(UNFOLD[0], RUN, "but got [5, 6]", normal(5, 6), 2, theirs=UNFOLD[1]),
    refused(UNFOLD[0], RUN, "spatial size (5, 6), kernel_size=(7, 7)", X, 7, theirs=UNFOLD[1]),
    refused(UNFOLD[0], RUN, "got kernel_size=[0, 0]", X, 0, theirs=UNFOLD[1]),
    refused(UNFOLD[0], RUN, "[-1, -1]", X, 2, padding=-1, theirs=UNFOLD[1]),
    refused(UNFOLD[0], RUN, "stride equals to 2", X, 2, stride=(1, 1, 1), theirs=UNFOLD[1]),
    refused(UNFOLD[0], Reason.NOT_SUPPORTED, "'Long'", integers(0, 3, 1, 1, 3, 3), 2, theirs=UNFOLD[1]),
    refused(FOLD[0], RUN, "input.size(1)=13", normal(2, 13, 20), (5, 6), 2, theirs=FOLD[1]),
    refused(FOLD[0], RUN, "output_size=(5, 6)", normal(2, 12, 19), (5, 6), 2, theirs=FOLD[1]),
]


@pytest.mark.parametrize("case", SAME, ids=str)
def test_values_and_gradients_equal_pytorch(case: Same) -> None:
    case.check()


@pytest.mark.parametrize("case", REFUSED, ids=str)
def test_a_refusal_names_what_is_wrong(case: Refused) -> None:
    case.check()


def test_fold_adds_each_element_as_often_as_windows_show_it() -> None:
    ones = tensor(np.ones((1, 1, 4, 4)))
    again = blocks.fold_blocks(blocks.unfold_blocks(ones, 3), (4, 4), 3)
    assert again.array[0, 0].tolist() == [[1, 2, 2, 1], [2, 4, 4, 2], [2, 4, 4, 2], [1, 2, 2, 1]]
