"""grid_sample: every mode, padding and alignment, with both gradients."""

import pytest

from gradwire_engine import Reason
from gradwire_engine.ops.nn.sampling.grid import grid_sample
from tests.engine.oracle import Refused, Same, normal, refused, same, torch, uniform

F = torch.nn.functional
IMAGE, GRID = normal(2, 3, 4, 5), uniform(-1.4, 1.4, 2, 3, 2, 2)
MODES, PADS = ("bilinear", "nearest", "bicubic"), ("zeros", "border", "reflection")
SAME = [
    *(
        same(grid_sample, F.grid_sample, IMAGE, GRID, mode, pad, align)
        for mode in MODES
        for pad in PADS
        for align in (True, False)
    ),
    *(
        same(grid_sample, F.grid_sample, normal(1, 2, 3, 3, 4), uniform(-1.3, 1.3, 1, 2, 2, 2, 3), mode, "zeros", False)
        for mode in MODES[:2]
    ),
    same(grid_sample, F.grid_sample, normal(1, 1, 1, 1), uniform(-1, 1, 1, 2, 2, 2), "bilinear", "reflection", True),
]
RUN, BAD = Reason.RUNTIME, Reason.ARGUMENT_VALUE
REFUSED = [
    refused(
        grid_sample,
        BAD,
        "'bilinear', 'nearest' or 'bicubic', but got: 'cubic'",
        IMAGE,
        GRID,
        "cubic",
        theirs=F.grid_sample,
    ),
    refused(
        grid_sample,
        BAD,
        "'border', or 'reflection', but got: 'wrap'",
        IMAGE,
        GRID,
        padding_mode="wrap",
        theirs=F.grid_sample,
    ),
    refused(grid_sample, RUN, "input with sizes [3, 4, 5]", normal(3, 4, 5), normal(3, 2, 2), theirs=F.grid_sample),
    refused(grid_sample, RUN, "same batch size", IMAGE, uniform(-1, 1, 1, 3, 2, 2), theirs=F.grid_sample),
    refused(grid_sample, RUN, "size 2 in last dimension", IMAGE, uniform(-1, 1, 2, 3, 2, 3), theirs=F.grid_sample),
    refused(grid_sample, RUN, "non-empty spatial dimensions", normal(2, 3, 0, 5), GRID, theirs=F.grid_sample),
    refused(grid_sample, RUN, "same dtype", IMAGE, uniform(-1, 1, 2, 3, 2, 2, dtype="float32"), theirs=F.grid_sample),
    refused(
        grid_sample,
        RUN,
        "only supports 4D input",
        normal(1, 1, 2, 2, 2),
        uniform(-1, 1, 1, 1, 1, 1, 3),
        "bicubic",
        theirs=F.grid_sample,
    ),
]


@pytest.mark.parametrize("case", SAME, ids=str)
def test_values_and_gradients_equal_pytorch(case: Same) -> None:
    case.check()


@pytest.mark.parametrize("case", REFUSED, ids=str)
def test_a_refusal_names_what_is_wrong(case: Refused) -> None:
    case.check()
