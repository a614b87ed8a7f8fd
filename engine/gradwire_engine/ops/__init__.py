"""The ops: each module declares those of one subject."""

from gradwire_engine.ops import (
    activation,
    basic,
    binary,
    compare,
    fill,
    gather,
    index,
    join,
    matrix,
    reduce,
    scan,
    shape,
    sort,
    unary,
)

__all__ = [
    "activation",
    "basic",
    "binary",
    "compare",
    "fill",
    "gather",
    "index",
    "join",
    "matrix",
    "reduce",
    "scan",
    "shape",
    "sort",
    "unary",
]
