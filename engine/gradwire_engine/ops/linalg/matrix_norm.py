"""Matrix norms, condition numbers and ranks."""

from __future__ import annotations

import math
from typing import Any, Literal

from gradwire_engine.core import dtypes
from gradwire_engine.core.device import Array, module_of
from gradwire_engine.core.dtypes import DType, Number
from gradwire_engine.core.errors import EngineError, Reason
from gradwire_engine.graph.tensor import Tensor, detach
from gradwire_engine.op.composite import composite
from gradwire_engine.op.cost import linear
from gradwire_engine.op.op import op
from gradwire_engine.ops.base.basic import cast
from gradwire_engine.ops.base.checks import ints, needs_norm_dtype, normalize_dim
from gradwire_engine.ops.base.fill import where
from gradwire_engine.ops.linalg.decompose import eigvalsh, svdvals
from gradwire_engine.ops.linalg.linalg import inv, is_singular, needs_square, rank_limit
from gradwire_engine.ops.reduce.reduce import amax, amin, vector_norm
from gradwire_engine.ops.reduce.reduce import sum as total
from gradwire_engine.ops.shape.shape import movedim, narrow, squeeze, unsqueeze

Ints = Any
_NUMERIC_ORDERS = (1, 2, math.inf)


@composite(name="linalg.matrix_norm")
def matrix_norm(
    A: Array,
    ord: Number | Literal["fro", "nuc"] = "fro",
    dim: Ints = (-2, -1),
    keepdim: bool = False,
    *,
    dtype: DType | None = None,
) -> Any:
    """Norm of the matrices along two dims (torch.linalg.matrix_norm).

    ord: "fro", the root of the sum of squares; "nuc", the sum of the singular values; 2 or -2, the largest or smallest
    singular value; 1 or -1, the largest or smallest column sum of absolute values; inf or -inf, the same of rows.
    Raises EngineError: RUNTIME for another order or dtype, SHAPE.
    """
    name = "linalg.matrix_norm"
    if A.ndim < 2:
        raise EngineError(Reason.SHAPE, f"{name}: The input tensor A must have at least 2 dimensions.")
    if isinstance(ord, complex):
        raise EngineError(Reason.RUNTIME, f"{name}: Expected a non-complex scalar as the order of norm.")
    known = ord in ("fro", "nuc") if isinstance(ord, str) else abs(ord) in _NUMERIC_ORDERS
    if not known:
        raise EngineError(Reason.RUNTIME, f"{name}: Order {ord} not supported.", op=name)
    rows, columns = _two_dims(name, A, dim)
    _check_dtype(name, A, dtype, ord)
    if ord == "fro":
        return vector_norm(A, 2, (rows, columns), keepdim, dtype=dtype)
    A = cast(A, dtype) if dtype is not None and dtype != A.dtype else A
    if ord in ("nuc", 2, -2):
        return _by_singular_values(A, ord, rows, columns, keepdim)
    summed, chosen = (rows, columns) if abs(ord) == 1 else (columns, rows)  # type: ignore[arg-type]
    sums = vector_norm(A, 1, (summed,), keepdim)
    return _extreme(sums, ord, chosen - (not keepdim and chosen > summed), keepdim)


def _two_dims(name: str, A: Any, dim: Any) -> tuple[int, int]:
    given = ints(dim)
    if len(given) != 2:
        raise EngineError(Reason.RUNTIME, f"{name}: dim must be a 2-tuple. Got {' '.join(map(str, given))}")
    rows, columns = (normalize_dim(axis, A.ndim) for axis in given)
    if rows == columns:
        raise EngineError(Reason.RUNTIME, f"{name}: dims must be different. Got ({given[0]}, {given[1]})")
    return rows, columns


def _check_dtype(name: str, A: Any, dtype: Any, ord: Any) -> None:
    needs_norm_dtype(name, A.dtype, dtype)
    if ord in ("nuc", 2, -2) and A.dtype.itemsize == 2:
        title = dtypes.TITLES[A.dtype]
        raise EngineError(Reason.RUNTIME, f"{name}: Low precision dtypes not supported. Got {title}")


