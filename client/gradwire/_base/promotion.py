"""Promotion: the dtype that two dtypes are promoted to, and the casts that are allowed."""

from __future__ import annotations

from gradwire._base import dtypes
from gradwire._base.dtypes import dtype
from gradwire._base.errors import refuse
from gradwire.v1 import errors_pb2

#: Kinds of dtypes, in the order of promotion.
_BOOL, _INT, _FLOAT, COMPLEX = range(4)


def category(one: dtype) -> int:
    """The kind of a dtype. Results of a higher kind are not cast to a lower kind."""
    if one.is_complex:
        return COMPLEX
    if one.is_floating_point:
        return _FLOAT
    return _BOOL if one is dtypes.bool_ else _INT


def promote_types(type1: dtype, type2: dtype) -> dtype:
    """The smallest dtype that both dtypes promote to (torch.promote_types). Raises a DTYPE refusal if there is none."""
    if type1 is type2:
        return type1
    low, high = sorted((type1, type2), key=category)
    if category(low) < category(high):
        if category(high) == COMPLEX and low is dtypes.float64:
            return dtypes.complex128
        return high
    if category(high) == _INT:
        return _wider_int(low, high)
    if category(high) == _FLOAT and low.itemsize == high.itemsize:
        return dtypes.float32  # float16 with bfloat16
    return low if low.itemsize > high.itemsize else high


def _wider_int(one: dtype, other: dtype) -> dtype:
    if one.is_signed == other.is_signed:
        return one if one.itemsize > other.itemsize else other
    signed, unsigned = (one, other) if one.is_signed else (other, one)
    if unsigned is dtypes.uint64:
        raise refuse(
            f"Promotion of UInt64 with signed integers is not supported, attempted to promote {one.title} and "
            f"{other.title}: no integer type holds both",
            errors_pb2.REASON_DTYPE,
        )
    return signed if signed.itemsize > unsigned.itemsize else dtypes.BY_NAME[f"int{unsigned.itemsize * 16}"]


def can_cast(from_: dtype, to: dtype) -> bool:
    """Whether results of one dtype may be written into a tensor of another (torch.can_cast)."""
    if to is dtypes.bool_:
        return from_ is to
    return category(from_) <= category(to)
