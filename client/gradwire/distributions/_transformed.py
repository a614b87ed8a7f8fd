"""Distributions of a transformed variable: InverseGamma, Kumaraswamy, LogisticNormal, Pareto, Weibull."""

from __future__ import annotations

import math
from typing import Any

import gradwire.distributions.constraints as constraints
from gradwire._functions.create import ones_like, zeros_like
from gradwire._tensor import ops
from gradwire._tensor.tensor import Tensor
from gradwire.distributions._base import broadcast_all
from gradwire.distributions._gammas import Gamma
from gradwire.distributions._joined import TransformedDistribution
from gradwire.distributions._location import EULER, Exponential, Normal, Uniform
from gradwire.distributions.transforms import AffineTransform, ExpTransform, PowerTransform, StickBreakingTransform


class InverseGamma(TransformedDistribution):
    """1 / x of a Gamma variable x. Like torch.distributions.InverseGamma."""

    arg_constraints = {"concentration": constraints.positive, "rate": constraints.positive}  # noqa: RUF012
    support = constraints.positive

    def __init__(self, concentration: Any, rate: Any, validate_args: bool | None = None) -> None:
        base = Gamma(concentration, rate, validate_args=validate_args)
        super().__init__(base, PowerTransform(-base.rate.new_ones(())), validate_args)

    @property
    def concentration(self) -> Tensor:
        """The base's."""
        return self.base_dist.concentration

    @property
    def rate(self) -> Tensor:
        """The base's."""
        return self.base_dist.rate

    @property
    def mean(self) -> Tensor:
        """rate / (concentration - 1) where concentration is above 1, else inf."""
        return ops.where(self.concentration > 1, self.rate / (self.concentration - 1), math.inf)

    @property
    def mode(self) -> Tensor:
        """rate / (concentration + 1)."""
        return self.rate / (self.concentration + 1)

    @property
    def variance(self) -> Tensor:
        """rate² / ((c - 1)² (c - 2)) where the concentration c is above 2, else inf."""
        c = self.concentration
        return ops.where(c > 2, self.rate.square() / ((c - 1).square() * (c - 2)), math.inf)

    def entropy(self) -> Tensor:
        """See Distribution."""
        c = self.concentration
        return c + self.rate.log() + ops.lgamma(c) - (1 + c) * ops.digamma(c)


class Kumaraswamy(TransformedDistribution):
    """a b x^(a - 1) (1 - x^a)^(b - 1) on (0, 1). Like torch.distributions.Kumaraswamy."""

    arg_constraints = {"concentration1": constraints.positive, "concentration0": constraints.positive}  # noqa: RUF012
    support = constraints.unit_interval

    def __init__(self, concentration1: Any, concentration0: Any, validate_args: bool | None = None) -> None:
        self.concentration1, self.concentration0 = broadcast_all(concentration1, concentration0)
        zero = self.concentration0.detach()
        base = Uniform(zeros_like(zero), ones_like(zero), validate_args=validate_args)
        steps = [
            PowerTransform(self.concentration0.reciprocal()),
            AffineTransform(1.0, -1.0),
            PowerTransform(self.concentration1.reciprocal()),
        ]
        super().__init__(base, steps, validate_args)

    def _moment(self, n: int) -> Tensor:
        part = 1 + n / self.concentration1
        logarithm = ops.lgamma(part) + ops.lgamma(self.concentration0) - ops.lgamma(part + self.concentration0)
        return self.concentration0 * logarithm.exp()

    @property
    def mean(self) -> Tensor:
        """b B(1 + 1 / a, b)."""
        return self._moment(1)

    @property
    def variance(self) -> Tensor:
        """The second moment without the mean's square."""
        return self._moment(2) - self.mean.pow(2)

    @property
    def mode(self) -> Tensor:
        """((a - 1) / (a b - 1))^(1 / a) as PyTorch writes it; nan where an argument is below 1."""
        a, b = self.concentration1, self.concentration0
        found = b.reciprocal() * (-b).log1p() - (-b * a).log1p()
        return ops.where((b < 1) | (a < 1), math.nan, found).exp()

    def entropy(self) -> Tensor:
        """See Distribution."""
        a, b = self.concentration1, self.concentration0
        harmonic = ops.digamma(b + 1) + EULER
        return (1 - b.reciprocal()) + (1 - a.reciprocal()) * harmonic - a.log() - b.log()


