"""x[key] and x[key] = value: every kind of key, as PyTorch reads it, with gradients and refusals."""

import numpy as np
import pytest

from gradwire_engine import EngineError, Reason, gradients, tensor
from gradwire_engine.ops.index import index
from tests.engine.oracle import Refused, Same, bools, given, normal, refused, same

X = normal(3, 4, 5)
LONG, SHORT = given([2, 0, 2], "int64", False), given([[1], [-1]], "int64", False)


def _get(x, *key):
    return index.getitem(x, key if len(key) > 1 else key[0])


def _its_get(x, *key):
    return x[key if len(key) > 1 else key[0]]


def _set(x, value, *key):
    return index.setitem(x, key if len(key) > 1 else key[0], value)


def _its_set(x, value, *key):
    x = x.clone()
    x[key if len(key) > 1 else key[0]] = value
    return x


KEYS = [
    (1,),
    (-1, slice(1, 3)),
    (slice(None, None, 2), None, ...),
    (..., -2),
    (None, 2, ..., None, 1),
    (slice(5, 2),),
    (LONG,),
    (LONG, 1),
    (slice(None), LONG, SHORT),
    (LONG, slice(1, 3), given([0, 1, 4], "int64", False)),
    (bools(3),),
    (bools(3, 4),),
    (slice(None), bools(4), 0),
    (True,),
    (False, 1),
    ([2, 0],),
    (given(1, "int64", False), 2),
]
SAME = [
    *(same(_get, _its_get, X, *key) for key in KEYS),
    *(same(_set, _its_set, X, 2.5, *key) for key in KEYS),
    same(_set, _its_set, X, normal(4, 5), 1),
    same(_set, _its_set, X, normal(1, 5), slice(None), slice(1, 3)),
    same(_set, _its_set, X, normal(2, 5), given([2, 0], "int64", False), 1),
    same(index.index_put, lambda x, keys, v, add: x.index_put(tuple(keys), v, add), normal(4), [LONG], normal(3), True),
    same(
        index.index_put,
        lambda x, keys, v: x.index_put(tuple(keys), v),
        normal(4),
        [given([1, 3], "int64", False)],
        normal(2),
    ),
]
OUT = Reason.INDEX_OUT_OF_RANGE
REFUSED = [
    refused(_get, OUT, "index 3 is out of bounds for dimension 0 with size 3", X, 3, theirs=_its_get),
    refused(_get, OUT, "index -6 is out of bounds for dimension 2 with size 5", X, ..., -6, theirs=_its_get),
    refused(
        _get, OUT, "index 7 is out of bounds for dimension 0 with size 4", X, 0, given([7], "int64"), theirs=_its_get
    ),
    refused(_get, OUT, "too many indices for tensor of dimension 3", X, 0, 0, 0, 0, theirs=_its_get),
    refused(_get, OUT, "invalid index of a 0-dim tensor", normal(), 0, theirs=_its_get),
    refused(
        _get,
        OUT,
        "mask [2] at index 0 does not match the shape of the indexed tensor [3, 4, 5]",
        X,
        bools(2),
        theirs=_its_get,
    ),
    refused(_get, OUT, "must be long, int, byte or bool", X, normal(2), theirs=_its_get),
    refused(
        _get,
        OUT,
        "could not be broadcast together with shapes [3], [2]",
        X,
        LONG,
        given([0, 1], "int64"),
        theirs=_its_get,
    ),
    refused(_get, OUT, "(got str)", X, "name", theirs=_its_get),
    refused(_get, Reason.ARGUMENT_VALUE, "step cannot be zero", X, slice(None, None, 0), theirs=_its_get),
    refused(
        _set,
        Reason.SHAPE,
        "shape [3] cannot be broadcast to indexing result of shape [4, 5]",
        X,
        normal(3),
        0,
        theirs=_its_set,
    ),
    refused(
        index.index_put,
        Reason.RUNTIME,
        "Double for the destination and Float",
        normal(4),
        [LONG],
        normal(3, dtype="float32"),
    ),
    refused(index.index_put, Reason.RUNTIME, "shape [2] cannot be broadcast", normal(4), [LONG], normal(2)),
    refused(index.index_put, Reason.RUNTIME, "shape [1, 1] cannot be broadcast", normal(4), [LONG], normal(1, 1)),
    # One value fills a mask, which must be boolean then: PyTorch takes other values for a mask of bytes.
    refused(index.index_put, Reason.RUNTIME, "dtype unsigned char", normal(2), [given([1, 0], "uint8")], normal()),
    refused(_set, Reason.RUNTIME, "dtype unsigned char", X, normal(), given([1, 0, 1], "uint8"), theirs=_its_set),
]


