"""Batching rules of random numbers: none, the same for all samples, or different per sample, by vmap's `randomness`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from gradwire._base.errors import refuse
from gradwire._tensor import ops
from gradwire._tensor.call import _call
from gradwire._tensor.tensor import Tensor
from gradwire.func._batched import LEVELS, BatchedTensor, Level, UnmappableError, is_batched, spread, value_at
from gradwire.func.rules.calls import RULES, OpCall, Rule, refuse_in_place, rule
from gradwire.func.rules.elementwise import elementwise

# Ops that take a size, and its place among their arguments.
_SIZES = {"rand": 0, "randn": 0, "randint": 2, "normal": 2}
# Ops whose first operand, unless they write into it, has parameters of the distribution.
_BY_PARAMETERS = frozenset(["bernoulli", "normal", "poisson", "binomial"])
# Ops that draw only if `training` says so.
_EVALUATING = frozenset(["alpha_dropout", "feature_alpha_dropout", "rrelu"])
_SAME_OF_SAMPLES = (
    "Vmap does not currently support same randomness with a batched tensor input. Please file an issue with functorch"
)
# SELU's limit at -inf, the value of what alpha_dropout drops.
_SATURATION = -1.7580993408473766


def check_random(level: Level, op: str) -> None:
    """Refuse a random op if vmap has no `randomness`."""
    if level.maps_functions:
        raise UnmappableError(
            "vmap: We do not yet support calling random operations inside of vmap. Please perform random operations "
            f"outside of vmap as a workaround ({op})"
        )
    if level.randomness == "error":
        raise UnmappableError(
            f"vmap: called random operation while in randomness error mode ({op}). Please either use the 'same' or "
            "'different' randomness flags on vmap or perform the randomness operation out of vmap"
        )


def draws(call: OpCall) -> bool:
    """Whether a call of an op that may draw random numbers draws some."""
    if "dropout_p" in call.names and call.get("dropout_p", 0.0) in (0, 1):
        return False
    if "dropout" in call.base and (call.get("p", 0.5) in (0, 1) or 0 in call.args[0].shape):
        return False
    return "training" not in call.names or bool(call.get("training", call.base not in _EVALUATING))


def draw(call: OpCall, tensors: Sequence[Any], levels: tuple[Level, ...]) -> Any:
    """Random numbers: for each sample of the innermost vmap its own, or the same for all.

    The vmaps around it decide in turn, since the call is made again for them.
    """
    level = call.level
    check_random(level, call.op)
    token = LEVELS.set(levels[:-1])
    try:
        if any(is_batched(each, level) for each in tensors):
            return _rule_of(call)(call)
        if level.randomness == "same":
            return call.run()
        return _drawn_for_each(call)
    finally:
        LEVELS.reset(token)


def _rule_of(call: OpCall) -> Rule:
    found = RULES.get(call.base)
    if found is None:
        raise UnmappableError(
            f"vmap: there is no batching rule for {call.op} with randomness={call.level.randomness!r}"
        )
    return found


def _drawn_for_each(call: OpCall) -> Any:
    """Different numbers for each sample, where the samples share all operands."""
    level = call.level
    if call.in_place:
        raise UnmappableError(
            "vmap: Cannot ask for different inplace randomness on an unbatched tensor. This will appear like same "
            "randomness. If this is necessary for your usage, please file an issue with functorch."
        )
    place = _SIZES.get(call.op)
    if place is not None and place < len(call.args) and call.args[place] is not None:
        size = call.args[place]
        call.args[place] = (level.size, *((size,) if isinstance(size, int) else size))
        return BatchedTensor(call.run(), level)
    if call.op == "randperm":  # one draw after the other, as PyTorch's
        return BatchedTensor(ops.stack([call.run() for _ in range(level.size)]), level)
    place = next((place for place, each in enumerate(call.args) if isinstance(each, Tensor)), None)
    if place is None or call.base not in RULES:
        raise UnmappableError(f"vmap: there is no batching rule for {call.op} with randomness='different'")
    call.args[place] = BatchedTensor(spread(call.args[place], level), level)
    return RULES[call.base](call)


@rule(
    "dropout bernoulli rand_like randn_like randint_like uniform normal exponential geometric cauchy "
    "log_normal random poisson binomial"
)
def random(call: OpCall) -> Any:
    """Of a call that draws, at least one operand of which is batched; or that does not draw."""
    level = call.level
    refuse_in_place(call)
    if not draws(call):
        return elementwise(call) if _drops_all(call) else call.args[0]
    if level.randomness == "different":
        return elementwise(call)
    target = call.args[0]
    parameters = (*call.args[1:], *call.kwargs.values())
    if call.base in _BY_PARAMETERS and not call.in_place:
        parameters += (target,)
    if any(is_batched(each, level) for each in parameters):
        raise UnmappableError(_SAME_OF_SAMPLES)
    if call.base == "dropout":
        ones = ops.ones_like(value_at(target, level).select(0, 0).detach())
        mask = _call("dropout", (ones, *call.args[1:]), tuple(call.kwargs.items()))
        return target.mul_(mask) if call.in_place else target * mask
    if call.in_place:
        drawn = ops.clone(value_at(target, level).select(0, 0))
        call.args[0] = drawn
        target.copy_(call.run())
        return target
    call.args[0] = value_at(target, level).select(0, 0)
    return call.run()


@rule("dropout1d dropout2d dropout3d feature_alpha_dropout alpha_dropout")
def dropped(call: OpCall) -> Any:
    """Dropout of channels or by SELU's values, of a batched input. Samples have masks of their own, or share one."""
    level, p = call.level, call.get("p", 0.5)
    refuse_in_place(call)
    value = call.first()
    sample = value.select(0, 0).detach()
    if not draws(call):
        made = call.args[0]
        if call.base == "dropout1d":
            call.args[0] = sample
            call.run()  # refuses a sample of other than two or three dimensions
        return made * 0 if _drops_all(call) else made
    if level.randomness == "same" and 0 < p < 1:
        mask = _mask(call, ops.ones_like(sample))
        made = call.args[0] * mask if "alpha" not in call.base else _saturated(call.args[0], mask != 0, p)
        return call.args[0].copy_(made) if call.in_place else made
    if call.base == "alpha_dropout":
        return elementwise(call)
    if _is_lone(call.base, sample):  # the samples are the batch, whatever their dimensions
        return BatchedTensor(_call("dropout2d", (value, p, True)), level)
    call.args[0] = sample if sample.dim() < 2 else value.flatten(0, 1)
    made = call.run()  # refuses a sample of fewer than two dimensions
    return BatchedTensor(made.reshape(value.shape), level)


