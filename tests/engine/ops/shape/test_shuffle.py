"""Channels and pixels rearranged, and refused where they do not divide."""

import pytest

from gradwire_engine import Reason
from gradwire_engine.ops.shape import shuffle
from tests.engine.oracle import Refused, Same, normal, refused, same, torch

F = torch.nn.functional
SAME = [
    same(shuffle.pixel_shuffle, F.pixel_shuffle, normal(2, 8, 3, 2), 2),
    same(shuffle.pixel_shuffle, F.pixel_shuffle, normal(9, 1, 2), 3),
    same(shuffle.pixel_unshuffle, F.pixel_unshuffle, normal(2, 3, 4, 6), 2),
    same(shuffle.channel_shuffle, F.channel_shuffle, normal(2, 6, 3), 3),
    same(shuffle.channel_shuffle, F.channel_shuffle, normal(1, 4, 2, 2), 2),
]
RUN = Reason.RUNTIME
REFUSED = [
    refused(shuffle.pixel_shuffle, RUN, "input.size(-3)=6", normal(1, 6, 2, 2), 2, theirs=F.pixel_shuffle),
    refused(shuffle.pixel_shuffle, RUN, "with 2 dimension(s)", normal(4, 4), 2, theirs=F.pixel_shuffle),
    refused(
        shuffle.pixel_shuffle, RUN, "positive upscale_factor, but got 0", normal(4, 2, 2), 0, theirs=F.pixel_shuffle
    ),
    refused(
        shuffle.pixel_unshuffle,
        RUN,
        "input.size(-1)=5 is not divisible by 2",
        normal(1, 4, 5),
        2,
        theirs=F.pixel_unshuffle,
    ),
    refused(shuffle.channel_shuffle, RUN, "sizes [4, 4]", normal(4, 4), 2, theirs=F.channel_shuffle),
    refused(shuffle.channel_shuffle, RUN, "3", normal(1, 4, 2), 3, theirs=F.channel_shuffle),
]


@pytest.mark.parametrize("case", SAME, ids=str)
def test_values_and_gradients_equal_pytorch(case: Same) -> None:
    case.check()


@pytest.mark.parametrize("case", REFUSED, ids=str)
def test_a_refusal_names_what_is_wrong(case: Refused) -> None:
    case.check()
