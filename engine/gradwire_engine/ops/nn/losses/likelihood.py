"""Negative log-likelihood losses of the Poisson and the normal distribution."""

from __future__ import annotations

import math
from typing import Any

from gradwire_engine.core.device import Array
from gradwire_engine.core.dtypes import Number
from gradwire_engine.core.errors import EngineError, Reason
from gradwire_engine.core.schema import Reduction
from gradwire_engine.graph.tensor import Tensor
from gradwire_engine.op.composite import composite
from gradwire_engine.op.op import op
from gradwire_engine.ops.base.compare import le
from gradwire_engine.ops.base.fill import masked_fill, zeros
from gradwire_engine.ops.elementwise.unary import exp, log
from gradwire_engine.ops.nn.losses.loss import reduce_op, reduction_of
from gradwire_engine.ops.shape.shape import unsqueeze


@composite
def poisson_nll_loss(
    input: Array,
    target: Array,
    log_input: bool = True,
    full: bool = False,
    size_average: bool | None = None,
    eps: float = 1e-8,
    reduce: bool | None = None,
    reduction: Reduction = "mean",
) -> Any:
    """Negative log-likelihood of target for the rate exp(input), or input (torch.nn.functional.poisson_nll_loss).

    full: add Stirling's approximation of the term that depends only on target, where target exceeds 1.
    Raises EngineError: ARGUMENT_VALUE for another reduction.
    """
    wanted = reduction_of(size_average, reduce, reduction)
    loss = exp(input) - target * input if log_input else input - target * log(input + eps)
    if full:
        stirling = target * log(target) - target + 0.5 * log(2 * math.pi * target)
        loss = loss + masked_fill(stirling, le(target, 1), 0)
    return reduce_op(loss, wanted)


@op(name="_not_below", node="CloneBackward0", cost=4)
def _not_below(xp: Any, input: Array, low: float) -> Array:
    """max(input, low), whose gradient passes unchanged."""
    return xp.maximum(input, input.dtype.type(low))


_not_below.grad(input=lambda g: g)


def _checked_variance(input: Any, var: Any) -> Any:
    """Check the variance and expand it to broadcast with the input. Raises EngineError: ARGUMENT_VALUE."""
    if not hasattr(var, "dtype"):
        if var < 0:
            raise EngineError(Reason.ARGUMENT_VALUE, "var has negative entry/entries")
        return zeros(input) + var
    if bool(((var.array if type(var) is Tensor else var) < 0).any()):
        raise EngineError(Reason.ARGUMENT_VALUE, "var has negative entry/entries")
    if var.shape == input.shape:
        return var
    if var.shape == input.shape[:-1]:
        return unsqueeze(var, -1)
    if var.ndim == input.ndim and [m for n, m in zip(input.shape, var.shape, strict=True) if n != m] == [1]:
        return var
    raise EngineError(Reason.ARGUMENT_VALUE, "var is of incorrect size")


@composite(reads_values=True)
def gaussian_nll_loss(
    input: Array,
    target: Array,
    var: Array | Number,
    full: bool = False,
    eps: float = 1e-6,
    reduction: Reduction = "mean",
) -> Any:
    """Negative log-likelihood of target for mean input and variance var (torch.nn.functional.gaussian_nll_loss).

    var: of the input's shape, or with the last dimension 1 or missing; clamped to at least eps. full: add the constant
    term. Raises EngineError: ARGUMENT_VALUE for a negative variance, a wrong shape or another reduction.
    """
    spread = _checked_variance(input, var)
    if reduction not in ("none", "mean", "sum"):
        raise EngineError(Reason.ARGUMENT_VALUE, f"{reduction} is not valid")
    spread = _not_below(spread, eps)
    loss = 0.5 * (log(spread) + (input - target) ** 2 / spread)
    return reduce_op(loss + 0.5 * math.log(2 * math.pi) if full else loss, reduction)


gaussian_nll_loss.unsupported("i", message="result type Float can't be cast to the desired output type", of=("var",))
gaussian_nll_loss.unsupported("c", "lt_cpu")
