"""Distributions with a location and a scale, or with one rate: samples are functions of the arguments."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import gradwire.distributions.constraints as constraints
from gradwire._base import dtypes
from gradwire._functions.create import full_like, zeros_like
from gradwire._tensor import ops
from gradwire._tensor.tensor import Tensor
from gradwire.distributions._base import HALF_LOG_2PI, Distribution, broadcast_all, holds, normal, uniform

EULER = 0.57721566490153286060


class _LocationScale(Distribution):
    arg_constraints = {"loc": constraints.real, "scale": constraints.positive}  # noqa: RUF012
    support = constraints.real
    has_rsample = True

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        self.loc, self.scale = broadcast_all(loc, scale)
        super().__init__(self.loc.shape, (), validate_args)

    def _standard(self, value: Any) -> Any:
        return (self._checked(value) - self.loc) / self.scale

    @property
    def mean(self) -> Tensor:
        """The location."""
        return self.loc

    @property
    def mode(self) -> Tensor:
        """The location."""
        return self.loc


class Normal(_LocationScale):
    """exp(-((x - loc) / scale)² / 2). Like torch.distributions.Normal."""

    @property
    def stddev(self) -> Tensor:
        """The scale."""
        return self.scale

    @property
    def variance(self) -> Tensor:
        """The scale squared."""
        return self.scale.pow(2)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """See Distribution."""
        return self.loc + normal(self.loc, self._extended(sample_shape)) * self.scale

    def log_prob(self, value: Any) -> Tensor:
        """See Distribution."""
        made: Tensor = -0.5 * self._standard(value) ** 2 - self.scale.log() - HALF_LOG_2PI
        return made

    def cdf(self, value: Any) -> Tensor:
        """See Distribution."""
        return 0.5 * (1 + ops.erf(self._standard(value) / math.sqrt(2)))

    def icdf(self, value: Any) -> Tensor:
        """See Distribution."""
        return self.loc + self.scale * ops.erfinv(2 * value - 1) * math.sqrt(2)

    def entropy(self) -> Tensor:
        """See Distribution."""
        return 0.5 + HALF_LOG_2PI + self.scale.log()


class Laplace(_LocationScale):
    """exp(-|x - loc| / scale). Like torch.distributions.Laplace."""

    @property
    def variance(self) -> Tensor:
        """2 scale²."""
        return 2 * self.scale.pow(2)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """See Distribution."""
        least = dtypes.finfo(self.loc.dtype).eps - 1
        drawn = self.loc.new_empty(self._extended(sample_shape)).uniform_(least, 1)
        return self.loc - self.scale * drawn.sign() * ops.log1p(-drawn.abs())

    def log_prob(self, value: Any) -> Tensor:
        """See Distribution."""
        made: Tensor = -(2 * self.scale).log() - self._standard(value).abs()
        return made

    def cdf(self, value: Any) -> Tensor:
        """See Distribution."""
        z = self._standard(value)
        made: Tensor = 0.5 - 0.5 * z.sign() * ops.expm1(-z.abs())
        return made

    def icdf(self, value: Any) -> Tensor:
        """See Distribution."""
        term = value - 0.5
        made: Tensor = self.loc - self.scale * term.sign() * ops.log1p(-2 * term.abs())
        return made

    def entropy(self) -> Tensor:
        """See Distribution."""
        return 1 + (2 * self.scale).log()


class Cauchy(_LocationScale):
    """1 / (1 + ((x - loc) / scale)²), which has no mean. Like torch.distributions.Cauchy."""

    @property
    def mean(self) -> Tensor:
        """nan."""
        return full_like(self.loc, math.nan)

    @property
    def variance(self) -> Tensor:
        """inf."""
        return full_like(self.loc, math.inf)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """See Distribution."""
        return self.loc + self.loc.new_empty(self._extended(sample_shape)).cauchy_() * self.scale

    def log_prob(self, value: Any) -> Tensor:
        """See Distribution."""
        made: Tensor = -math.log(math.pi) - self.scale.log() - ops.log1p(self._standard(value) ** 2)
        return made

    def cdf(self, value: Any) -> Tensor:
        """See Distribution."""
        return ops.atan(self._standard(value)) / math.pi + 0.5

    def icdf(self, value: Any) -> Tensor:
        """See Distribution."""
        return ops.tan(math.pi * (value - 0.5)) * self.scale + self.loc

    def entropy(self) -> Tensor:
        """See Distribution."""
        return math.log(4 * math.pi) + self.scale.log()


class HalfCauchy(Distribution):
    """The absolute value of a Cauchy variable around zero. Like torch.distributions.HalfCauchy."""

    arg_constraints = {"scale": constraints.positive}  # noqa: RUF012
    support = constraints.nonnegative
    has_rsample = True

    def __init__(self, scale: Any, validate_args: bool | None = None) -> None:
        (self.scale,) = broadcast_all(scale)
        super().__init__(self.scale.shape, (), validate_args)

    @property
    def mean(self) -> Tensor:
        """inf."""
        return full_like(self.scale, math.inf)

    @property
    def mode(self) -> Tensor:
        """0."""
        return zeros_like(self.scale)

    @property
    def variance(self) -> Tensor:
        """inf."""
        return full_like(self.scale, math.inf)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """See Distribution."""
        return (self.scale.new_empty(self._extended(sample_shape)).cauchy_() * self.scale).abs()

    def log_prob(self, value: Any) -> Tensor:
        """See Distribution."""
        z = self._checked(value) / self.scale
        made: Tensor = math.log(2 / math.pi) - self.scale.log() - ops.log1p(z**2)
        return made

    def cdf(self, value: Any) -> Tensor:
        """See Distribution."""
        return 2 * ops.atan(self._checked(value) / self.scale) / math.pi

    def icdf(self, value: Any) -> Tensor:
        """See Distribution."""
        return ops.tan(math.pi * value / 2) * self.scale

    def entropy(self) -> Tensor:
        """See Distribution."""
        return math.log(2 * math.pi) + self.scale.log()


class Gumbel(_LocationScale):
    """exp(-z - exp(-z)) with z = (x - loc) / scale. Like torch.distributions.Gumbel."""

    @property
    def mean(self) -> Tensor:
        """loc + 0.5772 scale."""
        return self.loc + self.scale * EULER

    @property
    def variance(self) -> Tensor:
        """π² scale² / 6."""
        return math.pi**2 / 6 * self.scale.pow(2)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """See Distribution."""
        return self.loc - self.scale * (-uniform(self.loc, self._extended(sample_shape)).log()).log()

    def log_prob(self, value: Any) -> Tensor:
        """See Distribution."""
        z = self._standard(value)
        made: Tensor = -z - (-z).exp() - self.scale.log()
        return made

    def cdf(self, value: Any) -> Tensor:
        """See Distribution."""
        made: Tensor = (-(-self._standard(value)).exp()).exp()
        return made

    def icdf(self, value: Any) -> Tensor:
        """See Distribution."""
        return self.loc - self.scale * (-value.log()).log()

    def entropy(self) -> Tensor:
        """See Distribution."""
        return self.scale.log() + (1 + EULER)


class HalfNormal(Distribution):
    """The absolute value of a normal variable around zero. Like torch.distributions.HalfNormal."""

    arg_constraints = {"scale": constraints.positive}  # noqa: RUF012
    support = constraints.nonnegative
    has_rsample = True

    def __init__(self, scale: Any, validate_args: bool | None = None) -> None:
        (self.scale,) = broadcast_all(scale)
        super().__init__(self.scale.shape, (), validate_args)

    @property
    def mean(self) -> Tensor:
        """scale √(2 / π)."""
        return self.scale * math.sqrt(2 / math.pi)

    @property
    def mode(self) -> Tensor:
        """0."""
        return zeros_like(self.scale)

    @property
    def variance(self) -> Tensor:
        """scale² (1 - 2 / π)."""
        return self.scale.pow(2) * (1 - 2 / math.pi)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """See Distribution."""
        return (normal(self.scale, self._extended(sample_shape)) * self.scale).abs()

    def log_prob(self, value: Any) -> Tensor:
        """See Distribution."""
        z = self._checked(value) / self.scale
        made: Tensor = -0.5 * z**2 - self.scale.log() - HALF_LOG_2PI + math.log(2)
        return made

    def cdf(self, value: Any) -> Tensor:
        """See Distribution."""
        return ops.erf(self._checked(value) / self.scale / math.sqrt(2))

    def icdf(self, value: Any) -> Tensor:
        """See Distribution."""
        return self.scale * ops.erfinv(value) * math.sqrt(2)

    def entropy(self) -> Tensor:
        """See Distribution."""
        return 0.5 + HALF_LOG_2PI + self.scale.log() - math.log(2)


class Exponential(Distribution):
    """rate exp(-rate x). Like torch.distributions.Exponential."""

    arg_constraints = {"rate": constraints.positive}  # noqa: RUF012
    support = constraints.nonnegative
    has_rsample = True

    def __init__(self, rate: Any, validate_args: bool | None = None) -> None:
        (self.rate,) = broadcast_all(rate)
        super().__init__(self.rate.shape, (), validate_args)

    @property
    def mean(self) -> Tensor:
        """1 / rate."""
        return self.rate.reciprocal()

    @property
    def mode(self) -> Tensor:
        """0."""
        return zeros_like(self.rate)

    @property
    def stddev(self) -> Tensor:
        """1 / rate."""
        return self.rate.reciprocal()

    @property
    def variance(self) -> Tensor:
        """1 / rate²."""
        return self.rate.pow(-2)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """See Distribution."""
        return self.rate.new_empty(self._extended(sample_shape)).exponential_() / self.rate

    def log_prob(self, value: Any) -> Tensor:
        """See Distribution."""
        return self.rate.log() - self.rate * self._checked(value)

    def cdf(self, value: Any) -> Tensor:
        """See Distribution."""
        return 1 - (-self.rate * self._checked(value)).exp()

    def icdf(self, value: Any) -> Tensor:
        """See Distribution."""
        made: Tensor = -ops.log1p(-value) / self.rate
        return made

    def entropy(self) -> Tensor:
        """See Distribution."""
        return 1.0 - self.rate.log()


class Uniform(Distribution):
    """1 / (high - low) from low up to high. Raises ValueError where low is not below high."""

    has_rsample = True
    arg_constraints = {"low": constraints.real, "high": constraints.real}  # noqa: RUF012

    def __init__(self, low: Any, high: Any, validate_args: bool | None = None) -> None:
        self.low, self.high = broadcast_all(low, high)
        super().__init__(self.low.shape, (), validate_args)
        unordered = "Uniform is not defined when low>= high"
        if self._validate_args and not holds(self.low < self.high, unordered):
            raise ValueError(unordered)

    @constraints.dependent_property(is_discrete=False, event_dim=0)
    def support(self) -> constraints.Constraint:
        """From low to high."""
        return constraints.interval(self.low, self.high)

    @property
    def mean(self) -> Tensor:
        """The middle."""
        return (self.high + self.low) / 2

    @property
    def mode(self) -> Tensor:
        """nan: no value is more probable than another."""
        return math.nan * self.high

    @property
    def variance(self) -> Tensor:
        """(high - low)² / 12."""
        return (self.high - self.low).pow(2) / 12

    @property
    def stddev(self) -> Tensor:
        """(high - low) / √12."""
        return (self.high - self.low) / 12**0.5

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """See Distribution."""
        drawn = self.low.new_empty(self._extended(sample_shape)).uniform_()
        return self.low + drawn * (self.high - self.low)

    def log_prob(self, value: Any) -> Tensor:
        """See Distribution."""
        value = self._checked(value)
        inside = (self.low <= value) & (self.high > value)
        return inside.to(self.low.dtype).log() - (self.high - self.low).log()

    def cdf(self, value: Any) -> Tensor:
        """See Distribution."""
        made: Tensor = ((self._checked(value) - self.low) / (self.high - self.low)).clamp(0, 1)
        return made

    def icdf(self, value: Any) -> Tensor:
        """See Distribution."""
        made: Tensor = value * (self.high - self.low) + self.low
        return made

    def entropy(self) -> Tensor:
        """See Distribution."""
        return (self.high - self.low).log()
