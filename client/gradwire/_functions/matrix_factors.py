"""Matrix factors under PyTorch's older names (lu, ormqr, triangular_solve), and approximate decompositions."""

from __future__ import annotations

from typing import Any

from gradwire._base import dtypes
from gradwire._base.errors import GradwireTypeError, GradwireValueError, refuse
from gradwire._base.refused import refusal
from gradwire._functions.create import arange, eye, randn
from gradwire._functions.legacy import strided
from gradwire._proxy.results import return_type
from gradwire._tensor import ops
from gradwire._tensor.batching import restored
from gradwire._tensor.tensor import Tensor

__all__ = [
    "cholesky",
    "frobenius_norm",
    "lobpcg",
    "lu",
    "lu_solve",
    "lu_unpack",
    "norm_except_dim",
    "nuclear_norm",
    "orgqr",
    "ormqr",
    "pca_lowrank",
    "svd_lowrank",
    "triangular_solve",
]


def cholesky(input: Tensor, upper: bool = False, *, out: Tensor | None = None) -> Tensor:
    """Cholesky factor of (..., n, n) positive-definite matrices (torch.cholesky)."""
    made = ops.linalg_cholesky(input, upper=upper)
    return made if out is None else out.copy_(made)


def lu(A: Tensor, pivot: bool = True, get_infos: bool = False, out: Any = None) -> Any:
    """L and U packed in one matrix, pivots counted from 1, and with `get_infos` infos (torch.lu).

    A: (..., m, n). A singular matrix has an info above 0.
    """
    made: Any = ops.linalg_lu_factor_ex(A, pivot=pivot)
    kept = tuple(made) if get_infos else tuple(made)[:2]
    if out is not None:
        if len(out) != len(kept):
            raise GradwireTypeError(f"expected tuple of {len(kept)} elements but got {len(out)}")
        kept = tuple(target.copy_(each) for target, each in zip(out, kept, strict=True))
    if get_infos:
        return return_type("_lu_with_info", ("LU", "pivots", "info"))(*kept)
    return kept


