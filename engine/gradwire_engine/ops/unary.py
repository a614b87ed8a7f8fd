"""Functions of one tensor, elementwise, and powers."""

from __future__ import annotations

from typing import Any

from gradwire_engine.device import Array
from gradwire_engine.dtypes import Number
from gradwire_engine.op import op
from gradwire_engine.ops.basic import conj


@op(promote="float")
def log(xp: Any, input: Array) -> Array:
    """Natural logarithm (torch.log)."""
    return xp.log(input)


log.grad(input=lambda g, input: g / conj(input))


@op(promote="same")
def pow(xp: Any, input: Array | Number, exponent: Array | Number) -> Array:
    """input to the power of exponent (torch.pow)."""
    return xp.power(input, exponent)


pow.grad(
    input=lambda g, input, exponent: g * exponent * conj(pow(input, exponent - 1)),
    exponent=lambda g, out, input: g * out * log(input),
)
