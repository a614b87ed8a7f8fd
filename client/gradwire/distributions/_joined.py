"""Distributions made of others, and the normal one of several dimensions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import gradwire.distributions.constraints as constraints
from gradwire._base.dtypes import Size
from gradwire._base.modes import no_grad
from gradwire._functions.create import eye
from gradwire._tensor import ops
from gradwire._tensor.tensor import Tensor
from gradwire.distributions._base import Distribution, normal
from gradwire.distributions._discrete import Categorical
from gradwire.distributions._location import Normal
from gradwire.distributions.transforms import ComposeTransform, ExpTransform, Transform


def summed(value: Tensor, count: int) -> Tensor:
    """The sum over the last `count` dimensions."""
    return value.flatten(-count).sum(-1) if count > 1 else value.sum(-1) if count else value


def cholesky_of_inverse(matrix: Tensor) -> Tensor:
    """The Cholesky factor of the inverse, by the factor of the matrix that is flipped in both dimensions."""
    flipped = ops.linalg_cholesky(matrix.flip(-2, -1)).flip(-2, -1).mT
    one = eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device)
    made: Tensor = ops.linalg_solve_triangular(flipped, one, upper=False)
    return made


class Independent(Distribution):
    """A distribution whose last batch dimensions belong to one event. Like torch.distributions.Independent."""

    def __init__(
        self, base_distribution: Any, reinterpreted_batch_ndims: int, validate_args: bool | None = None
    ) -> None:
        if reinterpreted_batch_ndims > len(base_distribution.batch_shape):
            raise ValueError(
                "Expected reinterpreted_batch_ndims <= len(base_distribution.batch_shape), actual "
                f"{reinterpreted_batch_ndims} vs {len(base_distribution.batch_shape)}"
            )
        shape = (*base_distribution.batch_shape, *base_distribution.event_shape)
        events = reinterpreted_batch_ndims + len(base_distribution.event_shape)
        self.base_dist = base_distribution
        self.reinterpreted_batch_ndims = reinterpreted_batch_ndims
        super().__init__(shape[: len(shape) - events], shape[len(shape) - events :], validate_args)

    @property
    def has_rsample(self) -> bool:  # type: ignore[override]
        """As the base."""
        return bool(self.base_dist.has_rsample)

    @constraints.dependent_property
    def support(self) -> Any:
        """The base's, with the dimensions of one event judged together."""
        found = self.base_dist.support
        count = self.reinterpreted_batch_ndims
        return constraints.independent(found, count) if count and found is not None else found

    @property
    def has_enumerate_support(self) -> bool:  # type: ignore[override]
        """Whether the base has one, and no dimension was made part of an event."""
        return self.reinterpreted_batch_ndims == 0 and bool(self.base_dist.has_enumerate_support)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        """See Distribution."""
        if self.reinterpreted_batch_ndims > 0:
            raise NotImplementedError("Enumeration over cartesian product is not implemented")
        return self.base_dist.enumerate_support(expand=expand)

    @property
    def mean(self) -> Tensor:
        """The base's."""
        return self.base_dist.mean

    @property
    def mode(self) -> Tensor:
        """The base's."""
        return self.base_dist.mode

    @property
    def variance(self) -> Tensor:
        """The base's."""
        return self.base_dist.variance

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """See Distribution."""
        return self.base_dist.sample(sample_shape)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """See Distribution."""
        return self.base_dist.rsample(sample_shape)

    def log_prob(self, value: Any) -> Tensor:
        """See Distribution."""
        return summed(self.base_dist.log_prob(value), self.reinterpreted_batch_ndims)

    def entropy(self) -> Tensor:
        """See Distribution."""
        return summed(self.base_dist.entropy(), self.reinterpreted_batch_ndims)

    def __repr__(self) -> str:
        return f"Independent({self.base_dist}, {self.reinterpreted_batch_ndims})"