class LogisticNormal(TransformedDistribution):
    """Normal variables, taken to the simplex of one dimension more. Like torch.distributions.LogisticNormal."""

    arg_constraints = {"loc": constraints.real, "scale": constraints.positive}  # noqa: RUF012
    support = constraints.simplex

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        base = Normal(loc, scale, validate_args=validate_args)
        base = base if base.batch_shape else base.expand((1,))
        super().__init__(base, StickBreakingTransform(), validate_args)

    @property
    def loc(self) -> Tensor:
        """The normal variables' location."""
        return self.base_dist.base_dist.loc

    @property
    def scale(self) -> Tensor:
        """The normal variables' scale."""
        return self.base_dist.base_dist.scale


class Pareto(TransformedDistribution):
    """scale exp(x) of an Exponential variable x. Like torch.distributions.Pareto."""

    arg_constraints = {"alpha": constraints.positive, "scale": constraints.positive}  # noqa: RUF012

    def __init__(self, scale: Any, alpha: Any, validate_args: bool | None = None) -> None:
        self.scale, self.alpha = broadcast_all(scale, alpha)
        base = Exponential(self.alpha, validate_args=validate_args)
        super().__init__(base, [ExpTransform(), AffineTransform(0, self.scale)], validate_args)

    @constraints.dependent_property(is_discrete=False, event_dim=0)
    def support(self) -> Any:
        """From the scale on."""
        return constraints.greater_than_eq(self.scale)

    @property
    def mean(self) -> Tensor:
        """a scale / (a - 1) where alpha a is above 1, else inf."""
        a = self.alpha.clamp(min=1)
        return a * self.scale / (a - 1)

    @property
    def mode(self) -> Tensor:
        """The scale."""
        return self.scale

    @property
    def variance(self) -> Tensor:
        """scale² a / ((a - 1)² (a - 2)) where alpha a is above 2, else inf."""
        a = self.alpha.clamp(min=2)
        return self.scale.pow(2) * a / ((a - 1).pow(2) * (a - 2))

    def entropy(self) -> Tensor:
        """See Distribution."""
        return (self.scale / self.alpha).log() + (1 + self.alpha.reciprocal())


class Weibull(TransformedDistribution):
    """scale x^(1 / concentration) of an Exponential variable x. Like torch.distributions.Weibull."""

    arg_constraints = {"scale": constraints.positive, "concentration": constraints.positive}  # noqa: RUF012
    support = constraints.positive

    def __init__(self, scale: Any, concentration: Any, validate_args: bool | None = None) -> None:
        self.scale, self.concentration = broadcast_all(scale, concentration)
        self.concentration_reciprocal = self.concentration.reciprocal()
        base = Exponential(ones_like(self.scale.detach()), validate_args=validate_args)
        steps = [PowerTransform(self.concentration_reciprocal), AffineTransform(0, self.scale)]
        super().__init__(base, steps, validate_args)

    def _moment(self, n: int) -> Tensor:
        made: Tensor = ops.lgamma(1 + n * self.concentration_reciprocal)
        return made

    @property
    def mean(self) -> Tensor:
        """scale Γ(1 + 1 / c)."""
        return self.scale * self._moment(1).exp()

    @property
    def mode(self) -> Tensor:
        """scale ((c - 1) / c)^(1 / c)."""
        c = self.concentration
        return self.scale * ((c - 1) / c) ** c.reciprocal()

    @property
    def variance(self) -> Tensor:
        """scale² (Γ(1 + 2 / c) - Γ(1 + 1 / c)²)."""
        return self.scale.pow(2) * (self._moment(2).exp() - (2 * self._moment(1)).exp())

    def entropy(self) -> Tensor:
        """See Distribution."""
        inverse = self.concentration_reciprocal
        return EULER * (1 - inverse) + (self.scale * inverse).log() + 1
