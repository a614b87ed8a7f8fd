"""Inverses, determinants, linear systems, and the checks that all of linear algebra shares."""

import numpy as np
import pytest

from gradwire_engine import EngineError, Reason, gradients, tensor
from gradwire_engine.core import dtypes
from gradwire_engine.ops.linalg import linalg
from tests.engine.oracle import Refused, Same, given, integers, normal, positive_definite, refused, same, torch

L = torch.linalg
A, BATCH, SINGULAR = normal(3, 3), normal(2, 3, 3), given([[1.0, 2.0], [2.0, 4.0]])


def _triangle(function, upper: bool, **options):
    cut = np.triu if upper else np.tril

    def made(A, B):
        mask = cut(np.ones((3, 3))) + 2 * np.eye(3)
        mask = torch.tensor(mask) if isinstance(A, torch.Tensor) else tensor(mask)
        return function(A * mask, B, upper=upper, **options)

    return made


SAME = [
    same(linalg.inv, L.inv, BATCH, factor=10),
    same(linalg.inverse, torch.inverse, normal(2, 2, dtype="complex128")),
    same(linalg.inv, L.inv, normal(0, 0)),
    same(linalg.pinv, L.pinv, normal(2, 4, 3), factor=10),
    same(linalg.pinv, L.pinv, normal(3, 5), factor=10),
    same(linalg.pinv, L.pinv, SINGULAR.constant, rtol=0.1),
    same(linalg.pinv, L.pinv, positive_definite(3), hermitian=True, smooth=False),
    same(linalg.det, L.det, BATCH),
    same(linalg.det, L.det, SINGULAR.constant),
    same(linalg.det_, torch.det, normal(2, 2)),
    same(linalg.slogdet, L.slogdet, BATCH),
    same(linalg.slogdet_, torch.slogdet, SINGULAR.constant),
    same(linalg.logdet, torch.logdet, positive_definite(3), smooth=False),
    same(linalg.logdet, torch.logdet, given([[-1.0]], grad=False)),
    same(linalg.solve, L.solve, A, normal(3), factor=10),
    same(linalg.solve, L.solve, BATCH, normal(2, 3, 2), factor=10),
    same(linalg.solve, L.solve, BATCH, normal(2, 3), factor=10),
    same(linalg.solve, L.solve, A, normal(4, 2, 3), left=False, factor=10),
    *(
        same(
            _triangle(linalg.solve_triangular, up, left=left),
            _triangle(L.solve_triangular, up, left=left),
            A,
            normal(3, 3),
            factor=10,
        )
        for up in (True, False)
        for left in (True, False)
    ),
    same(
        _triangle(linalg.solve_triangular, True, unitriangular=True),
        _triangle(L.solve_triangular, True, unitriangular=True),
        A,
        normal(3, 2),
        factor=10,
    ),
    same(linalg.cholesky_solve, torch.cholesky_solve, normal(3, 2), positive_definite(3).constant, factor=10),
    same(linalg.matrix_power, L.matrix_power, A, 5, factor=10),
    same(linalg.matrix_power, L.matrix_power, A, 0),
    same(linalg.matrix_power, L.matrix_power, BATCH, -2, factor=1000),
]
REFUSED = [
    refused(linalg.inv, Reason.RUNTIME, "The diagonal element 2 is zero", SINGULAR, theirs=L.inv),
    refused(
        linalg.inv,
        Reason.RUNTIME,
        "(Batch element 1): The diagonal element 1 is zero",
        given([[[1.0]], [[0.0]]]),
        theirs=L.inv,
    ),
    refused(linalg.inv, Reason.SHAPE, "they are 3 by 2 matrices", normal(3, 2), theirs=L.inv),
    refused(linalg.det, Reason.SHAPE, "at least 2 dimensions", normal(2), theirs=L.det),
    refused(linalg.inv, Reason.RUNTIME, "Got Long", integers(0, 3, 2, 2), theirs=L.inv),
    refused(linalg.inv, Reason.RUNTIME, "Got Half", normal(2, 2, dtype="float16"), theirs=L.inv),
    refused(linalg.solve, Reason.RUNTIME, "the input matrix is singular", SINGULAR, normal(2), theirs=L.solve),
    refused(linalg.solve, Reason.SHAPE, "AX = B (3x3 and 2x1)", A, normal(2, 1), theirs=L.solve),
    refused(
        linalg.solve,
        Reason.DTYPE,
        "A of type Double and B of type Float",
        A,
        normal(3, dtype="float32"),
        theirs=L.solve,
    ),
    refused(linalg.solve, Reason.SHAPE, "left=False", A, normal(3), left=False, theirs=L.solve),
    refused(
        linalg.solve_triangular,
        Reason.SHAPE,
        "XA = B (3x3 and 2x2)",
        A,
        normal(2, 2),
        upper=True,
        left=False,
        theirs=L.solve_triangular,
    ),
    refused(
        linalg.cholesky_solve,
        Reason.SHAPE,
        "at least 2 dimensions, but has 1",
        normal(3),
        A,
        theirs=torch.cholesky_solve,
    ),
    refused(linalg.pinv, Reason.RUNTIME, "atol tensor of complex type", A, atol=given(1j, "complex128"), theirs=L.pinv),
]


