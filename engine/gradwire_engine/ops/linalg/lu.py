"""LU factorization with pivoting: lu, lu_factor, lu_solve; householder_product and cholesky_inverse.

Gradient formulas: de Hoog, Anderssen & Lukas, "Differentiation of matrix functionals using triangular factorization"
(2011), also for wide and tall matrices. A permutation is applied as a constant matrix, so derivatives of any order
pass through it.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from gradwire_engine.core import dtypes
from gradwire_engine.core.device import Array, module_of
from gradwire_engine.core.errors import EngineError, Reason
from gradwire_engine.graph.tensor import Tensor
from gradwire_engine.op.composite import composite
from gradwire_engine.op.cost import counted
from gradwire_engine.op.op import op
from gradwire_engine.op.saving import reads_values
from gradwire_engine.ops.base.checks import admit, broadcast_shape, refuse_derivative
from gradwire_engine.ops.linalg.costs import lapack, tall
from gradwire_engine.ops.linalg.linalg import (
    adjoint,
    check_same_dtype,
    check_sides,
    cholesky_solve,
    needs_square,
    solve_triangular,
    solvers,
)
from gradwire_engine.ops.shape.join import cat, tril, triu
from gradwire_engine.ops.shape.shape import narrow, unsqueeze


def _needs_factors(name: str, A: Array) -> None:
    if A.ndim < 2:
        raise EngineError(
            Reason.SHAPE, f"{name}: Expected tensor with 2 or more dimensions. Got size: {list(A.shape)} instead"
        )
    if A.size and (dtypes.category(A.dtype) < dtypes.FLOAT or A.dtype.itemsize == 2):
        raise EngineError(Reason.NOT_SUPPORTED, f"\"lu_cpu\" not implemented for '{dtypes.TITLES[A.dtype]}'", op=name)


def _needs_pivot(pivot: bool) -> None:
    if not pivot:
        raise EngineError(Reason.RUNTIME, "linalg.lu_factor: LU without pivoting is not implemented on the CPU")


def _factorize(xp: Any, A: Array) -> tuple[Array, Array]:
    """L and U packed in one matrix, and LAPACK's pivots, counted from 1."""
    packed = xp.array(A, order="C")
    pivots = xp.zeros((*A.shape[:-2], min(A.shape[-2:])), dtypes.int32)
    if not A.size:
        return packed, pivots
    if xp is np:
        (getrf,) = solvers(np).get_lapack_funcs(("getrf",), (packed,))
    for place in np.ndindex(A.shape[:-2]):
        packed[place], rows = getrf(packed[place])[:2] if xp is np else solvers(xp).lu_factor(packed[place])
        pivots[place] = rows + 1
    return packed, pivots


def _permutation(pivots: Array, rows: int, dtype: Any) -> Array:
    """P with P @ L @ U = A, from pivots: rows exchanged in sequence."""
    xp = module_of(pivots)
    host = pivots if xp is np else pivots.get()
    admit((*host.shape[:-1], rows, rows), dtype)
    order = np.broadcast_to(np.arange(rows), (*host.shape[:-1], rows)).copy()
    for step in range(host.shape[-1]):
        other = host[..., step : step + 1].astype(np.int64) - 1
        held = order[..., step : step + 1].copy()
        order[..., step : step + 1] = np.take_along_axis(order, other, -1)
        np.put_along_axis(order, other, held, -1)
    made = np.zeros((*order.shape, rows), dtype)
    np.put_along_axis(made, order[..., None, :], 1, -2)
    return xp.asarray(made)


def _split(xp: Any, packed: Array) -> tuple[Array, Array]:
    """Unpack L, with ones on its diagonal, and U."""
    rows, columns = packed.shape[-2:]
    count = min(rows, columns)
    lower = xp.tril(packed[..., :, :count], -1) + xp.eye(rows, count, dtype=packed.dtype)
    return lower, xp.triu(packed[..., :count, :])


