"""What an op will compute, told from its operands before it begins: in operations, about a nanosecond of a core each.

Every op has a `Cost`, by its declaration (`cost=`): what its forward takes, what its formulas take in backward, and how
few elements are not worth asking about. workload.py says what follows of it. A function that tells a cost is given the
op's arguments, with arrays for tensors.

The numbers are estimates, within a factor that `tools/cost.py` measures. They bound what one request may take, and are
no promise of how long it will.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

Works = Callable[..., float]
#: Operations that are many: such an op is computed aside, where it can be ended, and others need not wait for it.
LONG = 150_000_000

CALL = 5_000  # operations of a call of NumPy, however little it does
LOOP = 30_000  # of a turn of a loop in Python that makes several calls
_ITEM = 250  # elements that an array of a list counts for besides, which Python looks at
_USUAL = 8  # bytes of an element; of more it takes longer
_COPIES = 8  # operations of an element: an op of at most so many costs little more than its bytes


@dataclass(frozen=True, slots=True)
class Cost:
    """Operations of an op by its arguments, arrays among them; `few`: of so many elements they are never many.

    The elements are those of all operands, multiplied. A `few` of -1 has the op asked whatever it is given.
    `copies`: whether it costs little more than its result's bytes, which are then not sent from one process to another.
    """

    forward: Works
    backward: Works
    few: int
    copies: bool = False
    linear: bool = False  # in the elements that its operands broadcast to


def linear(weight: float, backward: float = 3.0) -> Cost:
    """So many operations for each element that is read or made; its formulas so many times as much."""

    def works(*arrays: Any) -> float:
        widest = max((operand.itemsize for operand in operands(arrays)), default=0)
        return weight * elements(arrays) * max(1.0, widest / _USUAL)

    return Cost(
        works, lambda *arrays: backward * works(*arrays), int(LONG / weight / max(1, backward)), weight <= _COPIES, True
    )


def counted(works: Works, backward: float | Works = 3.0, few: int = -1) -> Cost:
    """As the function tells; its formulas as another does, or so many times as much."""
    if callable(backward):
        return Cost(works, backward, few)
    times = backward
    return Cost(works, lambda *arrays: times * works(*arrays), few)


def elements(arrays: Any) -> int:
    """Elements that are read or made, where the operands broadcast: at most those of the result, or of an operand."""
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
    """The arrays among the arguments, those in lists too."""
    for value in arrays:
        if hasattr(value, "dtype") and hasattr(value, "shape"):
            yield value
        elif type(value) is list:
            yield from (item for item in value if hasattr(item, "shape"))


def flop(dtype: Any) -> Any:
    """Operations of a multiplication and an addition in a product of matrices: whole numbers have no BLAS."""
    kind, size = dtype.kind, dtype.itemsize
    if kind not in "fc" or size in (2, 1):
        return 3.0
    return {"f4": 0.04, "f8": 0.08, "c8": 0.16, "c16": 0.32}.get(f"{kind}{size}", 3.0)


def by_sorting(per: float) -> Cost:
    """By the elements, times the logarithm of how many are put in order together."""

    def works(input: Any, *rest: Any) -> Any:
        return per * input.size * math.log2(2 + max(input.shape, default=1))

    return counted(works, lambda input, *rest: 60.0 * input.size, int(LONG / per / 32))


def of_shape(weight: float, place: int) -> Cost:
    """By the shape among the arguments."""

    def works(*arrays: Any) -> Any:
        return weight * (math.prod(n or 1 for n in arrays[place]) + elements(arrays))

    return counted(works)


def placed(weight: float) -> Cost:
    """By the elements of all operands, and of each row or line that a place stands for: those do not broadcast."""

    def works(*arrays: Any) -> float:
        given = list(operands(arrays))
        if not given:
            return 0.0
        row = given[0].size // max(1, max(given[0].shape, default=1))
        return weight * float(sum(each.size for each in given) + min(each.size for each in given) * row)

    return counted(works, 3.0, int(LONG / weight))


def placed_alike(weight: float) -> Cost:
    """By the elements of all operands: the places are as many as what is read or written."""
    return counted(lambda *arrays: weight * float(sum(each.size for each in operands(arrays))), 3.0, int(LONG / weight))
