"""Maxima of large windows: the same winners as looking at every element, and back to where they lie."""

import numpy as np
import pytest

from gradwire_engine.ops.nn.pooling import wide_pool
from gradwire_engine.ops.nn.windows import Window

WINDOWS = [
    Window((17,), (6,), (1,), (0,), (1,)),
    Window((17,), (5,), (2,), (2,), (3,)),
    Window((9, 11), (4, 5), (1, 2), (2, 1), (1, 2), True),
    Window((5, 6, 7), (2, 3, 4), (1, 1, 2), (1, 0, 2), (1, 1, 1)),
]


def _drawn(window: Window, kind: str) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(9)
    array = (
        rng.integers(-3, 3, (2, *window.size)).astype(float)
        if kind == "ties"
        else rng.standard_normal((2, *window.size))
    )
    if kind == "nan":
        array[rng.random(array.shape) < 0.1] = np.nan
    real = np.zeros(window.padded, bool)
    real[window.inner[1:]] = True
    return window.pad(np, array, -np.inf), real


@pytest.mark.parametrize("window", WINDOWS, ids=lambda window: str(window.kernel))
@pytest.mark.parametrize("kind", ["ties", "values", "nan"])
def test_values_and_numbers_are_those_of_the_first_largest_or_the_last_nan(window: Window, kind: str) -> None:
    padded, real = _drawn(window, kind)
    values, which = wide_pool.wide_max(np, padded, real, window)
    columns = window.columns(np, padded).reshape(2, window.taps, -1)
    for sample in range(2):
        for place, column in enumerate(columns[sample].T):
            gone = np.flatnonzero(np.isnan(column))
            expected = gone[-1] if len(gone) else int(column.argmax())
            assert which[sample].reshape(-1)[place] == expected or np.isinf(column).all()
            np.testing.assert_equal(values[sample].reshape(-1)[place], column[expected])


@pytest.mark.parametrize("window", WINDOWS, ids=lambda window: str(window.kernel))
def test_winners_are_places_in_the_padded_array_and_gradients_go_there(window: Window) -> None:
    padded, real = _drawn(window, "values")
    values, which = wide_pool.wide_max(np, padded, real, window)
    places = wide_pool.maxima_positions(np, which, window)
    np.testing.assert_array_equal(np.take_along_axis(padded.reshape(2, -1), places, 1), values.reshape(2, -1))
    np.testing.assert_array_equal(wide_pool.gather_maxima(np, padded, which, window), values)
    grad = np.random.default_rng(2).standard_normal(values.shape)
    expected = np.zeros((2, padded[0].size))
    for sample in range(2):
        np.add.at(expected[sample], places[sample], grad[sample].reshape(-1))
    spread = wide_pool.scatter_to_maxima(np, grad, which, window)
    assert spread.shape == padded.shape
    np.testing.assert_allclose(spread.reshape(2, -1), expected)


def test_without_padding_all_elements_are_real() -> None:
    window = Window((6,), (3,), (1,), (0,), (1,))
    values, which = wide_pool.wide_max(np, np.array([[1.0, 5.0, 2.0, 5.0, 0.0, 7.0]]), None, window)
    assert (values.tolist(), which.tolist()) == ([[5.0, 5.0, 5.0, 7.0]], [[1, 0, 1, 2]])
    assert which.dtype == np.int32
