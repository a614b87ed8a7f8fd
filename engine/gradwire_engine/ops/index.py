"""Indexing."""

from __future__ import annotations

from typing import Any

from gradwire_engine.device import Array
from gradwire_engine.op import op

Index = Any


@op
def getitem(xp: Any, input: Array, index: Index) -> Array:
    """x[index]."""
    return input[index]
