"""Arithmetic, casts, expand and sum_to_size: what formulas are written with."""

import numpy as np
import pytest

from gradwire_engine import Reason, tensor
from gradwire_engine.core import dtypes
from gradwire_engine.ops.base import basic
from tests.engine.oracle import (
    Refused,
    Same,
    bools,
    given,
    integers,
    normal,
    refused,
    same,
    torch,
    uniform,
)

SAME = [
    same(basic.add, torch.add, normal(3, 4), normal(4), alpha=2.5),
    same(basic.add, torch.add, integers(-9, 9, 5), integers(-9, 9, 5, dtype="int32"), alpha=3),
    *(
        same(basic.add, torch.add, integers(0, 2, 9, dtype="bool"), integers(0, 2, 9, dtype="bool"), alpha=alpha)
        for alpha in (0, 1, 3, True, False)
    ),
    same(basic.add, torch.add, normal(3, dtype="complex128"), normal(3), alpha=2 - 1j),
    same(basic.sub, torch.sub, normal(2, 1), normal(2, 3), alpha=-3),
    same(basic.mul, torch.mul, normal(2, 3), normal(3)),
    same(basic.mul, torch.mul, normal(3, dtype="complex128"), normal(3)),
    same(basic.neg, torch.neg, normal(2, 0)),
    same(basic.div, torch.div, normal(3, 1), uniform(0.5, 2, 4)),
    same(basic.div, torch.div, normal(3, dtype="complex128"), normal(3, dtype="complex128")),
    same(basic.div, torch.div, integers(-9, 9, 6), integers(1, 5, 6)),
    same(basic.div, torch.div, normal(6), uniform(0.5, 2, 6), rounding_mode="floor", smooth=False),
    same(basic.div, torch.div, integers(-9, 9, 9), integers(1, 4, 9), rounding_mode="trunc"),
    same(basic.expand, lambda x, size: x.expand(size), normal(3, 1), (2, -1, 4)),
    same(basic.expand, lambda x, size: x.expand(size), normal(), (2, 2)),
    same(basic.sum_to_size, torch.Tensor.sum_to_size, normal(2, 3, 4), (3, 1)),
    same(basic.sum_to_size, torch.Tensor.sum_to_size, normal(2, 3), (2, 3)),
    same(basic.cast, torch.Tensor.to, normal(4), dtypes.float32),
    same(basic.cast, torch.Tensor.to, uniform(-100, 100, 4), dtypes.int16),
]
REFUSED = [
    refused(basic.sub, Reason.DTYPE, "two bool tensors", bools(2), bools(2), theirs=torch.sub),
    refused(basic.neg, Reason.DTYPE, "on a bool tensor", bools(2), theirs=torch.neg),
    refused(basic.add, Reason.SHAPE, "size of tensor a (3) must match the size of tensor b (4)", normal(3), normal(4)),
    refused(basic.add, Reason.RUNTIME, "must not be a floating point number", integers(0, 3, 2), 1, alpha=0.5),
    refused(basic.add, Reason.RUNTIME, "must not be a floating point number", integers(0, 3, 2), 1, alpha=1.0),
    refused(basic.sub, Reason.RUNTIME, "must not be a floating point number", integers(0, 3, 2), 1, alpha=1.0),
    refused(basic.add, Reason.RUNTIME, "must not be a complex number", normal(2), 1.0, alpha=1j),
    refused(basic.add, Reason.RUNTIME, "Boolean alpha only", normal(2), 1.0, alpha=True),
    refused(basic.div, Reason.RUNTIME, "'trunc', or 'floor' but found 'up'", normal(2), 2.0, rounding_mode="up"),
    refused(basic.div, Reason.RUNTIME, "ZeroDivisionError", given([1], "int64"), 0, rounding_mode="floor"),
    refused(basic.div, Reason.NOT_SUPPORTED, "div_trunc_cpu", bools(2), bools(2), rounding_mode="trunc"),
    refused(basic.expand, Reason.SHAPE, "(4) must match the existing size (3)", normal(3), (2, 4)),
    refused(basic.sum_to_size, Reason.SHAPE, "size [2] is not expandable to size [3]", normal(3), (2,)),
]


@pytest.mark.parametrize("case", SAME, ids=str)
def test_values_and_gradients_equal_pytorch(case: Same) -> None:
    case.check()


@pytest.mark.parametrize("case", REFUSED, ids=str)
def test_a_refusal_names_what_is_wrong(case: Refused) -> None:
    case.check()


def test_conj_leaves_real_values_as_they_are() -> None:
    real = np.ones(2)
    assert basic.conj(real) is real
    assert (basic.conj(2.5), basic.conj(1 + 2j)) == (2.5, 1 - 2j)
    np.testing.assert_array_equal(basic.conj(np.array([1 + 2j])), [1 - 2j])


def test_expand_shares_memory_and_has_strides_of_zero_where_it_stretches() -> None:
    x = np.arange(3.0).reshape(3, 1)
    shown = basic.expand(x, (2, 3, 4))
    assert np.shares_memory(shown, x)
    assert shown.strides == (0, 8, 0)


def test_fit_sums_casts_and_takes_the_real_part_of_a_gradient() -> None:
    gradient = np.full((2, 3), 1 + 5j)
    fitted = basic.fit(gradient, ((3,), dtypes.float32))
    assert fitted.dtype == dtypes.float32
    assert fitted.tolist() == [2.0, 2.0, 2.0]
    assert basic.fit(fitted, ((3,), dtypes.float32)) is fitted


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("axes", [(0,), (1,), (2,), (0, 2), (0, 1), (1, 2), (0, 1, 2)])
@pytest.mark.parametrize("keepdims", [False, True])
def test_sum_axes_of_large_arrays_is_as_exact_as_a_sum_in_double(dtype: type, axes: tuple, keepdims: bool) -> None:
    array = np.random.default_rng(7).standard_normal((7, 5, 2500)).astype(dtype)
    found = basic.sum_axes(np, array, axes, keepdims)
    expected = array.astype(np.longdouble).sum(axes, keepdims=keepdims)
    assert (found.shape, found.dtype) == (expected.shape, dtype)
    np.testing.assert_allclose(
        found, expected.astype(dtype), rtol=0, atol=np.abs(array).sum() / 16 * np.finfo(dtype).eps
    )


def test_casting_complex_to_real_drops_the_imaginary_part_and_copies() -> None:
    z = np.array([1 + 2j])
    assert basic.cast(z, dtypes.float64).tolist() == [1.0]
    x = np.ones(2)
    assert not np.shares_memory(basic.cast(x, dtypes.float64), x)


def test_real_view_shares_memory_and_real_copies() -> None:
    z = tensor(np.array([1 + 2j, 3 - 1j]))
    assert np.shares_memory(basic.real_view(z).array, z.array)
    assert not np.shares_memory(basic.real(z).array, z.array)


def test_copied_lies_in_row_order() -> None:
    assert basic.copied(None, np.ones((2, 3)).T).flags.c_contiguous
