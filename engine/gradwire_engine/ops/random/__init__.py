"""Ops that draw random numbers."""

from gradwire_engine.ops.random import draw

__all__ = ["draw"]