def lu_solve(b: Tensor, LU_data: Tensor, LU_pivots: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Solve A x = b from the packed factors of A (torch.lu_solve). b: (..., m, k)."""
    if b.ndim < 2:
        raise refuse("linalg.lu_solve: The input tensor B must have at least 2 dimensions.")
    made = ops.linalg_lu_solve(LU_data, LU_pivots, b)
    return made if out is None else out.copy_(made)


def lu_unpack(
    LU_data: Tensor, LU_pivots: Tensor, unpack_data: bool = True, unpack_pivots: bool = True, *, out: Any = None
) -> Any:
    """P, L and U with A = P L U, from the packed factors of (..., m, n) matrices (torch.lu_unpack).

    What is not unpacked is an empty tensor. Raises RuntimeError for pivots that are not int32.
    """
    if unpack_pivots and LU_pivots.dtype is not dtypes.int32:
        raise refuse("torch.lu_unpack: LU_pivots is expected to be a contiguous tensor of torch.int32 dtype.")
    rows, columns = LU_data.shape[-2:]
    lower, upper, permutation = (LU_data.new_empty(0) for _ in range(3))
    if unpack_data:
        least = min(rows, columns)
        unit = eye(rows, least, dtype=LU_data.dtype, device=LU_data.device)
        lower = LU_data[..., :least].tril(-1) + unit
        upper = LU_data[..., :least, :].triu()
    if unpack_pivots:
        permutation = _permutation(LU_pivots, rows, LU_data)
    made = (permutation, lower, upper)
    if out is not None:
        made = tuple(target.copy_(each) for target, each in zip(out, made, strict=True))
    return return_type("lu_unpack", ("P", "L", "U"))(*made)


def _permutation(pivots: Tensor, rows: int, like: Tensor) -> Tensor:
    """The permutation matrices (..., rows, rows) of LAPACK's pivots: those that the solution by unit factors has."""
    batch = tuple(pivots.shape[:-1])
    further = arange(pivots.shape[-1] + 1, rows + 1, dtype=dtypes.int32, device=pivots.device)
    places = ops.cat([pivots, further.expand(*batch, len(further))], -1)
    unit = eye(rows, dtype=like.dtype, device=like.device).expand(*batch, rows, rows)
    made: Tensor = ops.linalg_lu_solve(unit, places, unit).mT
    return made


def orgqr(input: Tensor, input2: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Product of Householder matrices (torch.orgqr): `linalg.householder_product`."""
    return ops.linalg_householder_product(input, input2, out=out)


def ormqr(
    input: Tensor,
    input2: Tensor,
    input3: Tensor,
    left: bool = True,
    transpose: bool = False,
    *,
    out: Tensor | None = None,
) -> Tensor:
    """Product of the square Q of Householder vectors and a matrix (torch.ormqr).

    input: (..., m, k) vectors, as of geqrf; input2: (..., k) factors; input3: (..., m, n), or (..., n, m) with
    `left=False`. `transpose`: the conjugate transpose of Q.
    """
    order = input.shape[-2]
    if input3.shape[-2 if left else -1] != order:
        side = -2 if left else -1
        raise refuse(f"torch.ormqr: other.shape[{side}] must be equal to input.shape[-2]")
    vectors = ops.pad(input, (0, order - input.shape[-1]))
    q = ops.linalg_householder_product(vectors, input2)
    if transpose:
        q = q.mH
    with restored(None):  # to autocast it is no product, but takes float32 as Q does
        other = input3.to(q.dtype) if input3.dtype in (dtypes.bfloat16, dtypes.float16) else input3
        made = q @ other if left else other @ q
    return made if out is None else out.copy_(made)


def triangular_solve(
    b: Tensor, A: Tensor, upper: bool = True, transpose: bool = False, unitriangular: bool = False, *, out: Any = None
) -> Any:
    """Solution of A x = b with a triangular A, and a copy of A (torch.triangular_solve). b: (..., n, k)."""
    if b.ndim < 2 or A.ndim < 2:
        name, given = ("b", b) if b.ndim < 2 else ("A", A)
        raise refuse(
            f"torch.triangular_solve: Expected {name} to have at least 2 dimensions, but it has {given.ndim} "
            "dimensions instead"
        )
    matrix = A.mT if transpose else A
    made = (
        ops.linalg_solve_triangular(matrix, b, upper=upper != transpose, unitriangular=unitriangular),
        A.clone(),
    )
    if out is not None:
        made = tuple(target.copy_(each) for target, each in zip(out, made, strict=True))
    return return_type("triangular_solve", ("solution", "cloned_coefficient"))(*made)


def frobenius_norm(input: Tensor, dim: Any, keepdim: bool = False, *, out: Tensor | None = None) -> Tensor:
    """Root of the sum of squared magnitudes over at most two dims (torch.frobenius_norm)."""
    return ops.linalg_vector_norm(input, 2, dim, keepdim, out=out)


def nuclear_norm(input: Tensor, dim: Any = (-2, -1), keepdim: bool = False, *, out: Tensor | None = None) -> Tensor:
    """Sum of the singular values of matrices (torch.nuclear_norm)."""
    return ops.linalg_matrix_norm(input, "nuc", dim, keepdim, out=out)


def norm_except_dim(v: Tensor, pow: int = 2, dim: int = 0) -> Tensor:
    """Norms over all dimensions but one, which stays; over all for dim -1 (torch.norm_except_dim)."""
    if dim == -1:
        return ops.linalg_vector_norm(v, pow)
    over = [each for each in range(v.ndim) if each != dim]
    return ops.linalg_vector_norm(v, pow, over, True)


def svd_lowrank(A: Tensor, q: int | None = 6, niter: int | None = 2, M: Tensor | None = None) -> Any:
    """U (..., m, q), S (q) and V (..., n, q) of an approximation of A - M of rank q (torch.svd_lowrank).

    Method: Halko, Martinsson & Tropp, "Finding structure with randomness" (2009), algorithm 5.1, with `niter` subspace
    iterations. The random numbers are the session's.
    """
    rank = 6 if q is None else q
    rows, columns = A.shape[-2:]
    centered = A if M is None else A - M.broadcast_to(A.shape)
    if rows < columns:
        centered = centered.mH
    basis = _range_basis(centered, rank, 2 if niter is None else niter)
    left, values, right = ops.linalg_svd(basis.mH @ centered, full_matrices=False)
    left, right = basis @ left, right.mH
    return (right, values, left) if rows < columns else (left, values, right)


def _range_basis(A: Tensor, rank: int, iterations: int) -> Tensor:
    """Orthonormal columns (..., m, rank) that nearly span the columns of A."""
    made = A @ randn(A.shape[-1], rank, dtype=A.dtype, device=A.device)
    basis = ops.linalg_qr(made)[0]
    for _ in range(iterations):
        basis = ops.linalg_qr(A.mH @ basis)[0]
        basis = ops.linalg_qr(A @ basis)[0]
    found: Tensor = basis
    return found


def pca_lowrank(A: Tensor, q: int | None = None, center: bool = True, niter: int = 2) -> Any:
    """U, S and V of the principal components of the rows of A, approximated as by svd_lowrank (torch.pca_lowrank).

    q: their number, by default at most 6. Raises ValueError for a q above the matrix's sizes or a negative `niter`.
    """
    rows, columns = A.shape[-2:]
    if q is None:
        q = min(6, rows, columns)
    elif not 0 <= q <= min(rows, columns):
        raise GradwireValueError(
            f"q(={q}) must be non-negative integer and not greater than min(m, n)={min(rows, columns)}"
        )
    if niter < 0:
        raise GradwireValueError(f"niter(={niter}) must be non-negative integer")
    return svd_lowrank(A - A.mean(-2, keepdim=True) if center else A, q, niter)


def lobpcg(
    A: Tensor,
    k: int | None = None,
    B: Tensor | None = None,
    X: Tensor | None = None,
    n: int | None = None,
    iK: Tensor | None = None,
    niter: int | None = None,
    tol: float | None = None,
    largest: bool | None = None,
    method: str | None = None,
    tracker: Any = None,
    ortho_iparams: dict[str, int] | None = None,
    ortho_fparams: dict[str, float] | None = None,
    ortho_bparams: dict[str, bool] | None = None,
) -> tuple[Tensor, Tensor]:
    """The k largest (or smallest) eigenvalues of A x = l B x, and their vectors (torch.lobpcg).

    A: symmetric (..., m, m). B: positive-definite, by default the identity. Unlike PyTorch's, the result is not
    iterated: all eigenvalues are computed, so that `X`, `niter`, `tol` and the other parameters of the iteration change
    nothing but k. A gradient is nan where A has an eigenvalue twice. Raises ValueError for fewer than 3 k rows.
    """
    if tracker is not None:
        raise refusal("lobpcg with a tracker", "nothing is iterated; all eigenvalues are computed")
    if method not in (None, "basic", "ortho"):
        raise GradwireValueError(f"unknown method: {method!r}; it is 'basic' or 'ortho'")
    if A.shape[-2] != A.shape[-1]:
        raise AssertionError(f"A must be square, got shape {A.shape}")
    if B is not None and A.shape != B.shape:
        raise AssertionError(f"A and B must have same shape, got {A.shape} vs {B.shape}")
    rows = A.shape[-1]
    wanted = (1 if X is None else X.shape[-1]) if k is None else k
    iterated = (wanted if n is None else n) if X is None else X.shape[-1]
    if rows < 3 * iterated:
        raise GradwireValueError(
            f"LOBPCG algorithm is not applicable when the number of A rows (={rows}) is smaller than 3 x the number of "
            f"requested eigenpairs (={iterated})"
        )
    wanted = min(wanted, iterated)
    whole = _symmetric(A)
    factor = None if B is None else ops.linalg_cholesky(_symmetric(B))
    if factor is not None:
        half = ops.linalg_solve_triangular(factor, whole, upper=False)
        whole = _symmetric(ops.linalg_solve_triangular(factor, half.mH, upper=False))
    values, vectors = ops.linalg_eigh(whole)
    if factor is not None:
        vectors = ops.linalg_solve_triangular(factor.mH, vectors, upper=True)
    if largest is None or largest:
        values, vectors = values.flip(-1), vectors.flip(-1)
    return values[..., :wanted], vectors[..., :wanted]


def _symmetric(A: Tensor) -> Tensor:
    """The symmetric (Hermitian) part of dense or sparse matrices."""
    dense: Any = A if A.layout is strided else A.to_dense()
    made: Tensor = (dense + dense.mH) / 2
    return made
