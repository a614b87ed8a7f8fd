"""Transforms of vectors and matrices: simplices, triangular and positive definite matrices, and parts of tensors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import gradwire.distributions.constraints as constraints
import gradwire.nn.functional as F
from gradwire._base import dtypes
from gradwire._base.dtypes import Size
from gradwire._functions.create import eye
from gradwire._tensor import ops
from gradwire.distributions._transform import AlikeTransform, Transform
from gradwire.distributions._utils import _sum_rightmost, tril_matrix_to_vec, vec_to_tril_matrix


def _check_dims(shape: Any, least: int) -> None:
    if len(shape) < least:
        raise ValueError("Too few dimensions on input")


class ReshapeTransform(Transform):
    """Another shape of the last dimensions. Raises ValueError for another number of elements."""

    bijective = True

    def __init__(self, in_shape: Sequence[int], out_shape: Sequence[int], cache_size: int = 0) -> None:
        self.in_shape = Size(in_shape)
        self.out_shape = Size(out_shape)
        if math.prod(self.in_shape) != math.prod(self.out_shape):
            raise ValueError("in_shape, out_shape have different numbers of elements")
        super().__init__(cache_size)

    def _again(self, cache_size: int) -> Transform:
        return ReshapeTransform(self.in_shape, self.out_shape, cache_size)

    @property
    def domain(self) -> Any:
        """Real tensors."""
        return constraints.independent(constraints.real, len(self.in_shape))

    @property
    def codomain(self) -> Any:
        """Real tensors."""
        return constraints.independent(constraints.real, len(self.out_shape))

    def _call(self, x: Any) -> Any:
        return x.reshape((*x.shape[: x.dim() - len(self.in_shape)], *self.out_shape))

    def _inverse(self, y: Any) -> Any:
        return y.reshape((*y.shape[: y.dim() - len(self.out_shape)], *self.in_shape))

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        """0."""
        return x.new_zeros(x.shape[: x.dim() - len(self.in_shape)])

    def forward_shape(self, shape: Any) -> Any:
        """The result's shape. Raises ValueError for another input."""
        return _exchanged(shape, self.in_shape, self.out_shape)

    def inverse_shape(self, shape: Any) -> Any:
        """The input's shape. Raises ValueError for another result."""
        return _exchanged(shape, self.out_shape, self.in_shape)


def _exchanged(shape: Any, given: Any, wanted: Any) -> Any:
    _check_dims(shape, len(given))
    cut = len(shape) - len(given)
    if tuple(shape[cut:]) != tuple(given):
        raise ValueError(f"Shape mismatch: expected {shape[cut:]} but got {given}")
    return Size((*shape[:cut], *wanted))


