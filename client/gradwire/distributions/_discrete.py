"""Distributions over whole numbers: with probabilities or logits; each is computed from the other on demand."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import gradwire.distributions.constraints as constraints
import gradwire.nn.functional as F
from gradwire._base import dtypes
from gradwire._base.modes import enable_grad, no_grad
from gradwire._functions.create import arange, eye, zeros_like
from gradwire._functions.random import bernoulli, binomial, multinomial, poisson
from gradwire._tensor import ops
from gradwire._tensor.tensor import Tensor
from gradwire.distributions._base import Distribution, broadcast_all
from gradwire.distributions._gammas import Gamma


def _clamped(probs: Tensor) -> Tensor:
    """Away from 0 and 1, so that logits are finite."""
    eps = dtypes.finfo(probs.dtype).eps
    return probs.clamp(eps, 1 - eps)


class _Odds(Distribution):
    """One probability, or its logit. Raises ValueError unless exactly one of both is given."""

    arg_constraints = {"probs": constraints.unit_interval, "logits": constraints.real}  # noqa: RUF012

    def _take(self, probs: Any, logits: Any) -> Tensor:
        if (probs is None) == (logits is None):
            raise ValueError("Either `probs` or `logits` must be specified, but not both.")
        name, value = ("logits", logits) if probs is None else ("probs", probs)
        (held,) = broadcast_all(value)
        self.__dict__[name] = held
        self._given = name
        return held

    def __getattr__(self, name: str) -> Any:
        # Computed at first use, and kept.
        with enable_grad():
            if name == "probs" and "logits" in self.__dict__:
                self.probs = self.__dict__["logits"].sigmoid()
            elif name == "logits" and "probs" in self.__dict__:
                clamped = _clamped(self.__dict__["probs"])
                self.logits = clamped.log() - (-clamped).log1p()
            else:
                raise AttributeError(name)
        return self.__dict__[name]

    @property
    def _param(self) -> Tensor:
        found: Tensor = self.__dict__[self._given]
        return found

    @property
    def param_shape(self) -> Any:
        """The shape of the given parameter."""
        return self._param.shape


class Bernoulli(_Odds):
    """1 with probability `probs`, else 0. Like torch.distributions.Bernoulli."""

    support = constraints.boolean
    has_enumerate_support = True

    def __init__(self, probs: Any = None, logits: Any = None, validate_args: bool | None = None) -> None:
        super().__init__(self._take(probs, logits).shape, (), validate_args)

    @property
    def mean(self) -> Tensor:
        """The probability."""
        return self.probs

    @property
    def mode(self) -> Tensor:
        """1 where that is more probable; nan where both are alike."""
        made = (self.probs >= 0.5).to(self.probs.dtype)
        return ops.where(self.probs == 0.5, math.nan, made)

    @property
    def variance(self) -> Tensor:
        """p (1 - p)."""
        return self.probs * (1 - self.probs)

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """See Distribution."""
        with no_grad():
            return bernoulli(self.probs.expand(self._extended(sample_shape)))

    def log_prob(self, value: Any) -> Tensor:
        """See Distribution."""
        logits, given = broadcast_all(self.logits, self._checked(value))
        return -F.binary_cross_entropy_with_logits(logits, given, reduction="none")

    def entropy(self) -> Tensor:
        """See Distribution."""
        return F.binary_cross_entropy_with_logits(self.logits, self.probs, reduction="none")

    def enumerate_support(self, expand: bool = True) -> Tensor:
        """0 and 1."""
        made = arange(2, dtype=self._param.dtype, device=self._param.device).reshape(
            (-1, *[1] * len(self._batch_shape))
        )
        return made.expand((-1, *self._batch_shape)) if expand else made


class Geometric(_Odds):
    """How often a trial of probability `probs` fails before it succeeds. Like torch.distributions.Geometric."""

    support = constraints.nonnegative_integer

    def __init__(self, probs: Any = None, logits: Any = None, validate_args: bool | None = None) -> None:
        super().__init__(self._take(probs, logits).shape, (), validate_args)

    @property
    def mean(self) -> Tensor:
        """1 / p - 1."""
        return 1.0 / self.probs - 1.0

    @property
    def mode(self) -> Tensor:
        """0."""
        return zeros_like(self.probs)

    @property
    def variance(self) -> Tensor:
        """(1 / p - 1) / p."""
        return (1.0 / self.probs - 1.0) / self.probs

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """See Distribution."""
        from gradwire.distributions._base import uniform

        with no_grad():
            drawn = uniform(self.probs, self._extended(sample_shape))
            return (drawn.log() / (-self.probs).log1p()).floor()

    def log_prob(self, value: Any) -> Tensor:
        """See Distribution."""
        value, probs = broadcast_all(self._checked(value), self.probs)
        probs = ops.where((probs == 1) & (value == 0), 0.0, probs)
        return value * (-probs).log1p() + self.probs.log()

    def entropy(self) -> Tensor:
        """See Distribution."""
        return F.binary_cross_entropy_with_logits(self.logits, self.probs, reduction="none") / self.probs


class Binomial(_Odds):
    """How often of `total_count` a trial of probability `probs` succeeds. Like torch.distributions.Binomial."""

    has_enumerate_support = True
    arg_constraints = {"total_count": constraints.nonnegative_integer, **_Odds.arg_constraints}  # noqa: RUF012

    def __init__(
        self, total_count: Any = 1, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        held = self._take(probs, logits)
        self.total_count, held = broadcast_all(total_count, held)
        self.__dict__[self._given] = held
        super().__init__(held.shape, (), validate_args)

    @constraints.dependent_property(is_discrete=True, event_dim=0)
    def support(self) -> constraints.Constraint:
        """From 0 to total_count."""
        return constraints.integer_interval(0, self.total_count)

    @property
    def mean(self) -> Tensor:
        """n p."""
        return self.total_count * self.probs

    @property
    def mode(self) -> Tensor:
        """⌊(n + 1) p⌋, at most n."""
        return ops.minimum(((self.total_count + 1) * self.probs).floor(), self.total_count)

    @property
    def variance(self) -> Tensor:
        """n p (1 - p)."""
        return self.total_count * self.probs * (1 - self.probs)

    def entropy(self) -> Tensor:
        """See Distribution. Raises NotImplementedError where total_count differs over the batch."""
        logs = self.log_prob(self.enumerate_support(False))
        return -(logs.exp() * logs).sum(0)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        """0, 1, … total_count. Raises NotImplementedError where that differs over the batch."""
        least, most = ops.stack([self.total_count.min(), self.total_count.max()]).tolist()
        if least != most:
            raise NotImplementedError("Inhomogeneous total count not supported by `enumerate_support`.")
        made = arange(1 + int(most), dtype=self._param.dtype, device=self._param.device)
        made = made.reshape((-1, *[1] * len(self._batch_shape)))
        return made.expand((-1, *self._batch_shape)) if expand else made

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """See Distribution."""
        shape = self._extended(sample_shape)
        with no_grad():
            return binomial(self.total_count.expand(shape).contiguous(), self.probs.expand(shape).contiguous())

    def log_prob(self, value: Any) -> Tensor:
        """See Distribution."""
        value, n, logits = self._checked(value), self.total_count, self.logits
        ways = ops.lgamma(n + 1) - ops.lgamma(value + 1) - ops.lgamma(n - value + 1)
        made: Tensor = ways + value * logits - n * F.softplus(logits)
        return made


class NegativeBinomial(_Odds):
    """Successes before `total_count` failures. Like torch.distributions.NegativeBinomial."""

    arg_constraints = {  # noqa: RUF012
        "total_count": constraints.greater_than_eq(0),
        "probs": constraints.half_open_interval(0.0, 1.0),
        "logits": constraints.real,
    }
    support = constraints.nonnegative_integer

    def __init__(
        self, total_count: Any, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        held = self._take(probs, logits)
        self.total_count, held = broadcast_all(total_count, held)
        self.total_count = self.total_count.to(held.dtype)
        self.__dict__[self._given] = held
        super().__init__(held.shape, (), validate_args)

    @property
    def mean(self) -> Tensor:
        """n exp(logits)."""
        return self.total_count * self.logits.exp()

    @property
    def mode(self) -> Tensor:
        """The whole part of (n - 1) exp(logits), at least 0."""
        return ((self.total_count - 1) * self.logits.exp()).floor().clamp(min=0.0)

    @property
    def variance(self) -> Tensor:
        """The mean over the probability of a failure."""
        return self.mean / (-self.logits).sigmoid()

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """See Distribution."""
        with no_grad():
            rate = Gamma(self.total_count, (-self.logits).exp(), validate_args=False).sample(sample_shape)
            return poisson(rate)

    def log_prob(self, value: Any) -> Tensor:
        """See Distribution."""
        value, n = self._checked(value), self.total_count
        chances = n * F.logsigmoid(-self.logits) + value * F.logsigmoid(self.logits)
        volume = -ops.lgamma(n + value) + ops.lgamma(1.0 + value) + ops.lgamma(n)
        made: Tensor = chances - ops.where(n + value == 0.0, 0.0, volume)
        return made


class Poisson(Distribution):
    """rate^k exp(-rate) / k!. Like torch.distributions.Poisson."""

    arg_constraints = {"rate": constraints.nonnegative}  # noqa: RUF012
    support = constraints.nonnegative_integer

    def __init__(self, rate: Any, validate_args: bool | None = None) -> None:
        (self.rate,) = broadcast_all(rate)
        super().__init__(self.rate.shape, (), validate_args)

    @property
    def mean(self) -> Tensor:
        """The rate."""
        return self.rate

    @property
    def mode(self) -> Tensor:
        """⌊rate⌋."""
        return self.rate.floor()

    @property
    def variance(self) -> Tensor:
        """The rate."""
        return self.rate

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """See Distribution."""
        with no_grad():
            return poisson(self.rate.expand(self._extended(sample_shape)).contiguous())

    def log_prob(self, value: Any) -> Tensor:
        """See Distribution."""
        rate, value = broadcast_all(self.rate, self._checked(value))
        return ops.xlogy(value, rate) - rate - ops.lgamma(value + 1)


class Categorical(Distribution):
    """The number of a class, of the last dimension's `probs` or `logits`. Like torch.distributions.Categorical.

    Raises ValueError unless exactly one of both is given, and for one without dimensions.
    """

    has_enumerate_support = True
    arg_constraints = {"probs": constraints.simplex, "logits": constraints.real_vector}  # noqa: RUF012

    def __init__(
        self, probs: Tensor | None = None, logits: Tensor | None = None, validate_args: bool | None = None
    ) -> None:
        if (probs is None) == (logits is None):
            raise ValueError("Either `probs` or `logits` must be specified, but not both.")
        if probs is not None:
            given: Tensor = probs
            if probs.ndim > 0:
                self.__dict__["probs"] = probs / probs.sum(-1, keepdim=True)
        else:
            assert logits is not None
            given = logits
            if logits.ndim > 0:
                self.__dict__["logits"] = logits - logits.logsumexp(-1, keepdim=True)
        if given.ndim < 1:
            name = "logits" if probs is None else "probs"
            raise ValueError(f"`{name}` parameter must be at least one-dimensional.")
        self._given = "probs" if logits is None else "logits"
        self._num_events = given.shape[-1]
        super().__init__(given.shape[:-1], (), validate_args)

    def __getattr__(self, name: str) -> Any:
        with enable_grad():
            if name == "probs" and "logits" in self.__dict__:
                self.probs = self.__dict__["logits"].softmax(-1)
            elif name == "logits" and "probs" in self.__dict__:
                self.logits = _clamped(self.__dict__["probs"]).log()
            else:
                raise AttributeError(name)
        return self.__dict__[name]

    @property
    def _param(self) -> Tensor:
        found: Tensor = self.__dict__[self._given]
        return found

    @property
    def param_shape(self) -> Any:
        """The shape of the given parameter."""
        return self._param.shape

    @constraints.dependent_property(is_discrete=True, event_dim=0)
    def support(self) -> constraints.Constraint:
        """From 0 to the number of classes - 1."""
        return constraints.integer_interval(0, self._num_events - 1)

    @property
    def mean(self) -> Tensor:
        """nan."""
        return self._param.new_full(tuple(self._batch_shape), math.nan)

    @property
    def variance(self) -> Tensor:
        """nan."""
        return self._param.new_full(tuple(self._batch_shape), math.nan)

    @property
    def mode(self) -> Tensor:
        """The most probable class."""
        return self.probs.argmax(-1)

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """See Distribution."""
        given = (sample_shape,) if isinstance(sample_shape, int) else tuple(sample_shape)
        with no_grad():
            rows = self.probs.detach().reshape(-1, self._num_events)
            drawn = multinomial(rows, math.prod(given), True)
            return drawn.transpose(0, 1).reshape(self._extended(sample_shape))

    def log_prob(self, value: Any) -> Tensor:
        """See Distribution."""
        held, logits = self._checked(value).long().unsqueeze(-1), self.logits
        if held.shape[:-1] != logits.shape[:-1]:
            held, logits = ops.broadcast_tensors(held, logits)
            held = held[..., :1]
        made: Tensor = logits.gather(-1, held).squeeze(-1)
        return made

    def entropy(self) -> Tensor:
        """See Distribution."""
        least = dtypes.finfo(self.logits.dtype).min
        return -(self.logits.clamp(min=least) * self.probs).sum(-1)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        """The numbers of all classes."""
        made = arange(self._num_events, device=self._param.device).reshape((-1, *[1] * len(self._batch_shape)))
        return made.expand((-1, *self._batch_shape)) if expand else made


class OneHotCategorical(Distribution):
    """As Categorical, a class being a vector with one 1. Like torch.distributions.OneHotCategorical."""

    support = constraints.one_hot
    has_enumerate_support = True

    def __init__(
        self, probs: Tensor | None = None, logits: Tensor | None = None, validate_args: bool | None = None
    ) -> None:
        self._categorical = Categorical(probs, logits, validate_args)
        super().__init__(self._categorical.batch_shape, self._categorical.param_shape[-1:], validate_args)

    @property
    def probs(self) -> Tensor:
        """The probabilities."""
        return self._categorical.probs

    @property
    def logits(self) -> Tensor:
        """Their logs."""
        return self._categorical.logits

    @property
    def mean(self) -> Tensor:
        """The probabilities."""
        return self.probs

    @property
    def mode(self) -> Tensor:
        """The most probable class."""
        return F.one_hot(self.probs.argmax(-1), self._event_shape[0]).to(self.probs.dtype)

    @property
    def variance(self) -> Tensor:
        """p (1 - p)."""
        return self.probs * (1 - self.probs)

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """See Distribution."""
        return F.one_hot(self._categorical.sample(sample_shape), self._event_shape[0]).to(self.probs.dtype)

    def log_prob(self, value: Any) -> Tensor:
        """See Distribution."""
        return self._categorical.log_prob(self._checked(value).argmax(-1))

    def entropy(self) -> Tensor:
        """See Distribution."""
        return self._categorical.entropy()

    def enumerate_support(self, expand: bool = True) -> Tensor:
        """The unit vectors."""
        size = self._event_shape[0]
        made = eye(size, dtype=self.probs.dtype, device=self.probs.device).reshape(
            (size, *[1] * len(self._batch_shape), size)
        )
        return made.expand((size, *self._batch_shape, size)) if expand else made


class OneHotCategoricalStraightThrough(OneHotCategorical):
    """OneHotCategorical whose samples pass gradients to the probabilities."""

    has_rsample = True

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """See Distribution."""
        drawn = self.sample(sample_shape)
        return drawn + (self.probs - self.probs.detach())

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """See Distribution."""
        with no_grad():
            return super().sample(sample_shape)


class Multinomial(Distribution):
    """How often each class comes in `total_count` draws. Like torch.distributions.Multinomial."""

    def __init__(
        self,
        total_count: int = 1,
        probs: Tensor | None = None,
        logits: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:
        if not isinstance(total_count, int):
            raise NotImplementedError("inhomogeneous total_count is not supported")
        self.total_count = total_count
        self._categorical = Categorical(probs, logits, validate_args)
        super().__init__(self._categorical.batch_shape, self._categorical.param_shape[-1:], validate_args)

    @constraints.dependent_property(is_discrete=True, event_dim=1)
    def support(self) -> Any:
        """Counts of `total_count` draws."""
        return constraints.multinomial(self.total_count)

    @property
    def probs(self) -> Tensor:
        """The probabilities."""
        return self._categorical.probs

    @property
    def logits(self) -> Tensor:
        """Their logs."""
        return self._categorical.logits

    @property
    def mean(self) -> Tensor:
        """n p."""
        return self.probs * self.total_count

    @property
    def variance(self) -> Tensor:
        """n p (1 - p)."""
        return self.total_count * self.probs * (1 - self.probs)

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """See Distribution."""
        given = (sample_shape,) if isinstance(sample_shape, int) else tuple(sample_shape)
        drawn = self._categorical.sample((self.total_count, *given))
        return F.one_hot(drawn, self._event_shape[0]).sum(0).to(self.probs.dtype)

    def log_prob(self, value: Any) -> Tensor:
        """See Distribution."""
        value = self._checked(value)
        logits, held = broadcast_all(self.logits, value)
        logits = ops.where((held == 0) & (logits == -math.inf), 0.0, logits)
        return ops.lgamma(held.sum(-1) + 1) - ops.lgamma(held + 1).sum(-1) + (logits * held).sum(-1)

    def entropy(self) -> Tensor:
        """See Distribution."""
        n = self.total_count
        each = Binomial(n, probs=self.probs, validate_args=False)
        counts = each.enumerate_support(False)[1:]
        ways = (each.log_prob(counts).exp() * ops.lgamma(counts + 1)).sum((0, -1))
        return n * self._categorical.entropy() - math.lgamma(n + 1) + ways
