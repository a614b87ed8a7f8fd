"""Cost: estimates an op's work from its operands, before it runs, in operations of about one core nanosecond each.

Every op declares a `Cost` (`cost=`): operations of its forward and of its formulas, and a number of elements below
which no estimate is needed. workload.py acts on the estimate. A cost function gets the op's arguments, with arrays for
tensors.

The numbers are estimates; `tools/cost.py` measures their error. They bound the work of one request and do not predict
its duration.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from gradwire_engine.core import dtypes

Works = Callable[..., float]
#: Operations from which an op is computed apart, so that it can be cancelled and other sessions need not wait.
LONG = 150_000_000

CALL = 5_000  # operations: overhead of one NumPy call
LOOP = 30_000  # operations: one iteration of a Python loop that makes several calls
_ITEM = 250  # elements: overhead of each array of a list
_USUAL = 8  # bytes: larger elements cost proportionally more
_NUMBERS = (int, bool, type(None))
_COPIES = 8  # operations per element: up to this, an op costs little more than copying its bytes


@dataclass(frozen=True, slots=True)
class Cost:
    """Operations of an op, as functions of its arguments (arrays for tensors).

    cheap_size: product of the operands' sizes up to which the op is never expensive, so the functions are not called;
        -1: they are always called.
    copies: it costs little more than copying its result, so the result is not sent from one process to another.
    """

    forward: Works
    backward: Works
    cheap_size: int
    copies: bool = False
    linear: bool = False  # whether the cost is linear in the elements of the broadcast shape


def linear(weight: float, backward: float = 3.0) -> Cost:
    """Cost of `weight` operations per element read or written; its formulas cost `backward` times as much."""

    def works(*arrays: Any) -> float:
        one = of_one_shape(arrays)
        if one is not None:
            return float(weight * max(one.size, 1) * max(1.0, one.itemsize / _USUAL))
        first = alike(arrays[0]) if arrays and type(arrays[0]) is list else None
        if first is not None and len(arrays) == 1 + sum(type(each) in _NUMBERS for each in arrays[1:]):
            return float(weight * len(arrays[0]) * (first.size + _ITEM) * max(1.0, first.itemsize / _USUAL))
        widest = max((operand.itemsize for operand in operands(arrays)), default=0)
        return weight * elements(arrays) * max(1.0, widest / _USUAL)

    return Cost(
        works, lambda *arrays: backward * works(*arrays), int(LONG / weight / max(1, backward)), weight <= _COPIES, True
    )


def counted(works: Works, backward: float | Works = 3.0, cheap_size: int = -1) -> Cost:
    """Cost given by a function; `backward` is a function for the formulas, or a multiple of the forward."""
    if callable(backward):
        return Cost(works, backward, cheap_size)
    times = backward
    return Cost(works, lambda *arrays: times * works(*arrays), cheap_size)


def alike(items: list[Any]) -> Any:
    """The first of some arrays in host memory, if all have its shape and dtype, one of float32 and float64; else None.

    Lists of such arrays are common and may be long, so they are described by their first.
    """
    first = items[0] if items else None
    if type(first) is not np.ndarray or (first.dtype is not dtypes.float32 and first.dtype is not dtypes.float64):
        return None
    shape, dtype = first.shape, first.dtype
    for each in items:
        if type(each) is not np.ndarray or each.dtype is not dtype or each.shape != shape:
            return None
    return first


def of_one_shape(arrays: Any) -> Any:
    """The first of the arrays among arguments, if all are in host memory, of one shape and dtype; else None.

    The other arguments must be numbers. Most calls of elementwise ops are such, so their estimates take a fifth.
    """
    first = None
    for each in arrays:
        kind = type(each)
        if kind is np.ndarray:
            if first is None:
                first = each
            elif each.dtype is not first.dtype or each.shape != first.shape:
                return None
        elif kind is not float and kind not in _NUMBERS:
            return None
    return first


def elements(arrays: Any) -> int:
    """Elements read or written: the larger of the broadcast shape and the largest operand.

    For lists, and operands that do not broadcast: the sum over all operands.
    """
    shape, most = None, 0
    for operand in operands(arrays):
        given = operand.shape
        if shape is None:
            shape, most = given, operand.size
        elif given != shape:
            if len(given) > len(shape):
                shape, given = given, shape
            lead = len(shape) - len(given)
            if any(m != n and 1 not in (m, n) for m, n in zip(shape[lead:], given, strict=True)):
                return sum(each.size for each in operands(arrays))  # they do not broadcast
            shape = (*shape[:lead], *map(max, shape[lead:], given))
            most = max(most, operand.size, math.prod(shape))
    if any(type(value) is list for value in arrays):
        return sum(operand.size + _ITEM for operand in operands(arrays))
    return max(most, 1)


def operands(arrays: Any) -> Iterator[Any]:
    """The arrays among the arguments, including those in lists."""
    for value in arrays:
        if hasattr(value, "dtype") and hasattr(value, "shape"):
            yield value
        elif type(value) is list:
            yield from (item for item in value if hasattr(item, "shape"))


def flop(dtype: Any) -> Any:
    """Operations of one multiply-add in a matrix product; integers and half types have no BLAS."""
    kind, size = dtype.kind, dtype.itemsize
    if kind not in "fc" or size in (2, 1):
        return 3.0
    return {"f4": 0.04, "f8": 0.08, "c8": 0.16, "c16": 0.32}.get(f"{kind}{size}", 3.0)


def by_sorting(per: float) -> Cost:
    """Cost of sorting: elements times the logarithm of the longest dimension."""

    def works(input: Any, *rest: Any) -> Any:
        return per * input.size * math.log2(2 + max(input.shape, default=1))

    return counted(works, lambda input, *rest: 60.0 * input.size, int(LONG / per / 32))


def of_shape(weight: float, place: int) -> Cost:
    """Cost by the elements of the shape given as argument `place`."""

    def works(*arrays: Any) -> Any:
        return weight * (math.prod(n or 1 for n in arrays[place]) + elements(arrays))

    return counted(works)


def indexing(weight: float) -> Cost:
    """Cost of indexing: elements of all operands, which do not broadcast, and of the row that each index selects.

    A single operand has no indices beside it, so it selects no rows.
    """

    def works(*arrays: Any) -> float:
        given = list(operands(arrays))
        if len(given) < 2:
            return weight * float(sum(each.size for each in given))
        row = given[0].size // max(1, max(given[0].shape, default=1))
        return weight * float(sum(each.size for each in given) + min(each.size for each in given) * row)

    return counted(works, 3.0, int(LONG / weight))


def gathering(weight: float) -> Cost:
    """Cost of indexing with one index per element read or written: elements of all operands."""
    return counted(lambda *arrays: weight * float(sum(each.size for each in operands(arrays))), 3.0, int(LONG / weight))
