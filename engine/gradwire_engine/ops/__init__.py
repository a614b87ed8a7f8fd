"""The ops: each module declares those of one subject."""

from gradwire_engine.ops import base, elementwise, index, linalg, nn, random, reduce, shape, signal

__all__ = ["base", "elementwise", "index", "linalg", "nn", "random", "reduce", "shape", "signal"]
