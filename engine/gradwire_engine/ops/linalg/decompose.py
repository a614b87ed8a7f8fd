"""Decompositions: Cholesky, QR, singular values and Hermitian eigenvalues, batched.

The gradient formulas use only the factors, so they are differentiable to any order. Sources: Murray, "Differentiation
of the Cholesky decomposition" (2016); Seeger et al., "Auto-differentiating linear algebra" (2017) for QR; Townsend,
"Differentiating the singular value decomposition" (2016). Some factors are unique only up to a phase. Backward refuses
a loss that depends on the phase, as PyTorch does.
"""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np

from gradwire_engine.core import dtypes
from gradwire_engine.core.device import Array, host, module_of
from gradwire_engine.core.errors import EngineError, Reason
from gradwire_engine.graph.tensor import Tensor
from gradwire_engine.op.composite import composite
from gradwire_engine.op.cost import counted
from gradwire_engine.op.op import op
from gradwire_engine.op.saving import reads_values
from gradwire_engine.ops.base.basic import real
from gradwire_engine.ops.base.precision import is_half
from gradwire_engine.ops.linalg.costs import lapack
from gradwire_engine.ops.linalg.linalg import adjoint, needs_matrices, solve_triangular, solvers
from gradwire_engine.ops.linalg.matrix import fold
from gradwire_engine.ops.linalg.signs import adapted_eigenvectors, first_row_turns, with_first_row_negated
from gradwire_engine.ops.shape.join import cat, diag_embed, tril, triu
from gradwire_engine.ops.shape.shape import diagonal, narrow


def column(values: Any) -> Any:
    """Vectors as matrices of one column."""
    return fold(values, (*values.shape, 1))


def row(values: Any) -> Any:
    """Vectors as matrices of one row."""
    return fold(values, (*values.shape[:-1], 1, values.shape[-1]))


def real_part(value: Any) -> Any:
    """Real part of complex numbers; real numbers unchanged."""
    return real(value) if value.dtype.kind == "c" else value


def _array(value: Any) -> Any:
    return value.array if type(value) is Tensor else value


# Cholesky.


@op(name="linalg.cholesky", node="LinalgCholeskyExBackward0", cost=lapack(0.1, 12.0))
def cholesky(xp: Any, A: Array, *, upper: bool = False) -> Array:
    """Cholesky factor: L with L @ L^H = A, or U with U^H @ U = A if `upper` (torch.linalg.cholesky).

    A: (..., n, n), positive-definite; only one triangle is read.
    Raises EngineError: RUNTIME if A is not positive-definite, SHAPE.
    """
    needs_matrices("linalg.cholesky", A, square=True, kernel="cholesky_cpu")
    if not A.size:
        return A.copy()
    lower = A.conj().swapaxes(-1, -2) if upper else A
    try:
        factor = xp.linalg.cholesky(lower)
    except np.linalg.LinAlgError:
        raise _not_definite_error(host(lower)) from None
    return factor.conj().swapaxes(-1, -2) if upper else factor


cholesky.works_in(forward=1.4, backward=3.7)


def _not_definite_error(matrices: Any) -> EngineError:
    """PyTorch's error for the first matrix that is not positive-definite."""
    which, order = "", 1
    for number, place in enumerate(np.ndindex(matrices.shape[:-2])):
        (potrf,) = solvers(np).get_lapack_funcs(("potrf",), (matrices[place],))
        order = int(potrf(matrices[place], lower=True)[1])
        if order > 0:
            which = f"(Batch element {number}): " if place else ""
            break
    return EngineError(
        Reason.RUNTIME,
        f"linalg.cholesky: {which}The factorization could not be completed because the input is not "
        f"positive-definite (the leading minor of order {order} is not positive-definite).",
        op="linalg.cholesky",
        singular=True,
        linalg_error=True,
    )


def _cholesky_A(g: Any, out: Any, upper: bool) -> Any:
    lower, turned = (adjoint(out), adjoint(g)) if upper else (out, g)
    inner = adjoint(lower) @ turned
    inner = (tril(inner) + adjoint(tril(inner, -1))) * 0.5
    inner = solve_triangular(adjoint(lower), inner, upper=True)
    return solve_triangular(lower, inner, upper=False, left=False)


