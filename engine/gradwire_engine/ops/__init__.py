"""The ops: each module declares those of one subject."""

from gradwire_engine.ops import basic, compare, index, matrix, unary

__all__ = ["basic", "compare", "index", "matrix", "unary"]
