"""Linear algebra under PyTorch's names (torch.linalg): the ops whose names begin with "linalg."."""

from __future__ import annotations

from typing import Any

from gradwire._base.absent import absent
from gradwire._base.errors import GradwireLinAlgError
from gradwire._functions.checked_linalg import cholesky_ex, inv_ex, solve_ex
from gradwire._tensor import ops

LinAlgError = GradwireLinAlgError
_PREFIX = "linalg_"
matmul = ops.matmul
__all__ = [
    "LinAlgError",
    "cholesky_ex",
    "inv_ex",
    "matmul",
    "solve_ex",
    *sorted(name[len(_PREFIX) :] for name in vars(ops) if name.startswith(_PREFIX)),
]


def __getattr__(name: str) -> Any:
    found = getattr(ops, _PREFIX + name, None)
    if found is None:
        raise absent("gradwire.linalg", name, lambda: __all__)
    return found


def __dir__() -> list[str]:
    return list(__all__)
