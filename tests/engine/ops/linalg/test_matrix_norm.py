"""Norms, condition numbers and ranks of matrices."""

import numpy as np
import pytest

from gradwire_engine import Reason
from gradwire_engine.core import dtypes
from gradwire_engine.ops.linalg import matrix_norm
from tests.engine.oracle import Refused, Same, given, integers, normal, refused, same, torch

L = torch.linalg
A, BATCH = normal(3, 4), normal(2, 3, 3)
INF = float("inf")
SAME = [
    *(same(matrix_norm.matrix_norm, L.matrix_norm, BATCH, order) for order in ("fro", "nuc", INF, -INF, 1, -1, 2, -2)),
    same(matrix_norm.matrix_norm, L.matrix_norm, normal(2, 3, 4), 1, (0, 2), True),
    same(matrix_norm.matrix_norm, L.matrix_norm, normal(2, 2, dtype="float32"), dtype=dtypes.float64),
    same(matrix_norm.linalg_norm, L.norm, A),
    same(matrix_norm.linalg_norm, L.norm, A, 3.0, 1),
    same(matrix_norm.linalg_norm, L.norm, A, 2),
    same(matrix_norm.norm, torch.norm, A),
    same(matrix_norm.norm, torch.norm, A, 1.5, -1, True),
    same(matrix_norm.norm, torch.norm, A, INF),
    same(matrix_norm.norm, torch.norm, A, "nuc"),
    same(matrix_norm.cond, L.cond, BATCH, factor=100),
    same(matrix_norm.cond, L.cond, BATCH.constant, "fro", factor=100),
    same(matrix_norm.cond, L.cond, given([[1.0, 2.0], [2.0, 4.0]], grad=False), 1),
    same(
        matrix_norm.matrix_rank, L.matrix_rank, given([[[1.0, 2.0], [2.0, 4.0]], [[1.0, 0.0], [0.0, 1.0]]], grad=False)
    ),
    same(matrix_norm.matrix_rank, L.matrix_rank, given([[1.0, 0.0], [0.0, 1e-3]], grad=False), rtol=1e-2),
    same(
        matrix_norm.matrix_rank, L.matrix_rank, given([[1.0, 0.0], [0.0, -1e-3]], grad=False), atol=1e-4, hermitian=True
    ),
]
RUN, NORM = Reason.RUNTIME, matrix_norm.matrix_norm
REFUSED = [
    refused(NORM, Reason.SHAPE, "at least 2 dimensions", normal(3), theirs=L.matrix_norm),
    refused(NORM, RUN, "Order 3 not supported", A, 3, theirs=L.matrix_norm),
    refused(NORM, RUN, "Order max not supported", A, "max", theirs=L.matrix_norm),
    refused(NORM, RUN, "dim must be a 2-tuple. Got 0 1 2", normal(2, 2, 2), "fro", (0, 1, 2), theirs=L.matrix_norm),
    refused(NORM, RUN, "dims must be different. Got (0, 0)", A, "fro", (0, 0), theirs=L.matrix_norm),
    refused(NORM, RUN, "Got Long", integers(0, 3, 2, 2), theirs=L.matrix_norm),
    refused(
        NORM, RUN, "dtype should be floating point or complex, but got Int", A, dtype=dtypes.int32, theirs=L.matrix_norm
    ),
    refused(
        matrix_norm.linalg_norm, RUN, "of length 1 or 2. Got [0, 1, 2]", normal(2, 2, 2), 2, (0, 1, 2), theirs=L.norm
    ),
    refused(matrix_norm.linalg_norm, RUN, "must be 1D or 2D. Got 3D", normal(2, 2, 2), 2, theirs=L.norm),
    refused(matrix_norm.cond, RUN, "invalid norm type: 3", A, 3, theirs=L.cond),
    refused(matrix_norm.cond, Reason.SHAPE, "at least 2 dimensions", normal(2), theirs=L.cond),
    refused(
        matrix_norm.matrix_rank,
        RUN,
        "atol tensor of complex type",
        A,
        atol=given(1j, "complex128"),
        theirs=L.matrix_rank,
    ),
]


@pytest.mark.parametrize("case", SAME, ids=str)
def test_values_and_gradients_equal_pytorch(case: Same) -> None:
    case.check()


@pytest.mark.parametrize("case", REFUSED, ids=str)
def test_a_refusal_names_what_is_wrong(case: Refused) -> None:
    case.check()


def test_the_norm_of_zeros_has_a_gradient_of_zeros() -> None:
    same(matrix_norm.norm, torch.norm, given(np.zeros((2, 2))), smooth=False).check()
    same(matrix_norm.matrix_norm, L.matrix_norm, given(np.zeros((2, 2))), smooth=False).check()
