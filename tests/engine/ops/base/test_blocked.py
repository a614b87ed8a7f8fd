"""Blocked evaluation: any size, every block once, and only arrays that it accepts."""

import numpy as np
import pytest

from gradwire_engine.ops.base import blocked


def _square_plus(out: np.ndarray, x: np.ndarray, y: np.ndarray, scratch: np.ndarray) -> None:
    np.multiply(x, x, out=scratch)
    np.add(scratch, y, out=out)


@pytest.mark.parametrize("size", [0, 1, 5, blocked.BLOCK - 1, blocked.BLOCK, blocked.BLOCK + 1, 3 * blocked.BLOCK + 7])
def test_every_element_is_computed_once_whatever_the_size(size: int) -> None:
    rng = np.random.default_rng(size)
    x, y = rng.standard_normal((2, size))
    found = blocked.elementwise(_square_plus, 1, x, y)
    np.testing.assert_array_equal(found, x * x + y)
    assert not np.shares_memory(found, x)


def test_the_shape_and_dtype_are_those_of_the_first_array() -> None:
    x = np.ones((3, 4, 5), np.float32)
    found = blocked.elementwise(_square_plus, 1, x, x)
    assert (found.shape, found.dtype) == ((3, 4, 5), np.float32)


def test_a_kernel_sees_blocks_of_a_limited_size_and_scratch_of_the_same() -> None:
    seen = []

    def note(out: np.ndarray, x: np.ndarray, one: np.ndarray, two: np.ndarray) -> None:
        seen.append((out.size, x.size, one.size, two.size))
        assert not np.shares_memory(one, two)
        out[...] = x

    blocked.elementwise(note, 2, np.ones(blocked.BLOCK + 3))
    assert seen == [(blocked.BLOCK,) * 4, (3,) * 4]


def test_only_contiguous_arrays_of_one_shape_and_float_dtype_are_plain() -> None:
    x = np.ones((4, 4))
    assert blocked.is_plain(x, x.copy())
    assert blocked.is_plain(x.astype(np.float32))
    assert not blocked.is_plain(x, x.T)
    assert not blocked.is_plain(x, x.astype(np.float32))
    assert not blocked.is_plain(x, x[0])
    assert not blocked.is_plain(x.astype(np.float16))
    assert not blocked.is_plain(x.astype(np.complex128))
    assert not blocked.is_plain(2.0)
