"""The data types and queries about them: kinds, limits, promotion. Nothing here needs a server.

The dtypes are gradwire's own objects. Promotion follows PyTorch's table, which agrees with the
standard's. Unlike in PyTorch, arrays of zero dimensions are not weak: only Python's numbers are.
"""

from __future__ import annotations

from builtins import bool as Bool
from functools import reduce
from typing import TypeAlias

from gradwire._base import dtypes
from gradwire._base.dtypes import bool_, dtype
from gradwire._base.errors import GradwireTypeError, GradwireValueError
from gradwire._base.promotion import promote_types
from gradwire._tensor.tensor import Tensor

Scalar: TypeAlias = "Bool | int | float | complex"

_UNSIGNED = ("uint8", "uint16", "uint32", "uint64")
_SIGNED = ("int8", "int16", "int32", "int64")
_REAL = ("float32", "float64")
_COMPLEX = ("complex64", "complex128")
#: The standard's kinds and the dtypes of each; float16 and bfloat16 are real floating, too, but not the standard's.
KINDS: dict[str, tuple[str, ...]] = {
    "bool": ("bool",),
    "signed integer": _SIGNED,
    "unsigned integer": _UNSIGNED,
    "integral": _SIGNED + _UNSIGNED,
    "real floating": _REAL,
    "complex floating": _COMPLEX,
    "numeric": _SIGNED + _UNSIGNED + _REAL + _COMPLEX,
}
_BEYOND = {"real floating": ("float16", "bfloat16"), "numeric": ("float16", "bfloat16")}


class finfo:
    """The limits of a floating-point dtype: bits, eps, max, min, smallest_normal, dtype (that of complex parts)."""

    def __init__(self, type: dtype | Tensor, /) -> None:
        known = dtypes.finfo(_dtype_of(type))
        self.bits, self.eps = known.bits, known.eps
        self.max, self.min, self.smallest_normal = known.max, known.min, known.smallest_normal
        self.dtype = dtypes.BY_NAME[known.dtype]


class iinfo:
    """The limits of an integer dtype: bits, max, min, dtype."""

    def __init__(self, type: dtype | Tensor, /) -> None:
        known = dtypes.iinfo(_dtype_of(type))
        self.bits, self.max, self.min = known.bits, known.max, known.min
        self.dtype = dtypes.BY_NAME[known.dtype]


def _dtype_of(value: dtype | Tensor) -> dtype:
    return value.dtype if isinstance(value, Tensor) else value


def isdtype(dtype: dtype, kind: dtype | str | tuple[dtype | str, ...]) -> Bool:
    """Whether a dtype is another, of a kind ("bool", "signed integer", …), or any of several.

    Raises ValueError for a kind the standard does not have, TypeError for anything else.
    """
    if isinstance(kind, tuple):
        return any(isdtype(dtype, one) for one in kind)
    if isinstance(kind, dtypes.dtype):
        return dtype is kind
    if not isinstance(kind, str):
        raise GradwireTypeError(f"isdtype(): kind must be a dtype, a str or a tuple of them, not {kind!r}")
    if kind not in KINDS:
        raise GradwireValueError(f"isdtype(): the kinds are {', '.join(map(repr, KINDS))}, not {kind!r}")
    return dtype.name in KINDS[kind] + _BEYOND.get(kind, ())


def can_cast(from_: dtype | Tensor, to: dtype, /) -> Bool:
    """Whether promotion may take a dtype, or that of an array, to another."""
    given = _dtype_of(from_)
    try:
        return promote_types(given, to) is to
    except RuntimeError:  # uint64 with a signed integer: there is no type for both
        return False


def result_type(*arrays_and_dtypes: Tensor | Scalar | dtype) -> dtype:
    """The dtype to which arrays, dtypes and Python numbers promote; numbers count only by their kind.

    Raises TypeError if there is no array and no dtype, RuntimeError for uint64 with signed integers.
    """
    strong = [_dtype_of(one) for one in arrays_and_dtypes if isinstance(one, (Tensor, dtype))]
    if not strong:
        raise GradwireTypeError("result_type() takes at least one array or dtype")
    found = reduce(promote_types, strong)
    for one in arrays_and_dtypes:
        if not isinstance(one, (Tensor, dtype)):
            found = with_number(one, found)
    return found


def with_number(value: Scalar, beside: dtype) -> dtype:
    """The dtype of a Python number beside an array of a dtype. Raises TypeError for no number."""
    if isinstance(value, Bool):
        return beside
    if isinstance(value, int):
        return dtypes.int64 if beside is bool_ else beside
    if isinstance(value, float):
        floating = beside.is_floating_point or beside.is_complex
        return beside if floating else dtypes.get_default_dtype()
    if isinstance(value, complex):
        if beside.is_complex:
            return beside
        return (beside if beside.is_floating_point else dtypes.get_default_dtype()).to_complex()
    raise GradwireTypeError(f"expected an array or a Python number, not {type(value).__name__}")


def default_of(value: Scalar) -> dtype:
    """The dtype of an array made of one Python number."""
    return with_number(value, bool_)
