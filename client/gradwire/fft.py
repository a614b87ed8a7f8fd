"""Fourier transforms under PyTorch's names (torch.fft): the ops whose names begin with "fft.", and what they make."""

from __future__ import annotations

from typing import Any

from gradwire._base.absent import absent
from gradwire._functions.fourier import fftfreq, hfft2, hfftn, ihfft2, ihfftn, rfftfreq
from gradwire._tensor import ops

_PREFIX = "fft_"
__all__ = [
    "fftfreq",
    "hfft2",
    "hfftn",
    "ihfft2",
    "ihfftn",
    "rfftfreq",
    *sorted(name[len(_PREFIX) :] for name in vars(ops) if name.startswith(_PREFIX)),
]


def __getattr__(name: str) -> Any:
    found = getattr(ops, _PREFIX + name, None)
    if found is None:
        raise absent("gradwire.fft", name, lambda: __all__)
    return found


def __dir__() -> list[str]:
    return list(__all__)
