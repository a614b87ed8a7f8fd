"""Adaptive maxima: windows that cover the input, their places, ties and nan."""

import numpy as np
import pytest

from gradwire_engine import Reason
from gradwire_engine.ops.nn.pooling import adaptive_max
from tests.engine.oracle import Refused, Same, bools, given, integers, normal, refused, same, torch

F = torch.nn.functional
ONE, TWO, THREE = (
    (getattr(adaptive_max, f"adaptive_max_pool{n}d"), getattr(F, f"adaptive_max_pool{n}d")) for n in (1, 2, 3)
)
SAME = [
    same(*ONE, normal(2, 3, 7), 3),
    same(*ONE, normal(3, 7), 10, True),
    same(*ONE, given([[1.0, 1.0, 0.0, 1.0]]), 2, True, smooth=False),
    same(*ONE, given([[np.nan, 1.0, np.nan, -np.inf]]), 2, True, smooth=False),
    same(*TWO, normal(2, 3, 7, 5), (3, 2), True),
    same(*TWO, normal(2, 7, 5), (None, 2)),
    same(*TWO, normal(1, 2, 3, 3).constant, 0),
    same(*TWO, normal(0, 3, 3).constant, 2, True),
    same(*THREE, normal(1, 2, 4, 5, 6), 2, True),
    same(*ONE, given([[1.0, 1.0, 0.0, 1.0, 2.0, 2.0]]), 3, True, smooth=False),
    same(*ONE, given([[np.nan, np.nan, np.nan, -np.inf, -np.inf, -np.inf]]), 2, True, smooth=False),
    same(*TWO, normal(2, 3, 6, 8), (3, 2), True),
    same(*THREE, normal(2, 4, 6, 3), (2, 3, 1), True),
]
RUN = Reason.RUNTIME
REFUSED = [
    refused(ONE[0], RUN, "Expected 2D or 3D tensor, but got: [7]", normal(7), 3, theirs=ONE[1]),
    refused(TWO[0], RUN, "but received [-1, 2]", normal(1, 4, 4), (-1, 2), theirs=TWO[1]),
    refused(TWO[0], RUN, "input has sizes [1, 2, 0, 3]", normal(1, 2, 0, 3), 2, theirs=TWO[1]),
    refused(ONE[0], Reason.NOT_SUPPORTED, "'Long'", integers(0, 9, 2, 6), 4, theirs=ONE[1]),
    refused(TWO[0], Reason.NOT_SUPPORTED, "'Bool'", bools(1, 3, 3), 2, theirs=TWO[1]),
]


@pytest.mark.parametrize("case", SAME, ids=str)
def test_values_and_gradients_equal_pytorch(case: Same) -> None:
    case.check()


@pytest.mark.parametrize("case", REFUSED, ids=str)
def test_a_refusal_names_what_is_wrong(case: Refused) -> None:
    case.check()


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@pytest.mark.parametrize("seed", range(6))
def test_windows_of_one_size_have_the_maxima_and_places_of_pytorch(seed: int, dtype: str) -> None:
    rng = np.random.default_rng(seed)
    size, kernel = rng.integers(1, 5, 2), rng.integers(1, 9, 2)
    x = rng.integers(-2, 3, (4, 40, *(size * kernel))).astype(dtype)
    for value in (np.nan, np.inf, -np.inf):
        x[rng.random(x.shape) < rng.choice([0, 0.1, 0.7])] = value
    made = TWO[0](x, tuple(size.tolist()), True)
    expected = F.adaptive_max_pool2d(torch.tensor(x), tuple(size.tolist()), return_indices=True)
    for one, other in zip(made, expected, strict=True):
        np.testing.assert_array_equal(one, other.numpy())
