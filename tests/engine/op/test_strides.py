"""Memory layouts: where an array lies in its allocation, and copies with the same layout."""

import numpy as np
import pytest

from gradwire_engine.op import strides

VIEWS = {
    "whole": lambda x: x,
    "part": lambda x: x[1:, ::2],
    "transposed": lambda x: x.T[2:],
    "reversed twice": lambda x: x[::-1][::-1][2:],
    "expanded": lambda x: np.broadcast_to(x[:, :1], x.shape),
    "windows": lambda x: np.lib.stride_tricks.as_strided(x, (3, 2), (8, 8)),
    "empty": lambda x: x[2:2],
}


@pytest.mark.parametrize("name", VIEWS)
def test_a_view_lies_in_the_memory_of_the_array_that_allocated_it(name: str) -> None:
    x = np.arange(20.0).reshape(4, 5).copy()
    view = VIEWS[name](x)
    assert strides.owner_of(view) is x
    offset, size = strides.memory_of(view)
    assert size == 20
    if view.size:
        assert x.reshape(-1)[offset] == view[(0,) * view.ndim]


@pytest.mark.parametrize("name", VIEWS)
def test_a_copy_with_a_geometry_has_its_strides_and_values(name: str) -> None:
    x = np.random.default_rng(1).standard_normal((4, 5))
    view = VIEWS[name](x)
    geometry = strides.geometry_of(view)
    found = strides.laid_out(np, np.ascontiguousarray(view), geometry)
    np.testing.assert_array_equal(found, view)
    assert (found.shape, found.strides) == (view.shape, view.strides)
    assert strides.geometry_of(found) == geometry
    assert not np.shares_memory(found, x)


def test_the_dtype_is_that_of_the_values() -> None:
    geometry = strides.geometry_of(np.zeros((2, 2)).T)
    found = strides.laid_out(np, np.ones((2, 2), np.float32), geometry)
    assert (found.dtype, found.strides) == (np.float32, (4, 8))
