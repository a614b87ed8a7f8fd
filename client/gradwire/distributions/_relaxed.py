"""Relaxed discrete distributions: samples are continuous, so gradients reach the probabilities."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gradwire.distributions.constraints as constraints
from gradwire._functions.create import full_like
from gradwire._tensor import ops
from gradwire._tensor.tensor import Tensor
from gradwire.distributions._base import Distribution, broadcast_all
from gradwire.distributions._discrete import Categorical, _Odds
from gradwire.distributions._joined import TransformedDistribution
from gradwire.distributions._utils import clamp_probs
from gradwire.distributions.transforms import ExpTransform, SigmoidTransform

__all__ = ["ExpRelaxedCategorical", "LogitRelaxedBernoulli", "RelaxedBernoulli", "RelaxedOneHotCategorical"]


class LogitRelaxedBernoulli(_Odds):
    """The logit of a RelaxedBernoulli variable. Like torch.distributions' LogitRelaxedBernoulli."""

    support = constraints.real
    has_rsample = True

    def __init__(
        self, temperature: Any, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        self.temperature = temperature
        super().__init__(self._take(probs, logits).shape, (), validate_args)

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> LogitRelaxedBernoulli:
        """See Distribution."""
        made = super().expand(batch_shape)
        made.temperature = self.temperature
        return made

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """See Distribution."""
        shape = self._extended(sample_shape)
        probs = clamp_probs(self.probs.expand(shape))
        drawn = clamp_probs(probs.new_empty(shape).uniform_())
        made: Tensor = (drawn.log() - (-drawn).log1p() + probs.log() - (-probs).log1p()) / self.temperature
        return made

    def log_prob(self, value: Any) -> Tensor:
        """See Distribution."""
        logits, held = broadcast_all(self.logits, self._checked(value))
        away = logits - held * self.temperature
        made: Tensor = self.temperature.log() + away - 2 * away.exp().log1p()
        return made


class _Relaxed(TransformedDistribution):
    """A relaxed distribution through a transform: its parameters are those of the relaxed one."""

    @property
    def temperature(self) -> Any:
        """The base's."""
        return self.base_dist.temperature

    @property
    def logits(self) -> Tensor:
        """The base's."""
        return self.base_dist.logits

    @property
    def probs(self) -> Tensor:
        """The base's."""
        return self.base_dist.probs


class RelaxedBernoulli(_Relaxed):
    """Bernoulli variables made continuous by a temperature. Like torch.distributions.RelaxedBernoulli."""

    arg_constraints = {"probs": constraints.unit_interval, "logits": constraints.real}  # noqa: RUF012
    support = constraints.unit_interval

    def __init__(
        self, temperature: Any, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        base = LogitRelaxedBernoulli(temperature, probs, logits)
        super().__init__(base, SigmoidTransform(), validate_args)


class ExpRelaxedCategorical(Distribution):
    """The logarithm of a RelaxedOneHotCategorical variable. Like torch.distributions' ExpRelaxedCategorical."""

    arg_constraints = {"probs": constraints.simplex, "logits": constraints.real_vector}  # noqa: RUF012
    support = constraints.real_vector  # the true support is a submanifold of this
    has_rsample = True

    def __init__(
        self, temperature: Any, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        self._categorical = Categorical(probs, logits)
        self.temperature = temperature
        super().__init__(self._categorical.batch_shape, self._categorical.param_shape[-1:], validate_args)

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> ExpRelaxedCategorical:
        """See Distribution."""
        made = super().expand(batch_shape)
        made.temperature = self.temperature
        return made

    @property
    def param_shape(self) -> Any:
        """The shape of the given parameter."""
        return self._categorical.param_shape

    @property
    def logits(self) -> Tensor:
        """The logs of the probabilities."""
        return self._categorical.logits

    @property
    def probs(self) -> Tensor:
        """The probabilities."""
        return self._categorical.probs

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """See Distribution."""
        logits = self.logits
        drawn = clamp_probs(logits.new_empty(self._extended(sample_shape)).uniform_())
        scores = (logits - (-drawn.log()).log()) / self.temperature
        made: Tensor = scores - scores.logsumexp(-1, keepdim=True)
        return made

    def log_prob(self, value: Any) -> Tensor:
        """See Distribution."""
        count = self._categorical._num_events
        logits, held = broadcast_all(self.logits, self._checked(value))
        temperature = self.temperature
        volume = ops.lgamma(full_like(temperature, float(count))) + temperature.log() * (count - 1)
        score = logits - held * temperature
        made: Tensor = (score - score.logsumexp(-1, keepdim=True)).sum(-1) + volume
        return made


class RelaxedOneHotCategorical(_Relaxed):
    """OneHotCategorical made continuous by a temperature. Like torch.distributions.RelaxedOneHotCategorical."""

    arg_constraints = {"probs": constraints.simplex, "logits": constraints.real_vector}  # noqa: RUF012
    support = constraints.simplex

    def __init__(
        self, temperature: Any, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        base = ExpRelaxedCategorical(temperature, probs, logits, validate_args=validate_args)
        super().__init__(base, ExpTransform(), validate_args)