@pytest.mark.parametrize("case", SAME, ids=str)
def test_values_and_gradients_equal_pytorch(case: Same) -> None:
    case.check()


@pytest.mark.parametrize("case", REFUSED, ids=str)
def test_a_refusal_names_what_is_wrong(case: Refused) -> None:
    case.check()


def test_a_key_of_ints_and_slices_gives_a_view_and_one_of_arrays_a_copy() -> None:
    x = tensor(np.arange(12.0).reshape(3, 4))
    assert np.shares_memory(index.getitem(x, (1, slice(1, 3))).array, x.array)
    assert not np.shares_memory(index.getitem(x, tensor(np.array([1]))).array, x.array)


@pytest.mark.parametrize("key", [slice(None, None, 0), (0, slice(None, None, -1)), (slice(None, None, 0), LONG)])
def test_a_write_through_a_slice_without_a_positive_step_is_refused(key) -> None:
    x = tensor(np.zeros((3, 4, 5)))
    with pytest.raises(EngineError) as caught:
        index.setitem.in_place((x, key, 1.0))
    assert caught.value.reason is Reason.ARGUMENT_VALUE
    assert not x.array.any()


def test_setitem_in_place_writes_into_the_storage_and_cuts_the_gradient() -> None:
    leaf = tensor(np.ones((2, 3)), True)
    x = leaf * 2.0
    array = x.array
    index.setitem.in_place((x, (0, slice(1, None)), 7.0))
    assert array.tolist() == [[2, 7, 7], [2, 2, 2]]
    (found,), _ = gradients([x], [leaf], [tensor(np.ones((2, 3)))])
    assert found.array.tolist() == [[2, 0, 0], [2, 2, 2]]


def test_writing_a_part_into_another_part_that_overlaps_is_refused() -> None:
    x = tensor(np.arange(4.0))
    with pytest.raises(EngineError, match="refer to a single memory location"):
        index.setitem.in_place((x, slice(1, 4), index.getitem(x, slice(0, 3))))
    assert x.array.tolist() == [0, 1, 2, 3]


def test_checked_counts_negative_positions_from_the_end() -> None:
    assert index.checked(np, np.array([-1, 0, 2]), 3, 0).tolist() == [2, 0, 2]
    with pytest.raises(EngineError, match="index -4 is out of bounds for dimension 1 with size 3") as refusal:
        index.checked(np, np.array([0, -4]), 3, 1, Reason.RUNTIME)
    assert refusal.value.reason is Reason.RUNTIME
    assert refusal.value.metadata == {"dim": "1", "size": "3"}


def test_integer_arrays_count_from_zero_whatever_their_width() -> None:
    found = index.index_(np.arange(5.0), [np.array([4, 1], np.int32)])
    assert found.tolist() == [4.0, 1.0]
    assert index.index_(np.arange(6.0).reshape(2, 3), [None, np.array([2])]).tolist() == [[2.0], [5.0]]


@pytest.mark.parametrize("shape", [(3, 3, 1), (3,), (5, 4, 2), (4, 3)], ids=str)
def test_values_that_do_not_fit_beside_whole_dimensions_are_refused_before_they_are_added(
    shape: tuple[int, ...],
) -> None:
    x = tensor(np.zeros((4, 3), np.float32))
    with pytest.raises(EngineError, match="cannot be broadcast to indexing result of shape \\[4, 2\\]"):
        index.index_put(x, [None, tensor(np.array([0, 1]))], tensor(np.ones(shape, np.float32)), True)
    added = index.index_put(x, [None, tensor(np.array([1, 1]))], tensor(np.ones((4, 2), np.float32)), True)
    np.testing.assert_array_equal(added.array, np.tile(np.float32([0, 2, 0]), (4, 1)))
