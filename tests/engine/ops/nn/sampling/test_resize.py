"""interpolate: every mode up and down, by size or factor, and weights that add up to 1."""

import numpy as np
import pytest

from gradwire_engine import Reason
from gradwire_engine.ops.nn.sampling import resize
from tests.engine.oracle import Refused, Same, integers, normal, refused, same, torch

F = torch.nn.functional
PAIR = (resize.interpolate, F.interpolate)
LINE, IMAGE, VOLUME = normal(2, 3, 5), normal(2, 3, 4, 5), normal(1, 2, 3, 4, 3)
SAME = [
    *(
        same(*PAIR, IMAGE, size, mode=mode)
        for size in ((7, 3), 6)
        for mode in ("nearest", "nearest-exact", "area", "bilinear", "bicubic")
    ),
    *(same(*PAIR, IMAGE, scale_factor=1.7, mode=mode) for mode in ("nearest", "nearest-exact", "bilinear", "bicubic")),
    *(same(*PAIR, IMAGE, (7, 2), mode=mode, align_corners=True) for mode in ("bilinear", "bicubic")),
    same(*PAIR, IMAGE, scale_factor=(1.3, 0.6), mode="bilinear", recompute_scale_factor=True),
    same(*PAIR, LINE, 8, mode="linear"),
    same(*PAIR, LINE, 1, mode="linear", align_corners=True),
    same(*PAIR, VOLUME, (4, 2, 5), mode="trilinear"),
    same(*PAIR, VOLUME, scale_factor=2.0),
    same(*PAIR, integers(0, 256, 1, 2, 4, 5, dtype="uint8"), (7, 3), mode="bilinear"),
    same(*PAIR, integers(0, 256, 1, 2, 4, 5, dtype="uint8"), (7, 3)),
    same(*PAIR, normal(1, 2, 4, 4, dtype="bfloat16").constant, 3, mode="bilinear"),
]
BAD = Reason.ARGUMENT_VALUE
REFUSED = [
    refused(PAIR[0], BAD, "only one of size or scale_factor", IMAGE, 3, 2.0, theirs=PAIR[1]),
    refused(PAIR[0], BAD, "either size or scale_factor", IMAGE, theirs=PAIR[1]),
    refused(PAIR[0], BAD, "spatial dimensions of [4, 5] and [3]", IMAGE, (3,), theirs=PAIR[1]),
    refused(PAIR[0], BAD, "align_corners option can only be set", IMAGE, 3, align_corners=True, theirs=PAIR[1]),
    refused(PAIR[0], BAD, "recompute_scale_factor", IMAGE, 3, recompute_scale_factor=True, theirs=PAIR[1]),
    refused(PAIR[0], Reason.NOT_SUPPORTED, "antialias", IMAGE, 3, mode="bilinear", antialias=True),
    refused(
        PAIR[0],
        Reason.NOT_SUPPORTED,
        "Got 4D input, but trilinear mode needs 5D input",
        IMAGE,
        3,
        mode="trilinear",
        theirs=PAIR[1],
    ),
    refused(PAIR[0], Reason.NOT_SUPPORTED, "(got 2D)", normal(3, 4), 3, theirs=PAIR[1]),
    refused(PAIR[0], Reason.RUNTIME, "output [0, 0]", IMAGE, 0, theirs=PAIR[1]),
]


@pytest.mark.parametrize("case", SAME, ids=str)
def test_values_and_gradients_equal_pytorch(case: Same) -> None:
    case.check()


@pytest.mark.parametrize("case", REFUSED, ids=str)
def test_a_refusal_names_what_is_wrong(case: Refused) -> None:
    case.check()


@pytest.mark.parametrize("place", [0.0, 0.25, 0.5, 1.0])
def test_cubic_weights_add_up_to_one_and_are_symmetric(place: float) -> None:
    weights = resize.cubic(place)
    assert sum(weights) == pytest.approx(1)
    if place in (0.0, 1.0):
        np.testing.assert_allclose(weights, np.eye(4)[1 + int(place)], atol=1e-12)
    assert weights == pytest.approx(resize.cubic(1 - place)[::-1])
