"""Byte view: views a tensor's memory as bytes."""

import math
from typing import Any

from gradwire_server.common.errors import Refusal


def byte_view(owner: Any) -> Any:
    """View the memory's owner as a uint8 vector, without a copy. Raises Refusal: NOT_SUPPORTED for gaps."""
    import numpy as np  # the front imports this file, and computes nothing

    if not isinstance(owner, np.ndarray):
        from gradwire_engine.core.device import cupy

        module: Any = cupy()
        return module.ndarray((owner.size,), np.uint8, module.cuda.MemoryPointer(owner, 0))
    if not owner.nbytes:
        return np.empty(0, np.uint8)
    order = sorted(range(owner.ndim), key=lambda axis: -abs(owner.strides[axis]))
    laid = owner.transpose(order)
    if not laid.flags.c_contiguous or math.prod(owner.shape) * owner.itemsize != owner.nbytes:
        raise Refusal("NOT_SUPPORTED", f"a tensor of shape {list(owner.shape)} has gaps in memory of its own")
    return laid.reshape(-1).view(np.uint8)