def _is_lone(base: str, sample: Tensor) -> bool:
    """Whether a sample has channels in front, and no batch of its own."""
    ndim = sample.dim()
    return (base == "dropout1d" and ndim == 2) or (base == "dropout3d" and ndim > 0 and ndim != 5)


def _drops_all(call: OpCall) -> bool:
    """Whether a dropout gives zeros, which needs no draw."""
    return bool(call.get("training", call.base not in _EVALUATING)) and call.get("p", 0.5) == 1


def _mask(call: OpCall, ones: Tensor) -> Any:
    """What one sample's dropout keeps, scaled; the draws of alpha_dropout are those of dropout."""
    op = {"alpha_dropout": "dropout", "feature_alpha_dropout": "dropout2d"}.get(call.base, call.base)
    return _call(op, (ones, call.get("p", 0.5), True))


def _saturated(target: Any, kept: Any, p: float) -> Any:
    """alpha_dropout by a mask (torch.nn.functional.alpha_dropout)."""
    scale = 1 / math.sqrt((_SATURATION * _SATURATION * p + 1) * (1 - p))
    kept = kept.to(target.dtype)
    return target * (kept * scale) + ((1 - kept) * (_SATURATION * scale) - _SATURATION * scale * p)


@rule("multinomial")
def multinomial(call: OpCall) -> Any:
    """Indices by each sample's weights. One draw has the rows of all samples, as PyTorch's."""
    level = call.level
    if level.randomness == "same":
        raise UnmappableError(_SAME_OF_SAMPLES)
    weights = call.first()
    if weights.dim() not in (2, 3):
        raise refuse("prob_dist must be 1 or 2 dim")
    call.args[0] = weights.flatten(0, -2) if weights.dim() == 3 else weights
    return BatchedTensor(call.run().unflatten(0, weights.shape[:-1]), level)
