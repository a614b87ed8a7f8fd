"""Batching rules of forward mode: a dual tensor of a sample is one of the batch. Ops on it then map as usual."""

from __future__ import annotations

from typing import Any

from gradwire.func._batched import spread
from gradwire.func.rules.calls import OpCall, rule


@rule("make_dual dual_tangent dual_primal")
def dual(call: OpCall) -> Any:
    """The op of the values, each with the batch in front."""
    call.set("input", call.first())
    if call.base == "make_dual":
        call.set("tangent", spread(call.get("tangent"), call.level))
    return call.wrap(call.run())
