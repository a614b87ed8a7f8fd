"""Forward-mode differentiation as ops: tensors with a tangent at a level (torch.autograd.forward_ad)."""

from __future__ import annotations

from typing import Any

from gradwire_engine.core.context import CURRENT
from gradwire_engine.core.device import Array
from gradwire_engine.op.composite import composite
from gradwire_engine.ops.shape.shape import clone


@composite(views="always")
def make_dual(input: Array, tangent: Array, level: Array, depth: int) -> Any:
    """View of the input with a tangent, from which ops compute tangents (torch.autograd.forward_ad.make_dual).

    `level` is a tensor that stands for the differentiation under way, and `depth` tells how deep it is nested, from 1.
    """
    return CURRENT.get().duals.make(input, tangent, level, depth)


@composite
def dual_tangent(input: Array, level: Array) -> Any:
    """Return a tensor's tangent at a level; zeros if it has none."""
    return CURRENT.get().duals.tangent(input, level)


@composite(views="maybe")
def dual_primal(input: Array, level: Array) -> Any:
    """Return a tensor without its tangent at a level; it shares the tensor's memory."""
    return CURRENT.get().duals.primal(input, level)


@composite(differentiable=False)
def exit_dual_level(level: Array) -> Any:
    """Close a level: every tangent at it is dropped. Returns a copy of the level."""
    CURRENT.get().duals.leave(level)
    return clone(level)
