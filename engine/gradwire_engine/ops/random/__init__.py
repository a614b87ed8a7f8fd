"""Ops that draw random numbers."""

from gradwire_engine.ops.random import draw, gammas

__all__ = ["draw", "gammas"]
