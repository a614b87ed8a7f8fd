"""Products of vectors and matrices beyond matrix.py, the matrix exponential."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from gradwire_engine.core import dtypes
from gradwire_engine.core.device import Array, module_of
from gradwire_engine.core.dtypes import Number, cast_number
from gradwire_engine.core.errors import EngineError, Reason
from gradwire_engine.graph.tensor import Tensor
from gradwire_engine.op.composite import composite
from gradwire_engine.op.cost import LOOP, counted, flop, indexing
from gradwire_engine.op.op import op
from gradwire_engine.op.workload import check_composite, pause
from gradwire_engine.ops.base.basic import conj, expand
from gradwire_engine.ops.base.checks import admit, normalize_dim
from gradwire_engine.ops.base.precision import is_half
from gradwire_engine.ops.linalg.contract import tensordot
from gradwire_engine.ops.linalg.linalg import adjoint, check_same_dtype, needs_float, needs_square, solvers
from gradwire_engine.ops.linalg.matrix import bmm, dot, fold, mv
from gradwire_engine.ops.reduce.reduce import sum as total
from gradwire_engine.ops.reduce.scan import cumprod
from gradwire_engine.ops.shape.join import cat
from gradwire_engine.ops.shape.shape import diagonal, narrow, unsqueeze

# Vectors.


@op(node="LinalgCrossBackward0", name="linalg.cross", promote="same", in_place=False, cost=4)
def cross(xp: Any, input: Array, other: Array, *, dim: int = -1) -> Array:
    """Cross product along a dimension of size 3 (torch.linalg.cross).

    input, other: the same number of dimensions; the other dimensions broadcast. Raises EngineError: SHAPE.
    """
    if input.ndim != other.ndim:
        raise EngineError(Reason.SHAPE, "linalg.cross: inputs must have the same number of dimensions.")
    axis = normalize_dim(dim, input.ndim)
    m, n = input.shape[axis], other.shape[axis]
    if (m, n) != (3, 3):
        raise EngineError(Reason.SHAPE, f"linalg.cross: inputs dimension {dim} must have length 3. Got {m} and {n}")
    a, b = (tuple(xp.take(value, place, axis) for place in range(3)) for value in (input, other))
    parts = [a[i] * b[j] - a[j] * b[i] for i, j in ((1, 2), (2, 0), (0, 1))]
    return xp.stack(parts, axis)


cross.works_in(forward=3.2)
cross.grad(
    input=lambda g, other, dim: cross(conj(other), g, dim=dim),
    other=lambda g, input, dim: cross(g, conj(input), dim=dim),
).tangent("multilinear")


def _refuse_mixed(input: Any, other: Any) -> None:
    if input.dtype != other.dtype:
        a, b = dtypes.TITLES[input.dtype], dtypes.TITLES[other.dtype]
        raise EngineError(Reason.DTYPE, f"linalg.cross: expected scalar type {a} but found {b}", op="linalg.cross")


cross.checked_by(_refuse_mixed)


@composite(name="cross")
def cross_(input: Array, other: Array, dim: int | None = None) -> Any:
    """Cross product; `dim` defaults to the first dimension of size 3 (torch.cross)."""
    if dim is None:
        dim = next((axis for axis, size in enumerate(input.shape) if size == 3), None)
        if dim is None:
            raise EngineError(Reason.SHAPE, "no dimension of size 3 in input")
    return cross(input, other, dim=dim)


@op(cost=indexing(4))
def vdot(xp: Any, input: Array, other: Array) -> Array:
    """Dot product of a vector's conjugate and another vector (torch.vdot).

    input, other: (k,) of the same dtype. Raises EngineError: SHAPE, DTYPE.
    """
    return dot(input.conj(), other)


vdot.grad(input=lambda g, other: conj(g) * other, other=lambda g, input: g * input).tangent("multilinear")


@composite(name="linalg.vecdot")
def vecdot(x: Array, y: Array, *, dim: int = -1) -> Any:
    """Sum of conj(x) * y along `dim` (torch.linalg.vecdot).

    x, y: shapes broadcast; the same float or complex dtype.
    Raises EngineError: RUNTIME for other dtypes, DTYPE, SHAPE, DIM_OUT_OF_RANGE.
    """
    name = "linalg.vecdot"
    if dtypes.category(x.dtype) < dtypes.FLOAT:
        title = dtypes.TITLES[x.dtype]
        raise EngineError(Reason.RUNTIME, f"{name}: Expected a floating point or complex tensor as input. Got {title}")
    check_same_dtype(name, x, y, ("x", "y"))
    if x.ndim == y.ndim == 1 and x.shape != y.shape:
        raise EngineError(
            Reason.SHAPE,
            f"inconsistent tensor size, expected tensor {list(x.shape)} and src {list(y.shape)} to have the same "
            f"number of elements, but got {x.shape[0]} and {y.shape[0]}",
        )
    if x.ndim == y.ndim == 1 and x.dtype.kind == "c":
        normalize_dim(dim, 1)
        return vdot(x, y)
    return total(conj(x) * y, dim)


@composite(name="linalg.vander", reads_values=True)
def vander(x: Array, *, N: int | None = None) -> Any:
    """Vandermonde matrices: the powers 0 to N - 1 of each element, along a new last dim (torch.linalg.vander).

    x: (..., n), integers, float32, float64 or complex. N: x's last size by default. Raises EngineError: RUNTIME.
    """
    if x.dtype == dtypes.bool_ or is_half(x.dtype):
        title = dtypes.TITLES[x.dtype]
        raise EngineError(
            Reason.RUNTIME, f"linalg.vander supports floating point, complex, and integer tensors, but got {title}"
        )
    x = x if x.ndim else unsqueeze(x, 0)
    count = x.shape[-1] if N is None else N
    if count <= 1:
        raise EngineError(Reason.RUNTIME, f"N must be greater than 1. (linalg.vander was given {count})")
    powers = cumprod(expand(unsqueeze(x, -1), (*x.shape, count - 1)), -1)
    array = powers.array if type(powers) is Tensor else powers
    ones = module_of(array).ones((*array.shape[:-1], 1), array.dtype)
    return cat([Tensor(ones) if type(powers) is Tensor else ones, powers], -1)


@composite(name="linalg.diagonal", views="always")
def linalg_diagonal(A: Array, *, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Any:
    """Diagonals of matrices; a view (torch.linalg.diagonal). Raises EngineError: DIM_OUT_OF_RANGE."""
    return diagonal(A, offset, dim1, dim2)


@composite
def inner(input: Array, other: Array) -> Any:
    """Contract the last dims of both; with a 0-dim tensor, multiply (torch.inner)."""
    if not input.ndim or not other.ndim:
        return input * other
    if input.shape[-1] != other.shape[-1]:
        raise EngineError(
            Reason.SHAPE,
            "inner() the last dimension must match on both input tensors but got shapes "
            f"{list(input.shape)} and {list(other.shape)}",
        )
    return tensordot(input, other, ([-1], [-1]))


# Products with an added term.


@op(name="_scaled_sum", promote="same", in_place=False, cost=4)
def _added(xp: Any, input: Array, product: Array, beta: Number, alpha: Number) -> Array:
    """beta * input + alpha * product, with the product's shape; if beta is 0, `input` is ignored, nan included."""
    for back, (size, wanted) in enumerate(zip(input.shape[::-1], product.shape[::-1], strict=False), 1):
        if size not in (1, wanted):
            raise EngineError(
                Reason.SHAPE,
                f"The expanded size of the tensor ({wanted}) must match the existing size ({size}) at non-singleton "
                f"dimension {product.ndim - back}.  Target sizes: {list(product.shape)}.  "
                f"Tensor sizes: {list(input.shape)}",
            )
    beta, alpha = (cast_number(factor, product.dtype) for factor in (beta, alpha))
    product = product if alpha == 1 else product * alpha
    if beta == 0:
        return product
    return (input if beta == 1 else input * beta) + product


