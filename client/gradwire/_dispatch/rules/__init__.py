"""Rules: the ATen ops that a call stands for, where they are not one op of its name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gradwire._dispatch.rules import (
    creation,
    indices,
    layers,
    losses,
    matrices,
    pointwise,
    products,
    reductions,
    shapes,
)

#: By op: a function of `_OpCall` and the op's arguments by name. It may return NotImplemented.
RULES: dict[str, Callable[..., Any]] = {
    **creation.RULES,
    **indices.RULES,
    **layers.RULES,
    **losses.RULES,
    **matrices.RULES,
    **pointwise.RULES,
    **products.RULES,
    **reductions.RULES,
    **shapes.RULES,
}
