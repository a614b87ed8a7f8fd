"""Primitive ops from which others are composed, and shared argument checks."""

from gradwire_engine.ops.base import basic, compare, creation, fill

__all__ = ["basic", "compare", "creation", "fill"]
