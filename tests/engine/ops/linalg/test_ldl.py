"""LDL factors of symmetric and Hermitian matrices, and systems solved with them, beside PyTorch."""

import numpy as np
import pytest

from gradwire_engine import EngineError, Reason, Tensor, tensor
from gradwire_engine.ops.linalg import ldl
from tests.engine.oracle import Refused, given, integers, normal, refused, torch

L = torch.linalg
RNG = np.random.default_rng(0)
LD = given([[2.0, 0.0], [0.5, 3.0]])
PIVOTS = given([1, 2], "int32", False)


def _matrices(shape: tuple[int, ...], dtype: str, hermitian: bool) -> np.ndarray:
    made = RNG.normal(size=shape).astype(dtype)
    if made.dtype.kind == "c":
        made = made + 1j * RNG.normal(size=shape)
    made = made + (made.conj() if hermitian else made).swapaxes(-1, -2)
    made[..., :1, :1] = 1e-3  # exchanges rows, and makes blocks of two rows
    return made.astype(dtype)


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
@pytest.mark.parametrize("hermitian", [False, True])
@pytest.mark.parametrize("shape", [(1, 1), (2, 2), (7, 7), (2, 3, 4, 4), (0, 3, 3), (2, 0, 0)])
def test_factors_and_solutions_are_pytorchs(dtype: str, hermitian: bool, shape: tuple[int, ...]) -> None:
    matrices = _matrices(shape, dtype, hermitian)
    right = _matrices((*shape[:-2], 3, 3), dtype, False)[..., :1].repeat(shape[-1], -2)[..., : shape[-1], :]
    theirs = L.ldl_factor_ex(torch.tensor(matrices), hermitian=hermitian)
    mine = ldl.ldl_factor_ex(tensor(matrices), hermitian=hermitian)
    close = {"rtol": 1e-3, "atol": 1e-3} if dtype in ("float32", "complex64") else {"rtol": 1e-9, "atol": 1e-9}
    for found, expected in zip(mine, theirs, strict=True):
        assert found.dtype.name == str(expected.dtype).removeprefix("torch.")
        np.testing.assert_allclose(found.array, expected.numpy(), **close)
    solved = ldl.ldl_solve(mine[0], mine[1], tensor(right), hermitian=hermitian).array
    expected = L.ldl_solve(theirs[0], theirs[1], torch.tensor(right), hermitian=hermitian).numpy()
    np.testing.assert_allclose(solved, expected, **close)


def test_one_matrix_solves_a_batch() -> None:
    factors = ldl.ldl_factor(tensor(_matrices((3, 3), "float64", False)))
    right = RNG.normal(size=(5, 3, 2))
    expected = L.ldl_solve(*(torch.tensor(each.array) for each in factors), torch.tensor(right)).numpy()
    np.testing.assert_allclose(ldl.ldl_solve(*factors, tensor(right)).array, expected)


def test_a_singular_matrix_has_an_info_and_is_refused_where_errors_are_checked() -> None:
    singular = tensor(np.zeros((2, 2, 2)))
    assert ldl.ldl_factor_ex(singular)[2].array.tolist() == L.ldl_factor_ex(torch.zeros(2, 2, 2))[2].tolist()
    for call in (lambda: ldl.ldl_factor(singular), lambda: ldl.ldl_factor_ex(singular, check_errors=True)):
        with pytest.raises(EngineError, match="singular"):
            call()


@pytest.mark.parametrize("pivots", [[0, 1], [3, 1], [-2, 2], [-2, -1], [1, -2], [-1, -1]])
def test_pivots_that_are_none_are_refused(pivots: list[int]) -> None:
    with pytest.raises(EngineError, match="no pivots"):
        ldl.ldl_solve(tensor(np.eye(2)), Tensor(np.array(pivots, np.int32)), tensor(np.ones((2, 1))))


REFUSED = [
    refused(ldl.ldl_factor, Reason.SHAPE, "at least 2 dimensions", normal(3), theirs=L.ldl_factor),
    refused(ldl.ldl_factor, Reason.SHAPE, "3 by 2 matrices", normal(3, 2), theirs=L.ldl_factor),
    refused(ldl.ldl_factor, Reason.RUNTIME, "Got Long", integers(0, 3, 2, 2), theirs=L.ldl_factor),
    refused(ldl.ldl_solve, Reason.SHAPE, "each b matrix is 3 by 1", LD, PIVOTS, normal(3, 1), theirs=L.ldl_solve),
    refused(
        ldl.ldl_solve, Reason.SHAPE, "got pivots with shape [1]", LD, given([1], "int32", False), normal(2, 1),
        theirs=L.ldl_solve,
    ),
    refused(ldl.ldl_solve, Reason.DTYPE, "Got Double", LD, given([1.0, 2.0]), normal(2, 1), theirs=L.ldl_solve),
    refused(
        ldl.ldl_solve, Reason.DTYPE, "to have the same dtype", LD, PIVOTS, given([[1.0], [2.0]], "float32"),
        theirs=L.ldl_solve,
    ),
]  # fmt: skip


@pytest.mark.parametrize("case", REFUSED, ids=str)
def test_a_refusal_names_what_is_wrong(case: Refused) -> None:
    case.check()