_added.works_in(grows=True)
_added.grad(input=lambda g, beta: g * conj(beta), product=lambda g, alpha: g * conj(alpha)).tangent("linear")


def _check_ndim(name: str, input: Any, ndim: int) -> Any:
    """Check that `input` has at most `ndim` dimensions; return it. Raises EngineError: SHAPE."""
    if input.ndim > ndim:
        raise EngineError(
            Reason.SHAPE,
            f"{name}: expand(torch.Tensor{list(input.shape)}): the number of sizes provided ({ndim}) must be greater "
            f"or equal to the number of dimensions in the tensor ({input.ndim})",
        )
    return input


def _check_addmv(input: Any, mat: Any, vec: Any) -> None:
    """Check the operands of addmv. Raises EngineError: SHAPE, DTYPE."""
    if input.ndim > 1 or mat.ndim != 2 or vec.ndim != 1:
        raise EngineError(
            Reason.SHAPE, f"vector + matrix @ vector expected, got {input.ndim}, {mat.ndim}, {vec.ndim}", op="addmv"
        )
    rows, columns = mat.shape
    if vec.shape[0] != columns or input.size not in (1, rows):
        raise EngineError(
            Reason.SHAPE,
            f"size mismatch, got input ({input.size}), mat ({rows}x{columns}), vec ({vec.shape[0]})",
            op="addmv",
        )
    if not input.dtype == mat.dtype == vec.dtype:
        names = [dtypes.TITLES[operand.dtype] for operand in (input, mat, vec)]
        raise EngineError(
            Reason.DTYPE,
            f"addmv input tensors must have the same dtype, but got {names[0]}, {names[1]}, and {names[2]}",
            op="addmv",
        )


