"""Products of matrices and vectors: shapes, dtypes, both gradients, half types rounded once."""

import numpy as np
import pytest

from gradwire_engine import Reason, tensor
from gradwire_engine.core import dtypes
from gradwire_engine.ops.linalg import matrix, products
from tests.engine.oracle import Refused, Same, bools, given, integers, normal, refused, same, torch

A, B = normal(3, 4), normal(4, 2)
SHAPES = [
    ((4,), (4,)),
    ((3, 4), (4,)),
    ((4,), (4, 2)),
    ((3, 4), (4, 2)),
    ((2, 3, 4), (4,)),
    ((4,), (2, 4, 3)),
    ((2, 3, 4), (4, 2)),
    ((3, 4), (2, 4, 5)),
    ((2, 1, 3, 4), (5, 4, 2)),
    ((0, 4), (4, 2)),
    ((3, 0), (0, 2)),
]
SAME = [
    *(same(matrix.matmul, torch.matmul, normal(*one), normal(*two)) for one, two in SHAPES),
    same(matrix.matmul, torch.matmul, normal(2, 3, dtype="complex128"), normal(3, 2, dtype="complex128")),
    same(matrix.mm, torch.mm, integers(-9, 9, 2, 3), integers(-9, 9, 3, 2)),
    same(matrix.addmm, torch.addmm, normal(2), A, B, beta=0.5, alpha=-2.0),
    same(matrix.addmm, torch.addmm, given([np.nan, np.nan], grad=False), A, B, beta=0),
    same(matrix.bmm, torch.bmm, normal(2, 3, 4), normal(2, 4, 5)),
    same(matrix.baddbmm, torch.baddbmm, normal(3, 1), normal(2, 3, 4), normal(2, 4, 5), beta=2.0, alpha=0.5),
    same(matrix.mv, torch.mv, A, normal(4)),
    same(matrix.dot, torch.dot, normal(4), normal(4)),
    same(matrix.dot, torch.dot, normal(3, dtype="complex128"), normal(3, dtype="complex128")),
    same(matrix.outer, torch.outer, normal(3), normal(2)),
    same(matrix.trace, torch.trace, normal(3, 4)),
    same(matrix.trace, torch.trace, integers(0, 9, 3, 3, dtype="int32")),
    same(matrix.linear, torch.nn.functional.linear, normal(2, 5, 4), normal(3, 4), normal(3)),
    same(matrix.linear, torch.nn.functional.linear, normal(4), normal(3, 4)),
    same(matrix.linear, torch.nn.functional.linear, normal(5, 4), normal(4)),
]
REFUSED = [
    refused(matrix.mm, Reason.SHAPE, "(3x4 and 3x4)", A, A, theirs=torch.mm),
    refused(matrix.mm, Reason.SHAPE, "mat2 must be a matrix", A, normal(4), theirs=torch.mm),
    refused(matrix.mm, Reason.DTYPE, "double != float", A, normal(4, 2, dtype="float32"), theirs=torch.mm),
    refused(matrix.mm, Reason.NOT_SUPPORTED, "'Bool'", bools(2, 2), bools(2, 2), theirs=torch.mm),
    refused(matrix.addmm, Reason.SHAPE, "Tensor sizes: [5]", normal(5), A, B, theirs=torch.addmm),
    refused(matrix.addmm, Reason.DTYPE, "got Float and Double", normal(2, dtype="float32"), A, B, theirs=torch.addmm),
    refused(
        matrix.bmm,
        Reason.DTYPE,
        "Double but found Float",
        normal(1, 2, 2),
        normal(1, 2, 2, dtype="float32"),
        theirs=torch.bmm,
    ),
    refused(
        matrix.dot, Reason.DTYPE, "found Double and Float", normal(2), normal(2, dtype="float32"), theirs=torch.dot
    ),
    refused(matrix.mv, Reason.DIM_OUT_OF_RANGE, "no dimensions", normal(), normal(2), theirs=torch.mv),
    refused(matrix.matmul, Reason.SHAPE, "they are 0D and 2D", normal(), A, theirs=torch.matmul),
    refused(matrix.linear, Reason.RUNTIME, "0D and 2D", normal(), A, theirs=torch.nn.functional.linear),
    refused(matrix.trace, Reason.SHAPE, "", normal(3), theirs=torch.trace),
]


@pytest.mark.parametrize("case", SAME, ids=str)
def test_values_and_gradients_equal_pytorch(case: Same) -> None:
    case.check()


@pytest.mark.parametrize("case", REFUSED, ids=str)
def test_a_refusal_names_what_is_wrong(case: Refused) -> None:
    case.check()


@pytest.mark.parametrize("dtype", [dtypes.float16, dtypes.bfloat16])
def test_half_types_are_multiplied_in_float32_and_rounded_once(dtype: np.dtype) -> None:
    rng = np.random.default_rng(4)
    a, b = (rng.standard_normal((20, 20)).astype(dtype) for _ in range(2))
    expected = (a.astype(np.float32) @ b.astype(np.float32)).astype(dtype)
    found = matrix.product(np, a, b)
    assert found.dtype == dtype
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(matrix.mm(a, b), expected)
    assert matrix.is_half(dtype)
    assert not matrix.is_half(dtypes.int16)


def test_a_transposed_matrix_is_a_view() -> None:
    array = np.arange(6.0).reshape(2, 3)
    x = tensor(array)
    assert np.shares_memory(matrix.matrix_t(x).array, x.array)
    assert matrix.matrix_t(array).shape == (3, 2)


def test_fold_is_a_view_where_the_layout_allows_it() -> None:
    x = tensor(np.arange(6.0).reshape(2, 3))
    assert matrix.fold(x, (3, 2)).view is not None
    turned = matrix.fold(matrix.matrix_t(x), (6,))
    assert (turned.view, turned.array.tolist()) == (None, [0, 3, 1, 4, 2, 5])


def test_adding_in_place_writes_into_the_tensor() -> None:
    x = tensor(np.zeros((1, 1)))
    matrix.addmm.in_place((x, tensor(np.full((1, 2), 2.0)), tensor(np.full((2, 1), 3.0)), 1, 1))
    assert x.array.tolist() == [[12.0]]


@pytest.mark.parametrize("dtype", ["float32", "complex64"])
def test_exponential_of_single_precision_is_as_exact_as_pytorchs(dtype):
    wide = {"float32": "float64", "complex64": "complex128"}[dtype]
    values = np.random.default_rng(0).uniform(-9, 9, (4, 5, 5)).astype(dtype)
    exact = torch.matrix_exp(torch.tensor(values.astype(wide))).numpy()
    theirs = torch.matrix_exp(torch.tensor(values)).numpy()
    ours = products.matrix_exp(tensor(values)).array
    assert ours.dtype == dtype and np.abs(ours - exact).sum() <= np.abs(theirs - exact).sum()
