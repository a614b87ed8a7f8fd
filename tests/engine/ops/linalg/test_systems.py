"""Least squares, and tensors taken as matrices of linear systems."""

import numpy as np
import pytest

from gradwire_engine import Reason, tensor
from gradwire_engine.ops.linalg import systems
from tests.engine.oracle import Refused, Same, integers, normal, refused, same, torch

L = torch.linalg


def _solution(function):
    return lambda A, B: function(A, B)[0]


SAME = [
    same(_solution(systems.lstsq), _solution(L.lstsq), normal(5, 3), normal(5, 2), factor=10),
    same(_solution(systems.lstsq), _solution(L.lstsq), normal(2, 5, 3), normal(2, 5), factor=10),
    same(_solution(systems.lstsq), _solution(L.lstsq), normal(2, 4), normal(2, 1), factor=10),
    same(systems.tensorinv, L.tensorinv, normal(2, 3, 6), factor=100),
    same(systems.tensorinv, L.tensorinv, normal(4, 2, 2), 1, factor=100),
    same(systems.tensorsolve, L.tensorsolve, normal(2, 3, 6), normal(2, 3), factor=100),
    same(systems.tensorsolve, L.tensorsolve, normal(3, 6, 2), normal(3, 2), (1,), factor=100),
]
REFUSED = [
    refused(systems.lstsq, Reason.SHAPE, "input must have at least 2 dimensions", normal(3), normal(3), theirs=L.lstsq),
    refused(
        systems.lstsq, Reason.SHAPE, "other must have at least 1 dimension", normal(3, 2), normal(), theirs=L.lstsq
    ),
    refused(systems.lstsq, Reason.SHAPE, "[3, 2] and [4, 1]", normal(3, 2), normal(4, 1), theirs=L.lstsq),
    refused(
        systems.lstsq, Reason.DTYPE, "other's dtype Float", normal(3, 2), normal(3, 1, dtype="float32"), theirs=L.lstsq
    ),
    refused(systems.lstsq, Reason.RUNTIME, "not 'qr'", normal(3, 2), normal(3, 1), driver="qr", theirs=L.lstsq),
    refused(
        systems.lstsq,
        Reason.RUNTIME,
        "float and double: Long",
        integers(0, 3, 3, 2),
        integers(0, 3, 3, 1),
        theirs=L.lstsq,
    ),
    refused(systems.tensorinv, Reason.RUNTIME, "but got 0", normal(4, 2, 2), 0, theirs=L.tensorinv),
    refused(systems.tensorinv, Reason.RUNTIME, "prod(self.shape[:ind])", normal(2, 3, 5), theirs=L.tensorinv),
    refused(
        systems.tensorsolve,
        Reason.RUNTIME,
        "prod(self.shape[:other.ndim])",
        normal(2, 3, 5),
        normal(2, 3),
        theirs=L.tensorsolve,
    ),
]


@pytest.mark.parametrize("case", SAME, ids=str)
def test_values_and_gradients_equal_pytorch(case: Same) -> None:
    case.check()


@pytest.mark.parametrize("case", REFUSED, ids=str)
def test_a_refusal_names_what_is_wrong(case: Refused) -> None:
    case.check()


@pytest.mark.parametrize("driver", [None, "gelsy", "gelsd", "gelss"])
def test_residuals_rank_and_singular_values_are_those_of_the_driver(driver: str | None) -> None:
    rng = np.random.default_rng(1)
    a, b = rng.standard_normal((5, 3)), rng.standard_normal((5, 2))
    found = systems.lstsq(tensor(a), tensor(b), driver=driver)
    expected = L.lstsq(torch.tensor(a), torch.tensor(b), driver=driver)
    for mine, its in zip(found, expected, strict=True):
        np.testing.assert_allclose(mine.array, its.numpy(), rtol=1e-9)


def test_of_several_solutions_the_shortest_is_found() -> None:
    a = np.array([[1.0, 1.0], [2.0, 2.0]])
    found = systems.lstsq(tensor(a), tensor(np.array([[2.0], [4.0]])))[0]
    np.testing.assert_allclose(found.array, [[1.0], [1.0]], rtol=1e-12)
