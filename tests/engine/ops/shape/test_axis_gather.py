"""Positions taken along the last dimensions, and their adjoint."""

import numpy as np
import pytest

from gradwire_engine import Account, Context, EngineError, Reason, activate, gradients, tensor
from gradwire_engine.core import dtypes
from gradwire_engine.ops.shape import axis_gather

ROWS, COLUMNS = (2, 0, 0), (3, 3, 1, 0)


def test_positions_are_taken_along_each_of_the_last_dimensions() -> None:
    array = np.random.default_rng(1).standard_normal((2, 3, 4))
    found = axis_gather.take_positions(array, (ROWS, COLUMNS), "Some")
    np.testing.assert_array_equal(found, array[:, ROWS, :][:, :, COLUMNS])
    whole = axis_gather.take_positions(array, (tuple(range(4)),), "Some")
    np.testing.assert_array_equal(whole, array)
    assert not np.shares_memory(whole, array)


@pytest.mark.parametrize("dtype", [dtypes.float64, dtypes.float32, dtypes.float16, dtypes.complex128])
def test_adding_is_the_adjoint_of_taking(dtype: np.dtype) -> None:
    rng = np.random.default_rng(2)
    g = rng.integers(-3, 4, (2, 3, 4)).astype(dtype)
    found = axis_gather.add_at_positions(g, (ROWS, COLUMNS), (3, 4), "Some")
    expected = np.zeros((2, 3, 4), dtype)
    for i, row in enumerate(ROWS):
        for j, column in enumerate(COLUMNS):
            expected[:, row, column] += g[:, i, j]
    assert found.dtype == dtype
    np.testing.assert_array_equal(found, expected)
    assert axis_gather.add_at_positions(g[:0], (ROWS, COLUMNS), (3, 4), "Some").shape == (0, 3, 4)


def test_the_node_has_the_given_name_and_the_gradient_returns_to_its_places() -> None:
    x = tensor(np.arange(3.0), True)
    out = axis_gather.take_positions(x, ((2, 2, 0),), "PadBackward7")
    assert out.grad_fn.name == "PadBackward7"
    (found,), _ = gradients([out], [x], [tensor(np.array([1.0, 2.0, 4.0]))])
    assert found.array.tolist() == [4.0, 0.0, 3.0]


def test_positions_that_are_too_many_are_refused_before_they_are_made() -> None:
    made = []
    with activate(Context(account=Account(limit=10_000))), pytest.raises(EngineError) as refusal:
        axis_gather.build_positions("pad", [10**6], lambda: made.append(1))
    assert (refusal.value.reason, made) == (Reason.MEMORY_LIMIT, [])
    assert axis_gather.build_positions("pad", [3, -5], lambda: ((0, 1, 2),)) == ((0, 1, 2),)
