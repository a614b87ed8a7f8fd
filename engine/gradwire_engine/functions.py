"""Custom functions: a node for tensors that the outside has computed and whose derivative only the outside knows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gradwire_engine.context import CURRENT
from gradwire_engine.device import Array
from gradwire_engine.dtypes import is_differentiable
from gradwire_engine.errors import EngineError, Reason
from gradwire_engine.graph import FunctionNode, Meta, Saved
from gradwire_engine.hooks import Ask, hooks_of
from gradwire_engine.op import op
from gradwire_engine.rebase import rewrite
from gradwire_engine.refusals import check_in_place
from gradwire_engine.tensor import Tensor, edge_of


@op(name="_function", node="Function")
def function(xp: Any, input: Array) -> Array:
    """What stands in the nodes of custom functions; it computes nothing itself."""
    return input


def record_function(
    name: str,
    ask: Ask | None,
    inputs: Sequence[Tensor | None],
    outputs: Sequence[Tensor],
    saved: Sequence[Tensor | None] = (),
    dirty: Sequence[Tensor] = (),
    constant: Sequence[Tensor] = (),
    materializes: bool = True,
) -> FunctionNode | None:
    """Let `outputs` be a function's results of `inputs` from now on (torch.autograd.Function).

    outputs: fresh leaves, or inputs that were changed in place, which `dirty` lists too. constant: those of the outputs
    that no gradient flows through. saved: what the formula, asked for by `ask`, is given; without `ask` each output's
    gradient is that of the input of the same place. Answers the node, None if no input requires grad.
    Raises EngineError: LEAF_IN_PLACE, RUNTIME; then nothing has changed.
    """
    edges = tuple(None if item is None else edge_of(item) for item in inputs)
    if not any(edge is not None for edge in edges):
        return None
    for item in dirty:
        if not any(item is output for output in outputs):
            raise EngineError(Reason.RUNTIME, "a tensor that was marked dirty is no output of the function")
        check_in_place(item)
    for item in outputs:
        if item.node is not None and not any(item is other for other in dirty):
            raise EngineError(Reason.RUNTIME, "an output of a custom function has a history already")
    metas = tuple(
        None if item is None or edge is None else (item.shape, item.array.dtype)
        for item, edge in zip(inputs, edges, strict=True)
    )
    differentiable = tuple(
        is_differentiable(item.dtype) and not any(item is other for other in constant) for item in outputs
    )
    places = {id(item): place for place, item in enumerate(outputs)}
    kept = tuple(None if item is None else Saved(item, places.get(id(item), -1)) for item in saved)
    node = FunctionNode(function, name, kept, edges, metas, differentiable, materializes)
    node.outputs = tuple(Meta(item.shape, item.array.dtype, item.device) for item in outputs)
    node.command = CURRENT.get().command.number
    hooks_of(node).formula = ask
    for place, item in enumerate(outputs):
        if any(item is other for other in dirty):
            rewrite(item, node, place)
        elif differentiable[place]:
            item.node, item.index, item.requires_grad = node, place, True
    return node
