"""Ops that other ops are made of, and the checks that all of them share."""

from gradwire_engine.ops.base import basic, compare, creation, fill

__all__ = ["basic", "compare", "creation", "fill"]
