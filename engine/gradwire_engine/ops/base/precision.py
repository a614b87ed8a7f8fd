"""Precision of half types: computed in float32 and rounded once at the end, as in PyTorch's kernels."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any

from gradwire_engine.core import dtypes
from gradwire_engine.core.device import scipy_of
from gradwire_engine.core.dtypes import DType
from gradwire_engine.core.dtypes import is_half as is_half
from gradwire_engine.core.errors import EngineError, Reason
from gradwire_engine.ops.base.basic import cast


def through_float32(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate a forward of several steps: compute half arrays in float32, and cast the result to their dtype."""

    @functools.wraps(function)
    def widened(xp: Any, *args: Any, **kwargs: Any) -> Any:
        dtype = next((value.dtype for value in args if hasattr(value, "dtype")), None)
        if dtype is None or not is_half(dtype):
            return function(xp, *args, **kwargs)
        wide = [value.astype(dtypes.float32) if getattr(value, "dtype", None) == dtype else value for value in args]
        return xp.asarray(function(xp, *wide, **kwargs)).astype(dtype)

    widened.widens = True  # type: ignore[attr-defined]
    return widened


def formula_through_float32(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate a formula `function(g, input, ...)` of several steps, of arrays or tensors, like `through_float32`.

    For formulas whose steps leave the range of float16 where their result does not.
    """

    @functools.wraps(function)
    def widened(g: Any, input: Any, *rest: Any) -> Any:
        if not is_half(input.dtype):
            return function(g, input, *rest)
        return cast(function(cast(g, dtypes.float32), cast(input, dtypes.float32), *rest), input.dtype)

    return widened


def check_special(kernel: str, dtype: DType, half: bool = True) -> None:
    """Refuse complex numbers, and half types if `half` is False. Raises EngineError: NOT_SUPPORTED."""
    if dtypes.category(dtype) == dtypes.COMPLEX or (is_half(dtype) and not half):
        raise EngineError(Reason.NOT_SUPPORTED, f"\"{kernel}\" not implemented for '{dtypes.TITLES[dtype]}'", op=kernel)


def special(xp: Any) -> ModuleType:
    """Module of special functions for an array module."""
    return scipy_of(xp, "special")
