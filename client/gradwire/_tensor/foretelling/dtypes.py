"""Dtype rules: the dtypes of an op's results, from the operands' descriptions and the other arguments.

A rule answers None if it does not know, or if the server may refuse the call for its dtypes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from gradwire._base.dtypes import bool as bool_dtype
from gradwire._base.dtypes import dtype, int32, int64
from gradwire._proxy.memo import Spec

#: The dtypes of the results, the last one for all further results; None if unknown.
Dtypes: TypeAlias = "tuple[dtype, ...] | None"
#: A dtype rule. It gets the tensors' descriptions, the other arguments by place and by name, and the default dtype.
DtypeRule = Callable[[Sequence[Spec], Sequence[Any], dict[str, Any], dtype], Dtypes]


def _same(specs: Sequence[Spec], others: Sequence[Any], named: dict[str, Any], default: dtype) -> Dtypes:
    """Tensors of one dtype, of integers or truth values."""
    kind = specs[0].dtype if specs else None
    if kind is None or kind.is_floating_point or others or named:
        return None
    return (kind,) if all(spec.dtype is kind for spec in specs) else None


def _floats(specs: Sequence[Spec], others: Sequence[Any], named: dict[str, Any], default: dtype) -> Dtypes:
    """Tensors of one floating dtype, and values that choose no other one."""
    kind = specs[0].dtype if specs else None
    if kind is None or not kind.is_floating_point or "dtype" in named or any(isinstance(one, dtype) for one in others):
        return None
    return (kind,) if all(spec.dtype is kind for spec in specs) else None


def _full_precision(specs: Sequence[Spec], others: Sequence[Any], named: dict[str, Any], default: dtype) -> Dtypes:
    """The same, of a dtype that is no half type."""
    kinds = _floats(specs, others, named, default)
    return None if kinds is None or kinds[0].itemsize < 4 else kinds


def _numbers(specs: Sequence[Spec], others: Sequence[Any], named: dict[str, Any], default: dtype) -> Dtypes:
    """Tensors of one floating dtype, or of one integer dtype and numbers."""
    kind = specs[0].dtype if specs else None
    if any(type(one) is bool for one in (*others, *named.values())):
        return None
    if kind is None or kind.is_floating_point or kind is bool_dtype:
        return _floats(specs, others, named, default)
    if not all(spec.dtype is kind for spec in specs) or not all(type(one) is int for one in named.values()):
        return None
    kinds = {type(one) for one in others}
    return None if not kinds <= {int, float} else (default,) if float in kinds else (kind,)


def _first(specs: Sequence[Spec], others: Sequence[Any], named: dict[str, Any], default: dtype) -> Dtypes:
    """The first tensor's dtype, which all tensors have."""
    kind = specs[0].dtype if specs else None
    if kind is None or not all(spec.dtype is kind for spec in specs) or any(isinstance(one, dtype) for one in others):
        return None
    kinds = {type(one) for one in (*others, *named.values())}
    if "dtype" in named or bool in kinds or (float in kinds and not kind.is_floating_point):
        return None
    return (kind,)


def _truth(specs: Sequence[Spec], others: Sequence[Any], named: dict[str, Any], default: dtype) -> Dtypes:
    """Comparisons: tensors of one dtype and numbers."""
    kind = specs[0].dtype if specs else None
    alike = kind is not None and kind.name != "uint8" and all(spec.dtype is kind for spec in specs)
    return (bool_dtype,) if alike and (kind is bool_dtype or _numbers_fit(others, kind)) else None


def _numbers_fit(others: Sequence[Any], kind: Any) -> bool:
    return kind.is_floating_point or not any(type(one) is float for one in others)


def _close(specs: Sequence[Spec], others: Sequence[Any], named: dict[str, Any], default: dtype) -> Dtypes:
    """Whether floating tensors of one dtype are close: a truth value."""
    kinds = _full_precision(specs, others, named, default)
    return None if kinds is None else (bool_dtype,)


def _given(specs: Sequence[Spec], others: Sequence[Any], named: dict[str, Any], default: dtype) -> Dtypes:
    """The dtype that is given. That of a new tensor is the default one otherwise."""
    kinds = [one for one in (*others, named.get("dtype")) if isinstance(one, dtype)]
    if len(kinds) > 1 or (specs and (not kinds or len(others) > 1)):
        return None
    kind = kinds[0] if kinds else default
    return None if kind.is_complex else (kind,)


def _filled(specs: Sequence[Spec], others: Sequence[Any], named: dict[str, Any], default: dtype) -> Dtypes:
    """full: the dtype that is given, or that of the number, which is the last argument."""
    if any(isinstance(one, dtype) for one in others) or "dtype" in named:
        return _given(specs, others, named, default)
    return {float: (default,), int: (int64,), bool: (bool_dtype,)}.get(type(others[-1])) if others else None


