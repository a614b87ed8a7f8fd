"""Dropout: a random mask times the input."""

from __future__ import annotations

from typing import Any

from gradwire_engine import dtypes
from gradwire_engine.device import Array
from gradwire_engine.errors import EngineError, Reason
from gradwire_engine.op import composite, op
from gradwire_engine.ops.draw import uniform_array


@op(name="_dropout_noise")
def _dropout_noise(xp: Any, input: Array, p: float) -> Array:
    """Per element 0 with probability p, else 1 / (1 - p)."""
    if p == 1:
        return xp.zeros(input.shape, input.dtype)
    kept = uniform_array(xp, input.shape, dtypes.float32) >= p
    return xp.multiply(kept, input.dtype.type(1 / (1 - p)), dtype=input.dtype)


@composite(in_place=True)
def dropout(input: Array, p: float = 0.5, training: bool = True) -> Any:
    """Elements set to 0 with probability p, the others scaled so that means stay (torch.nn.functional.dropout).

    Drawn from the session's generator. Raises EngineError: ARGUMENT_VALUE for p outside [0, 1], DTYPE.
    """
    if not 0 <= p <= 1:
        raise EngineError(Reason.ARGUMENT_VALUE, f"dropout probability has to be between 0 and 1, but got {p}")
    if not training or p == 0:
        return input
    if dtypes.category(input.dtype) < dtypes.FLOAT:
        raise EngineError(
            Reason.DTYPE, f"result type Float can't be cast to the desired output type {dtypes.TITLES[input.dtype]}"
        )
    return input * _dropout_noise(input, p)
