"""Array: a Tensor whose operators and attributes are the standard's.

PyTorch's Tensor is not an array of the standard. Its `size` is a method, a tensor of zero dimensions is weak in
arithmetic, and slices have positive steps only. `Tensor` keeps PyTorch's semantics; this subclass has the standard's.
It is a proxy like any other: the same tensor on the server, the same graph, `backward()` and `.grad`. Functions of this
namespace take either and return Arrays.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from gradwire._base import dtypes
from gradwire._base.dtypes import dtype
from gradwire._base.errors import GradwireTypeError, GradwireValueError, refuse
from gradwire._base.promotion import promote_types
from gradwire._functions.create import create, make_tensor
from gradwire._tensor.call import _call
from gradwire._tensor.indexing import as_operand
from gradwire._tensor.tensor import Tensor
from gradwire.array_api._dtypes import default_of, with_number

_INT64 = range(-(1 << 63), 1 << 63)
_NUMBERS = (bool, int, float, complex)
# float16 has the least of the greatest numbers.
_LEAST_MAX = 65504.0
_NUMPY_NUMBERS = (np.number, np.bool_)


# Calls.


def call(op: str, *args: Any, **named: Any) -> Array:
    """An op's one result as an Array."""
    given = [pair for pair in named.items() if pair[1] is not None]
    return as_array(_call(op, args, given), args)


def as_array(made: Any, given: tuple[Any, ...] = ()) -> Array:
    """A new tensor as an Array. A tensor among `given` does not change; a view of it is made."""
    if isinstance(made, Array):
        return made
    if any(made is one for one in given):
        made = _call("view", (made, tuple(made.shape)))
    if type(made) is Tensor:  # under vmap it stands for many, and is of that class
        made.__class__ = Array
    return made  # type: ignore[no-any-return]


def binary(op: str, x1: Any, x2: Any, tensors: bool = False) -> Array:
    """An op on two operands, with the standard's promotion. `tensors`: it takes no numbers, so they become arrays."""
    x1, x2 = operands(x1, x2)
    if tensors:
        x1, x2 = _filled(x1, x2), _filled(x2, x1)
    return call(op, x1, x2)


def operands(x1: Any, x2: Any) -> tuple[Any, Any]:
    """Two operands that PyTorch promotes as the standard does. Raises TypeError unless one of them is an array."""
    if isinstance(x1, Tensor) and isinstance(x2, Tensor):
        first, second = x1.dtype, x2.dtype
        if first is not second and (not x1.ndim or not x2.ndim):
            joint = promote_types(first, second)
            return cast(x1, joint), cast(x2, joint)
        return x1, x2
    if isinstance(x1, Tensor):
        return x1, number(x2, x1)
    if isinstance(x2, Tensor):
        # Few ops take a number first.
        return filled(x1, x2), x2
    raise GradwireTypeError(
        f"expected an array among the two operands, not {type(x1).__name__} and {type(x2).__name__}"
    )


def number(value: Any, beside: Tensor) -> Any:
    """A Python number as it may travel beside an array: a whole number that no int64 holds becomes an array."""
    if isinstance(value, _NUMPY_NUMBERS):
        value = value.item()
    if type(value) is int and value not in _INT64:
        if beside.dtype.is_floating_point or beside.dtype.is_complex:
            return float(value)
        return filled(value, beside)
    if not isinstance(value, _NUMBERS):
        raise GradwireTypeError(f"expected an array or a Python number, not {type(value).__name__}")
    return rounded(value, beside.dtype)


def rounded(value: Any, of: dtype) -> Any:
    """The number as a dtype has it: a float beyond its range is infinite, as rounding has it; PyTorch refuses it."""
    if type(value) is not float or abs(value) <= _LEAST_MAX or math.isinf(value) or value != value:
        return value
    floating = of if of.is_floating_point or of.is_complex else dtypes.get_default_dtype()
    return math.copysign(math.inf, value) if abs(value) > dtypes.finfo(floating).max else value


def _filled(value: Any, beside: Any) -> Any:
    return value if isinstance(value, Tensor) else filled(value, beside)


def filled(value: Any, beside: Tensor) -> Tensor:
    """A Python number as an array of zero dimensions beside another: of its session, its device, the joint dtype."""
    if isinstance(value, _NUMPY_NUMBERS):
        value = value.item()
    return full((), value, with_number(value, beside.dtype), beside.device, beside._session)


