"""Least squares; inverses and linear systems of tensors treated as matrices."""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np

from gradwire_engine.core import dtypes
from gradwire_engine.core.device import Array
from gradwire_engine.core.errors import EngineError, Reason
from gradwire_engine.op.composite import composite
from gradwire_engine.op.cost import LOOP, counted
from gradwire_engine.op.op import op
from gradwire_engine.ops.base.basic import neg
from gradwire_engine.ops.base.checks import broadcast_shape, ints, normalize_dim
from gradwire_engine.ops.linalg.costs import tall
from gradwire_engine.ops.linalg.linalg import adjoint, inv, largest_value, pinv, pinv_backward, solve, solved_bytes
from gradwire_engine.ops.shape.shape import movedim, reshape, squeeze, unsqueeze

Ints = Any
_DRIVERS = ("gels", "gelsy", "gelsd", "gelss")


def _least_cost(A: Any, B: Any, *rest: Any) -> Any:
    m, n = A.shape[-2:]
    right = B.shape[-1] if B.ndim == A.ndim else 1
    batch = max(math.prod(A.shape[:-2]), math.prod(B.shape[: A.ndim - 2]))
    return batch * (10 * LOOP + 4.0 * m * n * min(m, n) + 1.0 * m * n * right)


@op(
    name="linalg.lstsq",
    node="LinalgLstsqBackward0",
    outputs=("solution", "residuals", "rank", "singular_values"),
    differentiable_outputs=(0, 1),
    cost=tall(counted(_least_cost, 4.0, 1 << 14)),
)
def lstsq(
    xp: Any,
    A: Array,
    B: Array,
    rcond: float | None = None,
    *,
    driver: Literal["gels", "gelsy", "gelsd", "gelss"] | None = None,
) -> Array:
    """Least squares: X that minimizes |A @ X - B|, with the smallest norm (torch.linalg.lstsq).

    A: (..., m, n). B: (..., m, k), or (..., m) for one right-hand side per matrix. solution: (..., n, k).
    rcond: singular values up to rcond times the largest count as zero; by default eps times the larger size.
    driver: "gels" returns no rank; "gelsd" and "gelss" also return the singular values; "gelsy" (the CPU's default)
    returns neither singular values nor residuals. All drivers compute by singular values.
    residuals: squared column norms of A @ X - B if m > n and A has full rank, else empty.
    Raises EngineError: RUNTIME, SHAPE, DTYPE.
    """
    _check_least(A, B, driver)
    driver = driver or ("gelsy" if xp is np else "gels")
    vector = A.ndim - B.ndim == 1
    right = B[..., None] if vector else B
    rows, columns = A.shape[-2:]
    batch = broadcast_shape(A.shape[:-2], right.shape[:-2])
    left, values, turned = xp.linalg.svd(A, full_matrices=False) if A.size else _no_values(xp, A)
    cut = max(rows, columns) * float(xp.finfo(A.dtype).eps) if rcond is None else rcond
    largest = largest_value(xp, values)
    kept = values > (0 if driver == "gels" else largest * cut)
    inverse = xp.where(kept, 1 / xp.where(kept, values, 1), 0).astype(values.dtype)
    found = turned.conj().swapaxes(-1, -2) @ (inverse[..., None] * (left.conj().swapaxes(-1, -2) @ right))
    if found.shape[:-2] != batch:
        found = xp.array(xp.broadcast_to(found, (*batch, *found.shape[-2:])))
    rank = kept.sum(-1, dtype=dtypes.int64)
    residuals = xp.zeros((0,), values.dtype)
    if rows > columns and driver != "gelsy" and (driver == "gels" or bool((rank == columns).all())):
        rest = xp.abs(A @ found - right) ** 2
        residuals = rest.sum(-2)
    nothing = xp.zeros((0,), dtypes.int64)
    return (
        xp.ascontiguousarray(found[..., 0] if vector else found),
        residuals,
        nothing if driver == "gels" else rank,
        values.copy() if driver in ("gelsd", "gelss") else xp.zeros((0,), values.dtype),
    )


lstsq.works_in(forward=0.7, backward=3.1)
lstsq.sized_by(lambda A, B, rcond, driver: 2 * solved_bytes(A, B))


def _no_values(xp: Any, A: Array) -> tuple[Array, Array, Array]:
    """Singular value decomposition of matrices without elements."""
    (rows, columns), count = A.shape[-2:], min(A.shape[-2:])
    batch = A.shape[:-2]
    values = xp.zeros((*batch, count), dtypes.real_part(A.dtype))
    return xp.zeros((*batch, rows, count), A.dtype), values, xp.zeros((*batch, count, columns), A.dtype)


