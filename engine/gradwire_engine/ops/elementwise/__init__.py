"""Elementwise ops."""

from gradwire_engine.ops.elementwise import (
    activation,
    bessel,
    binary,
    convert,
    gammas,
    normal_distribution,
    polynomials,
    special,
    unary,
)

__all__ = [
    "activation",
    "bessel",
    "binary",
    "convert",
    "gammas",
    "normal_distribution",
    "polynomials",
    "special",
    "unary",
]
