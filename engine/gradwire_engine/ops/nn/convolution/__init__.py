"""Convolution, and sliding blocks as columns."""

from gradwire_engine.ops.nn.convolution import blocks, conv

__all__ = ["blocks", "conv"]
