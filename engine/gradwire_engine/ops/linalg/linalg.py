"""Inverses, determinants and linear systems, batched, and the argument checks shared by linear algebra.

Gradient formulas: adjoints as in Giles, "Collected matrix derivative results" (2008), and Golub & Pereyra (1973) for
the pseudo-inverse, with conjugates for complex matrices. LAPACK computes on the CPU, cuSOLVER on a GPU. After a failure
SciPy finds the zero pivot.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np

from gradwire_engine.core import dtypes
from gradwire_engine.core.device import Array, module_of, scipy_of
from gradwire_engine.core.dtypes import Number
from gradwire_engine.core.errors import EngineError, Reason
from gradwire_engine.op.composite import composite
from gradwire_engine.op.cost import LOOP, Works, counted
from gradwire_engine.op.op import op
from gradwire_engine.ops.base.basic import conj, neg
from gradwire_engine.ops.base.checks import broadcast_shape
from gradwire_engine.ops.base.compare import eq
from gradwire_engine.ops.base.fill import where
from gradwire_engine.ops.elementwise.convert import imag
from gradwire_engine.ops.elementwise.unary import log
from gradwire_engine.ops.linalg.costs import lapack, tall
from gradwire_engine.ops.linalg.matrix import fold, matrix_t
from gradwire_engine.ops.reduce.reduce import sum as total
from gradwire_engine.ops.shape.join import tril, triu
from gradwire_engine.ops.shape.shape import clone as copied

Shape = tuple[int, ...]
# For an empty input PyTorch does not check half types for these kernels ...
_UNCHECKED_IF_EMPTY = ("lu_cpu", "linalg_svd_cpu", "cholesky_cpu")
# ... and for these kernels it reports integers as not implemented.
_INTEGERS_UNSUPPORTED = ("linalg_eigh_cpu", "triangular_solve_cpu")


def adjoint(value: Any) -> Any:
    """Conjugate transpose of matrices."""
    return matrix_t(conj(value))


def needs_matrices(name: str, input: Array, square: bool = False, kernel: str | None = None) -> None:
    """Check for (square) matrices of a float or complex dtype. kernel: the name in the message for half types.

    Raises EngineError: RUNTIME, SHAPE, NOT_SUPPORTED.
    """
    needs_square(name, input) if square else _needs_two(name, input)
    needs_float(name, input, kernel)


def _needs_two(name: str, input: Array) -> None:
    if input.ndim < 2:
        raise EngineError(Reason.SHAPE, f"{name}: The input tensor A must have at least 2 dimensions.")


def needs_square(name: str, input: Array) -> None:
    """Check for square matrices. Raises EngineError: SHAPE."""
    _needs_two(name, input)
    if input.shape[-1] != input.shape[-2]:
        raise EngineError(
            Reason.SHAPE,
            f"{name}: A must be batches of square matrices, but they are {input.shape[-2]} by "
            f"{input.shape[-1]} matrices",
        )


def needs_float(name: str, input: Array, kernel: str | None = None) -> None:
    """Refuse integers and half types, which LAPACK lacks. Raises EngineError: RUNTIME, NOT_SUPPORTED."""
    title = dtypes.TITLES[input.dtype]
    floating = dtypes.category(input.dtype) >= dtypes.FLOAT
    if not input.size and (kernel == "linalg_eigh_cpu" or (floating and kernel in _UNCHECKED_IF_EMPTY)):
        return
    if dtypes.category(input.dtype) < dtypes.FLOAT and kernel in _INTEGERS_UNSUPPORTED:
        raise EngineError(Reason.NOT_SUPPORTED, f"\"{kernel}\" not implemented for '{title}'", op=name)
    if dtypes.category(input.dtype) < dtypes.FLOAT:
        raise EngineError(Reason.RUNTIME, f"{name}: Expected a floating point or complex tensor as input. Got {title}")
    if input.dtype.itemsize == 2 and kernel is not None:
        raise EngineError(Reason.NOT_SUPPORTED, f"\"{kernel}\" not implemented for '{title}'", op=name)
    if input.dtype.itemsize == 2:
        raise EngineError(Reason.RUNTIME, f"{name}: Low precision dtypes not supported. Got {title}")


def solvers(xp: Any) -> ModuleType:
    """SciPy's or CuPy's module of further decompositions and solvers, for an array module.

    It is loaded with its first use, since that takes as long as the rest of the engine.
    """
    return scipy_of(xp, "linalg")


def _zero_pivot(matrices: Array) -> tuple[Shape, int] | None:
    """Index of the first matrix whose LU factorization has a zero pivot, and that pivot, counted from 1."""
    host = matrices if isinstance(matrices, np.ndarray) else matrices.get()
    for place in np.ndindex(host.shape[:-2]):
        if host.shape[-1]:
            factored, _, info = solvers(np).get_lapack_funcs(("getrf",), (host[place],))[0](host[place])
            zeros = np.flatnonzero(np.diagonal(factored) == 0)
            if info > 0 or len(zeros):
                return place, int(info if info > 0 else zeros[0] + 1)
    return None


def is_singular(matrices: Array) -> Array:
    """Mask of the singular matrices."""
    xp = module_of(matrices)
    host = matrices if xp is np else matrices.get()
    found = np.zeros(host.shape[:-2], bool)
    for place in np.ndindex(host.shape[:-2]):
        found[place] = _zero_pivot(host[place]) is not None
    return xp.asarray(found)


def _singular_error(name: str, matrices: Array) -> EngineError | None:
    """PyTorch's error for the first singular matrix; None if there is none."""
    found = _zero_pivot(matrices)
    if found is None:
        return None
    place, pivot = found
    number = int(np.ravel_multi_index(place, matrices.shape[:-2])) if place else 0
    which = f"(Batch element {number}): " if place else ""
    if name == "linalg.solve":
        message = f"torch.linalg.solve: {which}The solver failed because the input matrix is singular."
    else:
        message = (
            f"{name}: {which}The diagonal element {pivot} is zero, the inversion could not be completed because the "
            "input matrix is singular."
        )
    return EngineError(Reason.RUNTIME, message, op=name, singular=True, linalg_error=True)


