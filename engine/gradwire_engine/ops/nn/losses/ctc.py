"""ctc_loss: connectionist temporal classification.

The forward-backward recursion in logarithms, one time step after another, over all samples at once. The states are
the targets with blanks before, between and after them. As in PyTorch the gradient assumes normalized
log-probabilities, and is not differentiable.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gradwire_engine.core import dtypes
from gradwire_engine.core.device import Array, host, module_of
from gradwire_engine.core.errors import EngineError, Reason
from gradwire_engine.core.schema import Reduction
from gradwire_engine.graph.tensor import Tensor
from gradwire_engine.op.composite import composite
from gradwire_engine.op.cost import LOOP, counted
from gradwire_engine.op.op import op
from gradwire_engine.ops.base.fill import ones
from gradwire_engine.ops.nn.losses.loss import reduction_of
from gradwire_engine.ops.reduce.reduce import mean
from gradwire_engine.ops.reduce.reduce import sum as total
from gradwire_engine.ops.shape.shape import squeeze, unsqueeze

Ints = Any


def _states(xp: Any, targets: Array, blank: int) -> tuple[Array, Array]:
    """Label of each state (n, states), and whether a transition from two states before is allowed."""
    labels = xp.full((targets.shape[0], 2 * targets.shape[1] + 1), blank, dtypes.int64)
    labels[:, 1::2] = targets
    skips = xp.zeros(labels.shape, bool)
    skips[:, 2:] = (labels[:, 2:] != blank) & (labels[:, 2:] != labels[:, :-2])
    return labels, skips


def _recursion(xp: Any, emitted: Array, skips: Array, starts: Array, first: Array) -> Array:
    """Log-probability of all paths to each state at each time (t, n, states).

    first: time at which each sample starts. starts: states in which it may start.
    """
    found = xp.full(emitted.shape, -np.inf, emitted.dtype)
    before = found[0]
    for time in range(len(emitted)):
        ways = before.copy()
        ways[:, 1:] = xp.logaddexp(ways[:, 1:], before[:, :-1])
        ways[:, 2:] = xp.where(skips[:, 2:], xp.logaddexp(ways[:, 2:], before[:, :-2]), ways[:, 2:])
        ways = xp.where((first == time)[:, None], xp.where(starts, 0.0, -np.inf).astype(ways.dtype), ways)
        before = found[time] = ways + emitted[time]
    return found


def _forward(xp: Any, log_probs: Array, labels: Array, skips: Array, lengths: Any, sizes: Any) -> tuple[Any, ...]:
    """Emitted log-probabilities, log-probabilities of the paths to each state, and the losses."""
    emitted = xp.take_along_axis(log_probs, xp.broadcast_to(labels, (len(log_probs), *labels.shape)), 2)
    emitted = emitted.astype(dtypes.float64, copy=False)  # sums over many paths lose digits of float32
    state = xp.arange(labels.shape[1])
    starts = (state <= 1) & (state <= 2 * sizes[:, None])
    ways = _recursion(xp, emitted, skips, starts, xp.zeros(len(labels), dtypes.int64))
    ends = (state <= 2 * sizes[:, None]) & (state >= 2 * sizes[:, None] - 1)
    last = ways[xp.maximum(lengths - 1, 0), xp.arange(len(labels))]
    last = xp.where(ends, last, -np.inf)
    spelled = xp.logaddexp.reduce(last, axis=1) if xp is np else xp.log(xp.exp(last).sum(1))
    spelled = xp.where(lengths > 0, spelled, xp.where(sizes == 0, 0.0, -np.inf))
    return emitted, ways, -spelled, ends


def _spelled_cost(log_probs: Any, targets: Any, *rest: Any) -> Any:
    steps, samples, _ = log_probs.shape
    states = 2 * targets.shape[-1] + 1
    return steps * LOOP + 60.0 * steps * samples * states + 20.0 * log_probs.size


def _spelled_back_cost(log_probs: Any, targets: Any, *rest: Any) -> Any:
    states = 2 * targets.shape[-1] + 1
    return (
        3.0 * _spelled_cost(log_probs, targets)
        + states * LOOP
        + 20.0 * log_probs.shape[0] * log_probs.shape[1] * states
    )


@op(name="_ctc_loss", node="CtcLossBackward0", cost=counted(_spelled_cost, _spelled_back_cost))
def _ctc_loss(
    xp: Any, log_probs: Array, targets: Array, lengths: Array, sizes: Array, blank: int, zero_infinity: bool
) -> Array:
    labels, skips = _states(xp, targets, blank)
    losses = _forward(xp, log_probs, labels, skips, lengths, sizes)[2].astype(log_probs.dtype)
    return xp.where(xp.isinf(losses), losses.dtype.type(0), losses) if zero_infinity else losses


_ctc_loss.works_in(backward=5.0)


@op(name="_ctc_loss_backward", cost=counted(lambda g, *rest: _spelled_back_cost(*rest)))
def _ctc_loss_backward(
    xp: Any, g: Array, log_probs: Array, targets: Array, lengths: Array, sizes: Array, blank: int, zero_infinity: bool
) -> Array:
    """Gradient: probability of each class, minus the posterior probability of being in one of its states."""
    labels, skips = _states(xp, targets, blank)
    emitted, ways, losses, ends = _forward(xp, log_probs, labels, skips, lengths, sizes)
    steps = len(log_probs)
    # The backward recursion is the forward recursion on reversed times and states, so the skips are reversed too.
    leaves = xp.zeros(skips.shape, bool)
    leaves[:, :-2] = skips[:, 2:]
    onward = _recursion(xp, emitted[::-1, :, ::-1], leaves[:, ::-1], ends[:, ::-1], steps - xp.maximum(lengths, 1))[
        ::-1, :, ::-1
    ]
    together = xp.where(xp.isinf(ways) | xp.isinf(onward), -np.inf, ways + onward - emitted + losses[:, None])
    share = xp.exp(together).astype(log_probs.dtype)
    slope = xp.exp(log_probs)
    rows = xp.arange(len(labels))
    for state in range(labels.shape[1]):
        slope[:, rows, labels[:, state]] -= share[:, :, state]
    spoken = xp.arange(steps)[:, None] < lengths
    if zero_infinity:
        spoken = spoken & ~xp.isinf(losses)
    return xp.where(spoken[..., None], slope * g[:, None], log_probs.dtype.type(0))


def _no_second_derivative(g: Any) -> Any:
    raise EngineError(Reason.RUNTIME, "derivative for aten::_ctc_loss_backward is not implemented")


_ctc_loss.grad(
    log_probs=lambda g, log_probs, targets, lengths, sizes, blank, zero_infinity: _ctc_loss_backward(
        g, log_probs, targets, lengths, sizes, blank, zero_infinity
    )
)
_ctc_loss.tangent(
    lambda t_log_probs, log_probs, out, targets, lengths, sizes, blank, zero_infinity: total(
        t_log_probs * _ctc_loss_backward(ones(out), log_probs, targets, lengths, sizes, blank, zero_infinity), (0, 2)
    )
)
_ctc_loss_backward.grad(g=_no_second_derivative, log_probs=_no_second_derivative)


def _numbers(value: Any) -> Any:
    return host(value.array if type(value) is Tensor else value).reshape(-1).astype(np.int64)


def _padded(targets: Any, sizes: Any) -> Any:
    """Targets as a matrix, one row per sample; concatenated targets are split by their lengths."""
    values = host(targets.array if type(targets) is Tensor else targets).astype(np.int64)
    longest = int(sizes.max(initial=0))
    if values.ndim == 1:
        if values.size != sizes.sum():
            raise EngineError(
                Reason.RUNTIME,
                f"Expected targets of size {int(sizes.sum())}, the sum of target_lengths, got {values.size}",
            )
        rows = np.zeros((len(sizes), longest), np.int64)
        rows[np.arange(longest) < sizes[:, None]] = values
        return rows
    if values.shape[0] != len(sizes) or values.shape[1] < longest:
        raise EngineError(
            Reason.RUNTIME,
            f"Expected tensor to have size at least {longest} at dimension 1, but got size {list(values.shape)} for "
            "argument targets",
        )
    return np.where(np.arange(longest) < sizes[:, None], values[:, :longest], 0)


def _check(log_probs: Any, targets: Any, lengths: Any, sizes: Any, blank: int) -> None:
    steps, samples, classes = log_probs.shape
    if dtypes.category(log_probs.dtype) != dtypes.FLOAT or dtypes.is_half(log_probs.dtype):
        raise EngineError(
            Reason.NOT_SUPPORTED, f"\"ctc_loss_cpu\" not implemented for '{dtypes.TITLES[log_probs.dtype]}'"
        )
    if not 0 <= blank < classes:
        raise EngineError(Reason.RUNTIME, "blank must be in label range")
    for name, given in (("input_lengths", lengths), ("target_lengths", sizes)):
        if len(given) != samples:
            raise EngineError(Reason.RUNTIME, f"{name} must be of size batch_size")
        if given.min(initial=0) < 0:
            raise EngineError(Reason.RUNTIME, f"Expected {name} to have value at least 0")
    if lengths.max(initial=0) > steps:
        raise EngineError(
            Reason.RUNTIME,
            f"Expected input_lengths to have value at most {steps}, but got value {int(lengths.max())}",
        )
    if targets.size and not (targets.min() >= 0 and targets.max() < classes):
        raise EngineError(Reason.RUNTIME, f"targets must be in label range, from 0 to {classes - 1}")


@composite(reads_values=True)
def ctc_loss(
    log_probs: Array,
    targets: Array,
    input_lengths: Array,
    target_lengths: Array,
    blank: int = 0,
    reduction: Reduction = "mean",
    zero_infinity: bool = False,
) -> Any:
    """-log of the probability of all alignments of log_probs with the targets (torch.nn.functional.ctc_loss).

    log_probs: (t, n, classes) or (t, classes), normalized; targets: (n, s), or all in one vector; the lengths: (n,).
    "mean" divides each loss by its target's length first. Raises EngineError: RUNTIME, ARGUMENT_VALUE.
    """
    wanted = reduction_of(None, None, reduction)
    single = log_probs.ndim == 2
    batch = unsqueeze(log_probs, 1) if single else log_probs
    lengths, sizes = _numbers(input_lengths), _numbers(target_lengths)
    rows = _padded(targets, sizes)
    _check(batch, rows, lengths, sizes, blank)
    array = batch.array if type(batch) is Tensor else batch
    xp = module_of(array)
    like = Tensor if type(batch) is Tensor else (lambda value: value)
    losses = _ctc_loss(
        batch, like(xp.asarray(rows)), like(xp.asarray(lengths)), like(xp.asarray(sizes)), blank, zero_infinity
    )
    if wanted == "mean":
        return mean(losses / like(xp.asarray(np.maximum(sizes, 1)).astype(array.dtype)))
    if wanted == "sum":
        return total(losses)
    return squeeze(losses, 0) if single else losses
