"""Checks that libraries make by PyTorch's functions: torch._assert, torch._check and the like."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gradwire._tensor.tensor import Tensor


def _assert(condition: Any, message: str) -> None:
    """Raise AssertionError unless the condition holds."""
    if not condition:
        raise AssertionError(message)


def _assert_async(input: Tensor, assert_msg: str = "Expected a value that is not zero") -> None:
    """Raise RuntimeError unless the value is true. Reads it, unlike PyTorch on a GPU."""
    if not bool(input):
        raise RuntimeError(assert_msg)


def _checking(kind: type[Exception]) -> Callable[..., None]:
    def check(cond: Any, message: Callable[[], str] | None = None) -> None:
        if not cond:
            raise kind("Expected cond to be True" if message is None else message())

    return check


_check = _checking(RuntimeError)
_check_index = _checking(IndexError)
_check_value = _checking(ValueError)
_check_type = _checking(TypeError)
_check_not_implemented = _checking(NotImplementedError)


def _check_is_size(i: int, message: Callable[[], str] | None = None, *, max: int | None = None) -> None:
    """Raise RuntimeError for a number below 0."""
    _check(i >= 0, message)


def sym_int(a: Any) -> int:
    """The number as int: sizes are never symbols here."""
    return int(a)


def sym_float(a: Any) -> float:
    """The number as float."""
    return float(a)


def sym_not(a: Any) -> bool:
    """Not."""
    return not a


def sym_max(a: Any, b: Any) -> Any:
    """The larger number."""
    return max(a, b)


def sym_min(a: Any, b: Any) -> Any:
    """The smaller number."""
    return min(a, b)


class _NoSymbol(type):
    def __instancecheck__(cls, instance: object) -> bool:
        return False


class SymInt(metaclass=_NoSymbol):
    """A size that is a symbol: there is none here."""


class SymFloat(metaclass=_NoSymbol):
    """A number that is a symbol: there is none here."""


class SymBool(metaclass=_NoSymbol):
    """A condition that is a symbol: there is none here."""