def _refuse_singular(name: str, matrices: Array, compute: Callable[[], Array]) -> Array:
    """Call `compute` and refuse singular matrices, for which it raises LinAlgError.

    Raises EngineError: RUNTIME.
    """
    try:
        return compute()
    except np.linalg.LinAlgError:
        refusal = _singular_error(name, matrices)
        if refusal is None:
            raise
        raise refusal from None


# Inverses.


@op(name="linalg.inv", node="LinalgInvExBackward0", cost=lapack(0.3))
def inv(xp: Any, A: Array) -> Array:
    """Inverses of square matrices (torch.linalg.inv).

    A: (..., n, n). Raises EngineError: RUNTIME for a singular matrix, SHAPE.
    """
    needs_matrices("linalg.inv", A, square=True)
    return _refuse_singular("linalg.inv", A, lambda: xp.linalg.inv(A))


inv.works_in(forward=2.5)
inv.grad(A=lambda g, out: neg(adjoint(out) @ g @ adjoint(out)))
inv.tangent(lambda t_A, out: neg(out @ t_A @ out))


@composite
def inverse(input: Array) -> Any:
    """Inverses of square matrices (torch.inverse)."""
    return inv(input)


def largest_value(xp: Any, values: Array) -> Array:
    """Largest value of each row, kept as a column; 0 for rows without values. CuPy's max knows no `initial`."""
    return values.max(-1, keepdims=True) if values.shape[-1] else xp.zeros((*values.shape[:-1], 1), values.dtype)


def rank_limit(xp: Any, A: Array, values: Array, atol: Any, rtol: Any) -> Any:
    """Limit per matrix: singular values up to it count as zero."""
    absolute = xp.asarray(0 if atol is None else atol, values.dtype)[..., None]
    default = float(xp.finfo(A.dtype).eps) * max(A.shape[-2:])
    relative = xp.where(absolute > 0, 0, default) if rtol is None else xp.asarray(rtol, values.dtype)[..., None]
    largest = largest_value(xp, xp.abs(values))
    return xp.maximum(largest * relative.astype(values.dtype), absolute)


