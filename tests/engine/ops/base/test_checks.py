"""Checks of dims, sizes and memory: what passes, and what each refusal names."""

import numpy as np
import pytest

from gradwire_engine import Account, Context, EngineError, Reason, activate
from gradwire_engine.core import dtypes
from gradwire_engine.ops.base import checks


def test_ints_makes_a_tuple_of_one_several_or_none() -> None:
    assert (checks.ints(3), checks.ints([1, 2]), checks.ints(None)) == ((3,), (1, 2), ())


@pytest.mark.parametrize(("dim", "ndim", "found"), [(0, 3, 0), (-1, 3, 2), (-3, 3, 0), (0, 0, 0), (-1, 0, 0)])
def test_a_dimension_is_counted_from_the_front(dim: int, ndim: int, found: int) -> None:
    assert checks.normalize_dim(dim, ndim) == found


@pytest.mark.parametrize(("dim", "ndim", "span"), [(3, 3, "[-3, 2]"), (-4, 3, "[-3, 2]"), (1, 0, "[-1, 0]")])
def test_a_dimension_out_of_range_is_refused_with_the_range(dim: int, ndim: int, span: str) -> None:
    with pytest.raises(EngineError) as refusal:
        checks.normalize_dim(dim, ndim)
    assert refusal.value.reason is Reason.DIM_OUT_OF_RANGE
    assert f"{span}, but got {dim}" in refusal.value.message
    assert refusal.value.metadata == {"dim": str(dim), "ndim": str(ndim)}


def test_no_dims_mean_all_of_them_and_none_may_come_twice() -> None:
    assert checks.normalize_dims(None, 2) == checks.normalize_dims([], 2) == (0, 1)
    assert checks.normalize_dims((-1, 0), 3) == (2, 0)
    assert checks.normalize_dims(0, 0) == ()
    with pytest.raises(EngineError, match="dim 1 appears multiple times") as refusal:
        checks.normalize_dims((1, -1), 2)
    assert refusal.value.reason is Reason.RUNTIME


def test_an_index_is_counted_from_the_front_or_refused_with_the_size() -> None:
    assert (checks.check_index(-1, 0, 4), checks.check_index(3, 0, 4)) == (3, 3)
    for index in (4, -5):
        with pytest.raises(EngineError, match=f"index {index} is out of bounds for dimension 2 with size 4") as refusal:
            checks.check_index(index, 2, 4)
        assert refusal.value.reason is Reason.INDEX_OUT_OF_RANGE


def test_a_call_of_numbers_only_is_refused_by_the_name_of_the_op() -> None:
    checks.needs_tensor("clip", 1.0, np.ones(1))
    with pytest.raises(EngineError, match=r"clip\(\)") as refusal:
        checks.needs_tensor("clip", 1.0, 2)
    assert refusal.value.reason is Reason.ARGUMENT_TYPE


def test_complex_numbers_have_no_order() -> None:
    checks.needs_order("sort", dtypes.float64)
    with pytest.raises(EngineError, match="\"sort\" not implemented for 'ComplexDouble'") as refusal:
        checks.needs_order("sort", dtypes.complex128)
    assert refusal.value.reason is Reason.NOT_SUPPORTED


def test_bfloat16_is_sorted_as_float32_and_others_as_they_are() -> None:
    half, single = np.ones(2, dtypes.bfloat16), np.ones(2, np.float32)
    assert checks.as_sortable(half).dtype == np.float32
    assert checks.as_sortable(single) is single


@pytest.mark.parametrize(
    "shapes", [((3, 1), (4,)), ((), (2, 3)), ((2, 3), ()), ((1,), (5, 1)), ((0, 1), (1, 3)), ((2,), (2,), (3, 1))]
)
def test_shapes_broadcast_as_numpy_has_it(shapes: tuple) -> None:
    assert checks.broadcast_shape(*shapes) == np.broadcast_shapes(*shapes)


def test_shapes_that_do_not_broadcast_are_refused_with_sizes_and_dimension() -> None:
    with pytest.raises(
        EngineError, match=r"a \(3\) must match the size of tensor b \(2\).* dimension 1.*\[4, 3\], \[2\]"
    ):
        checks.broadcast_shape((4, 3), (2,))


def test_too_many_results_are_refused_before_they_are_made() -> None:
    checks.check_count("split", checks.MOST_RESULTS)
    with pytest.raises(EngineError, match=f"the maximum is {checks.MOST_RESULTS}") as refusal:
        checks.check_count("split", checks.MOST_RESULTS + 1)
    assert refusal.value.reason is Reason.MEMORY_LIMIT


def test_a_reshape_is_a_view_where_strides_allow_and_else_a_copy() -> None:
    x = np.arange(6.0).reshape(2, 3)
    assert np.shares_memory(checks.reshaped(x, (6,)), x)
    assert np.shares_memory(checks.reshaped(x[:, :2], (2, 1, 2)), x)
    assert checks.viewed(x.T, (6,)) is None
    copied = checks.reshaped(x.T, (6,))
    assert not np.shares_memory(copied, x)
    assert copied.tolist() == [0, 3, 1, 4, 2, 5]


def test_a_reshape_that_must_copy_asks_the_account_first() -> None:
    x = np.zeros((64, 64))
    with activate(Context(account=Account(limit=1000))):
        assert checks.reshaped(x, (4096,)).base is not None
        with pytest.raises(EngineError, match="out of memory: 32768") as refusal:
            checks.reshaped(x.T, (4096,))
    assert refusal.value.reason is Reason.MEMORY_LIMIT


def test_admission_counts_bytes_beside_the_result_and_zero_sizes_as_one() -> None:
    with activate(Context(account=Account(limit=80))):
        checks.admit((10,), dtypes.float64)
        checks.admit((0, 10), dtypes.float64)
        for shape, beside in (((10,), 1), ((0, 11), 0)):
            with pytest.raises(EngineError, match="limit of 80"):
                checks.admit(shape, dtypes.float64, beside)


def test_a_negative_or_unaddressable_size_is_refused_with_the_shape() -> None:
    with pytest.raises(EngineError, match=r"negative dimension -2: \[3, -2\]") as refusal:
        checks.admit((3, -2), dtypes.float32)
    assert refusal.value.reason is Reason.RUNTIME
    with pytest.raises(EngineError, match="Storage size calculation overflowed") as refusal:
        checks.admit((1 << 31, 1 << 31), dtypes.float32)
    assert refusal.value.reason is Reason.MEMORY_LIMIT
