"""Kullback-Leibler divergences of two distributions of different classes (registered for kl.kl_divergence)."""

from __future__ import annotations

import math
from typing import Any

from gradwire._functions.create import full_like
from gradwire._tensor import ops
from gradwire.distributions._discrete import Bernoulli, Binomial, Poisson
from gradwire.distributions._further import ContinuousBernoulli
from gradwire.distributions._gammas import Beta, Gamma
from gradwire.distributions._joined import MultivariateNormal
from gradwire.distributions._location import EULER, Exponential, Gumbel, Laplace, Normal, Uniform
from gradwire.distributions._matrices import LowRankMultivariateNormal
from gradwire.distributions._transformed import Pareto
from gradwire.distributions.kl import register_kl

#: Classes without a common support: p gives values that q never does. The name is that of a parameter of p.
_INFINITE: list[tuple[type, str, tuple[type, ...]]] = [
    (Beta, "concentration1", (Pareto,)),
    (ContinuousBernoulli, "probs", (Pareto,)),
    (Exponential, "rate", (Beta, ContinuousBernoulli, Pareto, Uniform)),
    (Gamma, "concentration", (Beta, ContinuousBernoulli, Pareto, Uniform)),
    (Gumbel, "loc", (Beta, ContinuousBernoulli, Exponential, Gamma, Pareto, Uniform)),
    (Laplace, "loc", (Beta, ContinuousBernoulli, Exponential, Gamma, Pareto, Uniform)),
    (Normal, "loc", (Beta, ContinuousBernoulli, Exponential, Gamma, Pareto, Uniform)),
    (Pareto, "scale", (Beta, ContinuousBernoulli, Uniform)),
    (Poisson, "rate", (Bernoulli, Binomial)),
]


def _infinite(name: str) -> Any:
    return lambda p, q: full_like(getattr(p, name), math.inf)


for _kind, _name, _others in _INFINITE:
    for _other in _others:
        register_kl(_kind, _other)(_infinite(_name))


@register_kl(Bernoulli, Poisson)
def _bernoulli_poisson(p: Any, q: Any) -> Any:
    return -p.entropy() - (p.probs * q.rate.log() - q.rate)


@register_kl(Beta, ContinuousBernoulli)
def _beta_continuous_bernoulli(p: Any, q: Any) -> Any:
    return -p.entropy() - p.mean * q.logits - (-q.probs).log1p() - q._cont_bern_log_norm()


@register_kl(Beta, Exponential)
def _beta_exponential(p: Any, q: Any) -> Any:
    return -p.entropy() - q.rate.log() + q.rate * p.mean


@register_kl(Beta, Gamma)
def _beta_gamma(p: Any, q: Any) -> Any:
    log_mean = ops.digamma(p.concentration1) - ops.digamma(p.concentration1 + p.concentration0)
    return -p.entropy() + _gamma_volume(q) - (q.concentration - 1) * log_mean + q.rate * p.mean


def _gamma_volume(q: Any) -> Any:
    """log(Γ(c) / rate^c)."""
    return ops.lgamma(q.concentration) - q.concentration * q.rate.log()


@register_kl(Beta, Normal)
def _beta_normal(p: Any, q: Any) -> Any:
    square = q.scale.pow(2)
    away = (p.variance + p.mean.pow(2)) * 0.5 - q.loc * p.mean + q.loc.pow(2) * 0.5
    return -p.entropy() + 0.5 * (square * 2 * math.pi).log() + away / square


@register_kl(Beta, Uniform)
def _beta_uniform(p: Any, q: Any) -> Any:
    outside = (q.low > 0) | (q.high < 1)
    return ops.where(outside, math.inf, -p.entropy() + (q.high - q.low).log())


@register_kl(ContinuousBernoulli, Exponential)
def _continuous_bernoulli_exponential(p: Any, q: Any) -> Any:
    return -p.entropy() - q.rate.log() + q.rate * p.mean


@register_kl(ContinuousBernoulli, Normal)
def _continuous_bernoulli_normal(p: Any, q: Any) -> Any:
    volume = 0.5 * (math.log(2.0 * math.pi) + (q.loc / q.scale).square()) + q.scale.log()
    away = p.variance + p.mean.square() - 2.0 * q.loc * p.mean
    return -p.entropy() + volume + away / (2.0 * q.scale.square())


@register_kl(ContinuousBernoulli, Uniform)
def _continuous_bernoulli_uniform(p: Any, q: Any) -> Any:
    # PyTorch's condition: infinite also where q covers all of [0, 1] with an end in common.
    outside = (q.low >= 0) | (q.high <= 1)
    return ops.where(outside, math.inf, -p.entropy() + (q.high - q.low).log())


@register_kl(Exponential, Gamma)
def _exponential_gamma(p: Any, q: Any) -> Any:
    ratio = q.rate / p.rate
    c = q.concentration
    return -c * ratio.log() + ratio + ops.lgamma(c) + c * EULER - (1 + EULER)


