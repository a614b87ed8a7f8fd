"""Cost models of matrix products and decompositions: operations, for `cost=` of their ops (op/cost.py)."""

from __future__ import annotations

import math
from typing import Any

from gradwire_engine.core import dtypes
from gradwire_engine.op.cost import LOOP, Cost, counted, elements, flop


def product(rows: int, inner: int, columns: int, dtype: Any) -> Any:
    """Operations of a product of two matrices."""
    return rows * inner * columns * flop(dtype) + 4.0 * (rows * inner + inner * columns + rows * columns)


def mm_cost(input: Any, mat2: Any) -> Any:
    """Operations of a product of a matrix, or of a batch folded into its rows, with a matrix."""
    return product(math.prod(input.shape[:-1]), input.shape[-1], mat2.shape[-1], mat2.dtype)


def bmm_cost(input: Any, other: Any) -> Any:
    """Operations of batched matrix products; leading dimensions broadcast."""
    lead = max(math.prod(input.shape[:-2]), math.prod(other.shape[:-2]))
    if input.ndim > 2 < other.ndim and input.shape[:-2] != other.shape[:-2]:
        lead = elements((_Shaped(input.shape[:-2]), _Shaped(other.shape[:-2])))
    return lead * (500 + product(input.shape[-2], input.shape[-1], other.shape[-1], other.dtype))


class _Shaped:
    """A shape in the form that `elements` reads."""

    dtype = dtypes.float32

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.shape = shape
        self.size = math.prod(shape)


def lapack(per: float, backward: float = 4.0) -> Cost:
    """Cost of a decomposition. per: operations for each of m * n * min(m, n). backward: as in `counted`."""

    def works(A: Any, *rest: Any) -> Any:
        m, n = A.shape[-2:]
        wide = 2.0 if A.dtype.itemsize >= dtypes.float64.itemsize else 1.0
        wide *= 2.0 if A.dtype.kind == "c" else 1.0
        return math.prod(A.shape[:-2]) * (LOOP + per * wide * m * n * min(m, n) + 20.0 * m * n)

    return counted(works, backward, 1 << 14)


def tall(per: Cost) -> Cost:
    """Cost of a decomposition whose gradient formulas form square matrices of the larger size."""

    def backward(A: Any, *rest: Any) -> Any:
        return per.backward(A, *rest) + 8.0 * math.prod(A.shape[:-2]) * max(A.shape[-2:]) ** 2 * (
            2.0 + min(A.shape[-2:]) * flop(A.dtype)
        )

    return counted(per.forward, backward, per.cheap_size)