def full(shape: tuple[int, ...], value: Any, of: dtype | None, device: Any = None, session: Any = None) -> Array:
    """An array of one value, a number or an array of one. Raises OverflowError for an integer the dtype cannot hold."""
    if isinstance(value, Tensor):
        one = call("reshape", value.to(device=device, dtype=of), ())
        return call("clone", call("expand", one, shape))
    if isinstance(value, _NUMPY_NUMBERS):
        value = value.item()
    of = default_of(value) if of is None else of
    value = rounded(value, of)
    if type(value) is int and value not in _INT64 and of.numpy is not None:
        made = make_tensor(np.asarray(value, of.numpy), device=dtypes.device_name(device), session=session)
        return call("clone", call("expand", made, shape)) if shape else as_array(made)
    return as_array(create("full", (shape, value), {"dtype": of, "device": device}, session))


def cast(x: Tensor, to: dtype) -> Tensor:
    """The array in another dtype; itself if it has it."""
    return x if x.dtype is to else call("to", x, dtype=to)


# Axes.


def axes_of(x: Tensor, axis: int | tuple[int, ...] | None) -> tuple[int, ...]:
    """Axes counted from the front, each once; None means all. Raises IndexError, ValueError for one given twice."""
    if axis is None:
        return tuple(range(x.ndim))
    given = (axis,) if isinstance(axis, int) else tuple(axis)
    found = tuple([one_axis(one, x.ndim) for one in given])
    if len(set(found)) != len(found):
        raise GradwireValueError(f"an axis is given twice: {given}")
    return found


def one_axis(axis: int, ndim: int) -> int:
    """An axis counted from the front. Raises IndexError for one that an array of `ndim` axes does not have."""
    if not -ndim <= axis < ndim:
        from gradwire._base.errors import GradwireIndexError

        raise GradwireIndexError(f"axis {axis} is out of range for an array of {ndim} axes")
    return axis % ndim


# The class.


def _operator(op: str, tensors: bool = False) -> Callable[[Any, Any], Any]:
    def method(self: Any, other: Any, /) -> Any:
        return _arithmetic(op, self, other, tensors) if _taken(other) else NotImplemented

    return method


def _reflected(op: str, tensors: bool = False) -> Callable[[Any, Any], Any]:
    def method(self: Any, other: Any, /) -> Any:
        return _arithmetic(op, other, self, tensors) if _taken(other) else NotImplemented

    return method


def _in_place(op: str) -> Callable[[Any, Any], Any]:
    def method(self: Any, other: Any, /) -> Any:
        if not _taken(other):
            return NotImplemented
        return _call(op, (self, other if isinstance(other, Tensor) else number(other, self)))

    return method


def _written(op: str) -> Callable[[Any, Any], Any]:
    """In place, where the op's form here is put together of several: the result is copied over."""

    def method(self: Any, other: Any, /) -> Any:
        return _call("copy_", (self, _arithmetic(op, self, other, False))) if _taken(other) else NotImplemented

    return method


def _taken(other: Any) -> bool:
    return isinstance(other, (Tensor, *_NUMBERS, *_NUMPY_NUMBERS))


def _arithmetic(op: str, x1: Any, x2: Any, tensors: bool) -> Array:
    made = binary(op, x1, x2, tensors)
    if op in _SPECIAL and made.is_floating_point():
        return _SPECIAL[op](made, *operands(x1, x2))
    return made


def _quotient(made: Array, x1: Any, x2: Any) -> Array:
    """The standard's floor_divide: where an operand is infinite the quotient as it is; PyTorch's is NaN or -1 there."""
    infinite = call("logical_or", *[call("isinf", _filled(a, b)) for a, b in ((x1, x2), (x2, x1))])
    exact = call("div", *[one.detach() if isinstance(one, Tensor) else one for one in (x1, x2)])
    return call("where", infinite, exact, made)


def _remainder(made: Array, x1: Any, x2: Any) -> Array:
    """The standard's remainder: a zero has the sign of x2; PyTorch's has that of x1."""
    sign = call("copysign", call("ones_like", made.detach()), x2.detach() if isinstance(x2, Tensor) else float(x2))
    # -0 + 0 is 0: so both zeros become that of the sign.
    return call("mul", sign, call("add", call("mul", sign, made), 0.0))


_SPECIAL = {"floor_divide": _quotient, "remainder": _remainder}


