"""The standard's linear algebra extension (array_api.linalg)."""

from __future__ import annotations

from typing import Literal, NamedTuple

from gradwire._base.dtypes import dtype
from gradwire._base.errors import GradwireValueError
from gradwire._tensor.call import _call
from gradwire._tensor.tensor import Tensor
from gradwire.array_api._array import Array, as_array, axes_of, call, one_axis
from gradwire.array_api._manipulation import broadcast_shapes
from gradwire.array_api._products import _alike, matmul, matrix_transpose, tensordot, vecdot
from gradwire.array_api._reductions import sum

__all__ = [
    "cholesky",
    "cross",
    "det",
    "diagonal",
    "eig",
    "eigh",
    "eigvals",
    "eigvalsh",
    "inv",
    "matmul",
    "matrix_norm",
    "matrix_power",
    "matrix_rank",
    "matrix_transpose",
    "outer",
    "pinv",
    "qr",
    "slogdet",
    "solve",
    "svd",
    "svdvals",
    "tensordot",
    "trace",
    "vecdot",
    "vector_norm",
]


class EigResult(NamedTuple):
    """The results of eig."""

    eigenvalues: Array
    eigenvectors: Array


class EighResult(NamedTuple):
    """The results of eigh."""

    eigenvalues: Array
    eigenvectors: Array


class QRResult(NamedTuple):
    """The results of qr."""

    Q: Array
    R: Array


class SlogdetResult(NamedTuple):
    """The results of slogdet."""

    sign: Array
    logabsdet: Array


class SVDResult(NamedTuple):
    """The results of svd."""

    U: Array
    S: Array
    Vh: Array


def cholesky(x: Tensor, /, *, upper: bool = False) -> Array:
    """The triangular factor of Hermitian positive definite matrices."""
    return call("linalg.cholesky", x, upper=upper)


def cross(x1: Tensor, x2: Tensor, /, *, axis: int = -1) -> Array:
    """The cross product of vectors of three elements along an axis, counted from the end; the others are broadcast.

    Raises ValueError for another size than three.
    """
    if axis >= 0:
        raise GradwireValueError(f"cross(): axis must be negative, not {axis}")
    for x in (x1, x2):
        if x.shape[one_axis(axis, x.ndim)] != 3:
            raise GradwireValueError(f"cross(): axis {axis} has size {x.shape[axis]}, not 3")
    rank = max(x1.ndim, x2.ndim)
    first, second = (
        call("reshape", x, (1,) * (rank - x.ndim) + tuple(x.shape)) if x.ndim < rank else x for x in _alike(x1, x2)
    )
    return call("linalg.cross", first, second, dim=axis)


def det(x: Tensor, /) -> Array:
    """The determinants of square matrices."""
    return call("linalg.det", x)


def diagonal(x: Tensor, /, *, offset: int = 0) -> Array:
    """The diagonals of matrices as a last axis."""
    return call("linalg.diagonal", x, offset=offset)


def eig(x: Tensor, /) -> EigResult:
    """Eigenvalues and eigenvectors of square matrices, complex."""
    return EigResult(*_several("linalg.eig", x, ("eigenvalues", "eigenvectors")))


def eigh(x: Tensor, /) -> EighResult:
    """Eigenvalues, ascending, and eigenvectors of Hermitian matrices."""
    return EighResult(*_several("linalg.eigh", x, ("eigenvalues", "eigenvectors")))


def _several(op: str, x: Tensor, names: tuple[str, ...], *args: object) -> tuple[Array, ...]:
    return tuple(as_array(one, (x,)) for one in _call(op, (x, *args), (), names))


def eigvals(x: Tensor, /) -> Array:
    """Eigenvalues of square matrices, complex."""
    return call("linalg.eigvals", x)


def eigvalsh(x: Tensor, /) -> Array:
    """Eigenvalues of Hermitian matrices, ascending."""
    return call("linalg.eigvalsh", x)


def inv(x: Tensor, /) -> Array:
    """The inverses of square matrices."""
    return call("linalg.inv", x)


def matrix_norm(
    x: Tensor,
    /,
    *,
    keepdims: bool = False,
    ord: int | float | Literal["fro", "nuc"] | None = "fro",
) -> Array:
    """Norms of matrices: "fro", "nuc", 1, -1, 2, -2, inf or -inf."""
    return call("linalg.matrix_norm", x, "fro" if ord is None else ord, (-2, -1), keepdims)


def matrix_power(x: Tensor, n: int, /) -> Array:
    """Square matrices to a whole power, a negative one of the inverse."""
    return call("linalg.matrix_power", x, n)


def matrix_rank(x: Tensor, /, *, rtol: float | Tensor | None = None) -> Array:
    """How many singular values are above rtol times the largest."""
    return call("linalg.matrix_rank", x, rtol=rtol)


def outer(x1: Tensor, x2: Tensor, /) -> Array:
    """The products of each element of one vector with each of another. Raises ValueError for no vectors."""
    if x1.ndim != 1 or x2.ndim != 1:
        raise GradwireValueError(f"outer() takes two vectors, not arrays of {x1.ndim} and {x2.ndim} axes")
    return call("outer", *_alike(x1, x2))


def pinv(x: Tensor, /, *, rtol: float | Tensor | None = None) -> Array:
    """The Moore-Penrose pseudo-inverses; singular values up to rtol times the largest count as zero."""
    return call("linalg.pinv", x, rtol=rtol)


def qr(x: Tensor, /, *, mode: Literal["reduced", "complete"] = "reduced") -> QRResult:
    """Factors: orthonormal columns and an upper triangular matrix."""
    return QRResult(*_several("linalg.qr", x, ("Q", "R"), mode))


def slogdet(x: Tensor, /) -> SlogdetResult:
    """The sign of the determinants, and the logarithm of their magnitude."""
    return SlogdetResult(*_several("linalg.slogdet", x, ("sign", "logabsdet")))


def solve(x1: Tensor, x2: Tensor, /) -> Array:
    """What x1 times it is x2: a vector if x2 has one axis, else matrices with broadcast stacks."""
    first, second = _alike(x1, x2)
    columns = call("unsqueeze", second, -1) if second.ndim == 1 else second
    # PyTorch takes an x2 of x1's shape without its last axis for a stack of vectors: so the stack is told.
    batch = broadcast_shapes(tuple(first.shape[:-2]), tuple(columns.shape[:-2]))
    made = call("linalg.solve", first, call("expand", columns, (*batch, *columns.shape[-2:])))
    return call("squeeze", made, (-1,)) if second.ndim == 1 else made


def svd(x: Tensor, /, *, full_matrices: bool = True) -> SVDResult:
    """Singular vectors, singular values (descending), and the other singular vectors as rows."""
    return SVDResult(*_several("linalg.svd", x, ("U", "S", "Vh"), full_matrices))


def svdvals(x: Tensor, /) -> Array:
    """Singular values, descending."""
    return call("linalg.svdvals", x)


def trace(x: Tensor, /, *, offset: int = 0, dtype: dtype | None = None) -> Array:
    """The sums of the diagonals of matrices; of integers in int64 or uint64 by default."""
    return sum(diagonal(x, offset=offset), axis=-1, dtype=dtype)


def vector_norm(
    x: Tensor, /, *, axis: int | tuple[int, ...] | None = None, keepdims: bool = False, ord: int | float = 2
) -> Array:
    """The norm over axes, of the flattened array for none."""
    axes = axes_of(x, axis)
    if not axes:
        return call("abs", x)
    return call("linalg.vector_norm", x, ord, axes, keepdims)