def diagonals(value: Any) -> Any:
    """Diagonals of matrices."""
    return diagonal(value, 0, -2, -1)


def _cholesky_tangent(t_A: Any, out: Any, upper: bool) -> Any:
    lower = adjoint(out) if upper else out
    inner = solve_triangular(adjoint(lower), solve_triangular(lower, t_A, upper=False), upper=True, left=False)
    made = lower @ ((tril(inner) + tril(inner, -1)) * 0.5)
    return adjoint(made) if upper else made


cholesky.grad(A=_cholesky_A)
cholesky.tangent(_cholesky_tangent)


# QR.


def _factor_bytes(A: Array, whole: bool) -> int:
    """Bytes of the factors: two orthogonal ones, square if `whole`, and the values on the diagonal."""
    rows, columns = A.shape[-2:]
    least = min(rows, columns)
    count = rows * (rows if whole else least) + columns * (columns if whole else least) + least
    return int(math.prod(A.shape[:-2]) * count * A.itemsize)


def _full_cost(A: Any, full: bool) -> Any:
    """Additional operations for square factors of the larger size."""
    large = max(A.shape[-2:])
    return math.prod(A.shape[:-2]) * 4.0 * large**2 * min(A.shape[-2:]) if full else 0.0


@op(
    name="_qr",
    node="LinalgQrBackward0",
    outputs=("Q", "R"),
    cost=counted(lambda A, mode: lapack(0.8).forward(A) + _full_cost(A, mode == "complete"), 4.0, 1 << 14),
)
def _qr(xp: Any, A: Array, mode: str) -> Array:
    if mode == "r":
        return xp.empty((0,), A.dtype), xp.linalg.qr(A, mode="r")
    factors = xp.linalg.qr(A, mode=mode)
    return factors[0], factors[1]


_qr.works_in(backward=5.9)
_qr.sized_by(lambda A, mode: A.nbytes + _factor_bytes(A, mode == "complete"))


def _qr_A(gs: Any, out0: Any, out1: Any, mode: str) -> Any:
    if mode == "r":
        _refuse("linalg_qr_backward", "The derivative of linalg.qr depends on Q, which is not computed when mode='r'.")
    if out0.shape[-1] != out1.shape[-1]:
        _refuse(
            "linalg_qr_backward",
            "The QR decomposition is not differentiable when mode='complete' and nrows > ncols",
        )
    turned, g = gs
    inner = g @ adjoint(out1)  # the gradient formula mirrors its upper triangle to the lower
    inner = inner - adjoint(out0) @ turned
    strict = triu(inner, 1)
    mirrored = strict + adjoint(strict) + diag_embed(as_dtype(real_part(diagonals(inner)), inner.dtype))
    return solve_triangular(adjoint(out1), turned + out0 @ mirrored, upper=False, left=False)


def as_dtype(value: Any, dtype: Any) -> Any:
    """Cast real numbers to a complex dtype if `dtype` is one; differentiable."""
    return value if value.dtype == dtype else value * np.dtype(dtype).type(1)


def _refuse(name: str, sentence: str) -> None:
    raise EngineError(Reason.RUNTIME, f"{name}: {sentence}", op=name)


_qr.grad(A=_qr_A)


@composite(name="linalg.qr", outputs=("Q", "R"))
def qr(A: Array, mode: Literal["reduced", "complete", "r"] = "reduced") -> Any:
    """QR decomposition: Q with orthonormal columns and upper triangular R, Q @ R = A (torch.linalg.qr).

    A: (..., m, n). mode: "reduced" (Q: (m, k), k = min(m, n)), "complete" (Q: (m, m)) or "r" (Q empty).
    Differentiable for "reduced", and for "complete" if m <= n. Raises EngineError: RUNTIME for another mode, SHAPE.
    """
    needs_matrices("linalg.qr", A, kernel="geqrf_cpu")
    if mode not in ("reduced", "complete", "r"):
        raise EngineError(
            Reason.RUNTIME,
            f"qr received unrecognized mode '{mode}' but expected one of 'reduced' (default), 'r', or 'complete'",
        )
    rows, columns = A.shape[-2:]
    if mode == "r" or rows >= columns:
        return _qr(A, mode)
    # A wide matrix: factor its square part; a product gives the rest of R.
    q, first = _qr(narrow(A, -1, 0, rows), "reduced")
    return q, cat([first, adjoint(q) @ narrow(A, -1, rows, columns - rows)], -1)


