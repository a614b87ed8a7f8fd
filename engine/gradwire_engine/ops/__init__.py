"""The ops: one sub-package per subject, one module per group of ops."""

from gradwire_engine.ops import base, elementwise, index, linalg, nn, random, reduce, shape, signal

__all__ = ["base", "elementwise", "index", "linalg", "nn", "random", "reduce", "shape", "signal"]
