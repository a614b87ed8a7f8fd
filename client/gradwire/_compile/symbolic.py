"""Symbolic numbers: numbers of optimizers and schedulers that record how they are computed.

While a function is exported, learning rates and step counts are symbolic. Arithmetic on one computes its value and
records its formula, which becomes a rule of the program (`NumberRule` in programs.proto). The helper functions of this
file take plain numbers, too, and then compute what Python does. Formulas are therefore written once.

Python cannot see which branch depends on a symbolic number. So every conversion and comparison outside of the helpers
is refused.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NoReturn, TypeAlias

import numpy as np

from gradwire._base.errors import make_error
from gradwire.v1 import errors_pb2

#: A formula: ("constant", 0.5), ("counter", 0), or an operator's name with the formulas of its operands.
Formula: TypeAlias = "tuple[Any, ...]"


class SymbolicNumber:
    """A number with its formula."""

    __slots__ = ("formula", "value")

    def __init__(self, value: float, formula: Formula) -> None:
        self.value = value
        self.formula = formula

    def __add__(self, other: Any) -> Any:
        return _binary("ADD", self, other, lambda a, b: a + b)

    def __radd__(self, other: Any) -> Any:
        return _binary("ADD", other, self, lambda a, b: a + b)

    def __sub__(self, other: Any) -> Any:
        return _binary("SUBTRACT", self, other, lambda a, b: a - b)

    def __rsub__(self, other: Any) -> Any:
        return _binary("SUBTRACT", other, self, lambda a, b: a - b)

    def __mul__(self, other: Any) -> Any:
        return _binary("MULTIPLY", self, other, lambda a, b: a * b)

    def __rmul__(self, other: Any) -> Any:
        return _binary("MULTIPLY", other, self, lambda a, b: a * b)

    def __truediv__(self, other: Any) -> Any:
        return _binary("DIVIDE", self, other, lambda a, b: a / b)

    def __rtruediv__(self, other: Any) -> Any:
        return _binary("DIVIDE", other, self, lambda a, b: a / b)

    def __pow__(self, other: Any) -> Any:
        return _binary("POWER", self, other, lambda a, b: a**b)

    def __rpow__(self, other: Any) -> Any:
        return _binary("POWER", other, self, lambda a, b: a**b)

    def __mod__(self, other: Any) -> Any:
        return _binary("MODULO", self, other, lambda a, b: a % b)

    def __rmod__(self, other: Any) -> Any:
        return _binary("MODULO", other, self, lambda a, b: a % b)

    def __floordiv__(self, other: Any) -> Any:
        return (self - self % other) / other

    def __neg__(self) -> SymbolicNumber:
        return SymbolicNumber(-self.value, ("NEGATE", self.formula))

    def __pos__(self) -> SymbolicNumber:
        return self

    def __floor__(self) -> SymbolicNumber:
        return SymbolicNumber(math.floor(self.value), ("FLOOR", self.formula))

    def __repr__(self) -> str:
        return f"<{self.value} of an exported program>"

    def _refuse(self, *_: Any) -> NoReturn:
        raise make_error(
            errors_pb2.REASON_NOT_SUPPORTED,
            "a learning rate or step count, which changes between runs, is compared or converted by Python in an "
            "exported function; only arithmetic on it becomes a rule of the program",
            12,
        )

    __bool__ = __float__ = __int__ = __index__ = __hash__ = __round__ = _refuse
    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = __abs__ = _refuse


def constant(value: float) -> Formula:
    """The formula of a plain number."""
    return ("constant", float(value))


def formula_of(number: Any) -> Formula:
    """The formula of a symbolic or plain number."""
    return number.formula if type(number) is SymbolicNumber else constant(number)


def value_of(number: Any) -> Any:
    """The value of a symbolic or plain number."""
    return number.value if type(number) is SymbolicNumber else number


def key_of(number: Any) -> Any:
    """What equal numbers have in common, to be part of a key."""
    return number.formula if type(number) is SymbolicNumber else number


def _binary(name: str, a: Any, b: Any, compute: Callable[[Any, Any], Any]) -> Any:
    for operand in (a, b):
        if not isinstance(operand, (int, float, SymbolicNumber)):
            return NotImplemented
    try:
        value = compute(value_of(a), value_of(b))
    except (ZeroDivisionError, OverflowError):  # of a branch that is not chosen
        value = math.nan
    return SymbolicNumber(value, (name, formula_of(a), formula_of(b)))


def _is_symbolic(a: Any, b: Any) -> bool:
    return type(a) is SymbolicNumber or type(b) is SymbolicNumber


def equal(a: Any, b: Any) -> Any:
    """Whether two numbers are equal."""
    return _binary("EQUAL", a, b, lambda a, b: a == b) if _is_symbolic(a, b) else a == b


def less(a: Any, b: Any) -> Any:
    """Whether a < b."""
    return _binary("LESS", a, b, lambda a, b: a < b) if _is_symbolic(a, b) else a < b


def less_or_equal(a: Any, b: Any) -> Any:
    """Whether a <= b."""
    return _binary("LESS_OR_EQUAL", a, b, lambda a, b: a <= b) if _is_symbolic(a, b) else a <= b


def larger(a: Any, b: Any) -> Any:
    """The greater of two numbers, as Python's max."""
    return _binary("MAXIMUM", a, b, max) if _is_symbolic(a, b) else max(a, b)


def smaller(a: Any, b: Any) -> Any:
    """The lesser of two numbers, as Python's min."""
    return _binary("MINIMUM", a, b, min) if _is_symbolic(a, b) else min(a, b)


def cosine(a: Any) -> Any:
    """The cosine, as math.cos."""
    return SymbolicNumber(math.cos(a.value), ("COSINE", a.formula)) if type(a) is SymbolicNumber else math.cos(a)


def rounded_to_float32(a: Any) -> Any:
    """The number in the precision of float32."""
    if type(a) is SymbolicNumber:
        return SymbolicNumber(rounded_to_float32(a.value), ("ROUND_TO_FLOAT32", a.formula))
    return float(np.float32(a))


def select(condition: Any, then: Callable[[], Any], otherwise: Callable[[], Any]) -> Any:
    """`then()` if the condition holds, else `otherwise()`. Under a symbolic condition both are formulas."""
    if type(condition) is not SymbolicNumber:
        return then() if condition else otherwise()
    branches = [then(), otherwise()]
    chosen = branches[0 if condition.value else 1]
    formula = ("SELECT", condition.formula, *(formula_of(branch) for branch in branches))
    return SymbolicNumber(value_of(chosen), formula)
