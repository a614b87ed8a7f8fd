"""local_response_norm: divides the input by a term from the squares of neighbouring channels."""

from __future__ import annotations

import math
from typing import Any

from gradwire_engine.core.device import Array
from gradwire_engine.core.errors import EngineError, Reason
from gradwire_engine.op.composite import composite
from gradwire_engine.ops.elementwise.binary import pow
from gradwire_engine.ops.nn.pooling.pool import avg_pool2d
from gradwire_engine.ops.shape.padding import pad
from gradwire_engine.ops.shape.shape import reshape, squeeze, unsqueeze


@composite(views="maybe")
def local_response_norm(input: Array, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> Any:
    """input / (k + alpha * mean of squares of `size` neighbouring channels)**beta (nn.functional.local_response_norm).

    input: (n, c, ...). Raises EngineError: ARGUMENT_VALUE for fewer than three dimensions, RUNTIME for a size below 1.
    """
    if input.ndim < 3:
        raise EngineError(
            Reason.ARGUMENT_VALUE, f"Expected 3D or higher dimensionality input (got {input.ndim} dimensions)"
        )
    if 0 in input.shape:
        return input
    if size < 1:
        raise EngineError(Reason.RUNTIME, f"kernel size should be greater than zero, but got {size}")
    flat = reshape(input * input, (*input.shape[:2], math.prod(input.shape[2:])))
    around = pad(unsqueeze(flat, 1), (0, 0, size // 2, (size - 1) // 2))
    means = reshape(squeeze(avg_pool2d(around, (size, 1), 1), 1), input.shape)
    return input / pow(means * alpha + k, beta)


local_response_norm.unsupported(
    "bic", "avg_pool2d", except_for=("int64",), when=lambda input, *rest: 0 not in input.shape
)
