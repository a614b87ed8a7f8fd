"""Batching rules of random numbers: none, the same for all samples, or different per sample, by vmap's `randomness`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gradwire._tensor import ops
from gradwire._tensor.call import _call
from gradwire.func._batched import LEVELS, BatchedTensor, Level, UnmappableError, value_at
from gradwire.func.rules.calls import OpCall, refuse_in_place, rule
from gradwire.func.rules.elementwise import elementwise

FACTORIES = frozenset(["rand", "randn", "randint", "randperm", "normal"])


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


def draw(op: str, args: tuple[Any, ...], kwargs: Sequence[tuple[str, Any]], levels: tuple[Level, ...]) -> Any:
    """Random numbers without a batched operand: for each sample its own, or the same for all."""
    level = levels[-1]
    check_random(level, op)
    if level.randomness == "same":
        if len(levels) == 1:
            return NotImplemented
    elif op in ("rand", "randn"):
        args = ((level.size, *args[0]),)
    elif op == "randint":
        args = (*args[:2], (level.size, *args[2]))
    else:
        raise UnmappableError(f"vmap: there is no batching rule for {op} with randomness='different'")
    token = LEVELS.set(levels[:-1])
    try:
        made = _call(op, args, tuple(kwargs))
    finally:
        LEVELS.reset(token)
    return made if level.randomness == "same" else BatchedTensor(made, level)


@rule(
    "dropout alpha_dropout bernoulli rand_like randn_like randint_like uniform normal exponential geometric cauchy "
    "log_normal random"
)
def random(call: OpCall) -> Any:
    level = call.level
    refuse_in_place(call)
    if "training" in call.names and not call.get("training", call.base == "dropout"):
        return call.args[0]
    check_random(level, call.op)
    if level.randomness == "different":
        return elementwise(call)
    target = call.args[0]
    if call.base in ("dropout", "alpha_dropout", "bernoulli"):
        if call.base != "dropout" or call.in_place:
            raise UnmappableError(f"vmap: there is no batching rule for {call.op} with randomness='same'")
        ones = ops.ones_like(value_at(target, level).select(0, 0).detach())
        return target * _call("dropout", (ones, *call.args[1:]), tuple(call.kwargs.items()))
    if call.in_place:
        drawn = ops.clone(value_at(target, level).select(0, 0))
        call.args[0] = drawn
        target.copy_(call.run())
        return target
    call.args[0] = value_at(target, level).select(0, 0)
    return call.run()
