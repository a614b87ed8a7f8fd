"""Kullback-Leibler divergences in closed form, found by the classes of both distributions."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import gradwire.nn.functional as F
from gradwire._base.modes import enable_grad
from gradwire._tensor import ops
from gradwire._tensor.tensor import Tensor
from gradwire.autograd import grad
from gradwire.distributions._base import Distribution
from gradwire.distributions._discrete import (
    Bernoulli,
    Binomial,
    Categorical,
    Geometric,
    OneHotCategorical,
    Poisson,
)
from gradwire.distributions._further import ContinuousBernoulli, ExponentialFamily
from gradwire.distributions._gammas import Beta, Dirichlet, Gamma
from gradwire.distributions._joined import Independent, MultivariateNormal, TransformedDistribution, summed
from gradwire.distributions._location import (
    EULER,
    Cauchy,
    Exponential,
    Gumbel,
    HalfNormal,
    Laplace,
    Normal,
    Uniform,
)
from gradwire.distributions._transformed import Pareto

__all__ = ["kl_divergence", "register_kl"]

_KNOWN: dict[tuple[type, type], Callable[[Any, Any], Tensor]] = {}


def register_kl(type_p: type, type_q: type) -> Callable[[Callable[[Any, Any], Tensor]], Callable[[Any, Any], Tensor]]:
    """A decorator: the function computes KL(p || q) of these classes. Raises TypeError for what is no class."""
    for kind in (type_p, type_q):
        if not isinstance(kind, type):  # classes beside Distribution work, as in PyTorch
            raise TypeError(f"Expected type_p and type_q to be Distribution subclasses but got {kind}")

    def register(function: Callable[[Any, Any], Tensor]) -> Callable[[Any, Any], Tensor]:
        _KNOWN[type_p, type_q] = function
        return function

    return register


def kl_divergence(p: Distribution, q: Distribution) -> Tensor:
    """KL(p || q), one number per batch (torch.distributions.kl_divergence).

    Raises NotImplementedError for classes without a formula.
    """
    for kind in type(p).__mro__:
        for other in type(q).__mro__:
            if (kind, other) in _KNOWN:
                return _KNOWN[kind, other](p, q)
    raise NotImplementedError(
        f"No KL(p || q) is implemented for p type {type(p).__name__} and q type {type(q).__name__}"
    )


@register_kl(Normal, Normal)
def _normal(p: Any, q: Any) -> Any:
    ratio = (p.scale / q.scale).pow(2)
    return 0.5 * (ratio + ((p.loc - q.loc) / q.scale).pow(2) - 1 - ratio.log())


@register_kl(HalfNormal, HalfNormal)
def _half_normal(p: Any, q: Any) -> Any:
    ratio = (p.scale / q.scale).pow(2)
    return 0.5 * (ratio - 1 - ratio.log())


@register_kl(TransformedDistribution, TransformedDistribution)
def _transformed(p: Any, q: Any) -> Any:
    if p.transforms != q.transforms or p.event_shape != q.event_shape:
        raise NotImplementedError("KL(p || q) of variables that were transformed in different ways")
    return kl_divergence(p.base_dist, q.base_dist)


@register_kl(Pareto, Pareto)
def _pareto(p: Any, q: Any) -> Any:
    ratio = q.alpha / p.alpha
    found = q.alpha * (p.scale / q.scale).log() - ratio.log() + ratio - 1
    return ops.where(p.scale < q.scale, math.inf, found)


@register_kl(ExponentialFamily, ExponentialFamily)
def _exponential_family(p: Any, q: Any) -> Any:
    """Bregman's divergence of the log normalizers."""
    if type(p) is not type(q):
        raise NotImplementedError(
            "The cross KL-divergence between different exponential families cannot be computed using Bregman "
            "divergences"
        )
    with enable_grad():
        held = [each.detach().requires_grad_() for each in p._natural_params]
        volume = p._log_normalizer(*held)
        slopes = grad(volume.sum(), held, create_graph=True)
    result = q._log_normalizer(*q._natural_params) - volume
    for one, other, slope in zip(held, q._natural_params, slopes, strict=True):
        term = (other - one) * slope
        result = result - summed(term, term.ndim - result.ndim)
    return result


@register_kl(ContinuousBernoulli, ContinuousBernoulli)
def _continuous_bernoulli(p: Any, q: Any) -> Any:
    mine = p._cont_bern_log_norm() + (-p.probs).log1p()
    return p.mean * (p.logits - q.logits) + mine - q._cont_bern_log_norm() - (-q.probs).log1p()


@register_kl(Binomial, Binomial)
def _binomial(p: Any, q: Any) -> Any:
    if bool((p.total_count < q.total_count).any()):
        raise NotImplementedError("KL between Binomials where q.total_count > p.total_count is not implemented")
    found = p.total_count * (p.probs * (p.logits - q.logits) + (-p.probs).log1p() - (-q.probs).log1p())
    return ops.where(p.total_count > q.total_count, math.inf, found)