def _extreme(values: Any, ord: Any, axis: int, keepdim: bool) -> Any:
    """Maximum (ord > 0) or minimum along a dimension; the maximum over no elements is 0, a constant."""
    if not values.shape[axis] and ord > 0:
        return total(_detached(values), (axis,), keepdim)
    return (amax if ord > 0 else amin)(values, (axis,), keepdim)


def _by_singular_values(A: Any, ord: Any, rows: int, columns: int, keepdim: bool) -> Any:
    values = svdvals(movedim(A, (rows, columns), (-2, -1)))
    found = total(values, (-1,), keepdim) if ord == "nuc" else _extreme(values, ord, -1, keepdim)
    return movedim(unsqueeze(found, -1), (-2, -1), (rows, columns)) if keepdim else found


@composite(name="linalg.norm")
def linalg_norm(
    A: Array, ord: Number | Literal["fro", "nuc"] | None = None, dim: Ints | None = None, keepdim: bool = False,
    *, dtype: DType | None = None,
) -> Any:  # fmt: skip
    """Norm of vectors or matrices (torch.linalg.norm).

    Over one dim, or of a vector: `linalg.vector_norm`. Over two dims, or of a matrix: `linalg.matrix_norm`.
    Without `ord`: the root of the sum of all squares. Raises EngineError: RUNTIME, SHAPE.
    """
    if dim is not None:
        if len(ints(dim)) not in (1, 2):
            raise EngineError(
                Reason.RUNTIME,
                f"linalg.norm: If dim is specified, it must be of length 1 or 2. Got {list(ints(dim))}",
            )
    elif ord is not None and A.ndim not in (1, 2):
        raise EngineError(
            Reason.RUNTIME,
            f"linalg.norm: If dim is not specified but ord is, the input must be 1D or 2D. Got {A.ndim}D.",
        )
    if isinstance(ord, str):
        return matrix_norm(A, ord, (-2, -1) if dim is None else dim, keepdim, dtype=dtype)
    if ord is None or (A.ndim == 1 if dim is None else len(ints(dim)) == 1):
        return vector_norm(A, 2 if ord is None else ord, dim, keepdim, dtype=dtype)
    return matrix_norm(A, ord, (0, 1) if dim is None else dim, keepdim, dtype=dtype)


@composite(deprecated="linalg.norm, linalg.vector_norm or linalg.matrix_norm")
def norm(
    input: Array, p: Number | Literal["fro", "nuc"] | None = "fro", dim: Ints | None = None, keepdim: bool = False,
    *, dtype: DType | None = None,
) -> Any:  # fmt: skip
    """p-norm of the elements over `dim`, or of all elements (torch.norm).

    p: a number; "fro" for 2; "nuc" for the sum of the singular values of the matrices along two dims.
    Raises EngineError: RUNTIME for another string, SHAPE.
    """
    if not isinstance(p, str):
        return vector_norm(input, 2 if p is None else p, dim, keepdim, dtype=dtype)
    if p == "fro" and (dim is None or len(ints(dim)) <= 2):
        return vector_norm(input, 2, dim, keepdim, dtype=dtype)
    dims = tuple(range(input.ndim)) if dim is None else ints(dim)
    return matrix_norm(input, p, dims, keepdim, dtype=dtype)


def _no_condition_numbers(A: Any) -> Any:
    """Condition numbers of matrices without elements: 0, without a gradient."""
    array = A.array if type(A) is Tensor else A
    zeros = module_of(array).zeros(array.shape[:-2], dtypes.real_part(array.dtype))
    return Tensor(zeros) if type(A) is Tensor else zeros


