"""Compared: the truth of a comparison of two known values, or of one and a number."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from gradwire._base import dtypes
from gradwire._base.dtypes import bool as bool_dtype
from gradwire._proxy.handle import Handle
from gradwire._tensor.batching import BATCHING
from gradwire._tensor.known_values.known import Known

if TYPE_CHECKING:
    from gradwire._base.dtypes import dtype

_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "eq": operator.eq, "ne": operator.ne, "lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge,
}  # fmt: skip
# Whole numbers up to which a dtype holds each.
_WHOLE = {dtypes.float32: 1 << 24, dtypes.float64: 1 << 53, dtypes.int64: (1 << 63) - 1, dtypes.int32: (1 << 31) - 1}


class Compared(Known):
    """The truth of a comparison. Its operands' values are those at the time of the comparison."""

    __slots__ = ("_compare", "_one", "_other")

    def __init__(self, tensor: Handle, compare: Callable[[Any, Any], bool], one: Known, other: Any) -> None:
        super().__init__(tensor, one.drawn or (isinstance(other, Known) and other.drawn))
        self._compare = compare
        self._one = one
        self._other = other

    def value(self) -> Any:
        """The truth; None if only the server knows it."""
        other = self._other.value() if isinstance(self._other, Known) else self._other
        one = None if other is None else self._one.value()
        return None if one is None else bool(self._compare(one, other))


def note_comparison(name: str, one: Any, other: Any, made: Any) -> None:
    """Note that a tensor is a comparison of a tensor whose value is known with a number or another such tensor."""
    if BATCHING or type(made) is not type(one) or made._spec.dtype is not bool_dtype:
        return
    known = one._known
    if not known.holds(one):
        return
    if isinstance(other, Handle):
        second = getattr(other, "_known", None)
        if second is None or other._spec.dtype is not one._spec.dtype or not second.holds(other):
            return
    else:
        second = _as_operand(other, one._spec.dtype)
        if second is None:
            return
    made._known = Compared(made, _COMPARISONS[name], known, second)


def _as_operand(number: Any, kind: dtype) -> Any:
    """A number as a tensor of this dtype compares with it; None if another dtype would be chosen, or it is inexact."""
    if type(number) is int:
        most = _WHOLE.get(kind, -1)
        return number if -most <= number <= most else None
    if type(number) is float and kind is dtypes.float32:
        return float(np.float32(number)) if abs(number) < float(np.finfo(np.float32).max) else None
    return number if type(number) is float and kind is dtypes.float64 else None
