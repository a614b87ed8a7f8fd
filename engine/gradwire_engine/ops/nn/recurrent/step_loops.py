"""A recurrent layer's steps by the loops of compile/eager/recurrent.py: the calls that they fit, and operands."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gradwire_engine.core.device import Array
from gradwire_engine.ops.base.loops import Loop, Loops, StepLoop

#: An operand, and whether each step begins at its own row of it.
Operand = tuple[Array, bool]


def in_host_memory(array: Array) -> bool:
    """Whether loops are tried at all: an attempt makes arrays, which a GPU would hold besides those of the steps."""
    return type(array) is np.ndarray


def columns(values: Array, width: int) -> list[Array]:
    """The gates, each with `width` columns."""
    return [values[..., start : start + width] for start in range(0, values.shape[-1], width)]


def beside(values: Array, width: int, moving: bool) -> list[Operand]:
    """The gates as operands."""
    return [(each, moving) for each in columns(values, width)]


def step_loop(loops: Loops | None, name: str, width: int, operands: Sequence[Operand]) -> StepLoop | None:
    """The loop of a step. None if there is none for these operands: matrices of one float dtype, packed within rows."""
    dtype = operands[0][0].dtype
    if loops is None or dtype.char not in "fd":
        return None
    for array, _ in operands:
        if type(array) is not np.ndarray or array.ndim != 2 or array.dtype != dtype or array.shape[1] != width:
            return None
        if array.strides[1] != array.itemsize:
            return None
    loop = loops.find(name, dtype.char)
    return StepLoop(loop, width, operands) if isinstance(loop, Loop) else None
