"""Choice of attention kernels (torch.nn.attention): accepted; the server has one kernel for all."""

from __future__ import annotations

import contextlib
import enum
from collections.abc import Iterator
from typing import Any

from gradwire._base.wiring import names_of_paths

__all__ = ["SDPBackend", "sdpa_kernel"]


class SDPBackend(enum.IntEnum):
    """Kernels of scaled_dot_product_attention."""

    ERROR = -1
    MATH = 0
    FLASH_ATTENTION = 1
    EFFICIENT_ATTENTION = 2
    CUDNN_ATTENTION = 3
    OVERRIDEABLE = 4


@contextlib.contextmanager
def sdpa_kernel(backends: Any, set_priority: bool = False) -> Iterator[None]:
    """Choose kernels; no effect here. Raises AssertionError for anything but kernels."""
    given = [backends] if isinstance(backends, SDPBackend) else backends
    if not isinstance(given, list) or not all(isinstance(each, SDPBackend) for each in given):
        raise AssertionError("Backend must be an instance of SDPBackend or a list of SDPBackend instances")
    yield


__getattr__ = names_of_paths(__name__)
