"""Convolution; sliding blocks as columns (unfold and fold)."""

from gradwire_engine.ops.nn.convolution import blocks, conv

__all__ = ["blocks", "conv"]
