"""Eigenvalues and eigenvectors of general square matrices.

Gradient formula: Giles, "Collected matrix derivative results" (2008), for eigenvectors of norm 1. Their norm is fixed
but their phase is arbitrary, so backward refuses a loss that depends on the phase.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gradwire_engine.core import dtypes
from gradwire_engine.core.device import Array
from gradwire_engine.core.errors import EngineError, Reason
from gradwire_engine.op.composite import composite
from gradwire_engine.op.op import op
from gradwire_engine.op.saving import reads_values
from gradwire_engine.ops.base.basic import conj
from gradwire_engine.ops.linalg.costs import lapack
from gradwire_engine.ops.linalg.decompose import as_dtype, check_phase, diagonals, gaps, off_diagonal, real_part, row
from gradwire_engine.ops.linalg.linalg import adjoint, needs_square, solve, solvers
from gradwire_engine.ops.shape.join import diag_embed


@op(name="linalg.eig", node="LinalgEigBackward0", outputs=("eigenvalues", "eigenvectors"), cost=lapack(8.0, 2.0))
def eig(xp: Any, A: Array) -> Array:
    """Eigenvalues and eigenvectors of square matrices, always complex (torch.linalg.eig).

    A: (..., n, n). The eigenvectors are columns of norm 1; the order is arbitrary.
    Raises EngineError: SHAPE, RUNTIME for infinities and nan, NOT_SUPPORTED.
    """
    _check("linalg.eig", A)
    host = A if xp is np else A.get()  # cuSOLVER has no general eigenvalue solver
    values, vectors = _in_precision(host) if host.dtype.itemsize == _SINGLE[host.dtype.kind] else np.linalg.eig(host)
    dtype = dtypes.to_complex(A.dtype)
    return xp.asarray(values.astype(dtype, copy=False)), xp.asarray(vectors.astype(dtype, copy=False))


#: Bytes of a float32 number and of a complex one: NumPy would compute in double precision, in another order of results.
_SINGLE = {"f": 4, "c": 8}


def _in_precision(matrices: Array) -> tuple[Array, Array]:
    """Eigenvalues and eigenvectors by LAPACK's routine of the matrices' precision."""
    values, vectors = np.empty(matrices.shape[:-1], np.complex64), np.empty(matrices.shape, np.complex64)
    for place in np.ndindex(matrices.shape[:-2] if matrices.size else (0,)):
        values[place], vectors[place] = solvers(np).eig(matrices[place], check_finite=False)
    return values, vectors


eig.works_in(forward=0.8, backward=16)
eig.sized_by(lambda A: 4 * A.nbytes)


def _check(name: str, A: Array) -> None:
    needs_square(name, A)
    title = dtypes.TITLES[A.dtype]
    if dtypes.category(A.dtype) < dtypes.FLOAT:
        raise EngineError(
            Reason.RUNTIME, f"{name}: Expected a floating point or complex tensor as input. Unknown Complex ScalarType "
            f"for {title}"
        )  # fmt: skip
    if A.dtype.itemsize == 2:
        raise EngineError(Reason.NOT_SUPPORTED, f"\"linalg_eig_out_cpu\" not implemented for '{title}'", op=name)
    array = A if isinstance(A, np.ndarray) else A.get()
    if not np.isfinite(array).all():
        raise EngineError(Reason.RUNTIME, f"torch.{name}: input tensor should not contain infs or NaNs.", op=name)


@reads_values
def _eig_A(gs: Any, out0: Any, out1: Any) -> Any:
    g_values, g_vectors = gs
    turned = adjoint(out1) @ g_vectors
    check_phase("linalg_eig_backward", "eigenvectors", turned)
    # Remove the component that changes an eigenvector's norm, which is fixed at 1.
    inner = turned - (adjoint(out1) @ out1) * row(as_dtype(real_part(diagonals(turned)), turned.dtype))
    core = off_diagonal(inner / conj(gaps(out0))) + diag_embed(g_values)
    return solve(adjoint(out1), core @ adjoint(out1))


eig.grad(A=_eig_A)


@composite(name="linalg.eigvals")
def eigvals(A: Array) -> Any:
    """Eigenvalues of square matrices, always complex, in arbitrary order (torch.linalg.eigvals).

    A: (..., n, n). Raises EngineError: SHAPE, RUNTIME for infinities and nan, NOT_SUPPORTED.
    """
    return eig(A)[0]
