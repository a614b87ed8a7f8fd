"""Rules of linear algebra and Fourier transforms: the kernels with an error code, and the check of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gradwire._dispatch.calls import aten

Tensor = Any


def _checked(full: str, name: str) -> Callable[..., Any]:
    """The rule of an op that fails for some matrices: it computes, then it looks at the error codes."""

    def rule(call: Any, A: Tensor, upper: bool = False) -> Any:
        extra: dict[str, Any] = {"upper": upper} if upper else {}
        made, info = aten(full, A, **extra)[:2]

        def check() -> None:
            if bool((info != 0).any()):
                call.compute()  # which refuses the matrix

        aten("_linalg_check_errors.default", info, name, is_matrix=A.ndim == 2, compute=check)
        return made

    return rule


def _det(call: Any, A: Tensor) -> Any:
    return aten("_linalg_det.default", A)[0]


def _svd(call: Any, A: Tensor, full_matrices: bool = True) -> Any:
    return aten("_linalg_svd.default", A, full_matrices, compute=call.compute)


def _eigh(call: Any, A: Tensor, UPLO: str = "L") -> Any:
    return aten("_linalg_eigh.default", A, UPLO, compute=call.compute)


def _cross(call: Any, input: Tensor, other: Tensor, dim: Any = None) -> Any:
    if dim is None and call.op == "cross":
        return NotImplemented
    at = -1 if dim is None else dim
    return aten("linalg_cross.default", input, other, dim=at, compute=call.compute)


def _cdist(call: Any, x1: Tensor, x2: Tensor, p: float = 2.0, compute_mode: Any = None) -> Any:
    if compute_mode is not None:
        return NotImplemented
    return aten("_cdist_forward.default", x1, x2, p, None, compute=call.compute)


RULES: dict[str, Callable[..., Any]] = {
    "cdist": _cdist,
    "cross": _cross,
    "linalg.cholesky": _checked("linalg_cholesky_ex.default", "linalg.cholesky"),
    "linalg.cross": _cross,
    "linalg.det": _det,
    "linalg.eigh": _eigh,
    "linalg.inv": _checked("linalg_inv_ex.default", "linalg.inv"),
    "linalg.svd": _svd,
}
