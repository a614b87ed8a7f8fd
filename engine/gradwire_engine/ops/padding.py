"""Padding at the edges of a tensor's last dimensions; negative padding crops, so padding is its own adjoint."""

from __future__ import annotations

from typing import Any

from gradwire_engine.device import Array
from gradwire_engine.dtypes import Number
from gradwire_engine.errors import EngineError, Reason
from gradwire_engine.op import composite, op
from gradwire_engine.ops.checks import admit

Ints = tuple[int, ...]


@op(name="_constant_pad", node="ConstantPadNdBackward0")
def constant_pad(xp: Any, input: Array, pad: Ints, value: Number) -> Array:
    """`value` around the input: (left, right) of the last dimension, then of the one before it, and so on."""
    source: list[Any] = []
    target: list[Any] = []
    shape = list(input.shape)
    for axis in range(len(pad) // 2):
        left, right = pad[2 * axis], pad[2 * axis + 1]
        dim = input.ndim - 1 - axis
        size = shape[dim]
        shape[dim] = size + left + right
        if shape[dim] < 0:
            raise EngineError(
                Reason.RUNTIME,
                f"The input size {size}, plus negative padding {left} and {right}, resulted in a negative output size, "
                f"which is invalid. Check dimension {dim} of your input.",
            )
        source.insert(0, slice(max(0, -left), max(0, size + min(0, right))))
        target.insert(0, slice(max(0, left), max(0, shape[dim] - max(0, right))))
    admit(shape, input.dtype)
    padded = xp.full(tuple(shape), value, input.dtype)
    put, taken = (..., *target), (..., *source)
    padded[put] = input[taken]
    return padded


constant_pad.grad(input=lambda g, pad: constant_pad(g, tuple(-side for side in pad), 0))


@composite
def pad(input: Array, pad: Ints, mode: str = "constant", value: float | None = None) -> Any:
    """A constant around the last dimensions (torch.nn.functional.pad); mode "constant" only.

    pad: (left, right) of the last dimension, then of the one before, ...; negative crops.
    Raises EngineError: RUNTIME for an odd number of sizes or too many, NOT_SUPPORTED for another mode.
    """
    if mode != "constant":
        raise EngineError(Reason.NOT_SUPPORTED, f"pad: mode '{mode}' is not implemented; 'constant' is")
    if len(pad) % 2:
        raise EngineError(Reason.RUNTIME, f"Padding length must be divisible by 2, but it is {len(pad)}")
    if len(pad) > 2 * input.ndim:
        raise EngineError(
            Reason.RUNTIME,
            "Padding length should be less than or equal to two times the input dimension but got padding length "
            f"{len(pad)} and input of dimension {input.ndim}",
        )
    return constant_pad(input, tuple(pad), 0 if value is None else value)