class Array(Tensor):
    """A tensor on a server with the standard's operators and attributes. The functions of this namespace make them."""

    __slots__ = ()

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        """Refused: arrays are made by asarray, zeros and so on."""
        raise GradwireTypeError("arrays are made by gradwire.array_api.asarray, zeros, arange, …, not by Array()")

    @property
    def size(self) -> int:  # type: ignore[override]
        """The number of elements."""
        return math.prod(self._spec.shape)

    @property
    def T(self) -> Array:  # type: ignore[override]
        """The matrix transposed. Raises ValueError unless there are two axes."""
        if self.ndim != 2:
            raise GradwireValueError(
                f".T is for two axes, not {self.ndim}: use .mT for stacks of matrices, permute_dims"
            )
        return call("T", self)

    @property
    def mT(self) -> Array:  # type: ignore[override]
        """The last two axes exchanged. Raises ValueError if there are fewer."""
        if self.ndim < 2:
            raise GradwireValueError(f".mT is for two axes or more, not {self.ndim}")
        return call("mT", self)

    @property
    def real(self) -> Array:  # type: ignore[override]
        """The real parts; a real array itself."""
        return call("real", self) if self.is_complex() else self

    @property
    def imag(self) -> Array:  # type: ignore[override]
        """The imaginary parts; zeros for a real array."""
        return call("imag" if self.is_complex() else "zeros_like", self)

    def to_device(self, device: Any, /, *, stream: Any = None) -> Array:
        """The array on a device of its server; itself if it is there. Raises ValueError for a stream."""
        if stream is not None:
            raise GradwireValueError("to_device(stream=…): the server orders its work, so streams do not exist")
        return as_array(self.to(dtypes.device(device)), (self,))

    def __getitem__(self, key: Any, /) -> Array:
        from gradwire.array_api._keys import forward, plain_key

        items = plain_key(self, key)
        cut, items = forward(self, items)
        return as_array(Tensor.__getitem__(cut, items), (self,))

    def __setitem__(self, key: Any, value: Any, /) -> None:
        from gradwire.array_api._keys import assign

        if isinstance(value, Tensor):
            if value.is_complex() and not self.is_complex():
                raise GradwireTypeError(f"cannot assign {value.dtype.name} to an array of {self.dtype.name}")
            value = cast(value, self.dtype)
        else:
            value = number(as_operand(value, self), self)
        assign(self, key, value)

    def __iter__(self) -> Iterator[Tensor]:
        return (as_array(one) for one in Tensor.__iter__(self))

    def __pos__(self) -> Array:
        return call("positive", self)

    def __neg__(self) -> Array:
        return call("neg", self)

    def __abs__(self) -> Array:
        return call("abs", self)

    def __invert__(self) -> Array:
        return as_array(Tensor.__invert__(self))

    def __index__(self) -> int:
        if self.ndim:
            raise refuse(f"only an array of zero dimensions can be an index, not one of shape {tuple(self.shape)}")
        return Tensor.__index__(self)

    __add__, __radd__, __iadd__ = _operator("add"), _reflected("add"), _in_place("add_")
    __sub__, __rsub__, __isub__ = _operator("sub"), _reflected("sub"), _in_place("sub_")
    __mul__, __rmul__, __imul__ = _operator("mul"), _reflected("mul"), _in_place("mul_")
    __truediv__, __rtruediv__, __itruediv__ = _operator("div"), _reflected("div"), _in_place("div_")
    __floordiv__, __rfloordiv__ = _operator("floor_divide"), _reflected("floor_divide")
    __mod__, __rmod__ = _operator("remainder"), _reflected("remainder")
    __ifloordiv__, __imod__ = _written("floor_divide"), _written("remainder")
    __pow__, __rpow__, __ipow__ = _operator("pow"), _reflected("pow"), _in_place("pow_")
    __matmul__, __rmatmul__ = _operator("matmul"), _reflected("matmul")
    __and__, __rand__, __iand__ = _operator("bitwise_and"), _reflected("bitwise_and"), _in_place("bitwise_and_")
    __or__, __ror__, __ior__ = _operator("bitwise_or"), _reflected("bitwise_or"), _in_place("bitwise_or_")
    __xor__, __rxor__, __ixor__ = _operator("bitwise_xor"), _reflected("bitwise_xor"), _in_place("bitwise_xor_")
    __lshift__, __rlshift__ = _operator("bitwise_left_shift"), _reflected("bitwise_left_shift")
    __rshift__, __rrshift__ = _operator("bitwise_right_shift"), _reflected("bitwise_right_shift")
    __ilshift__, __irshift__ = _in_place("bitwise_left_shift_"), _in_place("bitwise_right_shift_")
    __eq__, __ne__ = _operator("eq"), _operator("ne")
    __lt__, __le__, __gt__, __ge__ = _operator("lt"), _operator("le"), _operator("gt"), _operator("ge")
    __hash__ = Tensor.__hash__
