"""Helpers of distributions (torch.distributions.utils)."""

from __future__ import annotations

from typing import Any

import gradwire.nn.functional as F
from gradwire._base import dtypes
from gradwire._base.dtypes import get_default_dtype
from gradwire._base.modes import enable_grad
from gradwire._functions.create import empty, tensor
from gradwire._tensor import ops
from gradwire._tensor.tensor import Tensor

__all__ = [
    "broadcast_all",
    "clamp_probs",
    "is_tensor_like",
    "lazy_property",
    "logits_to_probs",
    "probs_to_logits",
    "tril_matrix_to_vec",
    "vec_to_tril_matrix",
]

euler_constant = 0.57721566490153286060


def is_tensor_like(value: Any) -> bool:
    """Whether it is a tensor."""
    return isinstance(value, Tensor)


def broadcast_all(*values: Any) -> tuple[Tensor, ...]:
    """Numbers and tensors, broadcast to one shape. Raises ValueError for anything else."""
    if not all(isinstance(each, (Tensor, int, float)) for each in values):
        raise ValueError(
            "Input arguments must all be instances of Number, torch.Tensor or objects implementing __torch_function__."
        )
    tensors = [each for each in values if isinstance(each, Tensor)]
    options = {"dtype": tensors[0].dtype, "device": tensors[0].device} if tensors else {"dtype": get_default_dtype()}
    made = [each if isinstance(each, Tensor) else tensor(each, **options) for each in values]
    return tuple(ops.broadcast_tensors(*made))


def logits_to_probs(logits: Tensor, is_binary: bool = False) -> Tensor:
    """Probabilities of log-odds, or of unnormalized log-probabilities in the last dimension."""
    made: Tensor = ops.sigmoid(logits) if is_binary else F.softmax(logits, dim=-1)
    return made


def clamp_probs(probs: Tensor) -> Tensor:
    """Probabilities kept off 0 and 1 by the dtype's epsilon."""
    eps = dtypes.finfo(probs.dtype).eps
    made: Tensor = probs.clamp(min=eps, max=1 - eps)
    return made


def probs_to_logits(probs: Tensor, is_binary: bool = False) -> Tensor:
    """Log-odds of probabilities, or their logarithms."""
    clamped = clamp_probs(probs)
    made: Tensor = ops.log(clamped) - ops.log1p(-clamped) if is_binary else ops.log(clamped)
    return made


def _standard_normal(shape: Any, dtype: Any, device: Any) -> Tensor:
    """Standard normal numbers."""
    made: Tensor = empty(shape, dtype=dtype, device=device).normal_()
    return made


def _sum_rightmost(value: Tensor, dim: int) -> Tensor:
    """The sum over the last dimensions."""
    return value if dim == 0 else value.reshape((*value.shape[: value.dim() - dim], -1)).sum(-1)


class lazy_property:
    """A property that is computed once per object, with gradients."""

    def __init__(self, wrapped: Any) -> None:
        self.wrapped = wrapped
        self.__doc__ = wrapped.__doc__

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        if instance is None:
            return _LazyOfClass(self.wrapped)
        with enable_grad():
            value = self.wrapped(instance)
        setattr(instance, self.wrapped.__name__, value)
        return value


class _LazyOfClass(property):
    """What a class shows for a lazy property."""

    def __init__(self, wrapped: Any) -> None:
        super().__init__(wrapped)


def tril_matrix_to_vec(mat: Tensor, diag: int = 0) -> Tensor:
    """Elements of lower triangles, row by row."""
    n = mat.shape[-1]
    if diag < -n or diag >= n:
        raise ValueError(f"diag ({diag}) provided is outside [{-n}, {n - 1}].")
    rows, columns = ops.tril_indices(n, n, diag)
    made: Tensor = mat[..., rows, columns]
    return made


def vec_to_tril_matrix(vec: Tensor, diag: int = 0) -> Tensor:
    """Lower triangular matrices of their elements, row by row. Raises ValueError for another number of elements."""
    n = (-(1 + 2 * diag) + ((1 + 2 * diag) ** 2 + 8 * vec.shape[-1] + 4 * abs(diag) * (diag + 1)) ** 0.5) / 2
    if abs(n - round(n)) > dtypes.finfo(vec.dtype).eps:
        raise ValueError("The size of last dimension is not a valid number of elements of a lower triangle.")
    size = round(n)
    made: Tensor = vec.new_zeros((*vec.shape[:-1], size, size))
    rows, columns = ops.tril_indices(size, size, diag)
    made[..., rows, columns] = vec
    return made
