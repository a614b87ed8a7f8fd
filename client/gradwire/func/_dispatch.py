"""From an op's call with batched tensors among its operands to the batching rule of the innermost level."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gradwire._proxy.handle import Handle
from gradwire._proxy.memo import DRAWING_OPS
from gradwire._tensor.call import _parameters
from gradwire._tensor.in_place import writes_in_place
from gradwire._tensor.indexing import Index
from gradwire.func._batched import LEVELS, UnmappableError, innermost
from gradwire.func.rules import RULES, OpCall, draw, draws


def dispatch(op: str, args: tuple[Any, ...], kwargs: Sequence[tuple[str, Any]], result: Any) -> Any:
    """The op's result; NotImplemented for a call that has nothing to do with a vmap."""
    tensors: list[Handle] = []
    _collect(args, tensors)
    _collect([value for _, value in kwargs], tensors)
    level = innermost(tensors)
    in_place = writes_in_place(op)
    base = op[:-1] if in_place else op
    if op in DRAWING_OPS and (levels := LEVELS.get()):
        # Samples that share all operands still need numbers of their own, so the innermost vmap decides.
        call = OpCall(op, base, in_place, args, kwargs, result, levels[-1], _parameters(base)[0])
        if draws(call):
            return draw(call, tensors, levels)
    if level is None:
        return NotImplemented
    rule = RULES.get(base)
    if rule is None:
        raise UnmappableError(
            f"vmap: there is no batching rule for {op}. Call it outside of vmap, or write it in ops that have one "
            "(elementwise ops, products, reductions, shapes and indices)."
        )
    return rule(OpCall(op, base, in_place, args, kwargs, result, level, _parameters(base)[0]))


def _collect(values: Sequence[Any], into: list[Handle]) -> None:
    for value in values:
        if isinstance(value, Handle):
            into.append(value)
        elif isinstance(value, (list, tuple)):
            _collect(value, into)
        elif isinstance(value, Index):
            _collect(value.items, into)
