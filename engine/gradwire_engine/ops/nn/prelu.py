"""prelu: a learned slope for negative values, per channel."""

from __future__ import annotations

from typing import Any

from gradwire_engine.core import dtypes
from gradwire_engine.core.device import Array
from gradwire_engine.core.errors import EngineError, Reason
from gradwire_engine.op.composite import composite
from gradwire_engine.op.op import op
from gradwire_engine.ops.base.fill import where
from gradwire_engine.ops.elementwise.activation import masked
from gradwire_engine.ops.linalg.matrix import fold


@op(name="_prelu_kernel", cost=4)
def _prelu_kernel(xp: Any, input: Array, weight: Array) -> Array:
    return xp.where(input > 0, input, weight * input)


_prelu_kernel.works_in(backward=2.4)
_prelu_kernel.grad(
    input=lambda g, input, weight: where(input > 0, g, g * weight),
    weight=lambda g, input: masked(g * input, ~(input > 0)),
).tangent("holomorphic")


@composite
def prelu(input: Array, weight: Array) -> Any:
    """input where it is positive, else weight * input (torch.prelu).

    weight: one element, or one per size of dimension 1. Raises EngineError: SHAPE, DTYPE.
    """
    if input.dtype != weight.dtype:
        raise EngineError(
            Reason.DTYPE,
            "prelu: Type promoting not supported. "
            f"Got {dtypes.name_of(input.dtype)} and {dtypes.name_of(weight.dtype)}",
        )
    if weight.ndim > 1:
        raise EngineError(
            Reason.SHAPE, f"prelu: Expected `weight` to be a scalar or 1D tensor, but got: ndim = {weight.ndim}"
        )
    channels = input.shape[1] if input.ndim > 1 else 1
    if weight.size != 1 and weight.size != channels:
        raise EngineError(
            Reason.SHAPE,
            f"Mismatch of parameter numbers and input channel size. Found parameter numbers = {weight.size} and "
            f"channel size = {channels}.",
        )
    if input.ndim == 0:
        return _prelu_kernel(input, fold(weight, ()))
    size = (-1,) if input.ndim == 1 else (1, -1, *[1] * (input.ndim - 2))
    return _prelu_kernel(input, fold(weight, size))


prelu.unsupported("bic", "prelu_cpu")
