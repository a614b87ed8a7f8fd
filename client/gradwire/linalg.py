"""Linear algebra under PyTorch's names (torch.linalg): the ops whose names begin with "linalg."."""

from __future__ import annotations

from typing import Any

from gradwire import _ops
from gradwire._absent import absent
from gradwire._errors import GradwireRuntimeError

# The server tells of a singular matrix as of any failure while it computes.
LinAlgError = GradwireRuntimeError
_PREFIX = "linalg_"
__all__ = ["LinAlgError", *sorted(name[len(_PREFIX) :] for name in vars(_ops) if name.startswith(_PREFIX))]


def __getattr__(name: str) -> Any:
    found = getattr(_ops, _PREFIX + name, None)
    if found is None:
        raise absent("gradwire.linalg", name, __all__)
    return found


def __dir__() -> list[str]:
    return list(__all__)