@op(name="linalg.pinv", node="LinalgPinvBackward0", cost=tall(lapack(3.0)))
def pinv(
    xp: Any,
    A: Array,
    *,
    atol: Array | Number | None = None,
    rtol: Array | Number | None = None,
    hermitian: bool = False,
) -> Array:
    """Moore-Penrose pseudo-inverses (torch.linalg.pinv).

    A: (..., m, n). Singular values up to max(atol, rtol * the largest) count as zero. rtol: by default the dtype's eps
    times the larger size. hermitian: A equals its conjugate transpose; only the lower triangle is read.
    Raises EngineError: RUNTIME, SHAPE.
    """
    needs_matrices("linalg.pinv", A, square=hermitian)
    if not A.size:
        return xp.zeros((*A.shape[:-2], A.shape[-1], A.shape[-2]), A.dtype)
    if hermitian:
        values, left = xp.linalg.eigh(A)
        right = left.conj().swapaxes(-1, -2)
    else:
        left, values, right = xp.linalg.svd(A, full_matrices=False)
    kept = xp.abs(values) > rank_limit(xp, A, values, atol, rtol)
    inverted = xp.where(kept, 1 / xp.where(kept, values, 1), 0).astype(values.dtype)
    return (right.conj().swapaxes(-1, -2) * inverted[..., None, :]) @ left.conj().swapaxes(-1, -2)


pinv.works_in(forward=7.7, backward=5.6)
pinv.unsupported("c", message="torch.linalg.pinv: atol tensor of complex type is not supported.", of=("atol",))
pinv.unsupported("c", message="torch.linalg.pinv: rtol tensor of complex type is not supported.", of=("rtol",))


def pinv_backward(g: Any, A: Any, out: Any) -> Any:
    """Gradient of A, given the gradient of its pseudo-inverse `out`."""
    turned, back = adjoint(g), adjoint(out)
    if A.shape[-2] <= A.shape[-1]:
        k = turned @ out
        through = k @ back
        return through - adjoint(out @ k) - (A @ out) @ through + (back @ out) @ (turned - k @ A)
    k = out @ turned
    through = back @ k
    return through - adjoint(k @ out) + (turned - A @ k) @ out @ back - (through @ out) @ A


def _refuse_rank(g: Any) -> Any:
    raise EngineError(
        Reason.RUNTIME,
        "The function 'linalg_pinv' is not differentiable with respect to argument 'rtol', or 'atol'. This input "
        "cannot have requires_grad True.",
    )


pinv.grad(A=pinv_backward, atol=_refuse_rank, rtol=_refuse_rank)


# Determinants.


def _solved_cost(per: float) -> Works:
    def works(A: Any, B: Any, *rest: Any) -> Any:
        matrix, lead = (A, B) if A.shape[-1] == A.shape[-2] else (B, A)
        n, batch = matrix.shape[-1], max(math.prod(A.shape[:-2]), math.prod(B.shape[:-2]))
        batch *= 1 if A.ndim == B.ndim else max(1, min(math.prod(A.shape[:-2]), math.prod(B.shape[:-2])))
        right = lead.size / max(1, n * math.prod(lead.shape[:-2]))
        wide = 2.0 if matrix.dtype.itemsize >= dtypes.float64.itemsize else 1.0
        return batch * (LOOP + wide * (per * n**3 + 0.3 * n * n * right))

    return works


def _cofactored_cost(A: Any) -> Any:
    n = A.shape[-1]
    return math.prod(A.shape[:-2]) * (n * LOOP + 8.0 * n**3)


@op(name="linalg.det", node="LinalgDetBackward0", cost=counted(lapack(0.15).forward, _cofactored_cost, 1 << 13))
def det(xp: Any, A: Array) -> Array:
    """Determinants of square matrices (torch.linalg.det). A: (..., n, n). Raises EngineError: SHAPE."""
    needs_matrices("linalg.det", A, square=True, kernel="lu_cpu")
    return xp.linalg.det(A) if A.size else xp.ones(A.shape[:-2], A.dtype)


det.works_in(forward=1.1, backward=6.9)


