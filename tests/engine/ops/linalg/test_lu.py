"""Triangular factors with row exchanges, systems solved with them, and products of reflections."""

import numpy as np
import pytest

from gradwire_engine import Reason, tensor
from gradwire_engine.ops.linalg import lu
from tests.engine.oracle import Refused, Same, given, integers, normal, positive_definite, refused, same, torch

L = torch.linalg
A = normal(3, 3)
PACKED = given([[2.0, 1.0], [0.5, 3.0]])
PIVOTS = given([2, 2], "int32", False)
SAME = [
    *(same(lu.lu, L.lu, normal(*shape)) for shape in ((3, 3), (4, 2), (2, 4), (2, 3, 3))),
    same(lu.lu_factor, L.lu_factor, normal(2, 3, 3)),
    same(lu.lu_factor, L.lu_factor, normal(2, 4)),
    same(lu.lu_solve, L.lu_solve, PACKED, PIVOTS, normal(2, 3)),
    same(lu.lu_solve, L.lu_solve, PACKED, PIVOTS, normal(3, 2), left=False),
    same(lu.lu_solve, L.lu_solve, PACKED, PIVOTS, normal(2, 3), adjoint=True),
    same(lu.householder_product, L.householder_product, normal(4, 3), normal(3)),
    same(lu.householder_product, L.householder_product, normal(2, 3, 3), normal(2, 2)),
    same(lu.cholesky_inverse, torch.cholesky_inverse, positive_definite(3), smooth=False, factor=10),
    same(lu.cholesky_inverse, torch.cholesky_inverse, positive_definite(2, 2).constant, True, factor=10),
]
REFUSED = [
    refused(lu.lu, Reason.SHAPE, "Got size: [3]", normal(3), theirs=L.lu),
    refused(lu.lu, Reason.NOT_SUPPORTED, "'Long'", integers(0, 3, 2, 2), theirs=L.lu),
    refused(lu.lu, Reason.RUNTIME, "without pivoting", A, pivot=False, theirs=L.lu),
    refused(lu.lu_factor, Reason.RUNTIME, "is zero", given([[0.0]]), theirs=L.lu_factor),
    refused(lu.lu_solve, Reason.DTYPE, "torch.int32", PACKED, given([1, 2], "int64"), normal(2, 1), theirs=L.lu_solve),
    refused(
        lu.lu_solve, Reason.SHAPE, "Number of pivots", PACKED, given([1], "int32"), normal(2, 1), theirs=L.lu_solve
    ),
    refused(lu.lu_solve, Reason.SHAPE, "AX = B (2x2 and 3x1)", PACKED, PIVOTS, normal(3, 1), theirs=L.lu_solve),
    refused(
        lu.lu_solve,
        Reason.DTYPE,
        "LU of type Double and B of type Float",
        PACKED,
        PIVOTS,
        normal(2, 1, dtype="float32"),
        theirs=L.lu_solve,
    ),
    refused(
        lu.householder_product,
        Reason.SHAPE,
        "at least 2 dimensions",
        normal(3),
        normal(1),
        theirs=L.householder_product,
    ),
    refused(
        lu.householder_product,
        Reason.SHAPE,
        "input.shape[-2] must be greater",
        normal(2, 3),
        normal(2),
        theirs=L.householder_product,
    ),
    refused(
        lu.householder_product, Reason.SHAPE, "tau.shape[-1]", normal(3, 2), normal(3), theirs=L.householder_product
    ),
    refused(
        lu.householder_product,
        Reason.SHAPE,
        "tau.ndim equal to 2",
        normal(3, 2),
        normal(1, 2),
        theirs=L.householder_product,
    ),
    refused(
        lu.householder_product,
        Reason.DTYPE,
        "Float does not match input dtype Double",
        normal(3, 2),
        normal(2, dtype="float32"),
        theirs=L.householder_product,
    ),
    refused(
        lu.cholesky_inverse,
        Reason.RUNTIME,
        "diagonal element 2 is zero",
        given([[1.0, 0.0], [0.0, 0.0]]),
        theirs=torch.cholesky_inverse,
    ),
]


@pytest.mark.parametrize("case", SAME, ids=str)
def test_values_and_gradients_equal_pytorch(case: Same) -> None:
    case.check()


@pytest.mark.parametrize("case", REFUSED, ids=str)
def test_a_refusal_names_what_is_wrong(case: Refused) -> None:
    case.check()


@pytest.mark.parametrize("shape", [(4, 4), (5, 3), (3, 5), (2, 4, 4)])
@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
def test_factors_multiply_to_the_matrix(shape: tuple, dtype: type) -> None:
    array = np.random.default_rng(3).standard_normal(shape).astype(dtype) * (1 if dtype == np.float64 else 1 + 2j)
    p, lower, upper = (each.array for each in lu.lu(tensor(array)))
    np.testing.assert_allclose(p @ lower @ upper, array, atol=1e-12)
    assert (np.abs(lower) <= 1 + 1e-12).all(), "rows are exchanged so that no factor exceeds 1"


def test_a_permutation_applies_exchanges_in_their_order() -> None:
    made = lu._permutation(np.array([3, 3, 3], np.int32), 3, np.dtype(float))
    rows = [0, 1, 2]
    for step, other in enumerate([2, 2, 2]):
        rows[step], rows[other] = rows[other], rows[step]
    expected = np.zeros((3, 3))
    expected[rows, range(3)] = 1
    assert made.tolist() == expected.tolist()