@composite(in_place=True)
def addmv(input: Array, mat: Array, vec: Array, *, beta: Number = 1, alpha: Number = 1) -> Any:
    """beta * input + alpha * (mat @ vec) (torch.addmv). input: broadcasts to (n,); mat: (n, k); vec: (k,)."""
    _check_addmv(input, mat, vec)
    return _added(input, mv(mat, vec), beta, alpha)


@composite(in_place=True)
def addr(input: Array, vec1: Array, vec2: Array, *, beta: Number = 1, alpha: Number = 1) -> Any:
    """beta * input + alpha * outer(vec1, vec2) (torch.addr). input: broadcasts to (n, m); vec1: (n,); vec2: (m,)."""
    for name, vector in (("vec1", vec1), ("vec2", vec2)):
        if vector.ndim != 1:
            raise EngineError(Reason.SHAPE, f"addr: Expected 1-D argument {name}, but got {vector.ndim}-D")
    for name, factor in (("beta", beta), ("alpha", alpha)):
        whole = dtypes.category(dtypes.result_type(input, vec1, vec2)) < dtypes.FLOAT
        if whole and isinstance(factor, float | complex):
            raise EngineError(
                Reason.RUNTIME,
                f"addr: For integral input tensors, argument {name} must not be a floating point number.",
            )
    return _added(_check_ndim("addr", input, 2), fold(vec1, (-1, 1)) * vec2, beta, alpha)


@composite(in_place=True)
def addbmm(input: Array, batch1: Array, batch2: Array, *, beta: Number = 1, alpha: Number = 1) -> Any:
    """beta * input + alpha * bmm(batch1, batch2).sum(0) (torch.addbmm).

    input: broadcasts to (n, m); batch1: (b, n, k); batch2: (b, k, m).
    """
    products = bmm(batch1, batch2)
    return _added(_check_ndim("addbmm", input, 2), total(products, 0, dtype=products.dtype), beta, alpha)


@composite(name="linalg.multi_dot")
def multi_dot(tensors: list[Array]) -> Any:
    """Product of several matrices in the cheapest order (torch.linalg.multi_dot).

    The first and the last may be vectors. Raises EngineError: SHAPE, RUNTIME for fewer than two tensors.
    """
    count = len(tensors)
    if count < 2:
        raise EngineError(Reason.RUNTIME, f"multi_dot(): expected at least 2 tensors but got {count}")
    for place, value in enumerate(tensors):
        ends = place in (0, count - 1)
        if value.ndim != 2 and not (ends and value.ndim == 1):
            which = "the first tensor" if not place else "the last tensor" if ends else f"tensor {place}"
            raise EngineError(
                Reason.SHAPE, f"multi_dot(): {which} must be {'1D or ' if ends else ''}2D but got {value.ndim}D"
            )
    row, column = tensors[0].ndim == 1, tensors[-1].ndim == 1
    chain = list(tensors)
    if row:
        chain[0] = unsqueeze(chain[0], 0)
    if column:
        chain[-1] = unsqueeze(chain[-1], 1)
    for place, (a, b) in enumerate(itertools.pairwise(chain)):
        if a.shape[1] != b.shape[0]:
            raise EngineError(
                Reason.SHAPE,
                f"multi_dot(): tensors {place} and {place + 1} with shapes {list(a.shape)} and {list(b.shape)} cannot "
                "be multiplied",
            )
    made = _multiply_chain(chain, _cheapest_splits([*(value.shape[0] for value in chain), chain[-1].shape[1]]))
    shape = (*(() if row else made.shape[:1]), *(() if column else made.shape[1:]))
    return made if len(shape) == 2 else fold(made, shape)


