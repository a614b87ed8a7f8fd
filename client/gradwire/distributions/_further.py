"""Further distributions of one number: ContinuousBernoulli, FisherSnedecor, GeneralizedPareto, VonMises."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import gradwire.distributions.constraints as constraints
import gradwire.nn.functional as F
from gradwire._base import dtypes
from gradwire._base.modes import enable_grad, no_grad
from gradwire._functions.create import zeros_like
from gradwire._tensor import ops
from gradwire._tensor.tensor import Tensor
from gradwire.autograd import grad
from gradwire.distributions._base import Distribution, broadcast_all
from gradwire.distributions._discrete import _Odds
from gradwire.distributions._gammas import Gamma
from gradwire.distributions._utils import clamp_probs


class ExponentialFamily(Distribution):
    """The base of distributions with natural parameters; their entropy follows from these.

    A subclass defines `_natural_params`, `_log_normalizer` and `_mean_carrier_measure`.
    """

    _mean_carrier_measure: float = 0

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        raise NotImplementedError(f"{type(self).__name__} gives no _natural_params")

    def _log_normalizer(self, *natural_params: Tensor) -> Tensor:
        raise NotImplementedError(f"{type(self).__name__} gives no _log_normalizer")

    def entropy(self) -> Tensor:
        """See Distribution."""
        with enable_grad():
            held = [each.detach().requires_grad_() for each in self._natural_params]
            volume = self._log_normalizer(*held)
            slopes = grad(volume.sum(), held, create_graph=True)
        result = -self._mean_carrier_measure + volume
        for each, slope in zip(held, slopes, strict=True):
            result = result - (each * slope).reshape((*self._batch_shape, -1)).sum(-1)
        return result


class ContinuousBernoulli(_Odds, ExponentialFamily):
    """p^x (1 - p)^(1 - x), normalized on [0, 1]. Near 1/2 Taylor series replace the formulas, within `lims`.

    Like torch.distributions.ContinuousBernoulli.
    """

    support = constraints.unit_interval
    has_rsample = True

    def __init__(
        self,
        probs: Any = None,
        logits: Any = None,
        lims: tuple[float, float] = (0.499, 0.501),
        validate_args: bool | None = None,
    ) -> None:
        shape = self._take(probs, logits).shape
        self._lims = lims
        super().__init__(shape, (), validate_args)
        if probs is not None:
            self.probs = clamp_probs(self.__dict__["probs"])

    def __getattr__(self, name: str) -> Any:
        found = super().__getattr__(name)
        if name == "probs":
            with enable_grad():
                found = self.probs = clamp_probs(found)
        return found

    def _is_stable(self) -> Tensor:
        return (self.probs <= self._lims[0]) | (self.probs > self._lims[1])

    def _cut(self) -> Tensor:
        made: Tensor = ops.where(self._is_stable(), self.probs, self._lims[0])
        return made

    def _cont_bern_log_norm(self) -> Tensor:
        cut = self._cut()
        below, above = ops.where(cut <= 0.5, cut, 0.0), ops.where(cut >= 0.5, cut, 1.0)
        away = ops.where(cut <= 0.5, (-2.0 * below).log1p(), (2.0 * above - 1.0).log())
        exact = ((-cut).log1p() - cut.log()).abs().log() - away
        x = (self.probs - 0.5).pow(2)
        made: Tensor = ops.where(self._is_stable(), exact, math.log(2.0) + (4.0 / 3.0 + 104.0 / 45.0 * x) * x)
        return made

    @property
    def mean(self) -> Tensor:
        """p / (2 p - 1) + 1 / (2 atanh(1 - 2 p))."""
        cut = self._cut()
        x = self.probs - 0.5
        exact = cut / (2.0 * cut - 1.0) + 1.0 / ((-cut).log1p() - cut.log())
        made: Tensor = ops.where(self._is_stable(), exact, 0.5 + (1.0 / 3.0 + 16.0 / 45.0 * x.pow(2)) * x)
        return made

    @property
    def variance(self) -> Tensor:
        """p (p - 1) / (1 - 2 p)² + 1 / (2 atanh(1 - 2 p))²."""
        cut = self._cut()
        x = (self.probs - 0.5).pow(2)
        exact = cut * (cut - 1.0) / (1.0 - 2.0 * cut).pow(2) + 1.0 / ((-cut).log1p() - cut.log()).pow(2)
        made: Tensor = ops.where(self._is_stable(), exact, 1.0 / 12.0 - (1.0 / 15.0 - 128.0 / 945.0 * x) * x)
        return made

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """See Distribution."""
        return self.icdf(self.probs.new_empty(self._extended(sample_shape)).uniform_())

    def log_prob(self, value: Any) -> Tensor:
        """See Distribution."""
        logits, held = broadcast_all(self.logits, self._checked(value))
        crossed: Tensor = F.binary_cross_entropy_with_logits(logits, held, reduction="none")
        return -crossed + self._cont_bern_log_norm()

    def cdf(self, value: Any) -> Tensor:
        """See Distribution."""
        value, cut = self._checked(value), self._cut()
        exact = (cut.pow(value) * (1.0 - cut).pow(1.0 - value) + cut - 1.0) / (2.0 * cut - 1.0)
        inside = ops.where(self._is_stable(), exact, value)
        made: Tensor = ops.where(value <= 0.0, 0.0, ops.where(value >= 1.0, 1.0, inside))
        return made

    def icdf(self, value: Any) -> Tensor:
        """See Distribution."""
        cut = self._cut()
        exact = (-cut + value * (2.0 * cut - 1.0)).log1p() - (-cut).log1p()
        made: Tensor = ops.where(self._is_stable(), exact / (cut.log() - (-cut).log1p()), value)
        return made

    def entropy(self) -> Tensor:
        """See Distribution."""
        zero, one = (-self.probs).log1p(), self.probs.log()
        return self.mean * (zero - one) - self._cont_bern_log_norm() - zero

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        return (self.logits,)

    def _log_normalizer(self, *natural_params: Tensor) -> Tensor:
        (x,) = natural_params
        stable = (x <= self._lims[0] - 0.5) | (x > self._lims[1] - 0.5)
        cut = ops.where(stable, x, self._lims[0] - 0.5)
        exact = cut.expm1().abs().log() - cut.abs().log()
        made: Tensor = ops.where(stable, exact, 0.5 * x + x.pow(2) / 24.0 - x.pow(4) / 2880.0)
        return made


class FisherSnedecor(Distribution):
    """The ratio of two Chi2 variables over their degrees of freedom. Like torch.distributions.FisherSnedecor."""

    arg_constraints = {"df1": constraints.positive, "df2": constraints.positive}  # noqa: RUF012
    support = constraints.positive
    has_rsample = True

    def __init__(self, df1: Any, df2: Any, validate_args: bool | None = None) -> None:
        self.df1, self.df2 = broadcast_all(df1, df2)
        self._gamma1 = Gamma(self.df1 * 0.5, self.df1, validate_args)
        self._gamma2 = Gamma(self.df2 * 0.5, self.df2, validate_args)
        super().__init__(self.df1.shape, (), validate_args)

    @property
    def mean(self) -> Tensor:
        """df2 / (df2 - 2) where df2 is above 2, else nan."""
        return ops.where(self.df2 > 2, self.df2 / (self.df2 - 2), math.nan)

    @property
    def mode(self) -> Tensor:
        """(df1 - 2) df2 / (df1 (df2 + 2)) where df1 is above 2, else nan."""
        found = (self.df1 - 2) / self.df1 * self.df2 / (self.df2 + 2)
        return ops.where(self.df1 > 2, found, math.nan)

    @property
    def variance(self) -> Tensor:
        """2 df2² (df1 + df2 - 2) / (df1 (df2 - 2)² (df2 - 4)) where df2 is above 4, else nan."""
        found = 2 * self.df2.pow(2) * (self.df1 + self.df2 - 2)
        found = found / (self.df1 * (self.df2 - 2).pow(2) * (self.df2 - 4))
        return ops.where(self.df2 > 4, found, math.nan)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """See Distribution."""
        one, other = self._gamma1.rsample(sample_shape), self._gamma2.rsample(sample_shape)
        tiny = dtypes.finfo(other.dtype).tiny
        made: Tensor = (one / other.clamp(min=tiny)).clamp(min=tiny)
        return made

    def log_prob(self, value: Any) -> Tensor:
        """See Distribution."""
        value = self._checked(value)
        one, two, ratio = self.df1 * 0.5, self.df2 * 0.5, self.df1 / self.df2
        volume = ops.lgamma(one + two) - ops.lgamma(one) - ops.lgamma(two)
        made: Tensor = volume + one * ratio.log() + (one - 1) * value.log() - (one + two) * (ratio * value).log1p()
        return made


class GeneralizedPareto(Distribution):
    """(1 + c z)^(-1 / c - 1) / scale with z = (x - loc) / scale. Like torch.distributions.GeneralizedPareto."""

    arg_constraints = {  # noqa: RUF012
        "loc": constraints.real,
        "scale": constraints.positive,
        "concentration": constraints.real,
    }
    has_rsample = True

    def __init__(self, loc: Any, scale: Any, concentration: Any, validate_args: bool | None = None) -> None:
        self.loc, self.scale, self.concentration = broadcast_all(loc, scale, concentration)
        super().__init__(self.loc.shape, (), validate_args)

    @constraints.dependent_property(is_discrete=False, event_dim=0)
    def support(self) -> Any:
        """From loc on; for a negative concentration up to loc - scale / concentration."""
        upper = ops.where(self.concentration < 0, self.loc - self.scale / self.concentration, math.inf)
        return constraints.interval(self.loc, upper)

    def _shape(self) -> tuple[Tensor, Tensor]:
        """Where the concentration is about 0; the concentration, 1 there."""
        zero = ops.isclose(self.concentration, zeros_like(self.concentration))
        return zero, ops.where(zero, 1.0, self.concentration)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """See Distribution."""
        return self.icdf(self.loc.new_empty(self._extended(sample_shape)).uniform_())

    def log_prob(self, value: Any) -> Tensor:
        """See Distribution."""
        z = (self._checked(value) - self.loc) / self.scale
        zero, c = self._shape()
        power = 1 / c + 1
        found = ops.where(power == 0, power, power * (c * z).log1p())
        made: Tensor = -self.scale.log() - ops.where(zero, z, found)
        return made

    def log_survival_function(self, value: Any) -> Tensor:
        """The log of the probability of values above one."""
        z = (self._checked(value) - self.loc) / self.scale
        zero, c = self._shape()
        made: Tensor = ops.where(zero, -z, -(c * z).log1p() / c)
        return made

    def log_cdf(self, value: Any) -> Tensor:
        """The log of the cdf."""
        made: Tensor = (-self.log_survival_function(value).exp()).log1p()
        return made

    def cdf(self, value: Any) -> Tensor:
        """See Distribution."""
        return self.log_cdf(value).exp()

    def icdf(self, value: Any) -> Tensor:
        """See Distribution."""
        zero, c = self._shape()
        left = (-value).log1p()
        found = self.loc + self.scale / c * (-c * left).expm1()
        made: Tensor = ops.where(zero, self.loc - self.scale * left, found)
        return made

    @property
    def mean(self) -> Tensor:
        """loc + scale / (1 - c) where the concentration c is below 1, else nan."""
        valid = self.concentration < 1
        found = self.loc + self.scale / (1 - ops.where(valid, self.concentration, 0.5))
        return ops.where(valid, found, math.nan)

    @property
    def mode(self) -> Tensor:
        """The location."""
        return self.loc

    @property
    def variance(self) -> Tensor:
        """scale² / ((1 - c)² (1 - 2 c)) where the concentration c is below 1/2, else nan."""
        valid = self.concentration < 0.5
        c = ops.where(valid, self.concentration, 0.25)
        return ops.where(valid, self.scale**2 / ((1 - c) ** 2 * (1 - 2 * c)), math.nan)

    def entropy(self) -> Tensor:
        """See Distribution."""
        return self.scale.log() + self.concentration + 1


class VonMises(Distribution):
    """exp(concentration cos(x - loc)) on the circle. Like torch.distributions.VonMises.

    Samples by Best's and Fisher's rejection; each round reads whether all are in.
    """

    arg_constraints = {"loc": constraints.real, "concentration": constraints.positive}  # noqa: RUF012
    support = constraints.real

    def __init__(self, loc: Any, concentration: Any, validate_args: bool | None = None) -> None:
        self.loc, self.concentration = broadcast_all(loc, concentration)
        super().__init__(self.loc.shape, (), validate_args)

    def log_prob(self, value: Any) -> Tensor:
        """See Distribution."""
        volume = ops.special_i0e(self.concentration).log() + self.concentration
        made: Tensor = self.concentration * (self._checked(value) - self.loc).cos() - math.log(2 * math.pi) - volume
        return made

    def _proposal(self) -> tuple[Tensor, Tensor]:
        kappa = self.concentration.double()
        tau = 1 + (1 + 4 * kappa**2).sqrt()
        rho = (tau - (2 * tau).sqrt()) / (2 * kappa)
        return kappa, ops.where(kappa < 1e-5, 1 / kappa + kappa, (1 + rho**2) / (2 * rho))

    @no_grad()
    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """See Distribution."""
        shape = self._extended(sample_shape)
        (kappa, r), loc = self._proposal(), self.loc.double()
        found = loc.new_zeros(shape)
        missing = found == 0
        while bool(missing.any()):
            first, second, third = loc.new_empty((3, *shape)).uniform_().unbind()
            z = (math.pi * first).cos()
            f = (1 + r * z) / (r + z)
            c = kappa * (r - f)
            accepted = ((c * (2 - c) - second) > 0) | ((c / second).log() + 1 - c >= 0)
            found = ops.where(accepted, (third - 0.5).sign() * f.acos(), found)
            missing = missing & ~accepted
        made: Tensor = ((found + math.pi + loc) % (2 * math.pi) - math.pi).to(self.loc.dtype)
        return made

    @property
    def mean(self) -> Tensor:
        """The location."""
        return self.loc

    @property
    def mode(self) -> Tensor:
        """The location."""
        return self.loc

    @property
    def variance(self) -> Tensor:
        """The circular variance: 1 - I1(c) / I0(c)."""
        return 1 - ops.special_i1e(self.concentration) / ops.special_i0e(self.concentration)
