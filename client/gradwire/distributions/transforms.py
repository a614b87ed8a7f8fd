"""Invertible functions with the logarithm of their derivative (torch.distributions.transforms); here by elements."""

from __future__ import annotations

import math
from typing import Any

import gradwire.distributions.constraints as constraints
import gradwire.nn.functional as F
from gradwire._base import dtypes
from gradwire._functions.composed import broadcast_shapes
from gradwire._functions.create import full_like
from gradwire._tensor.tensor import Tensor
from gradwire.distributions._transform import (
    AlikeTransform,
    ComposeTransform,
    IndependentTransform,
    Transform,
    identity_transform,
)
from gradwire.distributions._transform import (
    _Inverse as _InverseTransform,  # noqa: F401 -- libraries name PyTorch's class
)
from gradwire.distributions._utils import broadcast_all
from gradwire.distributions._vector_transforms import (
    CatTransform,
    CorrCholeskyTransform,
    LowerCholeskyTransform,
    PositiveDefiniteTransform,
    ReshapeTransform,
    SoftmaxTransform,
    StackTransform,
    StickBreakingTransform,
)

__all__ = [
    "AbsTransform",
    "AffineTransform",
    "CatTransform",
    "ComposeTransform",
    "CorrCholeskyTransform",
    "CumulativeDistributionTransform",
    "ExpTransform",
    "IndependentTransform",
    "LowerCholeskyTransform",
    "PositiveDefiniteTransform",
    "PowerTransform",
    "ReshapeTransform",
    "SigmoidTransform",
    "SoftmaxTransform",
    "SoftplusTransform",
    "StackTransform",
    "StickBreakingTransform",
    "TanhTransform",
    "Transform",
    "identity_transform",
]


def _broadcast(shape: Any, *values: Any) -> Any:
    return broadcast_shapes(shape, *(value.shape if isinstance(value, Tensor) else () for value in values))


class ExpTransform(AlikeTransform):
    """exp(x)."""

    domain = constraints.real
    codomain = constraints.positive
    bijective = True
    sign = 1

    def _call(self, x: Any) -> Any:
        return x.exp()

    def _inverse(self, y: Any) -> Any:
        return y.log()

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        """x."""
        return x


class PowerTransform(Transform):
    """x to a power."""

    domain = constraints.positive
    codomain = constraints.positive
    bijective = True

    def __init__(self, exponent: Any, cache_size: int = 0) -> None:
        super().__init__(cache_size)
        (self.exponent,) = broadcast_all(exponent)

    def _again(self, cache_size: int) -> Transform:
        return PowerTransform(self.exponent, cache_size)

    @property
    def sign(self) -> Any:
        """The exponent's."""
        return self.exponent.sign()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PowerTransform) and bool((self.exponent == other.exponent).all())

    __hash__ = Transform.__hash__

    def _call(self, x: Any) -> Any:
        return x.pow(self.exponent)

    def _inverse(self, y: Any) -> Any:
        return y.pow(1 / self.exponent)

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        """log |exponent y / x|."""
        return (self.exponent * y / x).abs().log()

    def forward_shape(self, shape: Any) -> Any:
        """The shape, broadcast with the exponent's."""
        return _broadcast(shape, self.exponent)

    inverse_shape = forward_shape


def _inside(value: Any) -> Any:
    """Numbers between 0 and 1, both excluded."""
    info = dtypes.finfo(value.dtype)
    return value.clamp(min=info.tiny, max=1.0 - info.eps)


class SigmoidTransform(AlikeTransform):
    """1 / (1 + exp(-x))."""

    domain = constraints.real
    codomain = constraints.unit_interval
    bijective = True
    sign = 1

    def _call(self, x: Any) -> Any:
        return _inside(x.sigmoid())

    def _inverse(self, y: Any) -> Any:
        y = _inside(y)
        return y.log() - (-y).log1p()

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        """-softplus(-x) - softplus(x)."""
        return -F.softplus(-x) - F.softplus(x)


class SoftplusTransform(AlikeTransform):
    """log(1 + exp(x))."""

    domain = constraints.real
    codomain = constraints.positive
    bijective = True
    sign = 1

    def _call(self, x: Any) -> Any:
        return F.softplus(x)

    def _inverse(self, y: Any) -> Any:
        return (-y).expm1().neg().log() + y

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        """-softplus(-x)."""
        return -F.softplus(-x)


class TanhTransform(AlikeTransform):
    """tanh(x)."""

    domain = constraints.real
    codomain = constraints.interval(-1.0, 1.0)
    bijective = True
    sign = 1

    def _call(self, x: Any) -> Any:
        return x.tanh()

    def _inverse(self, y: Any) -> Any:
        return y.atanh()

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        """log(1 - tanh²(x)), written so that it does not vanish."""
        return 2.0 * (math.log(2.0) - x - F.softplus(-2.0 * x))


class AbsTransform(AlikeTransform):
    """|x|; its inverse is the positive number."""

    domain = constraints.real
    codomain = constraints.positive

    def _call(self, x: Any) -> Any:
        return x.abs()

    def _inverse(self, y: Any) -> Any:
        return y


class AffineTransform(Transform):
    """loc + scale x."""

    bijective = True

    def __init__(self, loc: Any, scale: Any, event_dim: int = 0, cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.loc = loc
        self.scale = scale
        self._event_dim = event_dim

    def _again(self, cache_size: int) -> Transform:
        return AffineTransform(self.loc, self.scale, self._event_dim, cache_size)

    @property
    def event_dim(self) -> int:
        """Dimensions that belong together."""
        return self._event_dim

    @property
    def domain(self) -> Any:
        """Real numbers."""
        return constraints.independent(constraints.real, self._event_dim) if self._event_dim else constraints.real

    codomain = domain

    @property
    def sign(self) -> Any:
        """The scale's."""
        if isinstance(self.scale, Tensor):
            return self.scale.sign()
        return 1 if self.scale > 0 else -1 if self.scale < 0 else 0

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, AffineTransform):
            return False
        pairs = ((self.loc, other.loc), (self.scale, other.scale))
        return all(bool(same.all()) if isinstance(same := one == two, Tensor) else same for one, two in pairs)

    __hash__ = Transform.__hash__

    def _call(self, x: Any) -> Any:
        return self.loc + self.scale * x

    def _inverse(self, y: Any) -> Any:
        return (y - self.loc) / self.scale

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        """log |scale|, in x's shape without the dimensions that belong together."""
        shape, count = x.shape, self._event_dim
        found = self.scale.abs().log() if isinstance(self.scale, Tensor) else full_like(x, math.log(abs(self.scale)))
        if count:
            found = found.reshape((*found.shape[:-count], -1)).sum(-1)
            shape = shape[:-count]
        return found.expand(shape)

    def forward_shape(self, shape: Any) -> Any:
        """The shape, broadcast with the arguments'."""
        return _broadcast(shape, self.loc, self.scale)

    inverse_shape = forward_shape


class CumulativeDistributionTransform(Transform):
    """A distribution's cdf."""

    bijective = True
    codomain = constraints.unit_interval
    sign = 1

    def __init__(self, distribution: Any, cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.distribution = distribution

    def _again(self, cache_size: int) -> Transform:
        return CumulativeDistributionTransform(self.distribution, cache_size)

    @property
    def domain(self) -> Any:
        """The distribution's support."""
        return self.distribution.support

    def _call(self, x: Any) -> Any:
        return self.distribution.cdf(x)

    def _inverse(self, y: Any) -> Any:
        return self.distribution.icdf(y)

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        """The log of the density."""
        return self.distribution.log_prob(x)
