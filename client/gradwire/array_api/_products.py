"""Products of vectors, matrices and arrays of more axes."""

from __future__ import annotations

from collections.abc import Sequence

from gradwire._base.errors import GradwireValueError
from gradwire._base.promotion import promote_types
from gradwire._functions import functions
from gradwire._tensor.tensor import Tensor
from gradwire.array_api._array import Array, as_array, call, cast


def _alike(x1: Tensor, x2: Tensor) -> tuple[Tensor, Tensor]:
    joint = promote_types(x1.dtype, x2.dtype)
    return cast(x1, joint), cast(x2, joint)


def matmul(x1: Tensor, x2: Tensor, /) -> Array:
    """The matrix product x1 @ x2; a vector is a row on the left, a column on the right."""
    return call("matmul", *_alike(x1, x2))


def matrix_transpose(x: Tensor, /) -> Array:
    """The last two axes exchanged. Raises ValueError if there are fewer."""
    if x.ndim < 2:
        raise GradwireValueError(f"matrix_transpose() takes two axes or more, not {x.ndim}")
    return call("mT", x)


def tensordot(x1: Tensor, x2: Tensor, /, *, axes: int | tuple[Sequence[int], Sequence[int]] = 2) -> Array:
    """Products summed over the last axes of x1 and the first of x2, or over two lists of axes."""
    first, second = _alike(x1, x2)
    pairs = axes if isinstance(axes, int) else (list(axes[0]), list(axes[1]))
    return as_array(functions.tensordot(first, second, pairs))


def vecdot(x1: Tensor, x2: Tensor, /, *, axis: int = -1) -> Array:
    """Products of the conjugate of x1 with x2, summed along an axis (counted from the end); the others are broadcast.

    Raises ValueError if the axis has not the same size in both, IndexError if one has it not.
    """
    from gradwire.array_api._array import one_axis

    if axis >= 0:
        raise GradwireValueError(f"vecdot(): axis must be negative, not {axis}")
    sizes = [x.shape[one_axis(axis, x.ndim)] for x in (x1, x2)]
    if sizes[0] != sizes[1]:
        raise GradwireValueError(f"vecdot(): axis {axis} has size {sizes[0]} in one array and {sizes[1]} in the other")
    first, second = _alike(x1, x2)
    return call("sum", call("mul", call("conj", first), second), (axis,), dtype=first.dtype)
