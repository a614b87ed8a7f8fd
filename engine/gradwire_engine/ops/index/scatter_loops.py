"""Elements scattered along the last dimension by the loops of compile/eager/scatters.py: their calls and operands."""

from __future__ import annotations

from typing import Any

import numpy as np

from gradwire_engine.core import dtypes
from gradwire_engine.core.device import Array
from gradwire_engine.ops.base.checks import admit
from gradwire_engine.ops.base.loops import Loops, run


def fits(g: Any, dim: int, index: Any, shape: tuple[int, ...]) -> bool:
    """Whether a loop can scatter `g` into zeros of a shape at indices along `dim`, if these are within the shape."""
    return (
        type(g) is np.ndarray
        and g.dtype.char in "fd"
        and dim in (-1, len(shape) - 1)
        and g.shape == index.shape
        and g.ndim == len(shape)
        and g.shape[:-1] == tuple(shape[:-1])
        and index.dtype == dtypes.int64
        and g.flags.c_contiguous
        and index.flags.c_contiguous
    )


def scattered(loops: Loops, name: str, g: Array, index: Array, shape: tuple[int, ...]) -> Array | None:
    """`g` in zeros of a shape at indices along the last dimension, by a loop of this name. None if there is none.

    The arguments fit, and `g` has elements.
    """
    loop = loops.find(name, g.dtype.char)
    if loop is None:
        return None
    admit(shape, g.dtype)
    made = np.empty(shape, g.dtype)
    run(loop, g.size // g.shape[-1], g.shape[-1], np.array([shape[-1]], np.int64), g, index, made)
    return made
