"""Shape rules of ops that make tensors of given sizes."""

from __future__ import annotations

import math
from typing import Any

from gradwire._base.dtypes import float32, float64, int32, int64
from gradwire._proxy.handle import Handle
from gradwire._tensor.shape_rules.sizes import Shapes, dense, dtype_of, fits

_RANGED = (int64, int32, float32, float64)


def creation(op: str, size: Any = None, *args: Any, **named: Any) -> Shapes:
    """zeros(size) and its relatives; full's number must fit the result."""
    # A whole number without a dtype gives whole numbers.
    kind = dtype_of(named, int64 if any(type(value) is int for value in args) else float32)
    if not all(fits(value, kind) for value in args):
        return None
    return _of_size(size)


def creation_like(op: str, input: Any, size: Any = None, *args: Any, **named: Any) -> Shapes:
    """new_zeros(size) and its relatives."""
    if not isinstance(input, Handle):
        return None
    kind = dtype_of(named, input._spec.dtype)
    return _of_size(size) if all(fits(value, kind) for value in args) else None


def _of_size(size: Any) -> Shapes:
    sizes = size if isinstance(size, (list, tuple)) else (size,)
    if not all(type(one) is int and one >= 0 for one in sizes):
        return None
    return dense(sizes)


def random_integers(op: str, low: Any = None, high: Any = None, size: Any = None, *args: Any, **named: Any) -> Shapes:
    """randint(low, high, size)."""
    if type(low) is not int or type(high) is not int or not 0 <= low < high < 1 << 31 or named.get("dtype") is not None:
        return None
    return _of_size(size)


def number_range(op: str, start: Any = None, end: Any = None, step: Any = None, *args: Any, **named: Any) -> Shapes:
    """arange of integers, which the dtype holds, or of other numbers without a dtype."""
    kind = named.get("dtype")
    numbers = start, end, step
    if kind is None and float in map(type, numbers) and all(type(each) in (int, float) for each in numbers):
        usual = all(0 <= abs(each) < 1 << 15 for each in numbers) and step > 1e-6 and end >= start
        return dense((math.ceil((end - start) / step),)) if usual else None
    if not type(start) is type(end) is type(step) is int or not step or kind not in (None, *_RANGED):
        return None
    most = 1 << (53 if kind in (None, int64) else 24)
    if max(map(abs, (start, end, step))) >= most or (end - start) * step < 0:
        return None
    return dense((-((start - end) // step),))


def steps(op: str, start: Any = None, end: Any = None, steps: Any = None, *args: Any, **named: Any) -> Shapes:
    """linspace and logspace, between ends that fit the result. Those of truth values are refused."""
    kind = dtype_of(named, float32)
    held = kind.name != "bool" and fits(start, kind) and fits(end, kind)
    return _of_size(steps) if held and type(steps) is int else None


def identity(op: str, n: Any = None, m: Any = None, *args: Any, **named: Any) -> Shapes:
    """eye(n, m)."""
    return _of_size((n, n if m is None else m))


def permutation(op: str, n: Any = None, *args: Any, **named: Any) -> Shapes:
    """randperm(n)."""
    return _of_size(n) if type(n) is int and named.get("dtype") is None else None
