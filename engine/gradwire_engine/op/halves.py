"""Half types in arithmetic: float16 and bfloat16 with numbers, by the rule of PyTorch's kernels.

A number is rounded to the half type before the op. At the operands of `Declaration.opmath` it is not: the op computes
in float32 and rounds once. So do all ops with `alpha` or `rounding_mode`. On a GPU, numbers keep their precision.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gradwire_engine.core import dtypes
from gradwire_engine.core.dtypes import DType
from gradwire_engine.op.declaration import Declaration


def half_of(op: Declaration, args: tuple[Any, ...]) -> DType | None:
    """The half type of promoted operands; None for other types."""
    for place in op.tensor_positions:
        dtype = getattr(args[place], "dtype", None)
        if dtype is not None:
            return dtype if dtypes.is_half(dtype) else None
    return None


def compute_half(op: Declaration, xp: Any, given: tuple[Any, ...], args: tuple[Any, ...], half: DType) -> Any:
    """The forward on operands of a half type. given: the arguments before promotion, with their own dtypes."""
    if xp is np:
        args, wide = _rounded(op, given, args, half)
        if wide:
            args = tuple([_widened(value, half) for value in args])
    result = op.forward(xp, *args)
    return result.astype(half) if result.dtype == dtypes.float32 else result


def _rounded(
    op: Declaration, given: tuple[Any, ...], args: tuple[Any, ...], half: DType
) -> tuple[tuple[Any, ...], bool]:
    """The arguments with numbers as the kernel gets them, and whether it computes in float32."""
    changed, wide = list(args), False
    alpha = op.positions.get("alpha", -1)
    for place in (*op.single_positions, alpha):
        value: Any = given[place] if place >= 0 else None
        if place == op.opmath_position and getattr(value, "shape", None) == () and value.dtype != half:
            value = value.item()
        if type(value) not in (int, float):
            continue
        near = _nearest(value, half)
        if near == value:
            continue
        if place == op.opmath_position:
            changed[place], wide = float(value), True
        else:
            changed[place] = near
    named = op.positions.get("rounding_mode", -1)
    wide = wide or (named >= 0 and args[named] is not None) or (alpha >= 0 and args[alpha] != 1)
    return tuple(changed), wide


def _nearest(value: float, half: DType) -> float:
    with np.errstate(over="ignore"):
        return float(np.asarray(value).astype(half))


def _widened(value: Any, half: DType) -> Any:
    return value.astype(np.float32) if getattr(value, "dtype", None) == half else value