@op(name="_cofactors", cost=counted(_cofactored_cost, 2.0, 1 << 13))
def _cofactors(xp: Any, A: Array) -> Array:
    """Conjugate cofactors: conj(det(A)) * inv(A)^H for an invertible A.

    Computed from singular values, so they are correct for singular matrices too.
    """
    if not A.size:
        return A.copy()
    finite = xp.isfinite(A).all((-2, -1), keepdims=True)
    left, values, right = xp.linalg.svd(xp.where(finite, A, 0))
    count = values.shape[-1]
    others = xp.stack([xp.delete(values, place, -1).prod(-1) for place in range(count)], -1)
    phase = (xp.linalg.det(left) * xp.linalg.det(right)).conj()[..., None, None]
    return xp.where(finite, phase * (left * others[..., None, :]) @ right, xp.nan).astype(A.dtype, copy=False)


def _cofactors_A(g: Any, A: Any, out: Any) -> Any:
    """Gradient of conj(det(A)) * inv(A)^H; needs the inverse."""
    back = adjoint(inv(A))
    return back * _unsqueezed(total(conj(g) * out, (-2, -1)), 2) - out @ adjoint(g) @ back


def _unsqueezed(value: Any, count: int) -> Any:
    return fold(value, (*value.shape, *(1,) * count))


det.grad(A=lambda g, A: _unsqueezed(g, 2) * _cofactors(A))
det.tangent(lambda t_A, A: total(conj(_cofactors(A)) * t_A, (-2, -1)))
_cofactors.grad(A=_cofactors_A)


@op(name="linalg.slogdet", node="LinalgSlogdetBackward0", outputs=("sign", "logabsdet"), cost=lapack(0.15))
def slogdet(xp: Any, A: Array) -> Array:
    """Signs (or phases) of determinants, and the logarithms of their absolute values (torch.linalg.slogdet).

    A: (..., n, n); a singular matrix gives 0 and -inf. Raises EngineError: SHAPE.
    """
    needs_matrices("linalg.slogdet", A, square=True)
    sign, size = xp.linalg.slogdet(A)
    return xp.asarray(sign), xp.asarray(size).astype(dtypes.real_part(A.dtype), copy=False)


def _slogdet_A(gs: Any, A: Any, out0: Any) -> Any:
    turned, g = gs
    if A.dtype.kind == "c":
        g = g - imag(conj(turned) * out0) * 1j
    return _unsqueezed(g, 2) * adjoint(inv(A))


slogdet.grad(A=_slogdet_A)


@composite
def logdet(input: Array) -> Any:
    """Logarithms of determinants; nan for negative ones, -inf for 0 (torch.logdet). input: (..., n, n)."""
    sign, size = slogdet(input)
    if sign.dtype.kind == "c":
        return size + log(sign)
    return where(eq(sign, -1), float("nan"), size)


@composite(name="det")
def det_(input: Array) -> Any:
    """Determinants of square matrices (torch.det)."""
    return det(input)


@composite(name="slogdet", outputs=("sign", "logabsdet"))
def slogdet_(input: Array) -> Any:
    """Signs of determinants, and the logarithms of their absolute values (torch.slogdet)."""
    return slogdet(input)


# Linear systems.


def is_vector(A: Any, B: Any) -> bool:
    """Whether `solve` treats B as one right-hand side per matrix: PyTorch's rule, from the shapes."""
    return bool(B.ndim == 1 or (A.ndim - 1 == B.ndim and tuple(B.shape) == tuple(A.shape[:-1])))


def solved_bytes(A: Array, B: Array) -> int:
    """Upper bound of the bytes of X with A @ X = B; batches broadcast, and B may be vectors."""
    vectors = B.shape == A.shape[:-1]
    batch = A.shape[:-2] if vectors else np.broadcast_shapes(A.shape[:-2], B.shape[:-2])
    return int(math.prod(batch) * (math.prod(A.shape[-2:]) + math.prod(B.shape[-2:])) * B.itemsize)