@register_kl(Exponential, Gumbel)
def _exponential_gumbel(p: Any, q: Any) -> Any:
    product, ratio = p.rate * q.scale, q.loc / q.scale
    return product.log() - 1 - ratio + ratio.exp() * product / (product + 1) + product.reciprocal()


@register_kl(Exponential, Normal)
def _exponential_normal(p: Any, q: Any) -> Any:
    square, rate = q.scale.pow(2), p.rate.pow(2)
    away = rate.reciprocal() - q.loc / p.rate + q.loc.pow(2) * 0.5
    return 0.5 * (rate * square * 2 * math.pi).log() - 1 + away / square


@register_kl(Gamma, Exponential)
def _gamma_exponential(p: Any, q: Any) -> Any:
    return -p.entropy() - q.rate.log() + q.rate * p.concentration / p.rate


@register_kl(Gamma, Gumbel)
def _gamma_gumbel(p: Any, q: Any) -> Any:
    c, product, ratio = p.concentration, p.rate * q.scale, q.loc / q.scale
    first = (c - 1) * ops.digamma(c) - ops.lgamma(c) - c
    return first + product.log() + c / product + ratio.exp() * (1 + product.reciprocal()).pow(-c) - ratio


@register_kl(Gamma, Normal)
def _gamma_normal(p: Any, q: Any) -> Any:
    c, square, rate = p.concentration, q.scale.pow(2), p.rate.pow(2)
    first = 0.5 * (rate * square * 2 * math.pi).log() - c - ops.lgamma(c) + (c - 1) * ops.digamma(c)
    return first + (0.5 * (c.pow(2) + c) / rate - q.loc * c / p.rate + 0.5 * q.loc.pow(2)) / square


@register_kl(Gumbel, Normal)
def _gumbel_normal(p: Any, q: Any) -> Any:
    ratio = p.scale / q.scale
    spread = (math.pi * ratio * 0.5).pow(2) / 3
    away = ((p.loc + p.scale * EULER - q.loc) / q.scale).pow(2) * 0.5
    return -(ratio / math.sqrt(2 * math.pi)).log() + spread + away - (EULER + 1)


@register_kl(Laplace, Normal)
def _laplace_normal(p: Any, q: Any) -> Any:
    square = q.scale.pow(2)
    ratio = p.scale.pow(2) / square
    away = 0.5 * p.loc.pow(2) - p.loc * q.loc + 0.5 * q.loc.pow(2)
    return -0.5 * (2 * ratio / math.pi).log() + ratio + away / square - 1


@register_kl(Normal, Gumbel)
def _normal_gumbel(p: Any, q: Any) -> Any:
    mean, spread, loc = p.loc / q.scale, (p.scale / q.scale).pow(2), q.loc / q.scale
    last = (-mean + 0.5 * spread + loc).exp()
    return -spread.log() * 0.5 + mean - loc + last - 0.5 * (1 + math.log(2 * math.pi))


@register_kl(Normal, Laplace)
def _normal_laplace(p: Any, q: Any) -> Any:
    away = p.loc - q.loc
    z = away / p.scale
    mean = math.sqrt(2 / math.pi) * p.scale * (-0.5 * z.pow(2)).exp() + away * ops.erf(math.sqrt(0.5) * z)
    return -(p.scale / q.scale).log() + mean / q.scale - 0.5 * (1 + math.log(0.5 * math.pi))


@register_kl(Pareto, Exponential)
def _pareto_exponential(p: Any, q: Any) -> Any:
    product = p.scale * q.rate
    found = (p.alpha / product).log() - p.alpha.reciprocal() + p.alpha * product / (p.alpha - 1) - 1
    return ops.where(p.alpha <= 1, math.inf, found)


@register_kl(Pareto, Gamma)
def _pareto_gamma(p: Any, q: Any) -> Any:
    common = p.scale.log() + p.alpha.reciprocal()
    found = p.alpha.log() - common + _gamma_volume(q) + (1 - q.concentration) * common
    found = found + q.rate * p.alpha * p.scale / (p.alpha - 1) - 1
    return ops.where(p.alpha <= 1, math.inf, found)


@register_kl(Pareto, Normal)
def _pareto_normal(p: Any, q: Any) -> Any:
    common = p.scale / (p.alpha - 1)
    first = (math.sqrt(2 * math.pi) * q.scale * p.alpha / p.scale).log() - p.alpha.reciprocal()
    away = p.alpha * common.pow(2) / (p.alpha - 2) + (p.alpha * common - q.loc).pow(2)
    return ops.where(p.alpha <= 2, math.inf, first + away / (2 * q.scale.pow(2)) - 1)


def _x_log_x(value: Any) -> Any:
    return ops.xlogy(value, value)


def _mean_log(low: Any, high: Any) -> Any:
    """The mean of log(x) from low to high."""
    return (_x_log_x(high) - _x_log_x(low) - (high - low)) / (high - low)


