"""Operators: maps each of Python's operators to one op; other operand types get NotImplemented, as in PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np

from gradwire._base.errors import GradwireTypeError
from gradwire._proxy.handle import Handle
from gradwire._proxy.memo import Spec
from gradwire._tensor.call import _call
from gradwire._tensor.known_values.compared import note_comparison
from gradwire._tensor.known_values.items import note_sum
from gradwire._tensor.repeats import repeated

_NUMBERS = (int, float, bool, complex)
_OPERANDS = (Handle, *_NUMBERS, np.number, np.bool_)


def _taken(other: Any) -> bool:
    return isinstance(other, _OPERANDS)


class Operators:
    """The operators of Tensor."""

    __slots__ = ()
    _spec: Spec
    # Makes NumPy arrays defer mixed arithmetic to Tensor.
    __array_priority__ = 1000

    def __add__(self, other: Any) -> Any:
        made = repeated("add", self, other)
        if made is not None:
            return made
        made = _call("add", (self, other)) if _taken(other) else NotImplemented
        if type(other) is int and getattr(self, "_known", None) is not None:
            note_sum(self, other, made)
        return made

    def __radd__(self, other: Any) -> Any:
        made = repeated("add", self, other)
        if made is not None:
            return made
        made = _call("add", (self, other)) if _taken(other) else NotImplemented
        if type(other) is int and getattr(self, "_known", None) is not None:
            note_sum(self, other, made)
        return made

    def __iadd__(self, other: Any) -> Any:
        return _call("add_", (self, other)) if _taken(other) else NotImplemented

    def __sub__(self, other: Any) -> Any:
        made = repeated("sub", self, other)
        if made is not None:
            return made
        made = _call("sub", (self, other)) if _taken(other) else NotImplemented
        if type(other) is int and getattr(self, "_known", None) is not None:
            note_sum(self, -other, made)
        return made

    def __rsub__(self, other: Any) -> Any:
        made = repeated("rsub", self, other)
        if made is not None:
            return made
        return _call("rsub", (self, other)) if _taken(other) else NotImplemented

    def __isub__(self, other: Any) -> Any:
        return _call("sub_", (self, other)) if _taken(other) else NotImplemented

    def __mul__(self, other: Any) -> Any:
        made = repeated("mul", self, other)
        if made is not None:
            return made
        return _call("mul", (self, other)) if _taken(other) else NotImplemented

    def __rmul__(self, other: Any) -> Any:
        made = repeated("mul", self, other)
        if made is not None:
            return made
        return _call("mul", (self, other)) if _taken(other) else NotImplemented

    def __imul__(self, other: Any) -> Any:
        return _call("mul_", (self, other)) if _taken(other) else NotImplemented

    def __truediv__(self, other: Any) -> Any:
        made = repeated("div", self, other)
        if made is not None:
            return made
        return _call("div", (self, other)) if _taken(other) else NotImplemented

    def __rtruediv__(self, other: Any) -> Any:
        return _call("mul", (_call("reciprocal", (self,)), other)) if _taken(other) else NotImplemented

    __rdiv__ = __rtruediv__  # PyTorch keeps Python 2's name

    def __itruediv__(self, other: Any) -> Any:
        return _call("div_", (self, other)) if _taken(other) else NotImplemented

    def __floordiv__(self, other: Any) -> Any:
        return _call("floor_divide", (self, other)) if _taken(other) else NotImplemented

    def __rfloordiv__(self, other: Any) -> Any:
        return _call("floor_divide", (other, self)) if _taken(other) else NotImplemented

    def __ifloordiv__(self, other: Any) -> Any:
        return _call("floor_divide_", (self, other)) if _taken(other) else NotImplemented

    def __mod__(self, other: Any) -> Any:
        return _call("remainder", (self, other)) if _taken(other) else NotImplemented

    def __rmod__(self, other: Any) -> Any:
        return _call("remainder", (other, self)) if _taken(other) else NotImplemented

    def __imod__(self, other: Any) -> Any:
        return _call("remainder_", (self, other)) if _taken(other) else NotImplemented

    def __pow__(self, other: Any) -> Any:
        made = repeated("pow", self, other)
        if made is not None:
            return made
        return _call("pow", (self, other)) if _taken(other) else NotImplemented

    def __rpow__(self, other: Any) -> Any:
        return _call("pow", (other, self)) if _taken(other) else NotImplemented

    def __ipow__(self, other: Any) -> Any:
        return _call("pow_", (self, other)) if _taken(other) else NotImplemented

    def __matmul__(self, other: Any) -> Any:
        made = repeated("matmul", self, other)
        if made is not None:
            return made
        return _call("matmul", (self, other)) if isinstance(other, Handle) else NotImplemented

    def __rmatmul__(self, other: Any) -> Any:
        return _call("matmul", (other, self)) if isinstance(other, Handle) else NotImplemented

    def __neg__(self) -> Any:
        return _call("neg", (self,))

    def __pos__(self) -> Any:
        return self

    def __abs__(self) -> Any:
        return _call("abs", (self,))

    def __invert__(self) -> Any:
        dtype = self._spec.dtype
        if dtype.is_floating_point or dtype.is_complex:
            raise GradwireTypeError("~ (operator.invert) is only implemented on integer and Boolean-type tensors")
        return _call("bitwise_not", (self,))

    def __and__(self, other: Any) -> Any:
        return _call("bitwise_and", (self, other)) if _taken(other) else NotImplemented

    def __rand__(self, other: Any) -> Any:
        return _call("bitwise_and", (self, other)) if _taken(other) else NotImplemented

    def __or__(self, other: Any) -> Any:
        return _call("bitwise_or", (self, other)) if _taken(other) else NotImplemented

    def __ror__(self, other: Any) -> Any:
        return _call("bitwise_or", (self, other)) if _taken(other) else NotImplemented

    def __xor__(self, other: Any) -> Any:
        return _call("bitwise_xor", (self, other)) if _taken(other) else NotImplemented

    def __rxor__(self, other: Any) -> Any:
        return _call("bitwise_xor", (self, other)) if _taken(other) else NotImplemented

    def __lshift__(self, other: Any) -> Any:
        return _call("bitwise_left_shift", (self, other)) if _taken(other) else NotImplemented

    def __rlshift__(self, other: Any) -> Any:
        return _call("bitwise_left_shift", (other, self)) if _taken(other) else NotImplemented

    def __ilshift__(self, other: Any) -> Any:
        return _call("bitwise_left_shift_", (self, other)) if _taken(other) else NotImplemented

    def __rshift__(self, other: Any) -> Any:
        return _call("bitwise_right_shift", (self, other)) if _taken(other) else NotImplemented

    def __rrshift__(self, other: Any) -> Any:
        return _call("bitwise_right_shift", (other, self)) if _taken(other) else NotImplemented

    def __irshift__(self, other: Any) -> Any:
        return _call("bitwise_right_shift_", (self, other)) if _taken(other) else NotImplemented

    def __iand__(self, other: Any) -> Any:
        return _call("bitwise_and_", (self, other)) if _taken(other) else NotImplemented

    def __ior__(self, other: Any) -> Any:
        return _call("bitwise_or_", (self, other)) if _taken(other) else NotImplemented

    def __ixor__(self, other: Any) -> Any:
        return _call("bitwise_xor_", (self, other)) if _taken(other) else NotImplemented

    def _compared(self, name: str, other: Any) -> Any:
        made = _call(name, (self, other)) if _taken(other) else NotImplemented
        if getattr(self, "_known", None) is not None:
            note_comparison(name, self, other, made)
        return made

    def __eq__(self, other: object) -> Any:
        return self._compared("eq", other)

    def __ne__(self, other: object) -> Any:
        return self._compared("ne", other)

    def __lt__(self, other: Any) -> Any:
        return self._compared("lt", other)

    def __le__(self, other: Any) -> Any:
        return self._compared("le", other)

    def __gt__(self, other: Any) -> Any:
        return self._compared("gt", other)

    def __ge__(self, other: Any) -> Any:
        return self._compared("ge", other)

    # A tensor hashes by identity, not by its values.
    __hash__ = object.__hash__
