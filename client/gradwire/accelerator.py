"""The kind of device that computes faster than the CPU, if the server has one: a GPU (torch.accelerator)."""

from __future__ import annotations

from gradwire import cuda
from gradwire._base import dtypes
from gradwire.cuda import device_count, is_available, synchronize

__all__ = ["current_accelerator", "current_device_index", "device_count", "is_available", "synchronize"]


def current_accelerator(check_available: bool = False) -> dtypes.device | None:
    """device("cuda") on a server with a GPU, else None (torch.accelerator.current_accelerator)."""
    return dtypes.device("cuda") if is_available() else None


def current_device_index() -> int:
    """The GPU that "cuda" means. Raises RuntimeError if there is none."""
    if not is_available():
        raise RuntimeError("the server has no accelerator: no GPU, or no CuPy")
    return cuda.current_device()