@pytest.mark.parametrize("case", SAME, ids=str)
def test_values_and_gradients_equal_pytorch(case: Same) -> None:
    case.check()


@pytest.mark.parametrize("case", REFUSED, ids=str)
def test_a_refusal_names_what_is_wrong(case: Refused) -> None:
    case.check()


def test_a_limit_of_the_pseudo_inverse_gets_no_gradient() -> None:
    limit = tensor(np.array(0.1), True)
    out = linalg.pinv(tensor(np.eye(2)), rtol=limit)
    with pytest.raises(EngineError, match="'rtol', or 'atol'"):
        gradients([out], [limit], [tensor(np.eye(2))])


@pytest.mark.parametrize(
    ("array", "cofactors"),
    [([[1.0, 2.0], [2.0, 4.0]], [[4.0, -2.0], [-2.0, 1.0]]), ([[0.0, 0.0], [0.0, 3.0]], [[3.0, 0.0], [0.0, 0.0]])],
)
def test_the_gradient_of_the_determinant_of_a_singular_matrix_is_its_cofactors(array: list, cofactors: list) -> None:
    x = tensor(np.array(array), True)
    (found,), _ = gradients([linalg.det(x)], [x], [tensor(np.array(1.0))])
    np.testing.assert_allclose(found.array, cofactors, atol=1e-12)


def test_singular_matrices_are_found_one_by_one() -> None:
    matrices = np.stack([np.eye(2), np.zeros((2, 2)), np.ones((2, 2)), np.array([[0.0, 1.0], [1.0, 0.0]])])
    assert linalg.is_singular(matrices).tolist() == [False, True, True, False]


@pytest.mark.parametrize(
    ("atol", "rtol", "limits"),
    [(None, None, 3 * 8 * 2.0**-52), (0.5, None, 0.5), (None, 0.25, 2.0), (1.0, 0.25, 2.0), (3.0, 0.25, 3.0)],
)
def test_the_limit_of_a_rank_is_the_larger_of_absolute_and_relative(atol, rtol, limits: float) -> None:
    values = np.array([8.0, 2.0, 0.1])
    assert linalg.rank_limit(np, np.zeros((3, 2)), values, atol, rtol).tolist() == [pytest.approx(limits)]


def test_solve_takes_vectors_where_shapes_say_so() -> None:
    assert linalg.is_vector(np.zeros((2, 3, 3)), np.zeros((2, 3)))
    assert linalg.is_vector(np.zeros((3, 3)), np.zeros(3))
    assert not linalg.is_vector(np.zeros((2, 3, 3)), np.zeros((3, 3)))


def test_solved_bytes_bound_what_solve_returns() -> None:
    for a, b in [((4, 1, 3, 3), (5, 3, 2)), ((2, 3, 3), (2, 3)), ((3, 3), (3, 7))]:
        A, B = np.random.default_rng(1).standard_normal(a), np.ones(b)
        assert linalg.solved_bytes(A, B) >= linalg.solve(A, B).nbytes


@pytest.mark.parametrize("kernel", ["linalg_eigh_cpu", "triangular_solve_cpu"])
def test_an_unchecked_kernel_refuses_whole_numbers_by_its_name(kernel: str) -> None:
    with pytest.raises(EngineError, match=f"\"{kernel}\" not implemented for 'Long'") as refusal:
        linalg.needs_float("linalg.eigh", np.zeros((2, 2), np.int64), kernel)
    assert refusal.value.reason is Reason.NOT_SUPPORTED


def test_checks_of_shapes_pass_what_fits() -> None:
    square = np.zeros((2, 3, 3))
    linalg.needs_square("f", square)
    linalg.needs_matrices("f", np.zeros((2, 3)))
    linalg.needs_float("f", np.zeros((0, 0), dtypes.float16), "lu_cpu")
    linalg.check_same_dtype("f", square, square)
    linalg.check_sides("f", square, np.zeros((3, 5)), left=True)
    assert np.array_equal(linalg.adjoint(np.array([[1j, 2]])), [[-1j], [2]])
    assert linalg.solvers(np).__name__ == "scipy.linalg"


def test_the_gradient_of_the_pseudo_inverse_formula_is_that_of_the_op() -> None:
    x = tensor(np.random.default_rng(2).standard_normal((2, 3)), True)
    out = linalg.pinv(x)
    g = tensor(np.random.default_rng(3).standard_normal((3, 2)))
    (found,), _ = gradients([out], [x], [g])
    np.testing.assert_allclose(linalg.pinv_backward(g.array, x.array, out.array), found.array, rtol=1e-12)
