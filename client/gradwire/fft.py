"""Fourier transforms under PyTorch's names (torch.fft): the ops whose names begin with "fft."."""

from __future__ import annotations

from typing import Any

from gradwire import _ops
from gradwire._absent import absent

_PREFIX = "fft_"
__all__ = [*sorted(name[len(_PREFIX) :] for name in vars(_ops) if name.startswith(_PREFIX))]


def __getattr__(name: str) -> Any:
    found = getattr(_ops, _PREFIX + name, None)
    if found is None:
        raise absent("gradwire.fft", name, __all__)
    return found


def __dir__() -> list[str]:
    return list(__all__)
