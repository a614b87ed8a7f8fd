"""LDL factors of symmetric and Hermitian matrices (Bunch & Kaufman, 1977), and systems solved with them."""

from __future__ import annotations

from typing import Any

import numpy as np

from gradwire_engine.core import dtypes
from gradwire_engine.core.device import Array
from gradwire_engine.core.errors import EngineError, Reason
from gradwire_engine.op.op import op
from gradwire_engine.ops.base.checks import broadcast_shape, refuse_derivative
from gradwire_engine.ops.linalg.costs import lapack, tall
from gradwire_engine.ops.linalg.linalg import check_same_dtype, needs_square, solvers


def _on_host(xp: Any, array: Array) -> Any:
    """A copy of an array's values on the host, row-major."""
    return np.array(array if xp is np else array.get(), order="C")


def _factors(xp: Any, A: Array, hermitian: bool) -> tuple[Any, Any, Any]:
    name, title = "torch.linalg.ldl_factor_ex", dtypes.TITLES[A.dtype]
    needs_square(name, A)
    if dtypes.category(A.dtype) < dtypes.FLOAT:
        raise EngineError(Reason.RUNTIME, f"{name}: Expected a floating point or complex tensor as input. Got {title}")
    if A.dtype.itemsize == 2:
        raise EngineError(Reason.NOT_SUPPORTED, f"\"ldl_factor_kernel_cpu\" not implemented for '{title}'")
    host = np.tril(_on_host(xp, A))
    pivots, info = np.zeros(A.shape[:-1], np.int32), np.zeros(A.shape[:-2], np.int32)
    if host.size:
        prefix = "he" if hermitian and host.dtype.kind == "c" else "sy"
        (factor,) = solvers(np).get_lapack_funcs((prefix + "trf",), (host,))
        for place in np.ndindex(A.shape[:-2]):
            packed, pivots[place], info[place] = factor(host[place], lower=1)
            host[place] = np.tril(packed)
    return xp.asarray(host), xp.asarray(pivots), xp.asarray(info)


def _refuse_singular(info: Any, name: str) -> None:
    if info.any():
        raise EngineError(
            Reason.RUNTIME, f"torch.{name}: a matrix is singular: its factor D has a zero at {int(info.max())}", op=name
        )


@op(name="linalg.ldl_factor", outputs=("LD", "pivots"), differentiable_outputs=(0,), cost=tall(lapack(0.3)))
def ldl_factor(xp: Any, A: Array, *, hermitian: bool = False) -> Any:
    """Factors L D L^T of symmetric matrices, or L D L^H of Hermitian ones, packed (torch.linalg.ldl_factor).

    A: (..., n, n), of which the lower triangles are read. LD: A's shape; pivots: (..., n), int32, LAPACK's. Its
    backward is refused, as PyTorch's. Raises EngineError: RUNTIME for a singular matrix, SHAPE, NOT_SUPPORTED.
    """
    packed, pivots, info = _factors(xp, A, hermitian)
    _refuse_singular(info, "linalg.ldl_factor")
    return packed, pivots


@op(
    name="linalg.ldl_factor_ex",
    outputs=("LD", "pivots", "info"),
    differentiable_outputs=(0,),
    cost=tall(lapack(0.3)),
)
def ldl_factor_ex(xp: Any, A: Array, *, hermitian: bool = False, check_errors: bool = False) -> Any:
    """ldl_factor with int32 infos: the index from 1 of a zero of D, 0 for none (torch.linalg.ldl_factor_ex).

    Raises EngineError: RUNTIME for a singular matrix with `check_errors`, SHAPE, NOT_SUPPORTED.
    """
    packed, pivots, info = _factors(xp, A, hermitian)
    if check_errors:
        _refuse_singular(info, "linalg.ldl_factor_ex")
    return packed, pivots, info