@op(
    name="linalg.lu",
    node="LinalgLuBackward0",
    outputs=("P", "L", "U"),
    differentiable_outputs=(1, 2),
    cost=counted(lambda A, pivot: lapack(0.3).forward(A) + 4.0 * A.size // A.shape[-1] * A.shape[-2], 4.0, 1 << 14),
)
def lu(xp: Any, A: Array, *, pivot: bool = True) -> Array:
    """LU factorization: P, L, U with P @ L @ U = A (torch.linalg.lu).

    A: (..., m, n). P: (..., m, m), a permutation. L: (..., m, k), lower triangular with ones on its diagonal.
    U: (..., k, n), upper triangular. k = min(m, n). Raises EngineError: SHAPE, NOT_SUPPORTED, RUNTIME if not `pivot`.
    """
    _needs_factors("linalg.lu", A)
    _needs_pivot(pivot)
    packed, pivots = _factorize(xp, A)
    lower, upper = _split(xp, packed)
    return _permutation(pivots, A.shape[-2], A.dtype), lower, upper


lu.works_in(backward=4.6)
lu.sized_by(lambda A, pivot: (math.prod(A.shape[:-2]) * A.shape[-2] ** 2 + 2 * A.size) * A.itemsize)


def _factors_backward(g_lower: Any, g_upper: Any, lower: Any, upper: Any) -> Any:
    """Gradient of L @ U, given the gradients of L and U."""
    rows, count, columns = lower.shape[-2], lower.shape[-1], upper.shape[-1]
    top, left = (narrow(lower, -2, 0, count), narrow(upper, -1, 0, count))
    g_top, g_left = (narrow(g_lower, -2, 0, count), narrow(g_upper, -1, 0, count))
    below, above = adjoint(top) @ g_top, g_left @ adjoint(left)
    if columns > count:
        g_right = narrow(g_upper, -1, count, columns - count)
        below = below - g_right @ adjoint(narrow(upper, -1, count, columns - count))
    if rows > count:
        g_bottom = narrow(g_lower, -2, count, rows - count)
        above = above - adjoint(narrow(lower, -2, count, rows - count)) @ g_bottom
    core = tril(below, -1) + triu(above)
    if rows > count:
        core = solve_triangular(adjoint(top), core, upper=True, unitriangular=True)
        return solve_triangular(adjoint(upper), cat([core, g_bottom], -2), upper=False, left=False)
    core = solve_triangular(adjoint(left), core, upper=False, left=False)
    if columns > count:
        core = cat([core, g_right], -1)
    return solve_triangular(adjoint(top), core, upper=True, unitriangular=True)


lu.grad(A=lambda gs, out0, out1, out2: out0 @ _factors_backward(gs[1], gs[2], out1, out2))


@op(
    name="linalg.lu_factor",
    node="LinalgLuFactorExBackward0",
    outputs=("LU", "pivots"),
    differentiable_outputs=(0,),
    cost=tall(lapack(0.15, 10.0)),
)
def lu_factor(xp: Any, A: Array, *, pivot: bool = True) -> Array:
    """LU factorization, packed: L and U in one matrix, and the pivots (torch.linalg.lu_factor).

    A: (..., m, n). LU: A's shape, without L's diagonal of ones. pivots: (..., min(m, n)), int32, counted from 1.
    Raises EngineError: RUNTIME for a zero pivot or if not `pivot`, SHAPE, NOT_SUPPORTED.
    """
    _needs_factors("linalg.lu_factor", A)
    _needs_pivot(pivot)
    packed, pivots = _factorize(xp, A)
    _refuse_zero_pivot(xp, packed, "linalg.lu_factor")
    return packed, pivots


lu_factor.works_in(backward=9.5)


def _refuse_zero_pivot(xp: Any, packed: Array, name: str) -> None:
    zeros = xp.diagonal(packed, 0, -2, -1) == 0
    if not bool(zeros.any()):
        return
    flags = zeros if xp is np else zeros.get()
    place = tuple(int(part) for part in np.argwhere(flags)[0])
    which = f"(Batch element {np.ravel_multi_index(place[:-1], flags.shape[:-1])}): " if place[:-1] else ""
    pivot_name = f"U[{place[-1] + 1},{place[-1] + 1}]"
    raise EngineError(
        Reason.RUNTIME,
        f"torch.{name}: {which}{pivot_name} is zero and using it on lu_solve would result in a division "
        "by zero. If you still want to perform the factorization, consider calling linalg.lu(A, pivot) or "
        "linalg.lu_factor_ex(A, pivot)",
        op=name,
    )


@op(
    name="linalg.lu_factor_ex",
    node="LinalgLuFactorExBackward0",
    outputs=("LU", "pivots", "info"),
    differentiable_outputs=(0,),
    cost=tall(lapack(0.15, 10.0)),
)
def lu_factor_ex(xp: Any, A: Array, *, pivot: bool = True, check_errors: bool = False) -> Array:
    """lu_factor with int32 infos: the index from 1 of the first zero pivot, 0 for none (torch.linalg.lu_factor_ex).

    A: (..., m, n). Raises EngineError: RUNTIME for a zero pivot with `check_errors` or if not `pivot`, SHAPE,
    NOT_SUPPORTED.
    """
    _needs_factors("linalg.lu_factor", A)
    _needs_pivot(pivot)
    packed, pivots = _factorize(xp, A)
    if check_errors:
        _refuse_zero_pivot(xp, packed, "linalg.lu_factor_ex")
    zeros = xp.diagonal(packed, 0, -2, -1) == 0
    if not zeros.shape[-1]:
        return packed, pivots, xp.zeros(A.shape[:-2], dtypes.int32)
    info = xp.where(zeros.any(-1), zeros.argmax(-1) + 1, 0)
    return packed, pivots, xp.asarray(info).astype(dtypes.int32)


lu_factor_ex.works_in(backward=9.5)


def _unpack(packed: Any) -> tuple[Any, Any]:
    """Unpack L, with ones on its diagonal, and U; of arrays or Tensors."""
    rows, columns = packed.shape[-2:]
    count = min(rows, columns)
    array = packed.array if type(packed) is Tensor else packed
    ones = module_of(array).eye(rows, count, dtype=packed.dtype)
    return tril(narrow(packed, -1, 0, count), -1) + ones, triu(narrow(packed, -2, 0, count))


def _permutation_of(pivots: Any, rows: int, dtype: Any) -> Any:
    if type(pivots) is Tensor:
        return Tensor(_permutation(pivots.array, rows, dtype))
    return _permutation(pivots, rows, dtype)


@reads_values
def _lu_factor_A(gs: Any, out0: Any, out1: Any) -> Any:
    rows, count = out0.shape[-2], min(out0.shape[-2:])
    lower, upper = _unpack(out0)
    g_lower, g_upper = tril(narrow(gs[0], -1, 0, count), -1), triu(narrow(gs[0], -2, 0, count))
    return _permutation_of(out1, rows, out0.dtype) @ _factors_backward(g_lower, g_upper, lower, upper)


lu_factor.grad(A=_lu_factor_A)
lu_factor_ex.grad(A=_lu_factor_A)


@op(outputs=("a", "tau"), cost=tall(lapack(0.3)))
def geqrf(xp: Any, input: Array) -> Array:
    """Householder vectors below the diagonal of R, and their factors (torch.geqrf).

    input: (..., m, n). a: input's shape; tau: (..., min(m, n)). Its backward is refused. Raises EngineError:
    SHAPE, NOT_SUPPORTED.
    """
    if input.ndim < 2:
        raise EngineError(Reason.SHAPE, "torch.geqrf: input must have at least 2 dimensions.")
    if dtypes.category(input.dtype) < dtypes.FLOAT or input.dtype.itemsize == 2:
        title = dtypes.TITLES[input.dtype]
        raise EngineError(Reason.NOT_SUPPORTED, f"\"geqrf_cpu\" not implemented for '{title}'", op="geqrf")
    host = np.array(input if xp is np else input.get(), order="C")
    tau = np.zeros((*input.shape[:-2], min(input.shape[-2:])), input.dtype)
    if host.size:
        (factor,) = solvers(np).get_lapack_funcs(("geqrf",), (host,))
        for place in np.ndindex(input.shape[:-2]):
            host[place], tau[place] = factor(host[place])[:2]
    return xp.asarray(host), xp.asarray(tau)


geqrf.grad(input=lambda gs: refuse_derivative("geqrf"))


@composite(name="linalg.lu_solve", reads_values=True)
def lu_solve(LU: Array, pivots: Array, B: Array, *, left: bool = True, adjoint: bool = False) -> Any:
    """Solve A @ X = B, or X @ A = B if not `left`, given A's lu_factor (torch.linalg.lu_solve).

    adjoint: use A^H instead of A. LU: (..., n, n); pivots: (..., n), int32; B: (..., n, k); batches broadcast.
    Raises EngineError: SHAPE, DTYPE, NOT_SUPPORTED.
    """
    name = "linalg.lu_solve"
    needs_square(f"torch.{name}", LU)
    if pivots.dtype != dtypes.int32:
        raise EngineError(Reason.DTYPE, f"{name}: pivots should be a Tensor of scalar type torch.int32")
    if pivots.ndim < 1 or pivots.shape[-1] != LU.shape[-1]:
        raise EngineError(
            Reason.SHAPE, f"{name}: Number of pivots per batch should be same as the dimension of the matrix"
        )
    if pivots.shape[:-1] != LU.shape[:-2]:
        raise EngineError(
            Reason.SHAPE,
            f"{name}: Expected LU.shape[:-1] and pivots.shape to be the same, but got pivots with shape "
            f"{list(pivots.shape)} instead",
        )
    check_same_dtype(name, LU, B, ("LU", "B"))
    check_sides(name, LU, B, left)
    if LU.dtype.itemsize == 2:
        raise EngineError(
            Reason.NOT_SUPPORTED, f"\"{name}_cpu\" not implemented for '{dtypes.TITLES[LU.dtype]}'", op=name
        )
    broadcast_shape(LU.shape[:-2], B.shape[:-2])
    lower, upper = _unpack(LU)
    order = _permutation_of(pivots, LU.shape[-1], LU.dtype)
    if left != adjoint:  # A @ X = B, or X @ A^H = B, whose adjoint is A @ X^H = B^H
        right = _adjoint(order) @ (B if left else _adjoint(B))
        found = solve_triangular(upper, solve_triangular(lower, right, upper=False, unitriangular=True), upper=True)
    else:  # A^H @ X = B, or X @ A = B, whose adjoint is A^H @ X^H = B^H
        inner = solve_triangular(_adjoint(upper), B if left else _adjoint(B), upper=False)
        found = order @ solve_triangular(_adjoint(lower), inner, upper=True, unitriangular=True)
    return found if left else _adjoint(found)


def _adjoint(value: Any) -> Any:
    return adjoint(value)


@op(name="_no_reflections", node="LinalgHouseholderProductBackward0", cost=1)
def _no_reflections(xp: Any, input: Array, tau: Array) -> Array:
    """The product of no reflections: identity matrices of the input's shape."""
    return xp.broadcast_to(xp.eye(*input.shape[-2:], dtype=input.dtype), input.shape).copy()


_no_reflections.grad(input=lambda g: g, tau=lambda g: g).ends_gradient(lambda *_: True)  # no formula ever runs


@composite(name="linalg.householder_product", reads_values=True)
def householder_product(input: Array, tau: Array) -> Any:
    """First n columns of a product of Householder reflections 1 - tau_i v_i v_i^H (torch.linalg.householder_product).

    input: (..., m, n), n <= m; the v_i lie below its diagonal, with diagonal elements of 1. tau: (..., k), k <= n.
    Computed as one product 1 - V T V^H (Schreiber & Van Loan, 1989). Raises EngineError: SHAPE, DTYPE, NOT_SUPPORTED.
    """
    _check_reflections(input, tau)
    if not math.prod(input.shape) or not math.prod(tau.shape):
        return _no_reflections(input, tau)
    columns, count = input.shape[-1], tau.shape[-1]
    array = input.array if type(input) is Tensor else input
    xp = module_of(array)
    identity = xp.eye(input.shape[-2], columns, dtype=input.dtype)
    vectors = tril(narrow(input, -1, 0, count), -1) + identity[:, :count]
    scale = unsqueeze(tau, -1)
    coupling = triu(scale * (adjoint(vectors) @ vectors), 1) + xp.eye(count, dtype=input.dtype)
    inner = solve_triangular(
        coupling, scale * narrow(adjoint(vectors), -1, 0, columns), upper=True, unitriangular=True
    )  # fmt: skip
    return (vectors @ inner) * -1 + identity


def _check_reflections(input: Array, tau: Array) -> None:
    name = "torch.linalg.householder_product"
    if input.ndim < 2:
        raise EngineError(Reason.SHAPE, f"{name}: input must have at least 2 dimensions.")
    if input.shape[-2] < input.shape[-1]:
        raise EngineError(Reason.SHAPE, f"{name}: input.shape[-2] must be greater than or equal to input.shape[-1]")
    if tau.ndim == 0 or input.shape[-1] < tau.shape[-1]:
        raise EngineError(Reason.SHAPE, f"{name}: input.shape[-1] must be greater than or equal to tau.shape[-1]")
    if input.ndim - tau.ndim != 1:
        raise EngineError(
            Reason.SHAPE,
            f"{name}: Expected tau to have one dimension less than input, but got tau.ndim equal to {tau.ndim} and "
            f"input.ndim is equal to {input.ndim}",
        )
    if input.shape[:-2] != tau.shape[:-1]:
        raise EngineError(
            Reason.SHAPE,
            f"{name}: Expected batch dimensions of tau to be equal to input.shape[:-2], but got {list(tau.shape[:-1])}",
        )
    if input.dtype != tau.dtype:
        a, b = dtypes.TITLES[input.dtype], dtypes.TITLES[tau.dtype]
        raise EngineError(Reason.DTYPE, f"{name}: tau dtype {b} does not match input dtype {a}")
    if dtypes.category(input.dtype) < dtypes.FLOAT or input.dtype.itemsize == 2:
        raise EngineError(Reason.NOT_SUPPORTED, f"\"orgqr_cpu\" not implemented for '{dtypes.TITLES[input.dtype]}'")


@composite(reads_values=True)
def cholesky_inverse(input: Array, upper: bool = False) -> Any:
    """Inverse of A, given its Cholesky factor (torch.cholesky_inverse).

    input: (..., n, n); only the lower triangle is read, or the upper if `upper`.
    Raises EngineError: RUNTIME for a zero on the diagonal, SHAPE, NOT_SUPPORTED.
    """
    name = "cholesky_inverse"
    needs_square(name, input)
    if dtypes.category(input.dtype) < dtypes.FLOAT or input.dtype.itemsize == 2:
        title = dtypes.TITLES[input.dtype]
        raise EngineError(Reason.NOT_SUPPORTED, f"\"cholesky_inverse_out_cpu\" not implemented for '{title}'", op=name)
    array = input.array if type(input) is Tensor else input
    xp = module_of(array)
    zeros = xp.argwhere(xp.diagonal(array, 0, -2, -1) == 0)
    if len(zeros):
        raise EngineError(
            Reason.RUNTIME,
            f"cholesky_inverse: The diagonal element {int(zeros[0][-1]) + 1} is zero, the inversion could not be "
            "completed because the input matrix is singular.",
            op=name,
            singular=True,
            linalg_error=True,
        )
    identity = xp.broadcast_to(xp.eye(input.shape[-1], dtype=input.dtype), input.shape)
    return cholesky_solve(Tensor(identity) if type(input) is Tensor else identity, input, upper)