@composite(name="linalg.cond", reads_values=True)
def cond(A: Array, p: Number | Literal["fro", "nuc"] | None = None) -> Any:
    """Condition numbers: norm of each matrix times the norm of its inverse (torch.linalg.cond).

    A: (..., m, n). p: an order of `linalg.matrix_norm`, for square matrices. 2 (the default) means the ratio of the
    largest to the smallest singular value, -2 its inverse; both take any matrix. A singular matrix gives inf.
    Raises EngineError: RUNTIME, SHAPE.
    """
    if A.ndim < 2:
        raise EngineError(Reason.SHAPE, "linalg.cond: The input tensor must have at least 2 dimensions.")
    if p is None or p in (2, -2):
        if not A.size:
            return _no_condition_numbers(A)
        values = svdvals(A)
        largest = squeeze(narrow(values, -1, 0, 1), -1)
        smallest = squeeze(narrow(values, -1, values.shape[-1] - 1, 1), -1)
        return smallest / largest if p == -2 else largest / smallest
    if not (p in ("fro", "nuc") if isinstance(p, str) else not isinstance(p, complex) and abs(p) in (1, math.inf)):
        raise EngineError(Reason.RUNTIME, f"linalg.cond got an invalid norm type: {p}")
    needs_square(f"linalg.cond(ord={p})", A)
    if not A.size:
        return _no_condition_numbers(A)
    array = A.array if type(A) is Tensor else A
    singular = is_singular(array)[..., None, None]
    identity = module_of(array).eye(A.shape[-1], dtype=A.dtype)
    inverse = where(
        _wrap_like(A, singular), float("inf"), inv(where(_wrap_like(A, singular), _wrap_like(A, identity), A))
    )
    return matrix_norm(A, p) * matrix_norm(inverse, p)


def _wrap_like(source: Any, array: Any) -> Any:
    """Wrap an array as a constant Tensor if `source` is a Tensor."""
    return Tensor(array) if type(source) is Tensor else array


def _detached(value: Any) -> Any:
    return detach(value) if type(value) is Tensor else value


@op(name="_matrix_rank", cost=linear(4))
def _matrix_rank(xp: Any, A: Array, values: Array, atol: Array | Number | None, rtol: Array | Number | None) -> Array:
    """Count the values of each matrix whose absolute value is above its limit."""
    return (xp.abs(values) > rank_limit(xp, A, values, atol, rtol)).sum(-1, dtype=dtypes.int64)


@composite(name="linalg.matrix_rank", differentiable=False, reads_values=True)
def matrix_rank(
    A: Array, *, atol: Array | Number | None = None, rtol: Array | Number | None = None, hermitian: bool = False
) -> Any:
    """Rank: the number of singular values above max(atol, rtol * the largest) (torch.linalg.matrix_rank).

    A: (..., m, n). rtol: by default the dtype's eps times the larger size, or 0 for a positive atol. Both limits may be
    tensors, one limit per matrix. hermitian: A equals its conjugate transpose. Raises EngineError: RUNTIME, SHAPE.
    """
    name = "torch.linalg.matrix_rank"
    if A.ndim < 2:
        raise EngineError(Reason.SHAPE, f"{name}: The input tensor input must have at least 2 dimensions.")
    for which, limit in (("atol", atol), ("rtol", rtol)):
        given = getattr(limit, "dtype", None)
        if given is not None and given.kind == "c":
            title = dtypes.TITLES[given]
            raise EngineError(Reason.RUNTIME, f"{name}: {which} tensor of complex type is not supported. Got {title}")
    if dtypes.category(A.dtype) < dtypes.FLOAT or A.dtype.itemsize == 2:
        raise EngineError(
            Reason.RUNTIME,
            f"{name}: This function doesn't handle types other than float and double: {dtypes.TITLES[A.dtype]}",
        )
    if not A.shape[-1] or not A.shape[-2]:
        return total(A != A if type(A) is not Tensor else _wrap_like(A, A.array != A.array), (-2, -1))
    values = eigvalsh(A) if hermitian else svdvals(A)
    return _matrix_rank(A, values, atol, rtol)
