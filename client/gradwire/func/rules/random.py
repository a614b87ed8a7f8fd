"""Batching rules of random numbers: none, the same for all samples, or different per sample, by vmap's `randomness`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gradwire._tensor import ops
from gradwire._tensor.call import _call
from gradwire.func._batched import LEVELS, BatchedTensor, Level, UnmappableError, is_batched, spread, value_at
from gradwire.func.rules.calls import RULES, OpCall, Rule, refuse_in_place, rule
from gradwire.func.rules.elementwise import elementwise

# Ops that draw for each element of their first operand.
_ELEMENTWISE = frozenset(
    ["dropout", "alpha_dropout", "bernoulli", "poisson", "binomial", "rand_like", "randn_like", "randint_like"]
)
# Ops whose first operand, unless they write into it, has parameters of the distribution.
_BY_PARAMETERS = frozenset(["bernoulli", "normal", "poisson", "binomial"])
# Ops that draw only if `training` says so.
_EVALUATING = frozenset(["alpha_dropout", "feature_alpha_dropout", "rrelu"])


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
    if "dropout_p" in call.names and not call.get("dropout_p", 0.0):
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
    if call.op in ("rand", "randn"):
        call.args[0] = (level.size, *call.args[0])
    elif call.op == "randint":
        call.args[2] = (level.size, *call.args[2])
    elif call.op in _ELEMENTWISE:
        call.args[0] = BatchedTensor(spread(call.args[0], level), level)
        return elementwise(call)
    else:
        raise UnmappableError(f"vmap: there is no batching rule for {call.op} with randomness='different'")
    return BatchedTensor(call.run(), level)


@rule(
    "dropout alpha_dropout bernoulli rand_like randn_like randint_like uniform normal exponential geometric cauchy "
    "log_normal random poisson binomial"
)
def random(call: OpCall) -> Any:
    """Of a call that draws, at least one operand of which is batched; or that does not draw."""
    level = call.level
    refuse_in_place(call)
    if not draws(call):
        return call.args[0]
    if level.randomness == "different":
        return elementwise(call)
    target = call.args[0]
    parameters = (*call.args[1:], *call.kwargs.values())
    if call.base in _BY_PARAMETERS and not call.in_place:
        parameters += (target,)
    if any(is_batched(each, level) for each in parameters):
        raise UnmappableError(
            "Vmap does not currently support same randomness with a batched tensor input. Please file an issue with "
            "functorch"
        )
    if call.base == "alpha_dropout":
        raise UnmappableError(f"vmap: there is no batching rule for {call.op} with randomness='same'")
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