class MixtureSameFamily(Distribution):
    """One of the components along the last batch dimension, chosen by a Categorical.

    Raises ValueError where the two do not go together. Like torch.distributions.MixtureSameFamily.
    """

    def __init__(
        self, mixture_distribution: Any, component_distribution: Any, validate_args: bool | None = None
    ) -> None:
        if not isinstance(mixture_distribution, Categorical):
            raise ValueError(" The Mixture distribution needs to be an instance of gradwire.distributions.Categorical")
        if not isinstance(component_distribution, Distribution):
            raise ValueError("The Component distribution need to be an instance of gradwire.distributions.Distribution")
        count = mixture_distribution._num_events
        if component_distribution.batch_shape[-1:] != (count,):
            raise ValueError(
                f"`mixture_distribution component` ({count}) does not equal "
                f"`component_distribution.batch_shape[-1]` ({component_distribution.batch_shape})"
            )
        self.mixture_distribution = mixture_distribution
        self.component_distribution = component_distribution
        events = tuple(component_distribution.event_shape)
        super().__init__(tuple(component_distribution.batch_shape)[:-1], events, validate_args)

    @constraints.dependent_property
    def support(self) -> Any:
        """What every component can give."""
        return constraints.MixtureSameFamilyConstraint(self.component_distribution.support)

    def cdf(self, value: Any) -> Tensor:
        """See Distribution."""
        each = self.component_distribution.cdf(value.unsqueeze(self._dim))
        return (each * self.mixture_distribution.probs).sum(-1)

    def _weights(self) -> Any:
        return self.mixture_distribution.probs.reshape(
            (*self.mixture_distribution.param_shape, *[1] * len(self._event_shape))
        )

    @property
    def _dim(self) -> int:
        return -1 - len(self._event_shape)

    @property
    def mean(self) -> Tensor:
        """The components' means, weighted."""
        return (self._weights() * self.component_distribution.mean).sum(self._dim)

    @property
    def variance(self) -> Tensor:
        """The mean of the variances and the variance of the means."""
        weights, means = self._weights(), self.component_distribution.mean
        within = (weights * self.component_distribution.variance).sum(self._dim)
        between = (weights * (means - self.mean.unsqueeze(self._dim)) ** 2).sum(self._dim)
        return within + between

    def log_prob(self, value: Any) -> Tensor:
        """See Distribution."""
        each = self.component_distribution.log_prob(self._checked(value).unsqueeze(self._dim))
        weights = self.mixture_distribution.logits.log_softmax(-1)
        return (each + weights).logsumexp(-1)

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """See Distribution."""
        with no_grad():
            chosen = self.mixture_distribution.sample(sample_shape)
            drawn = self.component_distribution.sample(sample_shape)
            axis = drawn.ndim - 1 - len(self._event_shape)
            index = chosen.reshape((*chosen.shape, *[1] * (len(self._event_shape) + 1)))
            index = index.expand((*chosen.shape, 1, *self._event_shape))
            return drawn.gather(axis, index).squeeze(axis)

    def __repr__(self) -> str:
        return f"MixtureSameFamily(\n  {self.mixture_distribution},\n  {self.component_distribution})"


