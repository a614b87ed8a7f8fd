"""Cholesky, QR, singular values and Hermitian eigenvalues: factors multiply to A, and derivatives follow."""

import numpy as np
import pytest

from gradwire_engine import EngineError, Reason, gradients, tensor
from gradwire_engine.ops.linalg import decompose
from tests.engine.oracle import Refused, Same, given, integers, normal, positive_definite, refused, same, torch

L = torch.linalg
A, TALL, WIDE = normal(3, 3), normal(2, 4, 3), normal(3, 5)


def _hermitian(compute, index=None):
    """A function of (A + A^T) / 2, so that steps of finite differences stay symmetric."""

    def made(A):
        turned = A.swapaxes(-1, -2) if isinstance(A, torch.Tensor) else decompose.adjoint(A)
        found = compute((A + turned) * 0.5)
        return found if index is None else found[index]

    return made


SAME = [
    same(_hermitian(decompose.cholesky), _hermitian(L.cholesky), positive_definite(4)),
    same(
        _hermitian(lambda A: decompose.cholesky(A, upper=True)),
        _hermitian(lambda A: L.cholesky(A, upper=True)),
        positive_definite(2, 3),
    ),
    same(decompose.qr, L.qr, TALL),
    same(decompose.qr, L.qr, WIDE.constant, "complete"),
    same(lambda A: decompose.qr(A, "r")[1], lambda A: L.qr(A, "r")[1], TALL.constant),
    same(decompose.svdvals, L.svdvals, TALL),
    same(lambda A: decompose.svd(A, False)[1], lambda A: L.svd(A, False)[1], WIDE),
    same(_hermitian(decompose.eigvalsh), _hermitian(L.eigvalsh), normal(2, 3, 3)),
    same(_hermitian(decompose.eigh, 0), _hermitian(L.eigh, 0), A),
    same(decompose.eigvalsh, L.eigvalsh, A.constant, "U"),
    same(decompose.svdvals, L.svdvals, normal(0, 3).constant),
]
REFUSED = [
    refused(
        decompose.cholesky,
        Reason.RUNTIME,
        "(the leading minor of order 2 is not positive-definite)",
        given([[1.0, 2.0], [2.0, 1.0]]),
        theirs=L.cholesky,
    ),
    refused(decompose.cholesky, Reason.RUNTIME, "(Batch element 1)", given([[[1.0]], [[-1.0]]]), theirs=L.cholesky),
    refused(decompose.cholesky, Reason.SHAPE, "they are 3 by 5 matrices", WIDE, theirs=L.cholesky),
    refused(
        decompose.qr,
        Reason.RUNTIME,
        "mode 'full' but expected one of 'reduced' (default), 'r', or 'complete'",
        A,
        "full",
        theirs=L.qr,
    ),
    refused(decompose.svd, Reason.SHAPE, "at least 2 dimensions", normal(3), theirs=L.svd),
    refused(decompose.svdvals, Reason.RUNTIME, "Got Long", integers(0, 3, 2, 2), theirs=L.svdvals),
    refused(decompose.eigh, Reason.RUNTIME, "'L' or 'U', but got X", A, "X", theirs=L.eigh),
]


@pytest.mark.parametrize("case", SAME, ids=str)
def test_values_and_gradients_equal_pytorch(case: Same) -> None:
    case.check()


@pytest.mark.parametrize("case", REFUSED, ids=str)
def test_a_refusal_names_what_is_wrong(case: Refused) -> None:
    case.check()


@pytest.mark.parametrize("full", [True, False])
@pytest.mark.parametrize("shape", [(4, 3), (3, 4), (2, 3, 3)])
def test_factors_of_the_singular_value_decomposition_multiply_to_the_matrix(full: bool, shape: tuple) -> None:
    array = np.random.default_rng(1).standard_normal(shape)
    u, s, vh = (each.array for each in decompose.svd(tensor(array), full))
    k = s.shape[-1]
    np.testing.assert_allclose(u[..., :k] * s[..., None, :] @ vh[..., :k, :], array, atol=1e-12)
    np.testing.assert_allclose(
        u.swapaxes(-1, -2) @ u, np.broadcast_to(np.eye(u.shape[-1]), u.shape[:-2] + (u.shape[-1],) * 2), atol=1e-12
    )
    assert u.shape[-1] == (shape[-2] if full else k)


def test_eigenvectors_are_columns_that_the_matrix_scales() -> None:
    rng = np.random.default_rng(1)
    array = rng.standard_normal((2, 4, 4)) + 1j * rng.standard_normal((2, 4, 4))
    array = array + array.conj().swapaxes(-1, -2)
    values, vectors = (each.array for each in decompose.eigh(tensor(array)))
    np.testing.assert_allclose(array @ vectors, vectors * values[..., None, :], atol=1e-12)
    assert (np.diff(values) >= 0).all()


def test_the_gradient_of_a_projection_on_eigenvectors_equals_pytorchs() -> None:
    array = np.random.default_rng(4).standard_normal((4, 4))
    array = array + array.T
    x, its = tensor(array, True), torch.tensor(array, requires_grad=True)
    vectors, its_vectors = decompose.eigh(x)[1], L.eigh(its)[1]
    (found,), _ = gradients([vectors * vectors], [x], [tensor(np.arange(16.0).reshape(4, 4))])
    (expected,) = torch.autograd.grad(its_vectors**2, its, torch.arange(16.0).double().reshape(4, 4))
    np.testing.assert_allclose(found.array, expected.numpy(), atol=1e-10)


def test_a_loss_that_depends_on_arbitrary_phases_is_refused() -> None:
    rng = np.random.default_rng(8)
    array = rng.standard_normal((3, 3)) + 1j * rng.standard_normal((3, 3))
    x = tensor(array + array.conj().T, True)
    with pytest.raises(EngineError, match="specified up to multiplication by e"):
        gradients([decompose.eigh(x)[1]], [x], [tensor(rng.standard_normal((3, 3)) * 1j)])


@pytest.mark.parametrize(("mode", "says"), [("r", "mode='r'"), ("complete", "mode='complete' and nrows > ncols")])
def test_a_qr_without_the_needed_factor_refuses_in_backward(mode: str, says: str) -> None:
    x = tensor(np.random.default_rng(2).standard_normal((4, 2)), True)
    factor = decompose.qr(x, mode)[1]
    with pytest.raises(EngineError) as refusal:
        gradients([factor], [x], [tensor(np.ones(factor.shape))])
    assert says in refusal.value.message


def test_helpers_arrange_vectors_and_diagonals() -> None:
    values = np.array([1.0, 2.0, 4.0])
    assert decompose.column(values).shape == (3, 1)
    assert decompose.row(values).shape == (1, 3)
    assert decompose.gaps(values).tolist() == [[1, 1, 3], [-1, 1, 2], [-3, -2, 1]]
    matrix = np.arange(9.0).reshape(3, 3)
    assert decompose.diagonals(matrix).tolist() == [0, 4, 8]
    assert np.diagonal(decompose.off_diagonal(matrix)).tolist() == [0, 0, 0]
    assert decompose.off_diagonal(matrix)[0].tolist() == [0, 1, 2]
    assert decompose.real_part(values) is values
    assert decompose.as_dtype(values, np.dtype(complex)).dtype == complex
