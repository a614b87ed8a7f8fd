"""Batching rules: what an op on one sample is on all of them. `RULES` maps ops to them; others are refused by name.

Importing the package registers the rules, a module for each kind of op.
"""

from gradwire.func.rules import duals, elementwise, indices, layers, losses, products, random, reductions, shapes
from gradwire.func.rules.calls import RULES, OpCall
from gradwire.func.rules.random import draw, draws

__all__ = [
    "RULES",
    "OpCall",
    "draw",
    "draws",
    "duals",
    "elementwise",
    "indices",
    "layers",
    "losses",
    "products",
    "random",
    "reductions",
    "shapes",
]
