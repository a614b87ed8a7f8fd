"""Eigenvalues and eigenvectors of general square matrices."""

import numpy as np
import pytest

from gradwire_engine import Reason, gradients, tensor
from gradwire_engine.ops.linalg import eigen
from tests.engine.oracle import Refused, given, normal, refused, torch

L = torch.linalg
REFUSED = [
    refused(eigen.eig, Reason.SHAPE, "they are 2 by 3 matrices", normal(2, 3), theirs=L.eig),
    refused(eigen.eig, Reason.RUNTIME, "infs or NaNs", given([[np.inf]]), theirs=L.eig),
    refused(eigen.eigvals, Reason.RUNTIME, "infs or NaNs", given([[np.nan]])),
    refused(eigen.eig, Reason.NOT_SUPPORTED, "'Half'", normal(2, 2, dtype="float16"), theirs=L.eig),
]


@pytest.mark.parametrize("case", REFUSED, ids=str)
def test_a_refusal_names_what_is_wrong(case: Refused) -> None:
    case.check()


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex128])
def test_the_matrix_scales_each_vector_of_norm_one_by_its_value(dtype: type) -> None:
    array = np.random.default_rng(6).standard_normal((2, 5, 5)).astype(dtype)
    values, vectors = (each.array for each in eigen.eig(tensor(array)))
    assert values.dtype == vectors.dtype == np.result_type(dtype, np.complex64)
    tolerance = 2e-5 if dtype == np.float32 else 1e-11
    np.testing.assert_allclose(array @ vectors, vectors * values[..., None, :], atol=tolerance)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=-2), 1, rtol=1e-6)


def test_values_alone_are_those_of_eig_in_any_order() -> None:
    array = np.random.default_rng(6).standard_normal((4, 4))
    np.testing.assert_allclose(
        np.sort_complex(eigen.eigvals(tensor(array)).array), np.sort_complex(np.linalg.eigvals(array)), atol=1e-12
    )


def test_the_gradient_of_a_sum_of_powers_equals_that_of_the_trace_of_the_power() -> None:
    array = np.random.default_rng(9).standard_normal((4, 4))
    x = tensor(array, True)
    values, _ = eigen.eig(x)
    (found,), _ = gradients([values * values * values], [x], [tensor(np.ones(4, complex))])
    np.testing.assert_allclose(found.array, 3 * np.linalg.matrix_power(array, 2).T, atol=1e-10)


def test_the_gradient_through_the_vectors_equals_pytorchs() -> None:
    array = np.random.default_rng(9).standard_normal((3, 3))
    x, its = tensor(array, True), torch.tensor(array, requires_grad=True)
    vectors, its_vectors = eigen.eig(x)[1], L.eig(its)[1]
    weights = np.arange(9.0).reshape(3, 3) + 0j
    shown = vectors * tensor(np.conj(vectors.array))  # the values agree up to a phase of each vector
    its_shown = its_vectors * its_vectors.detach().conj()
    (found,), _ = gradients([shown], [x], [tensor(weights)])
    (expected,) = torch.autograd.grad(its_shown, its, torch.tensor(weights))
    np.testing.assert_allclose(found.array, expected.numpy(), atol=1e-10)
