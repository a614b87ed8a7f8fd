"""Ops of neural networks: convolution, pooling, norms, attention, losses."""

from gradwire_engine.ops.nn import (
    attention,
    bilinear,
    convolution,
    dropout,
    losses,
    norms,
    pooling,
    prelu,
    recurrent,
    sampling,
    softmax,
)

__all__ = [
    "attention",
    "bilinear",
    "convolution",
    "dropout",
    "losses",
    "norms",
    "pooling",
    "prelu",
    "recurrent",
    "sampling",
    "softmax",
]
