"""Ops that draw random numbers."""

from gradwire_engine.ops.random import draw, shuffle

__all__ = ["draw", "shuffle"]