@register_kl(Uniform, Beta)
def _uniform_beta(p: Any, q: Any) -> Any:
    a, b = q.concentration1, q.concentration0
    volume = ops.lgamma(a) + ops.lgamma(b) - ops.lgamma(a + b)
    means = (a - 1) * _mean_log(p.low, p.high) + (b - 1) * _mean_log(1 - p.high, 1 - p.low)
    return ops.where((p.high > 1) | (p.low < 0), math.inf, volume - (p.high - p.low).log() - means)


@register_kl(Uniform, ContinuousBernoulli)
def _uniform_continuous_bernoulli(p: Any, q: Any) -> Any:
    found = -p.entropy() - p.mean * q.logits - (-q.probs).log1p() - q._cont_bern_log_norm()
    return ops.where((p.high >= 1) | (p.low <= 0), math.inf, found)  # PyTorch's condition


@register_kl(Uniform, Exponential)
def _uniform_exponential(p: Any, q: Any) -> Any:
    found = q.rate * (p.high + p.low) / 2 - ((p.high - p.low) * q.rate).log()
    return ops.where(p.low < 0, math.inf, found)


@register_kl(Uniform, Gamma)
def _uniform_gamma(p: Any, q: Any) -> Any:
    means = (1 - q.concentration) * _mean_log(p.low, p.high) + q.rate * (p.high + p.low) / 2
    return ops.where(p.low < 0, math.inf, _gamma_volume(q) - (p.high - p.low).log() + means)


@register_kl(Uniform, Gumbel)
def _uniform_gumbel(p: Any, q: Any) -> Any:
    common, high, low = q.scale / (p.high - p.low), (p.high - q.loc) / q.scale, (p.low - q.loc) / q.scale
    return common.log() + 0.5 * (high + low) - common * ((-high).exp() - (-low).exp())


@register_kl(Uniform, Normal)
def _uniform_normal(p: Any, q: Any) -> Any:
    width = p.high - p.low
    away = width.pow(2) / 12 + ((p.high + p.low - 2 * q.loc) / 2).pow(2)
    return (math.sqrt(math.pi * 2) * q.scale / width).log() + 0.5 * away / q.scale.pow(2)


@register_kl(Uniform, Pareto)
def _uniform_pareto(p: Any, q: Any) -> Any:
    volume = (q.alpha * q.scale.pow(q.alpha) * (p.high - p.low)).log()
    return ops.where(p.low < q.scale, math.inf, _mean_log(p.low, p.high) * (q.alpha + 1) - volume)


def _check_events(p: Any, q: Any) -> None:
    if p.event_shape != q.event_shape:
        raise ValueError(
            "KL-divergence between two (Low Rank) Multivariate Normals with different event shapes cannot be computed"
        )


def _trace(value: Any) -> Any:
    """The trace of value valueᵀ."""
    return value.pow(2).sum((-2, -1))


@register_kl(LowRankMultivariateNormal, LowRankMultivariateNormal)
def _low_rank(p: Any, q: Any) -> Any:
    _check_events(p, q)
    inner = q._solved(q.cov_factor.mT / q.cov_diag.unsqueeze(-2))
    trace = (p.cov_diag / q.cov_diag).sum(-1) + _trace(p.cov_factor * q.cov_diag.rsqrt().unsqueeze(-1))
    trace = trace - _trace(inner * p.cov_diag.sqrt().unsqueeze(-2)) - _trace(inner @ p.cov_factor)
    return 0.5 * (q._log_det() - p._log_det() + trace + q._distance(q.loc - p.loc) - p.event_shape[0])


@register_kl(MultivariateNormal, LowRankMultivariateNormal)
def _multivariate_low_rank(p: Any, q: Any) -> Any:
    _check_events(p, q)
    inner = q._solved(q.cov_factor.mT / q.cov_diag.unsqueeze(-2))
    trace = _trace(p._factor * q.cov_diag.rsqrt().unsqueeze(-1)) - _trace(inner @ p._factor)
    away = q._distance(q.loc - p.loc)
    return 0.5 * (q._log_det() - 2 * p._log_volume() + trace + away - p.event_shape[0])


@register_kl(LowRankMultivariateNormal, MultivariateNormal)
def _low_rank_multivariate(p: Any, q: Any) -> Any:
    _check_events(p, q)
    parts = [p.cov_factor, p.cov_diag.sqrt().diag_embed(), (q.loc - p.loc).unsqueeze(-1)]
    trace = sum(_trace(_solve(q._factor, part)) for part in parts)
    return 0.5 * (2 * q._log_volume() - p._log_det() + trace - p.event_shape[0])


def _solve(factor: Any, right: Any) -> Any:
    """A lower triangular matrix, inverted, times another; batches broadcast."""
    batch = (factor[..., :1, :1] + right[..., :1, :1]).shape[:-2]
    factor, right = factor.expand((*batch, *factor.shape[-2:])), right.expand((*batch, *right.shape[-2:]))
    return ops.linalg_solve_triangular(factor, right, upper=False)
