"""Padding by a constant or by what is there; negative padding crops."""

import pytest

from gradwire_engine import Reason
from gradwire_engine.ops.shape import padding
from tests.engine.oracle import Refused, Same, bools, integers, normal, refused, same, torch

F = torch.nn.functional
PAD = (padding.pad, F.pad)
X = normal(2, 3, 5)
SAME = [
    same(*PAD, X, (1, 2)),
    same(*PAD, X, (1, -2, 0, 3, 1, 1), value=2.5),
    same(*PAD, X, (-1, -1)),
    same(*PAD, integers(0, 9, 4), (1, 1), value=7),
    same(*PAD, X, ()),
    *(same(*PAD, X, (2, 1), mode) for mode in ("reflect", "replicate", "circular")),
    *(same(*PAD, normal(1, 2, 4, 5), (2, 1, 3, 0), mode) for mode in ("reflect", "replicate", "circular")),
    *(same(*PAD, normal(1, 2, 3, 4, 3), (1, 1, 2, 1, 0, 2), mode) for mode in ("reflect", "replicate", "circular")),
    *(same(*PAD, X, (-1, 3), mode) for mode in ("reflect", "replicate", "circular")),
    same(*PAD, X, (5, 5), "circular"),
]
RUN, NOT = Reason.RUNTIME, Reason.NOT_SUPPORTED
REFUSED = [
    refused(PAD[0], RUN, "divisible by 2, but it is 3", X, (1, 2, 3), theirs=PAD[1]),
    refused(PAD[0], RUN, "padding length 8", X, (1,) * 8, theirs=PAD[1]),
    refused(PAD[0], RUN, "negative padding -3 and -3", X, (-3, -3), theirs=PAD[1]),
    refused(PAD[0], RUN, "(5, 0) at dimension 2 of input [2, 3, 5]", X, (5, 0), "reflect", theirs=PAD[1]),
    refused(PAD[0], RUN, "wrapping around more than once", X, (6, 0), "circular", theirs=PAD[1]),
    refused(PAD[0], RUN, "doesn't take in value", X, (1, 1), "reflect", 1.0, theirs=PAD[1]),
    refused(
        PAD[0], NOT, "Padding size 4 is not supported for 2D", normal(2, 3), (1, 1, 1, 1), "reflect", theirs=PAD[1]
    ),
    refused(PAD[0], NOT, "Unrecognised padding mode mirror", X, (1, 1), "mirror", theirs=PAD[1]),
    refused(PAD[0], NOT, "'Bool'", bools(1, 1, 4), (1, 1), "reflect", theirs=PAD[1]),
    refused(padding.constant_pad, RUN, "overflow: 300", integers(0, 3, 2, dtype="uint8"), (1, 1), 300),
]


@pytest.mark.parametrize("case", SAME, ids=str)
def test_values_and_gradients_equal_pytorch(case: Same) -> None:
    case.check()


@pytest.mark.parametrize("case", REFUSED, ids=str)
def test_a_refusal_names_what_is_wrong(case: Refused) -> None:
    case.check()
