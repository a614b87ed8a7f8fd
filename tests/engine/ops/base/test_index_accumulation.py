"""Values combined at repeated indices: as np.add.at has it, with or without atomic operations."""

import numpy as np
import pytest

from gradwire_engine.core import dtypes
from gradwire_engine.ops.base import index_accumulation

RNG = np.random.default_rng(11)


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int64, np.complex128])
@pytest.mark.parametrize(("rows", "columns"), [(5, 3), (3000, 4), (3000, 1)])
def test_rows_at_one_place_are_added_up(dtype: type, rows: int, columns: int) -> None:
    values = RNG.integers(-4, 5, (rows, columns)).astype(dtype)
    places = RNG.integers(0, 7, rows)
    expected = np.zeros((9, columns), dtype)
    np.add.at(expected, places, values)
    found = index_accumulation.add_rows(np, values, places, 9)
    assert found.dtype == dtype
    np.testing.assert_array_equal(found, expected)


def test_no_rows_or_columns_give_zeros() -> None:
    assert index_accumulation.add_rows(np, np.ones((0, 3)), np.zeros(0, int), 2).tolist() == [[0, 0, 0], [0, 0, 0]]
    assert index_accumulation.add_rows(np, np.ones((4, 0)), np.zeros(4, int), 2).shape == (2, 0)


def test_half_types_are_added_in_float32_and_rounded_once() -> None:
    ones = np.ones((4096, 1), dtypes.float16)
    assert index_accumulation.add_rows(np, ones, np.zeros(4096, int), 1).tolist() == [[4096.0]]
    halves = ones[:3].astype(dtypes.bfloat16)
    assert index_accumulation.add_rows(np, halves, np.zeros(3, int), 1).dtype == dtypes.bfloat16


def test_add_flat_writes_into_the_array_itself() -> None:
    whole = np.zeros((2, 2))
    index_accumulation.add_flat(np, whole, np.array([3, 3, 0]), np.array([1.0, 2.0, 5.0]))
    assert whole.tolist() == [[5.0, 0.0], [0.0, 3.0]]


@pytest.mark.parametrize("combine", ["add", "multiply", "maximum", "minimum"])
def test_all_values_at_an_index_are_combined(combine: str) -> None:
    target, places, values = RNG.standard_normal(6), RNG.integers(0, 6, 40), RNG.standard_normal(40)
    expected = target.copy()
    for place, value in zip(places, values, strict=True):
        expected[place] = getattr(np, combine)(expected[place], value)
    index_accumulation.combine_at(np, combine, target, places, values)
    np.testing.assert_allclose(target, expected, rtol=1e-12)


@pytest.mark.parametrize("combine", [np.add, np.multiply, np.maximum, np.minimum])
@pytest.mark.parametrize("count", [0, 1, 2, 63, 64, 65])
def test_combining_sorted_runs_gives_the_same_as_one_after_another(combine: np.ufunc, count: int) -> None:
    target, places, values = RNG.standard_normal((2, 3)), RNG.integers(0, 6, count), RNG.standard_normal(count)
    expected = target.copy()
    combine.at(expected.reshape(-1), places, values)
    index_accumulation._combine_sorted(np, combine, target, places, values)
    np.testing.assert_allclose(target, expected, rtol=1e-12)