def _cheapest_splits(sizes: list[int]) -> Any:
    """Cheapest split of each subchain [first, last] of matrices, by the operations of its products.

    Cormen et al., section 15.2; all subchains of one length are computed at once.
    Raises EngineError: OP_LIMIT, MEMORY_LIMIT, CANCELLED.
    """
    count = len(sizes) - 1
    check_composite("linalg.multi_dot", float(count) ** 3)
    admit((2, count, count), dtypes.float64)
    size = np.asarray(sizes, np.float64)
    # `left` stores costs by the subchain's first matrix, `right` by its last, so that both are read along rows.
    left, right = np.zeros((count, count)), np.zeros((count, count))
    cuts = np.zeros((count, count), np.int32)
    for length in range(1, count):
        pause()
        first = np.arange(count - length)
        last = first + length
        # Costs of subchain f to l, split after f + 0, 1, ... length - 1.
        before = as_strided(left, (len(first), length), (left.strides[0] + left.strides[1], left.strides[1]))
        after = as_strided(right[length:, 1:], before.shape, before.strides)
        inner = as_strided(size[1:], before.shape, (size.strides[0], size.strides[0]))
        total = before + after + inner * (size[first] * size[last + 1])[:, None]
        best = total.argmin(1)
        left[first, last] = right[last, first] = total[first, best]
        cuts[first, last] = first + best
    return cuts


def _multiply_chain(chain: list[Any], cuts: Any) -> Any:
    """Multiply the chain by the splits `cuts`, with a stack instead of recursion, since a chain may be long."""
    made: list[Any] = []
    stack = [(0, len(chain) - 1, False)]
    while stack:
        first, last, ready = stack.pop()
        if first == last:
            made.append(chain[first])
        elif ready:
            other = made.pop()
            made.append(made.pop() @ other)
        else:
            cut = int(cuts[first, last])
            stack += [(first, last, True), (cut + 1, last, False), (first, cut, False)]
    return made[0]


# The exponential.


def _exponential_cost(A: Any) -> Any:
    n = A.shape[-1]
    return math.prod(A.shape[:-2]) * (20 * LOOP + 20.0 * n**3 * flop(A.dtype) + 40.0 * n * n)


@op(name="linalg.matrix_exp", node="LinalgMatrixExpBackward0", cost=counted(_exponential_cost, 8.0, 1 << 13))
def matrix_exp(xp: Any, A: Array) -> Array:
    """Matrix exponential of square matrices (torch.linalg.matrix_exp). A: (..., n, n). Raises EngineError: SHAPE."""
    needs_square("linalg.matrix_exp", A)
    if is_half(A.dtype):
        return matrix_exp.function(xp, A.astype(dtypes.float32)).astype(A.dtype)
    needs_float("linalg.matrix_exp", A, "matrix_exp")
    if not A.size:
        return A.copy()
    wide = A.astype(dtypes.complex128 if A.dtype.kind == "c" else dtypes.float64, copy=False)
    return solvers(xp).expm(wide).astype(A.dtype, copy=False)  # the squarings multiply the errors of float32


matrix_exp.works_in(forward=16, backward=66)


def _matrix_exp_A(g: Any, A: Any) -> Any:
    """The upper right block of the exponential of [[A^H, g], [0, A^H]] (Mathias, 1996)."""
    size = A.shape[-1]
    turned = adjoint(A)
    blocks = cat([cat([turned, g], -1), cat([turned * 0, turned], -1)], -2)
    return narrow(narrow(matrix_exp(blocks), -2, 0, size), -1, size, size)


matrix_exp.grad(A=_matrix_exp_A)


@composite(name="matrix_exp")
def matrix_exp_(input: Array) -> Any:
    """Matrix exponential of square matrices (torch.matrix_exp)."""
    return matrix_exp(input)