class MultivariateNormal(Distribution):
    """The normal distribution of vectors, of a covariance, its inverse or its Cholesky factor.

    Raises ValueError unless exactly one of these is given. Like torch.distributions.MultivariateNormal.
    """

    arg_constraints = {  # noqa: RUF012
        "loc": constraints.real_vector,
        "covariance_matrix": constraints.positive_definite,
        "precision_matrix": constraints.positive_definite,
        "scale_tril": constraints.lower_cholesky,
    }
    support = constraints.real_vector
    has_rsample = True

    def __init__(
        self,
        loc: Tensor,
        covariance_matrix: Tensor | None = None,
        precision_matrix: Tensor | None = None,
        scale_tril: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:
        if loc.ndim < 1:
            raise ValueError("loc must be at least one-dimensional.")
        given = {"covariance_matrix": covariance_matrix, "precision_matrix": precision_matrix, "scale_tril": scale_tril}
        held = {name: value for name, value in given.items() if value is not None}
        if len(held) != 1:
            raise ValueError("Exactly one of covariance_matrix or precision_matrix or scale_tril may be specified.")
        ((name, matrix),) = held.items()
        if matrix.ndim < 2:
            raise ValueError(f"{name} must be at least two-dimensional, with optional leading batch dimensions")
        batch = ops.broadcast_tensors(loc.detach()[..., 0], matrix.detach()[..., 0, 0])[0].shape
        size = loc.shape[-1]
        self.loc = loc.expand((*batch, size))
        matrix = matrix.expand((*batch, size, size))
        self.__dict__[name] = matrix
        super().__init__(batch, (size,), validate_args)
        if name == "scale_tril":
            self._factor = matrix
        elif name == "covariance_matrix":
            self._factor = ops.linalg_cholesky(matrix)
        else:
            self._factor = cholesky_of_inverse(matrix)

    def __getattr__(self, name: str) -> Any:
        factor = self.__dict__.get("_factor")
        if factor is not None and name == "scale_tril":
            return factor
        if factor is not None and name == "covariance_matrix":
            return factor @ factor.mT
        if factor is not None and name == "precision_matrix":
            return ops.linalg_inv(factor @ factor.mT)
        raise AttributeError(name)

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
        """The covariance's diagonal."""
        return self._factor.pow(2).sum(-1)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """See Distribution."""
        drawn = normal(self.loc, self._extended(sample_shape))
        return self.loc + (self._factor @ drawn.unsqueeze(-1)).squeeze(-1)

    def log_prob(self, value: Any) -> Tensor:
        """See Distribution."""
        away = (self._checked(value) - self.loc).unsqueeze(-1)
        factor = self._factor.expand((*away.shape[:-2], *self._factor.shape[-2:]))
        solved = ops.linalg_solve_triangular(factor, away, upper=False)
        distance = solved.squeeze(-1).pow(2).sum(-1)
        made: Tensor = -0.5 * (self._event_shape[0] * math.log(2 * math.pi) + distance) - self._log_volume()
        return made

    def _log_volume(self) -> Tensor:
        made: Tensor = self._factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        return made

    def entropy(self) -> Tensor:
        """See Distribution."""
        return 0.5 * self._event_shape[0] * (1.0 + math.log(2 * math.pi)) + self._log_volume()


class TransformedDistribution(Distribution):
    """A variable that transforms were applied to. Like torch.distributions.TransformedDistribution.

    Raises ValueError for a base of too few dimensions.
    """

    def __init__(self, base_distribution: Any, transforms: Any, validate_args: bool | None = None) -> None:
        held = [transforms] if isinstance(transforms, Transform) else transforms
        if not isinstance(held, list) or not all(isinstance(each, Transform) for each in held):
            raise ValueError(f"transforms must be a Transform or list, but was {transforms}")
        self.transforms = held
        whole = ComposeTransform(held)
        domain, codomain = whole.domain.event_dim, whole.codomain.event_dim
        shape = Size((*base_distribution.batch_shape, *base_distribution.event_shape))
        if len(shape) < domain:
            raise ValueError(f"base_distribution needs to have shape with size at least {domain}, but got {shape}.")
        after = whole.forward_shape(shape)
        wide, events = whole.inverse_shape(after), len(base_distribution.event_shape)
        if tuple(wide) != tuple(shape):
            base_distribution = base_distribution.expand(wide[: len(wide) - events])
        if domain > events:
            base_distribution = Independent(base_distribution, domain - events)
        self.base_dist = base_distribution
        cut = len(after) - max(codomain, events + codomain - domain)
        super().__init__(after[:cut], after[cut:], validate_args)

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> Any:
        """See Distribution."""
        made = super().expand(batch_shape)
        shape: Any = (*batch_shape, *self.event_shape)
        for each in reversed(self.transforms):
            shape = each.inverse_shape(shape)
        made.base_dist = self.base_dist.expand(shape[: len(shape) - len(self.base_dist.event_shape)])
        return made

    @constraints.dependent_property(is_discrete=False)
    def support(self) -> Any:
        """What the last transform gives."""
        if not self.transforms:
            return self.base_dist.support
        found = self.transforms[-1].codomain
        more = len(self.event_shape) - found.event_dim
        return constraints.independent(found, more) if more > 0 else found

    @property
    def has_rsample(self) -> bool:  # type: ignore[override]
        """As the base."""
        return bool(self.base_dist.has_rsample)

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """See Distribution."""
        with no_grad():
            return ComposeTransform(self.transforms)(self.base_dist.sample(sample_shape))

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """See Distribution."""
        return ComposeTransform(self.transforms)(self.base_dist.rsample(sample_shape))

    def log_prob(self, value: Any) -> Tensor:
        """See Distribution."""
        value = self._checked(value)
        total: Any = 0.0
        count = len(self.event_shape)
        for each in reversed(self.transforms):
            before = each.inv(value)
            count += each.domain.event_dim - each.codomain.event_dim
            total = total - summed(each.log_abs_det_jacobian(before, value), count - each.domain.event_dim)
            value = before
        made: Tensor = total + summed(self.base_dist.log_prob(value), count - len(self.base_dist.event_shape))
        return made

    def _rising(self, value: Any) -> Any:
        """A probability, turned round where the transforms fall."""
        sign = math.prod(each.sign for each in self.transforms)
        return value if isinstance(sign, int) and sign == 1 else sign * (value - 0.5) + 0.5

    def cdf(self, value: Any) -> Tensor:
        """See Distribution."""
        for each in reversed(self.transforms):
            value = each.inv(value)
        return self._rising(self.base_dist.cdf(value))

    def icdf(self, value: Any) -> Tensor:
        """See Distribution."""
        return ComposeTransform(self.transforms)(self.base_dist.icdf(self._rising(value)))


class LogNormal(TransformedDistribution):
    """exp of a normal variable. Like torch.distributions.LogNormal."""

    arg_constraints = {"loc": constraints.real, "scale": constraints.positive}  # noqa: RUF012
    support = constraints.positive

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        super().__init__(Normal(loc, scale, validate_args=validate_args), ExpTransform(), validate_args)

    @property
    def loc(self) -> Tensor:
        """The location of the logarithm."""
        return self.base_dist.loc

    @property
    def scale(self) -> Tensor:
        """The scale of the logarithm."""
        return self.base_dist.scale

    @property
    def mean(self) -> Tensor:
        """exp(loc + scale² / 2)."""
        return (self.loc + self.scale.pow(2) / 2).exp()

    @property
    def mode(self) -> Tensor:
        """exp(loc - scale²)."""
        return (self.loc - self.scale.square()).exp()

    @property
    def variance(self) -> Tensor:
        """(exp(scale²) - 1) exp(2 loc + scale²)."""
        square = self.scale.pow(2)
        return square.expm1() * (2 * self.loc + square).exp()

    def entropy(self) -> Tensor:
        """See Distribution."""
        return self.base_dist.entropy() + self.loc


__all__ = [
    "Independent",
    "LogNormal",
    "MixtureSameFamily",
    "MultivariateNormal",
    "TransformedDistribution",
]
