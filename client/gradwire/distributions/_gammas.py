"""Gamma and distributions based on it: Chi2, Beta, Dirichlet, StudentT. Samples are differentiated implicitly."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import gradwire.distributions.constraints as constraints
from gradwire._base import dtypes
from gradwire._tensor import ops
from gradwire._tensor.tensor import Tensor
from gradwire.distributions._base import Distribution, broadcast_all, normal
from gradwire.nn.functional import one_hot


class Gamma(Distribution):
    """rate^c x^(c - 1) exp(-rate x) / Γ(c). Like torch.distributions.Gamma."""

    arg_constraints = {"concentration": constraints.positive, "rate": constraints.positive}  # noqa: RUF012
    support = constraints.nonnegative
    has_rsample = True

    def __init__(self, concentration: Any, rate: Any, validate_args: bool | None = None) -> None:
        self.concentration, self.rate = broadcast_all(concentration, rate)
        super().__init__(self.concentration.shape, (), validate_args)

    @property
    def mean(self) -> Tensor:
        """concentration / rate."""
        return self.concentration / self.rate

    @property
    def mode(self) -> Tensor:
        """(concentration - 1) / rate, 0 where that is below."""
        return ((self.concentration - 1) / self.rate).clamp(min=0)

    @property
    def variance(self) -> Tensor:
        """concentration / rate²."""
        return self.concentration / self.rate.pow(2)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """See Distribution."""
        made: Tensor = ops.standard_gamma(self.concentration.expand(self._extended(sample_shape))) / self.rate
        made.detach().clamp_(min=dtypes.finfo(made.dtype).tiny)  # changes the values without a node
        return made

    def log_prob(self, value: Any) -> Tensor:
        """See Distribution."""
        value = self._checked(value)
        c = self.concentration
        made: Tensor = ops.xlogy(c, self.rate) + ops.xlogy(c - 1, value) - self.rate * value - ops.lgamma(c)
        return made

    def cdf(self, value: Any) -> Tensor:
        """See Distribution."""
        made: Tensor = ops.igamma(self.concentration, self.rate * self._checked(value))
        return made

    def entropy(self) -> Tensor:
        """See Distribution."""
        c = self.concentration
        return c - self.rate.log() + ops.lgamma(c) + (1.0 - c) * ops.digamma(c)


class Chi2(Gamma):
    """Gamma(df / 2, 1 / 2). Like torch.distributions.Chi2."""

    arg_constraints = {"df": constraints.positive}  # noqa: RUF012

    def __init__(self, df: Any, validate_args: bool | None = None) -> None:
        (self.df,) = broadcast_all(df)
        super().__init__(0.5 * self.df, 0.5, validate_args)


class Dirichlet(Distribution):
    """Π x_i^(c_i - 1) over vectors that sum to 1. Like torch.distributions.Dirichlet."""

    arg_constraints = {"concentration": constraints.positive}  # noqa: RUF012
    support = constraints.simplex
    has_rsample = True

    def __init__(self, concentration: Tensor, validate_args: bool | None = None) -> None:
        if concentration.ndim < 1:
            raise ValueError("`concentration` parameter must be at least one-dimensional.")
        self.concentration = concentration
        super().__init__(concentration.shape[:-1], concentration.shape[-1:], validate_args)

    @property
    def mean(self) -> Tensor:
        """concentration / its sum."""
        return self.concentration / self.concentration.sum(-1, True)

    @property
    def mode(self) -> Tensor:
        """c - 1 / its sum, 0 where that is below; a corner where all of them are."""
        above = (self.concentration - 1).clamp(min=0.0)
        inside = above / above.sum(-1, True)
        corner = one_hot(inside.argmax(-1), inside.shape[-1]).to(inside.dtype)
        return ops.where((self.concentration < 1).all(-1, keepdim=True), corner, inside)

    @property
    def variance(self) -> Tensor:
        """c (s - c) / (s² (s + 1))."""
        total = self.concentration.sum(-1, True)
        return self.concentration * (total - self.concentration) / (total.pow(2) * (total + 1))

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """See Distribution."""
        made: Tensor = ops.sample_dirichlet(self.concentration.expand(self._extended(sample_shape)))
        return made

    def log_prob(self, value: Any) -> Tensor:
        """See Distribution."""
        c = self.concentration
        made: Tensor = ops.xlogy(c - 1.0, self._checked(value)).sum(-1) + ops.lgamma(c.sum(-1)) - ops.lgamma(c).sum(-1)
        return made

    def entropy(self) -> Tensor:
        """See Distribution."""
        c = self.concentration
        total, size = c.sum(-1), c.shape[-1]
        return (
            ops.lgamma(c).sum(-1)
            - ops.lgamma(total)
            - (size - total) * ops.digamma(total)
            - ((c - 1.0) * ops.digamma(c)).sum(-1)
        )


class Beta(Distribution):
    """x^(a - 1) (1 - x)^(b - 1) on (0, 1). Like torch.distributions.Beta."""

    arg_constraints = {"concentration1": constraints.positive, "concentration0": constraints.positive}  # noqa: RUF012
    support = constraints.unit_interval
    has_rsample = True

    def __init__(self, concentration1: Any, concentration0: Any, validate_args: bool | None = None) -> None:
        self.concentration1, self.concentration0 = broadcast_all(concentration1, concentration0)
        super().__init__(self.concentration1.shape, (), validate_args)

    @property
    def _pair(self) -> Dirichlet:
        return Dirichlet(ops.stack([self.concentration1, self.concentration0], -1), validate_args=False)

    @property
    def mean(self) -> Tensor:
        """a / (a + b)."""
        return self.concentration1 / (self.concentration1 + self.concentration0)

    @property
    def mode(self) -> Tensor:
        """(a - 1) / (a + b - 2); 0 or 1 where that is outside."""
        return self._pair.mode[..., 0]

    @property
    def variance(self) -> Tensor:
        """a b / ((a + b)² (a + b + 1))."""
        total = self.concentration1 + self.concentration0
        return self.concentration1 * self.concentration0 / (total.pow(2) * (total + 1))

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """See Distribution."""
        return self._pair.rsample(sample_shape).select(-1, 0)

    def log_prob(self, value: Any) -> Tensor:
        """See Distribution."""
        value = self._checked(value)
        return self._pair.log_prob(ops.stack([value, 1.0 - value], -1))

    def entropy(self) -> Tensor:
        """See Distribution."""
        return self._pair.entropy()


class StudentT(Distribution):
    """(1 + z² / df)^(-(df + 1) / 2) with z = (x - loc) / scale. Like torch.distributions.StudentT."""

    arg_constraints = {  # noqa: RUF012
        "df": constraints.positive,
        "loc": constraints.real,
        "scale": constraints.positive,
    }
    support = constraints.real
    has_rsample = True

    def __init__(self, df: Any, loc: Any = 0.0, scale: Any = 1.0, validate_args: bool | None = None) -> None:
        self.df, self.loc, self.scale = broadcast_all(df, loc, scale)
        super().__init__(self.df.shape, (), validate_args)

    @property
    def mean(self) -> Tensor:
        """The location where df is above 1, else nan."""
        return ops.where(self.df > 1, self.loc, math.nan)

    @property
    def mode(self) -> Tensor:
        """The location."""
        return self.loc

    @property
    def variance(self) -> Tensor:
        """scale² df / (df - 2) where df is above 2, inf above 1, else nan."""
        finite = self.scale.pow(2) * self.df / (self.df - 2)
        return ops.where(self.df > 2, finite, ops.where(self.df > 1, math.inf, math.nan).to(self.df.dtype))

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """See Distribution."""
        drawn = normal(self.df, self._extended(sample_shape))
        chi2 = Chi2(self.df, validate_args=False).rsample(sample_shape)
        return self.loc + self.scale * (drawn * ops.rsqrt(chi2 / self.df))

    def log_prob(self, value: Any) -> Tensor:
        """See Distribution."""
        z = (self._checked(value) - self.loc) / self.scale
        made: Tensor = -0.5 * (self.df + 1.0) * ops.log1p(z**2 / self.df) - self._log_volume()
        return made

    def _log_volume(self) -> Tensor:
        """log(scale √df B(df / 2, 1 / 2)): the density's normalization."""
        return (
            self.scale.log()
            + 0.5 * self.df.log()
            + 0.5 * math.log(math.pi)
            + ops.lgamma(0.5 * self.df)
            - ops.lgamma(0.5 * (self.df + 1.0))
        )

    def entropy(self) -> Tensor:
        """See Distribution."""
        more = 0.5 * (self.df + 1.0)
        return more * (ops.digamma(more) - ops.digamma(0.5 * self.df)) + self._log_volume()