@register_kl(Geometric, Geometric)
def _geometric(p: Any, q: Any) -> Any:
    return -p.entropy() - (-q.probs).log1p() / p.probs - q.logits


@register_kl(Gumbel, Gumbel)
def _gumbel(p: Any, q: Any) -> Any:
    ratio, mine, other = p.scale / q.scale, p.loc / q.scale, q.loc / q.scale
    last = (other + ops.lgamma(1 + ratio) - mine).exp()
    return -ratio.log() - other + mine + ratio * EULER + last - (1 + EULER)


@register_kl(Cauchy, Cauchy)
def _cauchy(p: Any, q: Any) -> Any:
    return ((p.scale + q.scale).pow(2) + (p.loc - q.loc).pow(2)).log() - (4 * p.scale * q.scale).log()


@register_kl(Bernoulli, Bernoulli)
def _bernoulli(p: Any, q: Any) -> Any:
    # By logits: 1 - probs has no digits left where probs is near 1.
    one = p.probs * (F.softplus(-q.logits) - F.softplus(-p.logits))
    zero = (1 - p.probs) * (F.softplus(q.logits) - F.softplus(p.logits))
    one = ops.where(p.probs == 0, 0.0, ops.where(q.probs == 0, math.inf, one))
    return one + ops.where(p.probs == 1, 0.0, ops.where(q.probs == 1, math.inf, zero))


@register_kl(Categorical, Categorical)
def _categorical(p: Any, q: Any) -> Any:
    each = p.probs * (p.logits - q.logits)
    each = ops.where(q.probs == 0, math.inf, each)
    return ops.where(p.probs == 0, 0.0, each).sum(-1)


@register_kl(OneHotCategorical, OneHotCategorical)
def _one_hot(p: Any, q: Any) -> Any:
    return _categorical(p._categorical, q._categorical)


@register_kl(Poisson, Poisson)
def _poisson(p: Any, q: Any) -> Any:
    return p.rate * (p.rate.log() - q.rate.log()) - (p.rate - q.rate)


@register_kl(Exponential, Exponential)
def _exponential(p: Any, q: Any) -> Any:
    ratio = q.rate / p.rate
    return ratio - ratio.log() - 1


@register_kl(Uniform, Uniform)
def _uniform(p: Any, q: Any) -> Any:
    inside = (q.low <= p.low) & (q.high >= p.high)
    return ops.where(inside, ((q.high - q.low) / (p.high - p.low)).log(), math.inf)


@register_kl(Laplace, Laplace)
def _laplace(p: Any, q: Any) -> Any:
    ratio, away = p.scale / q.scale, (p.loc - q.loc).abs()
    return -ratio.log() + away / q.scale + ratio * (-away / p.scale).exp() - 1


@register_kl(Gamma, Gamma)
def _gamma(p: Any, q: Any) -> Any:
    return (
        q.concentration * (p.rate / q.rate).log()
        + ops.lgamma(q.concentration)
        - ops.lgamma(p.concentration)
        + (p.concentration - q.concentration) * ops.digamma(p.concentration)
        + (q.rate - p.rate) * (p.concentration / p.rate)
    )


@register_kl(Dirichlet, Dirichlet)
def _dirichlet(p: Any, q: Any) -> Any:
    a, b = p.concentration, q.concentration
    total = a.sum(-1)
    return (
        ops.lgamma(total)
        - ops.lgamma(b.sum(-1))
        - (ops.lgamma(a) - ops.lgamma(b)).sum(-1)
        + ((a - b) * (ops.digamma(a) - ops.digamma(total).unsqueeze(-1))).sum(-1)
    )


@register_kl(Beta, Beta)
def _beta(p: Any, q: Any) -> Any:
    return _dirichlet(p._pair, q._pair)


@register_kl(MultivariateNormal, MultivariateNormal)
def _multivariate(p: Any, q: Any) -> Any:
    if p.event_shape != q.event_shape:
        raise ValueError(
            "KL-divergence between two Multivariate Normals with different event shapes cannot be computed"
        )
    solved = ops.linalg_solve_triangular(q._factor, p._factor, upper=False)
    away = ops.linalg_solve_triangular(q._factor, (q.loc - p.loc).unsqueeze(-1), upper=False)
    trace = solved.pow(2).sum((-2, -1))
    return q._log_volume() - p._log_volume() + 0.5 * (trace + away.pow(2).sum((-2, -1)) - p.event_shape[0])


@register_kl(Independent, Independent)
def _independent(p: Any, q: Any) -> Any:
    if p.reinterpreted_batch_ndims != q.reinterpreted_batch_ndims:
        raise NotImplementedError("KL(p || q) of Independents of different numbers of dimensions")
    return summed(kl_divergence(p.base_dist, q.base_dist), p.reinterpreted_batch_ndims)
