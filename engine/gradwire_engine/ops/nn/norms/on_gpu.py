"""Batch and layer normalization on a GPU: one kernel for the outputs, and one for each gradient.

A channel of all images, or a column of a matrix, is a row of a loop (compile/eager/forms.py). Its elements lie across
the array: `inner` at a time, at the distance of all rows.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from gradwire_engine.core.device import Array
from gradwire_engine.ops.base.loops import Loops, are_plain, fits

# Rows, elements of a row, and how many of these follow one another.
_Layout = tuple[int, int, int]


def _channels(input: Array, *others: Array | None) -> _Layout | None:
    """The layout of a batch's channels. None if it or these other arrays do not fit a loop.

    others: of the input's shape, or with a value per channel.
    """
    given = [each for each in others if each is not None]
    if not fits(input) or not are_plain(input, *given):
        return None
    rows = input.shape[1]
    if any(each.shape != input.shape and each.shape != (rows,) for each in given):
        return None
    return rows, input.size // rows, math.prod(input.shape[2:])


def _launch(loops: Loops, name: str, layout: _Layout, operands: list[Any], results: list[Array]) -> bool:
    """Run a loop; whether there is one for the first operand's dtype."""
    loop: Any = loops.find(name, operands[0].dtype.char)
    if loop is None:
        return False
    rows, length, inner = layout
    loop.launch(rows, length, (*operands, *results), None, inner)
    return True


def batch_norm(loops: Loops, input: Array, weight: Array | None, bias: Array | None, eps: float) -> Any:
    """Output, and per channel mean, scale and variance; None if no loop fits."""
    layout = _channels(input, weight, bias)
    if layout is None:
        return None
    given = [each for each in (weight, bias) if each is not None]
    name = f"channel_norm{'_weight' * (weight is not None)}{'_bias' * (bias is not None)}"
    made = [np.empty_like(input), *(np.empty_like(input, shape=layout[0]) for _ in range(3))]
    numbers = [np.asarray(float(layout[1])), np.asarray(eps, input.dtype)]
    return tuple(made) if _launch(loops, name, layout, [input, *given, *numbers], made) else None


def batch_norm_input(
    loops: Loops, g: Array, input: Array, weight: Array | None, centre: Array, scale: Array
) -> Array | None:
    """The input's gradient; None if no loop fits."""
    layout = _channels(input, g, weight, centre, scale)
    if layout is None:
        return None
    given = [] if weight is None else [weight]
    made = np.empty_like(input)
    operands = [g, input, *given, centre, scale, np.asarray(float(layout[1]))]
    return made if _launch(loops, f"channel_norm_backward{'_weight' * len(given)}", layout, operands, [made]) else None


def batch_norm_weight(loops: Loops, g: Array, input: Array, centre: Array, scale: Array) -> Array | None:
    """The weight's gradient; None if no loop fits."""
    layout = _channels(input, g, centre, scale)
    if layout is None:
        return None
    made = np.empty_like(input, shape=layout[0])
    return made if _launch(loops, "channel_dots", layout, [g, input, centre, scale], [made]) else None


def layer_norm_weight(loops: Loops, g: Array, input: Array, centre: Array, scale: Array, columns: int) -> Array | None:
    """The weight's gradient, a value per column; None if no loop fits."""
    if not fits(g, input) or not are_plain(g, centre, scale):
        return None
    made = np.empty_like(input, shape=columns)
    return (
        made
        if _launch(loops, "column_dots", (columns, input.size // columns, 1), [g, input, centre, scale], [made])
        else None
    )
