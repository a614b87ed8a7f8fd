"""Factorizations that report failure in a tensor instead of raising: cholesky_ex, inv_ex, solve_ex."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from gradwire._base import dtypes
from gradwire._base.errors import GradwireRuntimeError, refuse
from gradwire._base.modes import no_grad
from gradwire._functions.create import eye, tensor
from gradwire._proxy.results import return_type
from gradwire._tensor import ops
from gradwire._tensor.tensor import Tensor

__all__ = ["cholesky_ex", "inv_ex", "solve_ex"]


def _attempt(compute: Callable[[Tensor], Tensor], A: Tensor, pattern: str) -> tuple[Tensor, int]:
    """The result of `compute` and 0; for a matrix that it refuses, the matrix and the number in the error's message.

    Reads one element, since a failure may otherwise be reported later.
    """
    try:
        made = compute(A)
        if made.numel():
            made.detach().reshape(-1)[0].item()
    except GradwireRuntimeError as error:
        found = re.search(pattern, str(error))
        if found is None:
            raise
        return A, int(found.group(1))
    return made, 0


def _checked(compute: Callable[[Tensor], Tensor], A: Tensor, pattern: str, check_errors: bool) -> tuple[Tensor, Tensor]:
    """Results of all matrices and their infos. Those that fail get a result of nan."""
    batch = tuple(A.shape[:-2])
    made, failed = _attempt(compute, A, pattern)
    if not failed:
        return made, ops.zeros(batch, dtype=dtypes.int32, device=A.device)
    if check_errors:
        compute(A)
    with no_grad():
        each = A.detach().reshape(-1, *A.shape[-2:])
        infos = [_attempt(compute, matrix, pattern)[1] for matrix in each]
    info = tensor(infos, dtype=dtypes.int32, device=A.device).reshape(batch)
    bad = (info != 0)[..., None, None]
    made = compute(ops.where(bad, eye(A.shape[-1], dtype=A.dtype, device=A.device), A))
    return made.masked_fill(bad, float("nan")), info


def _written(made: tuple[Tensor, Tensor], out: Any) -> tuple[Tensor, Tensor]:
    """The results, copied into the tensors of `out` if it is given."""
    return made if out is None else (out[0].copy_(made[0]), out[1].copy_(made[1]))


def cholesky_ex(A: Tensor, *, upper: bool = False, check_errors: bool = False, out: Any = None) -> Any:
    """Cholesky factors of (..., n, n), and int32 infos (torch.linalg.cholesky_ex). Reads a value from the server.

    The factor of a matrix that is not positive-definite is nan, or with `check_errors` raises RuntimeError.
    """

    def compute(given: Tensor) -> Tensor:
        made: Tensor = ops.linalg_cholesky(given, upper=upper)
        return made

    made = _checked(compute, A, r"leading minor of order (\d+)", check_errors)
    return return_type("linalg.cholesky_ex", ("L", "info"))(*_written(made, out))


def inv_ex(A: Tensor, *, check_errors: bool = False, out: Any = None) -> Any:
    """Inverses of (..., n, n), and int32 infos (torch.linalg.inv_ex). Reads a value from the server.

    The inverse of a singular matrix is nan, or with `check_errors` raises RuntimeError.
    """

    def compute(given: Tensor) -> Tensor:
        made: Tensor = ops.linalg_inv(given)
        return made

    made = _checked(compute, A, r"diagonal element (\d+) is zero", check_errors)
    return return_type("linalg.inv_ex", ("inverse", "info"))(*_written(made, out))


def solve_ex(A: Tensor, B: Tensor, *, left: bool = True, check_errors: bool = False, out: Any = None) -> Any:
    """Solutions of A X = B, or X A = B, and int32 infos (torch.linalg.solve_ex).

    The solution by a singular matrix is nan, or with `check_errors`, which reads a value, raises RuntimeError.
    """
    info = ops.linalg_lu_factor_ex(A.detach())[2]
    if check_errors and info.any():
        raise refuse("torch.linalg.solve_ex: The solver failed because the input matrix is singular.")
    bad = (info != 0)[..., None, None]
    unit = eye(A.shape[-1], dtype=A.dtype, device=A.device)
    result = ops.linalg_solve(ops.where(bad, unit, A), B, left=left)
    is_vector = B.ndim == 1 or (B.ndim == A.ndim - 1 and B.shape == A.shape[:-1])
    made = (result.masked_fill(bad[..., 0] if is_vector else bad, float("nan")), info)
    return return_type("linalg.solve_ex", ("result", "info"))(*_written(made, out))
