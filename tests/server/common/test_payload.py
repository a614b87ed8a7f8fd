"""Payloads: every dtype there and back, sizes checked before anything is allocated, bools of 0 and 1 only."""

import numpy as np
import pytest

from gradwire_engine.core import dtypes
from gradwire_server.common import payload
from gradwire_server.common.errors import Refusal


def _drawn(dtype: np.dtype, shape: tuple = (3, 4)) -> np.ndarray:
    rng = np.random.default_rng(1)
    drawn = rng.integers(0, 2, shape) if dtype.kind in "biu" else rng.standard_normal(shape)
    return np.asarray(drawn).astype(dtype)


@pytest.mark.parametrize("name", dtypes.BY_NAME)
def test_every_dtype_has_a_number_and_its_bytes_come_back(name: str) -> None:
    dtype = dtypes.BY_NAME[name]
    assert payload.dtype_of(payload.TO_WIRE[dtype]) == dtype
    array = _drawn(dtype)
    found = payload.array_of(payload.bytes_of(array), dtype, array.shape)
    assert (found.dtype, found.flags.writeable) == (dtype, True)
    np.testing.assert_array_equal(found, array)


@pytest.mark.parametrize("number", [0, 999, -1])
def test_an_unknown_dtype_is_refused_with_those_that_are_known(number: int) -> None:
    with pytest.raises(Refusal, match=f"dtype {number} is not known; the server has bfloat16, bool") as refusal:
        payload.dtype_of(number)
    assert refusal.value.reason == "DTYPE"


@pytest.mark.parametrize(("shape", "size"), [((), 8), ((3, 4), 96), ((0, 1 << 40), 0), ((1,) * 64, 8)])
def test_bytes_follow_from_the_shape(shape: tuple, size: int) -> None:
    assert payload.checked_bytes(shape, dtypes.float64) == size
    assert payload.check_size(shape, dtypes.float64, size) == size


@pytest.mark.parametrize(
    ("shape", "says"),
    [
        ((1,) * 65, "at most 64 dimensions, not 65"),
        ((2, -1), r"no negative sizes: \[2, -1\]"),
        ((1 << 40, 1 << 40), "out of bounds"),
        ((0, 1 << 40, 1 << 40), "out of bounds"),
    ],
)
def test_a_shape_that_no_array_can_have_is_refused(shape: tuple, says: str) -> None:
    with pytest.raises(Refusal, match=says) as refusal:
        payload.checked_bytes(shape, dtypes.float64)
    assert refusal.value.reason == "SHAPE"


@pytest.mark.parametrize(("given", "partial"), [(0, False), (8, False), (25, True)])
def test_bytes_of_another_number_are_refused_with_both_numbers(given: int, partial: bool) -> None:
    with pytest.raises(Refusal, match=rf"float64 of shape \[3\] takes 24 bytes, but {given} were given") as refusal:
        payload.check_size((3,), dtypes.float64, given)
    assert refusal.value.reason == "PAYLOAD_SIZE"
    assert refusal.value.metadata["expected"] == "24"
    assert ("no multiple of the item size 8" in str(refusal.value)) is partial


def test_bools_are_bytes_of_zero_or_one() -> None:
    assert payload.array_of(b"\x00\x01", dtypes.bool_, (2,)).tolist() == [False, True]
    with pytest.raises(Refusal, match="0 or 1") as refusal:
        payload.array_of(b"\x00\x02", dtypes.bool_, (2,))
    assert refusal.value.reason == "ARGUMENT_VALUE"


def test_an_array_may_use_the_bytes_it_was_given() -> None:
    data = np.zeros(16, np.uint8)
    shared = payload.array_of(data, dtypes.float64, (2,), copy=False)
    assert np.shares_memory(shared, data)
    assert not np.shares_memory(payload.array_of(data, dtypes.float64, (2,)), data)


def test_what_travels_is_read_only_and_tells_whether_it_is_the_arrays_memory() -> None:
    array = np.arange(6.0).reshape(2, 3)
    sent, shares = payload.wire_view(array)
    assert (bytes(sent), sent.readonly, shares) == (array.tobytes(), True, True)
    turned, shares = payload.wire_view(array.T)
    assert (bytes(turned), shares) == (array.T.tobytes(), False)
    assert payload.wire_view(np.zeros((0, 3)))[0].nbytes == 0
