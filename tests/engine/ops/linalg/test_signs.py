"""Eigenvectors and singular vectors have the signs that PyTorch's LAPACK gives them."""

import numpy as np
import pytest

from gradwire_engine import tensor
from gradwire_engine.ops.linalg import decompose, eigen, signs
from tests.engine.oracle import torch

DTYPES = [np.float64, np.complex128]


def _matrices(dtype: type, *shape: int) -> np.ndarray:
    random = np.random.default_rng(3)
    return (random.standard_normal(shape) + 1j * random.standard_normal(shape)).astype(dtype)


@pytest.mark.filterwarnings("ignore::numpy.exceptions.ComplexWarning")
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("side", ["L", "U"])
@pytest.mark.parametrize("order", [1, 2, 3, 5, 11, 30])
def test_eigenvectors_of_hermitian_matrices(dtype: type, side: str, order: int) -> None:
    array = _matrices(dtype, 2, order, order)
    array += array.conj().swapaxes(-1, -2)
    ours = decompose.eigh(tensor(array), side)[1].array
    np.testing.assert_allclose(ours, torch.linalg.eigh(torch.tensor(array), UPLO=side)[1].numpy(), atol=1e-8)


@pytest.mark.filterwarnings("ignore::numpy.exceptions.ComplexWarning")
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("full", [True, False])
@pytest.mark.parametrize("shape", [(3, 5), (2, 5), (3, 4), (5, 3), (4, 4), (1, 3), (0, 2)])
def test_singular_vectors(dtype: type, full: bool, shape: tuple[int, int]) -> None:
    array = _matrices(dtype, *shape)
    ours = [each.array for each in decompose.svd(tensor(array), full)]
    theirs = torch.linalg.svd(torch.tensor(array), full_matrices=full)
    for one, other in zip(ours, theirs, strict=True):
        count = min(shape) if one.ndim == 2 and dtype is np.float64 else None  # further rows are any basis
        np.testing.assert_allclose(one[:count], other.resolve_conj().numpy()[:count], atol=1e-8)


@pytest.mark.filterwarnings("ignore::numpy.exceptions.ComplexWarning")
@pytest.mark.parametrize("dtype", [np.float32, np.complex64])
def test_eigenvalues_in_single_precision_have_the_order_of_its_routine(dtype: type) -> None:
    array = _matrices(dtype, 3, 4, 4)
    values, vectors = (each.array for each in eigen.eig(tensor(array)))
    theirs = torch.linalg.eig(torch.tensor(array))
    np.testing.assert_allclose(values, theirs[0].numpy(), atol=1e-4)
    np.testing.assert_allclose(vectors, theirs[1].numpy(), atol=1e-3)


def test_a_large_batch_keeps_its_signs() -> None:
    array = np.eye(3)[None].repeat(100, 0)
    vectors = -array
    assert signs.adapted_eigenvectors(array, vectors, False) is vectors
    assert (vectors <= 0).all()
