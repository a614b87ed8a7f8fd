"""Recurrent layers."""

from gradwire_engine.ops.nn.recurrent import recurrent

__all__ = ["recurrent"]