def _drawn(specs: Sequence[Spec], others: Sequence[Any], named: dict[str, Any], default: dtype) -> Dtypes:
    """Random numbers of a floating dtype: the one that is given, the tensor's, or the default one."""
    kinds = _given((), others, named, default) if not specs or "dtype" in named else (specs[0].dtype,)
    return kinds if kinds is not None and kinds[0].is_floating_point and not (specs and others) else None


def _chosen(specs: Sequence[Spec], others: Sequence[Any], named: dict[str, Any], default: dtype) -> Dtypes:
    """where: floating tensors of one dtype, and numbers, after a condition."""
    return _floats(specs[1:], others, named, default) if specs and specs[0].dtype is bool_dtype else None


def _masked(specs: Sequence[Spec], others: Sequence[Any], named: dict[str, Any], default: dtype) -> Dtypes:
    """masked_fill: a floating tensor, a mask and a number."""
    return _floats(specs[:1], others, named, default) if len(specs) == 2 and specs[1].dtype is bool_dtype else None


def _rows(specs: Sequence[Spec], others: Sequence[Any], named: dict[str, Any], default: dtype) -> Dtypes:
    """embedding: the table's dtype, after indices."""
    indices = bool(specs) and specs[0].dtype in (int32, int64)
    return _full_precision(specs[1:], others, named, default) if indices else None


def _classes(specs: Sequence[Spec], others: Sequence[Any], named: dict[str, Any], default: dtype) -> Dtypes:
    """Losses of scores and classes: the scores' dtype.

    The number after the reduction smooths the labels. That has another node, and the server refuses some numbers.
    """
    whole = len(specs) == 2 and specs[1].dtype is int64
    is_smoothed = named.get("label_smoothing") or (others and type(others[-1]) is not str and others[-1])
    return _full_precision(specs[:1], others, named, default) if whole and not is_smoothed else None


def _copied(specs: Sequence[Spec], others: Sequence[Any], named: dict[str, Any], default: dtype) -> Dtypes:
    """copy_: the target's dtype, whatever the source's."""
    return (specs[0].dtype,) if len(specs) == 2 else None


def _sums(specs: Sequence[Spec], others: Sequence[Any], named: dict[str, Any], default: dtype) -> Dtypes:
    """Sums and products: of integers and truth values they are int64."""
    if len(specs) != 1 or specs[0].dtype.is_floating_point:
        return _floats(specs, others, named, default)
    return None if "dtype" in named or any(isinstance(one, dtype) for one in others) else (int64,)


def _of_first(specs: Sequence[Spec], others: Sequence[Any], named: dict[str, Any], default: dtype) -> Dtypes:
    """The first tensor's dtype, whatever that of others."""
    return (specs[0].dtype,) if specs and not others and not named else None


def _ranged(specs: Sequence[Spec], others: Sequence[Any], named: dict[str, Any], default: dtype) -> Dtypes:
    """arange: the dtype that is given, or int64 for integers."""
    kind = named.get("dtype", default if any(type(one) is float for one in others) else int64)
    return (kind,) if isinstance(kind, dtype) and not any(isinstance(one, dtype) for one in others) else None


def _whole(specs: Sequence[Spec], others: Sequence[Any], named: dict[str, Any], default: dtype) -> Dtypes:
    """Indices and counts."""
    if "dtype" in named or any(isinstance(one, dtype) for one in others):
        return None
    return None if any(spec.dtype is bool_dtype for spec in specs) else (int64,)


def _ordered(specs: Sequence[Spec], others: Sequence[Any], named: dict[str, Any], default: dtype) -> Dtypes:
    """Values of one tensor, and their indices; or the larger or smaller values of two."""
    if len(specs) == 2 and specs[0].dtype is specs[1].dtype is not bool_dtype:
        return (specs[0].dtype,)
    return (specs[0].dtype, int64) if len(specs) == 1 and specs[0].dtype is not bool_dtype else None


#: Rules by name.
DTYPES: dict[str, DtypeRule] = {
    "same": _same,
    "floats": _floats,
    "full_precision": _full_precision,
    "numbers": _numbers,
    "first": _first,
    "truth": _truth,
    "given": _given,
    "filled": _filled,
    "drawn": _drawn,
    "chosen": _chosen,
    "classes": _classes,
    "close": _close,
    "copied": _copied,
    "masked": _masked,
    "of_first": _of_first,
    "ranged": _ranged,
    "rows": _rows,
    "sums": _sums,
    "whole": _whole,
    "ordered": _ordered,
}