@op(name="linalg.ldl_solve", cost=tall(lapack(0.3)))
def ldl_solve(xp: Any, LD: Array, pivots: Array, B: Array, *, hermitian: bool = False) -> Any:
    """Solve A @ X = B, given A's ldl_factor (torch.linalg.ldl_solve).

    LD: (..., n, n); pivots: (..., n), integers; B: (..., n, k); batches broadcast. Its backward is refused, as
    PyTorch's. Raises EngineError: SHAPE, DTYPE, RUNTIME for pivots that LAPACK does not make, NOT_SUPPORTED.
    """
    name = "torch.linalg.ldl_solve"
    _check_system(name, LD, pivots, B)
    batch = broadcast_shape(LD.shape[:-2], B.shape[:-2])
    host = _on_host(xp, xp.broadcast_to(B, (*batch, *B.shape[-2:])))
    packed = np.broadcast_to(_on_host(xp, LD), (*batch, *LD.shape[-2:]))
    rows = np.broadcast_to(_on_host(xp, pivots), (*batch, LD.shape[-1]))
    for place in np.ndindex(*batch):
        _solve(packed[place], _blocks(rows[place].tolist()), host[place], hermitian and host.dtype.kind == "c")
    return xp.asarray(host)


def _check_system(name: str, LD: Array, pivots: Array, B: Array) -> None:
    needs_square(name, LD)
    if B.ndim < 2:
        raise EngineError(Reason.SHAPE, f"{name}: The input tensor B must have at least 2 dimensions.")
    if LD.shape[-1] != B.shape[-2]:
        n, (m, k) = LD.shape[-1], B.shape[-2:]
        raise EngineError(
            Reason.SHAPE,
            f"Incompatible matrix sizes for {name}: each A matrix is {n} by {n} but each b matrix is {m} by {k}",
        )
    if pivots.shape != LD.shape[:-1]:
        raise EngineError(
            Reason.SHAPE,
            f"{name}: Expected LD.shape[:-1] and pivots.shape to be the same, but got pivots with shape "
            f"{list(pivots.shape)} instead",
        )
    if dtypes.category(pivots.dtype) != dtypes.INT:
        title = dtypes.TITLES[pivots.dtype]
        raise EngineError(Reason.DTYPE, f"{name}: Expected pivots to be integers. Got {title}")
    check_same_dtype(name, B, LD, ("b", "A"))
    if dtypes.category(LD.dtype) < dtypes.FLOAT or LD.dtype.itemsize == 2:
        title = dtypes.TITLES[LD.dtype]
        raise EngineError(Reason.NOT_SUPPORTED, f"\"ldl_solve_kernel_cpu\" not implemented for '{title}'")


def _blocks(pivots: list[int]) -> list[tuple[int, int, int]]:
    """Diagonal blocks of D, of 1 or 2 rows: the first row, their number, and the row that is exchanged with the last.

    Raises EngineError: RUNTIME for pivots that are none: from 1 to n, a block of 2 rows as two equal negative ones.
    """
    blocks, first, count = [], 0, len(pivots)
    while first < count:
        size = 1 if pivots[first] > 0 else 2
        other = abs(pivots[first]) - 1
        paired = size == 1 or (first + 1 < count and pivots[first + 1] == pivots[first])
        if not paired or not first + size - 1 <= other < count:
            raise EngineError(Reason.RUNTIME, f"torch.linalg.ldl_solve: {pivots} are no pivots of ldl_factor")
        blocks.append((first, size, other))
        first += size
    return blocks


def _solve(packed: Any, blocks: list[tuple[int, int, int]], right: Any, hermitian: bool) -> None:
    """Replace a right-hand side (n, k) by the solution, as LAPACK's sytrs and hetrs."""
    flipped = np.conj if hermitian else np.asarray
    for first, size, other in blocks:
        last, after = first + size - 1, first + size
        right[[last, other]] = right[[other, last]]
        right[after:] -= packed[after:, first:after] @ right[first:after]
        block = np.tril(packed[first:after, first:after])
        if hermitian:  # LAPACK reads the real parts of the diagonal
            np.fill_diagonal(block, block.diagonal().real)
        block = block + flipped(np.tril(block, -1)).T
        right[first:after] = np.linalg.solve(block, right[first:after]) if size == 2 else right[first:after] / block
    for first, size, other in reversed(blocks):
        last, after = first + size - 1, first + size
        right[first:after] -= flipped(packed[after:, first:after]).T @ right[after:]
        right[[last, other]] = right[[other, last]]


ldl_factor.grad(A=lambda gs: refuse_derivative("linalg_ldl_factor_ex"))
ldl_factor_ex.grad(A=lambda gs: refuse_derivative("linalg_ldl_factor_ex"))
ldl_solve.grad(LD=lambda g: refuse_derivative("linalg_ldl_solve"), B=lambda g: refuse_derivative("linalg_ldl_solve"))
