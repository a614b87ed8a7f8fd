"""The ops: each module declares those of one subject."""

from gradwire_engine.ops import base, elementwise, index, linalg, nn, random, reduce, shape, signal

# Last, since they speak of ops of all the others.
from gradwire_engine.ops import lacking, working  # isort: skip

__all__ = ["base", "elementwise", "index", "linalg", "nn", "random", "reduce", "shape", "signal", "lacking", "working"]
