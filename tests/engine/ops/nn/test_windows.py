"""Sliding windows: counts as PyTorch's pooling has them, slices, and the view of all of them."""

import itertools

import numpy as np
import pytest

from gradwire_engine import EngineError, Reason
from gradwire_engine.ops.nn.windows import Window, count_outputs, padded_size, per_dim
from tests.engine.oracle import torch

GRID = [
    (n, k, s, p, d, c)
    for n, k, s, p, d, c in itertools.product((4, 7), (1, 2, 3), (1, 2, 3), (0, 1), (1, 2), (False, True))
    if p <= k // 2 and n + 2 * p >= d * (k - 1) + 1
]


def test_an_argument_is_given_once_or_per_dimension() -> None:
    assert (per_dim(3, 2, ""), per_dim([4], 3, ""), per_dim((1, 2), 2, "")) == ((3, 3), (4, 4, 4), (1, 2))
    with pytest.raises(EngineError, match="stride must be 2 ints") as refusal:
        per_dim((1, 2, 3), 2, "stride must be 2 ints")
    assert refusal.value.reason is Reason.RUNTIME


def test_the_number_of_windows_is_that_of_max_pooling() -> None:
    for n, k, s, p, d, ceil in GRID:
        expected = torch.nn.functional.max_pool1d(torch.zeros(1, 1, n), k, s, p, d, ceil).shape[-1]
        window = Window((n,), (k,), (s,), (p,), (d,), ceil)
        assert window.output == (expected,), (n, k, s, p, d, ceil)
        assert window.padded[0] >= (expected - 1) * s + d * (k - 1) + 1


@pytest.mark.parametrize("ceil", [False, True])
def test_the_view_of_windows_and_the_slices_show_the_same_elements(ceil: bool) -> None:
    window = Window((5, 6), (2, 3), (2, 1), (1, 1), (1, 2), ceil)
    array = np.random.default_rng(1).standard_normal((2, 3, 5, 6))
    padded = window.pad(np, array, -7.0)
    assert padded.shape == (2, 3, *window.padded)
    np.testing.assert_array_equal(padded[window.inner], array)
    assert (padded == -7.0).sum() == padded.size - array.size
    columns = window.columns(np, padded)
    assert np.shares_memory(columns, padded)
    seen = 0
    for (i, j), key in window.offsets():
        np.testing.assert_array_equal(columns[:, :, i, j], padded[key])
        seen += 1
    assert seen == window.taps == 6


def test_without_padding_the_input_itself_is_used() -> None:
    window = Window((4,), (2,), (2,), (0,), (1,))
    array = np.zeros((1, 4))
    assert window.pad(np, array) is array


@pytest.mark.parametrize(
    ("kernel", "stride", "dilation", "overlaps"), [(3, 3, 1, False), (3, 2, 1, True), (2, 2, 2, True), (1, 1, 9, False)]
)
def test_windows_overlap_where_the_stride_is_shorter_than_the_window(kernel, stride, dilation, overlaps) -> None:
    assert Window((20,), (kernel,), (stride,), (0,), (dilation,)).overlaps is overlaps


def test_counts_for_costs_agree_with_windows() -> None:
    for n, k, s, p, d, _ in GRID:
        window = Window((n, n), (k, k), (s, s), (p, p), (d, d))
        given = ((n, n), (k, k), (s, s), (p, p), (d, d))
        assert count_outputs(*given) == window.output[0] * window.output[1]
        assert padded_size(*given) == max(n + 2 * p, d * (k - 1) + 1) ** 2