@op(name="linalg.solve", node="LinalgSolveExBackward0", cost=counted(_solved_cost(0.2), 4.0, 1 << 16))
def solve(xp: Any, A: Array, B: Array, *, left: bool = True) -> Array:
    """Solve A @ X = B, or X @ A = B if not `left` (torch.linalg.solve).

    A: (..., n, n). B: (..., n, k); or (n,), or A's batch and n, for one right-hand side per matrix. Batches broadcast.
    Raises EngineError: RUNTIME for a singular matrix, SHAPE, DTYPE.
    """
    name = "linalg.solve"
    needs_matrices(name, A, square=True, kernel="lu_cpu")
    check_same_dtype(name, A, B)
    vector = is_vector(A, B)
    if vector and not left:
        raise EngineError(
            Reason.SHAPE,
            "linalg.solve: Vector broadcasting of the left hand side is not supported for left=False. In this case "
            f"linalg.solve is equivalent to B / A.squeeze(-1) (shapes {list(A.shape)} and {list(B.shape)})",
        )
    matrix = B[..., None] if vector else B
    check_sides(name, A, matrix, left)
    if not left:
        A, matrix = A.swapaxes(-1, -2), matrix.swapaxes(-1, -2)
    batch = broadcast_shape(A.shape[:-2], matrix.shape[:-2])
    matrix = xp.broadcast_to(matrix, (*batch, *matrix.shape[-2:]))
    found = _refuse_singular(name, A, lambda: xp.linalg.solve(A, matrix)) if A.size else matrix.copy()
    if vector:
        return found[..., 0]
    return found if left else found.swapaxes(-1, -2)


solve.works_in(forward=0.8)
solve.sized_by(lambda A, B, left: solved_bytes(A, B))


def check_same_dtype(name: str, A: Array, B: Array, names: tuple[str, str] = ("A", "B")) -> None:
    """Check that two operands have the same dtype. Raises EngineError: DTYPE."""
    if A.dtype != B.dtype:
        (first, second), a, b = names, dtypes.TITLES[A.dtype], dtypes.TITLES[B.dtype]
        raise EngineError(
            Reason.DTYPE,
            f"{name}: Expected {first} and {second} to have the same dtype, but found {first} of type {a} and {second} "
            f"of type {b} instead",
        )


def check_sides(name: str, A: Array, B: Array, left: bool) -> None:
    """Check that a right-hand side fits the matrices. Raises EngineError: SHAPE."""
    if B.ndim < 2:
        raise EngineError(Reason.SHAPE, f"{name}: The input tensor B must have at least 2 dimensions.")
    if A.shape[-2] != B.shape[-2 if left else -1]:
        (m, n), (j, k) = A.shape[-2:], B.shape[-2:]
        a, b = (f"{m}x{n}", f"{j}x{k}")
        raise EngineError(
            Reason.SHAPE,
            f"{name}: Incompatible shapes of A and B for the equation {'AX = B' if left else 'XA = B'} ({a} and {b})",
        )


def _solve_A(g: Any, A: Any, B_meta: Any, out: Any, left: bool) -> Any:
    inner = solve(adjoint(A), g, left=left)
    if is_vector(A, B_meta):
        return neg(_unsqueezed(inner, 1) * conj(fold(out, (*out.shape[:-1], 1, out.shape[-1]))))
    return neg(inner @ adjoint(out)) if left else neg(adjoint(out) @ inner)


solve.grad(A=_solve_A, B=lambda g, A, left: solve(adjoint(A), g, left=left))


@op(
    name="linalg.solve_triangular",
    node="LinalgSolveTriangularBackward0",
    cost=counted(_solved_cost(0.02), 4.0, 1 << 16),
)
def solve_triangular(
    xp: Any, A: Array, B: Array, *, upper: bool, left: bool = True, unitriangular: bool = False
) -> Array:
    """Solve A @ X = B, or X @ A = B if not `left`, for triangular A (torch.linalg.solve_triangular).

    A: (..., n, n), of which only the upper or the lower triangle is read. B: (..., n, k); batches broadcast.
    unitriangular: the diagonal counts as ones. A zero on the diagonal gives inf or nan.
    Raises EngineError: SHAPE, DTYPE.
    """
    name = "linalg.solve_triangular"
    needs_matrices(name, A, square=True, kernel="triangular_solve_cpu")
    check_same_dtype(name, A, B)
    check_sides(name, A, B, left)
    batch = broadcast_shape(A.shape[:-2], B.shape[:-2])
    found = xp.array(xp.broadcast_to(B, (*batch, *B.shape[-2:])))
    matrices = xp.broadcast_to(A, (*batch, *A.shape[-2:]))
    one = _cpu_triangle if xp is np else _gpu_triangle
    if found.size:
        for place in np.ndindex(*batch):
            found[place] = one(matrices[place], found[place], upper, left, unitriangular)
    return found