# Singular values.


@op(
    name="_svd",
    node="LinalgSvdBackward0",
    outputs=("U", "S", "Vh"),
    cost=counted(lambda A, full: lapack(3.0).forward(A) + _full_cost(A, full), 2.0, 1 << 14),
)
def _svd(xp: Any, A: Array, full_matrices: bool) -> Array:
    if is_half(A.dtype):  # only without elements; others were refused
        return tuple(part.astype(A.dtype) for part in xp.linalg.svd(A.astype(np.float32), full_matrices=full_matrices))
    if first_row_turns(A):
        left, values, right = xp.linalg.svd(with_first_row_negated(A), full_matrices=full_matrices)
        return with_first_row_negated(left), values, right
    return tuple(xp.linalg.svd(A, full_matrices=full_matrices))


_svd.works_in(forward=2, backward=4.8)
_svd.sized_by(lambda A, full_matrices: A.nbytes + _factor_bytes(A, full_matrices))


def _skewed(value: Any) -> Any:
    return value - adjoint(value)


def gaps(values: Any) -> Any:
    """values_j - values_i, with ones on the diagonal to avoid a division by zero."""
    xp = module_of(_array(values))
    return row(values) - column(values) + xp.eye(values.shape[-1], dtype=values.dtype)


def off_diagonal(value: Any) -> Any:
    """Matrices with their diagonals set to zero."""
    return triu(value, 1) + tril(value, -1)


@reads_values
def _svd_A(gs: Any, out0: Any, out1: Any, out2: Any) -> Any:
    left, values, right = out0, out1, out2
    g_left, g_values, g_right = gs
    rows, columns, count = left.shape[-2], right.shape[-1], values.shape[-1]
    if left.shape[-1] > count:
        left, g_left = narrow(left, -1, 0, count), narrow(g_left, -1, 0, count)
    if right.shape[-2] > count:
        right, g_right = narrow(right, -2, 0, count), narrow(g_right, -2, 0, count)
    turn_left, turn_right = _skewed(adjoint(left) @ g_left), _skewed(right @ adjoint(g_right))
    if left.dtype.kind == "c":
        check_phase("svd_backward", "singular vectors", turn_left + turn_right)
    core = (turn_left * row(values) + column(values) * turn_right) / gaps(values * values)
    core = off_diagonal(core) + diag_embed(as_dtype(g_values, left.dtype))
    if left.dtype.kind == "c":
        core = core + diag_embed(diagonals(turn_left) / (values * 2))
    found = left @ core @ right
    if rows > count:
        outside = g_left / row(values)
        found = found + (outside - left @ (adjoint(left) @ outside)) @ right
    if columns > count:
        outside = g_right / column(values)
        found = found + left @ (outside - (outside @ adjoint(right)) @ right)
    return found


def check_phase(name: str, what: str, turned: Any) -> None:
    """Refuse a loss that depends on the phases of the vectors, which are arbitrary. Raises EngineError: RUNTIME."""
    array = _array(turned)
    xp = module_of(array)
    phases = xp.diagonal(array, 0, -2, -1).imag
    if not bool(xp.allclose(phases, 0, rtol=1e-2, atol=1e-2)):
        _refuse(
            name,
            f"The {what} in the complex case are specified up to multiplication by e^{{i phi}}. The specified loss "
            "function depends on this quantity, so it is ill-defined.",
        )


_svd.grad(A=_svd_A)