def _check_least(A: Array, B: Array, driver: str | None) -> None:
    name = "torch.linalg.lstsq"
    if A.ndim < 2:
        raise EngineError(Reason.SHAPE, f"{name}: input must have at least 2 dimensions.")
    if B.ndim < 1:
        raise EngineError(Reason.SHAPE, f"{name}: other must have at least 1 dimension.")
    if A.dtype != B.dtype:
        a, b = dtypes.TITLES[A.dtype], dtypes.TITLES[B.dtype]
        raise EngineError(
            Reason.DTYPE,
            f"{name}: Expected input and other to have the same dtype, but got input's dtype {a} and other's dtype {b}",
        )
    if A.ndim - B.ndim not in (0, 1):
        raise EngineError(
            Reason.SHAPE,
            f"{name}: input.dim() must be greater or equal to other.dim() and (input.dim() - other.dim()) <= 1",
        )
    if A.shape[-2] != B.shape[-1 if A.ndim - B.ndim == 1 else -2]:
        which = "input.size(-2) should match other.size(-" + ("1)" if A.ndim - B.ndim == 1 else "2)")
        raise EngineError(Reason.SHAPE, f"{name}: {which}: they are {list(A.shape)} and {list(B.shape)}")
    if driver is not None and driver not in _DRIVERS:
        raise EngineError(
            Reason.RUNTIME, f"{name}: parameter `driver` should be one of ({', '.join(_DRIVERS)}), not {driver!r}"
        )
    if dtypes.category(A.dtype) < dtypes.FLOAT or A.dtype.itemsize == 2:
        raise EngineError(
            Reason.RUNTIME,
            f"{name}: This function doesn't handle types other than float and double: {dtypes.TITLES[A.dtype]}",
        )


def _matrix(value: Any, vector: bool) -> Any:
    return unsqueeze(value, -1) if vector else value


def _lstsq_parts(gs: Any, A: Any, B: Any, out0: Any, out1: Any) -> tuple[Any, Any, Any, Any, Any]:
    """B, X and the gradients of X and of A @ X - B (None without residuals) as matrices; whether B holds vectors."""
    vector = A.ndim - B.ndim == 1
    right, found, g_found = (_matrix(value, vector) for value in (B, out0, gs[0]))
    if not math.prod(out1.shape):
        return right, found, g_found, None, vector
    g_rest = unsqueeze(gs[1], -2) * (A @ found - right) * 2
    return right, found, g_found, g_rest, vector


def _lstsq_A(gs: Any, A: Any, B: Any, out0: Any, out1: Any) -> Any:
    right, found, g_found, g_rest, _ = _lstsq_parts(gs, A, B, out0, out1)
    g = pinv_backward(g_found @ adjoint(right), A, pinv(A))
    return g if g_rest is None else g + g_rest @ adjoint(found)


def _lstsq_B(gs: Any, A: Any, B: Any, out0: Any, out1: Any) -> Any:
    _, _, g_found, g_rest, vector = _lstsq_parts(gs, A, B, out0, out1)
    g = adjoint(pinv(A)) @ g_found
    g = g if g_rest is None else g + neg(g_rest)
    return squeeze(g, -1) if vector else g


lstsq.grad(A=_lstsq_A, B=_lstsq_B)


# Tensors as matrices.


@composite(name="linalg.tensorinv")
def tensorinv(A: Array, ind: int = 2) -> Any:
    """Inverse of A as a matrix: rows are its first `ind` dims, columns the others (torch.linalg.tensorinv).

    Raises EngineError: RUNTIME if the matrix is not square or is singular.
    """
    if ind <= 0:
        raise EngineError(Reason.RUNTIME, f"Expected a strictly positive integer for 'ind', but got {ind}")
    first, rest = tuple(A.shape[:ind]), tuple(A.shape[ind:])
    m, n = math.prod(first), math.prod(rest)
    if m != n:
        raise EngineError(
            Reason.RUNTIME,
            f"Expected self to satisfy the requirement prod(self.shape[ind:]) == prod(self.shape[:ind]), but got "
            f"{n} != {m}",
        )
    return reshape(inv(reshape(A, (m, n))), rest + first)


@composite(name="linalg.tensorsolve")
def tensorsolve(A: Array, B: Array, dims: Ints | None = None) -> Any:
    """Solve tensordot(A, X, X.ndim) = B for X (torch.linalg.tensorsolve).

    dims: dims of A to move to its end first. Raises EngineError: RUNTIME if the matrix is not square or is singular.
    """
    if dims is not None:
        moved = tuple(normalize_dim(axis, A.ndim) for axis in ints(dims))
        A = movedim(A, moved, tuple(range(A.ndim - len(moved), A.ndim)))
    rest = tuple(A.shape[B.ndim :])
    m, n = math.prod(A.shape[: B.ndim]), math.prod(rest)
    if m != n:
        raise EngineError(
            Reason.RUNTIME,
            "Expected self to satisfy the requirement prod(self.shape[other.ndim:]) == prod(self.shape[:other.ndim]), "
            f"but got {n} != {m}",
        )
    return reshape(solve(reshape(A, (m, n)), reshape(B, (-1,))), rest)