solve_triangular.works_in(forward=0.8)
solve_triangular.sized_by(lambda A, B, *rest: solved_bytes(A, B))


def _cpu_triangle(A: Array, B: Array, upper: bool, left: bool, unitriangular: bool) -> Array:
    (trsm,) = solvers(np).get_blas_funcs(("trsm",), (A, B))
    return trsm(1, A, B, side=not left, lower=not upper, diag=unitriangular)


def _gpu_triangle(A: Array, B: Array, upper: bool, left: bool, unitriangular: bool) -> Array:
    from gradwire_engine.core.device import cupy

    solver = solvers(cupy()).solve_triangular
    if left:
        return solver(A, B, lower=not upper, unit_diagonal=unitriangular)
    return solver(A, B.T, trans="T", lower=not upper, unit_diagonal=unitriangular).T


def _triangular_A(g: Any, A: Any, out: Any, upper: bool, left: bool, unitriangular: bool) -> Any:
    inner = _triangular_B(g, A, upper, left, unitriangular)
    whole = neg(inner @ adjoint(out)) if left else neg(adjoint(out) @ inner)
    return triu(whole, int(unitriangular)) if upper else tril(whole, -int(unitriangular))


def _triangular_B(g: Any, A: Any, upper: bool, left: bool, unitriangular: bool) -> Any:
    return solve_triangular(adjoint(A), g, upper=not upper, left=left, unitriangular=unitriangular)


solve_triangular.grad(A=_triangular_A, B=_triangular_B)


@op(node="CholeskySolveBackward0", cost=counted(lambda B, L, upper: _solved_cost(0.05)(L, B), 4.0, 1 << 16))
def cholesky_solve(xp: Any, B: Array, L: Array, upper: bool = False) -> Array:
    """Solve A @ X = B, given A's Cholesky factor (torch.cholesky_solve).

    B: (..., n, k). L: (..., n, n), lower triangular, or upper triangular if `upper`. Raises EngineError: SHAPE.
    """
    for name, operand in (("b", B), ("u", L)):
        if operand.ndim < 2:
            raise EngineError(
                Reason.SHAPE, f"{name} should have at least 2 dimensions, but has {operand.ndim} dimensions instead"
            )
    first = adjoint(L) if upper else L
    return solve_triangular(adjoint(first), solve_triangular(first, B, upper=False), upper=True)


cholesky_solve.works_in(forward=0.8, backward=2.2)
cholesky_solve.sized_by(lambda B, L, upper: solved_bytes(L, B))


def _cholesky_solve_L(g: Any, B: Any, L: Any, out: Any, upper: bool) -> Any:
    """Gradient of L as of a full matrix, without a triangular mask, as in PyTorch."""
    half = cholesky_solve(g, L, upper) @ adjoint(out)
    common = neg(half + adjoint(half))
    return L @ common if upper else common @ L


cholesky_solve.grad(B=lambda g, L, upper: cholesky_solve(g, L, upper), L=_cholesky_solve_L)


@composite(name="linalg.matrix_power")
def matrix_power(A: Array, n: int) -> Any:
    """Integer powers of square matrices; negative powers by the inverse (torch.linalg.matrix_power)."""
    needs_square("linalg.matrix_power", A)
    if n == 0:
        return _identity_like(A)
    power, count = (inv(A), -n) if n < 0 else (A, n)
    result = None
    while count:
        if count & 1:
            result = power if result is None else result @ power
        count >>= 1
        power = power @ power if count else power
    return copied(A) if result is A else result


@op(name="_identity_like", cost=4)
def _identity_like(xp: Any, input: Array) -> Array:
    made = xp.zeros(input.shape, input.dtype)
    made[...] = xp.eye(input.shape[-1], dtype=input.dtype)
    return made


_identity_like.grad(input=lambda g: g * 0)