@composite(name="linalg.svd", outputs=("U", "S", "Vh"))
def svd(A: Array, full_matrices: bool = True) -> Any:
    """Singular value decomposition: U @ diag(S) @ Vh = A, S in descending order (torch.linalg.svd).

    A: (..., m, n). U: (..., m, m) and Vh: (..., n, n); their first min(m, n) columns and rows if not full_matrices.
    Raises EngineError: SHAPE.
    """
    needs_matrices("linalg.svd", A, kernel="linalg_svd_cpu")
    return _svd(A, full_matrices)


@op(name="linalg.svdvals", node="LinalgSvdBackward0", cost=lapack(1.0, 5.0))
def svdvals(xp: Any, A: Array) -> Array:
    """Singular values in descending order (torch.linalg.svdvals). A: (..., m, n). Raises EngineError: SHAPE."""
    needs_matrices("linalg.svdvals", A, kernel="linalg_svd_cpu")
    if not A.size:
        return xp.zeros((*A.shape[:-2], min(A.shape[-2:])), dtypes.real_part(A.dtype))
    return xp.linalg.svd(A, compute_uv=False)


svdvals.works_in(forward=0.3, backward=7.7)


def _svdvals_A(g: Any, A: Any) -> Any:
    left, _, right = _svd(A, False)
    return (left * row(g)) @ right


svdvals.grad(A=_svdvals_A)


# Hermitian eigenvalues.


def _check_half(UPLO: str) -> None:
    if UPLO.upper() not in ("L", "U"):
        raise EngineError(Reason.RUNTIME, f"Expected UPLO argument to be 'L' or 'U', but got {UPLO}")


@op(name="linalg.eigh", node="LinalgEighBackward0", outputs=("eigenvalues", "eigenvectors"), cost=lapack(1.5))
def eigh(xp: Any, A: Array, UPLO: Literal["L", "U"] = "L") -> Array:
    """Eigenvalues of Hermitian matrices in ascending order, and eigenvectors as columns (torch.linalg.eigh).

    A: (..., n, n), of which one triangle is read: the lower ("L") or the upper ("U").
    Raises EngineError: RUNTIME, SHAPE.
    """
    needs_matrices("linalg.eigh", A, square=True, kernel="linalg_eigh_cpu")
    _check_half(UPLO)
    if not A.size:
        return xp.zeros(A.shape[:-1], dtypes.real_part(A.dtype)), A.copy()
    values, vectors = xp.linalg.eigh(A, UPLO=UPLO.upper())
    return values, adapted_eigenvectors(A, vectors, UPLO.upper() == "U")


eigh.works_in(forward=1.3, backward=3.2)


@reads_values
def _eigh_A(gs: Any, out0: Any, out1: Any) -> Any:
    g_values, g_vectors = gs
    turned = _skewed(adjoint(out1) @ g_vectors) * 0.5
    if out1.dtype.kind == "c":
        check_phase("linalg_eigh_backward", "eigenvectors", turned)
    core = off_diagonal(turned / gaps(out0)) + diag_embed(as_dtype(g_values, out1.dtype))
    return out1 @ core @ adjoint(out1)


eigh.grad(A=_eigh_A)


@op(name="linalg.eigvalsh", node="LinalgEighBackward0", cost=lapack(0.5, 5.0))
def eigvalsh(xp: Any, A: Array, UPLO: Literal["L", "U"] = "L") -> Array:
    """Eigenvalues of Hermitian matrices in ascending order (torch.linalg.eigvalsh).

    A: (..., n, n), of which one triangle is read. Raises EngineError: RUNTIME, SHAPE.
    """
    needs_matrices("linalg.eigvalsh", A, square=True, kernel="linalg_eigh_cpu")
    _check_half(UPLO)
    if not A.size:
        return xp.zeros(A.shape[:-1], dtypes.real_part(A.dtype))
    return xp.linalg.eigvalsh(A, UPLO=UPLO.upper())


eigvalsh.works_in(forward=1.1, backward=3.4)


def _eigvalsh_A(g: Any, A: Any, UPLO: str) -> Any:
    _, vectors = eigh(A, UPLO)
    return (vectors * row(g)) @ adjoint(vectors)


eigvalsh.grad(A=_eigvalsh_A)