class CorrCholeskyTransform(Transform):
    """Real vectors of D (D - 1) / 2 numbers to the Cholesky factors of D x D correlation matrices."""

    domain = constraints.real_vector
    codomain = constraints.corr_cholesky
    bijective = True

    def _call(self, x: Any) -> Any:
        eps = dtypes.finfo(x.dtype).eps
        rows = vec_to_tril_matrix(x.tanh().clamp(min=-1 + eps, max=1 - eps), diag=-1)
        left = (1 - rows**2).sqrt().cumprod(-1)
        rows = rows + eye(rows.shape[-1], dtype=rows.dtype, device=rows.device)
        return rows * F.pad(left[..., :-1], [1, 0], value=1)

    def _inverse(self, y: Any) -> Any:
        left = F.pad((1 - (y * y).cumsum(-1))[..., :-1], [1, 0], value=1)
        at = tril_matrix_to_vec(y, diag=-1) / tril_matrix_to_vec(left, diag=-1).sqrt()
        return (at.log1p() - at.neg().log1p()) / 2

    def log_abs_det_jacobian(self, x: Any, y: Any, intermediates: Any = None) -> Any:
        """That of breaking sticks and that of tanh."""
        left = tril_matrix_to_vec(1 - (y * y).cumsum(-1), diag=-2)
        tanh = -2 * (x + F.softplus(-2 * x) - math.log(2.0)).sum(-1)
        return 0.5 * left.log().sum(-1) + tanh

    def forward_shape(self, shape: Any) -> Any:
        """The result's shape. Raises ValueError for a number of elements without a triangle."""
        _check_dims(shape, 1)
        count = shape[-1]
        size = round((0.25 + 2 * count) ** 0.5 + 0.5)
        if size * (size - 1) // 2 != count:
            raise ValueError("Input is not a flattened lower-diagonal number")
        return Size((*shape[:-1], size, size))

    def inverse_shape(self, shape: Any) -> Any:
        """The input's shape. Raises ValueError for no square matrix."""
        _check_dims(shape, 2)
        if shape[-2] != shape[-1]:
            raise ValueError("Input is not square")
        return Size((*shape[:-2], shape[-1] * (shape[-1] - 1) // 2))


class SoftmaxTransform(AlikeTransform):
    """Real vectors to the simplex of as many dimensions; not bijective."""

    domain = constraints.real_vector
    codomain = constraints.simplex

    def _call(self, x: Any) -> Any:
        probs = (x - x.max(-1, True)[0]).exp()
        return probs / probs.sum(-1, True)

    def _inverse(self, y: Any) -> Any:
        return y.log()

    def forward_shape(self, shape: Any) -> Any:
        """The same. Raises ValueError for a number."""
        _check_dims(shape, 1)
        return shape

    inverse_shape = forward_shape


class StickBreakingTransform(AlikeTransform):
    """Real vectors to the simplex of one dimension more: each sigmoid breaks a part off the rest."""

    domain = constraints.real_vector
    codomain = constraints.simplex
    bijective = True

    def _call(self, x: Any) -> Any:
        info = dtypes.finfo(x.dtype)
        part = (x - _offset(x, x.shape[-1] + 1)).sigmoid().clamp(min=info.tiny, max=1.0 - info.eps)
        return F.pad(part, [0, 1], value=1) * F.pad((1 - part).cumprod(-1), [1, 0], value=1)

    def _inverse(self, y: Any) -> Any:
        cropped = y[..., :-1]
        rest = (1 - cropped.cumsum(-1)).clamp(min=dtypes.finfo(y.dtype).tiny)
        return cropped.log() - rest.log() + _offset(cropped, y.shape[-1])

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        """The sum of the logarithms of each part's derivative."""
        x = x - _offset(x, x.shape[-1] + 1)
        return (-x + F.logsigmoid(x) + y[..., :-1].log()).sum(-1)

    def forward_shape(self, shape: Any) -> Any:
        """One dimension more. Raises ValueError for a number."""
        _check_dims(shape, 1)
        return Size((*shape[:-1], shape[-1] + 1))

    def inverse_shape(self, shape: Any) -> Any:
        """One dimension less. Raises ValueError for a number."""
        _check_dims(shape, 1)
        return Size((*shape[:-1], shape[-1] - 1))


def _offset(like: Any, count: int) -> Any:
    """log(count - 1), log(count - 2), …: zeros are broken to equal parts."""
    return (count - like.new_ones(like.shape[-1]).cumsum(-1)).log()


class LowerCholeskyTransform(AlikeTransform):
    """Real matrices to lower triangular ones with a positive diagonal."""

    domain = constraints.independent(constraints.real, 2)
    codomain = constraints.lower_cholesky

    def _call(self, x: Any) -> Any:
        return x.tril(-1) + x.diagonal(dim1=-2, dim2=-1).exp().diag_embed()

    def _inverse(self, y: Any) -> Any:
        return y.tril(-1) + y.diagonal(dim1=-2, dim2=-1).log().diag_embed()


class PositiveDefiniteTransform(AlikeTransform):
    """Real matrices to positive definite ones."""

    domain = constraints.independent(constraints.real, 2)
    codomain = constraints.positive_definite

    def _call(self, x: Any) -> Any:
        factor = LowerCholeskyTransform()(x)
        return factor @ factor.mT

    def _inverse(self, y: Any) -> Any:
        return LowerCholeskyTransform().inv(ops.linalg_cholesky(y))


class _PartsTransform(Transform):
    """Transforms of parts of a tensor, along a dimension."""

    def __init__(self, tseq: Sequence[Transform], dim: int = 0, cache_size: int = 0) -> None:
        if not all(isinstance(each, Transform) for each in tseq):
            raise AssertionError("All elements of tseq must be Transform instances")
        super().__init__(cache_size)
        self.transforms = [each.with_cache(cache_size) for each in tseq] if cache_size else list(tseq)
        self.dim = dim

    @property
    def bijective(self) -> bool:  # type: ignore[override]
        """Whether all parts are."""
        return all(each.bijective for each in self.transforms)

    def _check_size(self, value: Any, size: int, what: str) -> None:
        if not -value.dim() <= self.dim < value.dim():
            raise AssertionError(f"dim {self.dim} out of range for tensor with {value.dim()} dimensions")
        if value.size(self.dim) != size:
            raise AssertionError(f"size({self.dim}) = {value.size(self.dim)} must equal {what} {size}")


class CatTransform(_PartsTransform):
    """Transforms of the parts of a tensor along a dimension, of `lengths` each."""

    def __init__(
        self, tseq: Sequence[Transform], dim: int = 0, lengths: Sequence[int] | None = None, cache_size: int = 0
    ) -> None:
        super().__init__(tseq, dim, cache_size)
        self.lengths = [1] * len(self.transforms) if lengths is None else list(lengths)
        if len(self.lengths) != len(self.transforms):
            raise AssertionError(f"lengths ({len(self.lengths)}) must match transforms ({len(self.transforms)})")

    @property
    def event_dim(self) -> int:
        """The most of them."""
        return max(each.event_dim for each in self.transforms)

    @property
    def length(self) -> int:
        """The sum of the lengths."""
        return sum(self.lengths)

    def _again(self, cache_size: int) -> Transform:
        return CatTransform(self.transforms, self.dim, self.lengths, cache_size)

    def _split(self, value: Any) -> Any:
        self._check_size(value, self.length, "length")
        return ops.split_with_sizes(value, self.lengths, self.dim)

    def _call(self, x: Any) -> Any:
        return ops.cat([each(part) for each, part in zip(self.transforms, self._split(x), strict=True)], self.dim)

    def _inverse(self, y: Any) -> Any:
        return ops.cat([each.inv(part) for each, part in zip(self.transforms, self._split(y), strict=True)], self.dim)

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        """The parts', side by side, or summed if the dimension belongs to one event."""
        found = []
        for each, before, after in zip(self.transforms, self._split(x), self._split(y), strict=True):
            one = each.log_abs_det_jacobian(before, after)
            found.append(_sum_rightmost(one, self.event_dim - each.event_dim))
        dim = (self.dim - x.dim() if self.dim >= 0 else self.dim) + self.event_dim
        return ops.cat(found, dim) if dim < 0 else sum(found)

    @property
    def domain(self) -> Any:
        """The parts'."""
        return constraints.cat([each.domain for each in self.transforms], self.dim, self.lengths)

    @property
    def codomain(self) -> Any:
        """The parts'."""
        return constraints.cat([each.codomain for each in self.transforms], self.dim, self.lengths)


class StackTransform(_PartsTransform):
    """Transforms of the slices of a tensor along a dimension."""

    def _again(self, cache_size: int) -> Transform:
        return StackTransform(self.transforms, self.dim, cache_size)

    def _slices(self, value: Any) -> list[Any]:
        self._check_size(value, len(self.transforms), "len(transforms)")
        return [value.select(self.dim, place) for place in range(value.size(self.dim))]

    def _call(self, x: Any) -> Any:
        return ops.stack([each(one) for each, one in zip(self.transforms, self._slices(x), strict=True)], self.dim)

    def _inverse(self, y: Any) -> Any:
        return ops.stack([each.inv(one) for each, one in zip(self.transforms, self._slices(y), strict=True)], self.dim)

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        """The slices', stacked."""
        rows = zip(self.transforms, self._slices(x), self._slices(y), strict=True)
        return ops.stack([each.log_abs_det_jacobian(before, after) for each, before, after in rows], self.dim)

    @property
    def domain(self) -> Any:
        """The slices'."""
        return constraints.stack([each.domain for each in self.transforms], self.dim)

    @property
    def codomain(self) -> Any:
        """The slices'."""
        return constraints.stack([each.codomain for each in self.transforms], self.dim)
