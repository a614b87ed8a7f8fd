"""Custom functions: nodes for tensors that the client computed, with a derivative that only the client knows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gradwire_engine.core.context import CURRENT
from gradwire_engine.core.device import Array
from gradwire_engine.core.dtypes import is_differentiable
from gradwire_engine.core.errors import EngineError, Reason
from gradwire_engine.graph.callbacks import hooks_of
from gradwire_engine.graph.graph import FunctionNode, Meta
from gradwire_engine.graph.hooks import ExternalCallback
from gradwire_engine.graph.saved import Saved
from gradwire_engine.graph.tensor import Tensor, ViewOrigin, edge_of
from gradwire_engine.op.op import op
from gradwire_engine.op.rebase import rewrite
from gradwire_engine.op.refusals import check_in_place


@op(name="_function", node="Function")
def function(xp: Any, input: Array) -> Array:
    """Placeholder op in the nodes of custom functions; it computes nothing."""
    return input


def record_function(
    name: str,
    callback: ExternalCallback | None,
    inputs: Sequence[Tensor | None],
    outputs: Sequence[Tensor | None],
    saved: Sequence[Tensor | None] = (),
    dirty: Sequence[Tensor] = (),
    constant: Sequence[Tensor] = (),
    materializes: bool = True,
) -> FunctionNode | None:
    """Record `outputs` as a custom function's results of `inputs` (torch.autograd.Function).

    callback: callback of the formula; without it, output i's gradient goes to input i.
    outputs: new leaves, or inputs that were changed in place and are also in `dirty`; None for a non-tensor.
    saved: values passed to the formula. constant: outputs without gradient.
    materializes: missing gradients are replaced by zeros.
    Returns the node, or None if no input requires grad. Raises EngineError: LEAF_IN_PLACE, RUNTIME; then nothing has
    changed.
    """
    edges = tuple(None if item is None else edge_of(item) for item in inputs)
    made = [item for item in outputs if item is not None]
    if not any(item is not None and item.requires_grad for item in inputs):
        _mark_views(made, dirty, ())
        return None
    for item in dirty:
        _check_dirty(item, outputs)
    for item in made:
        if item.node is not None and not _among(item, dirty):
            raise EngineError(Reason.RUNTIME, "an output of a custom function is already part of a graph")
    metas = tuple(
        None if item is None or edge is None else (item.shape, item.array.dtype)
        for item, edge in zip(inputs, edges, strict=True)
    )
    differentiable = tuple(
        item is not None and is_differentiable(item.dtype) and not _among(item, constant) for item in outputs
    )
    for item in dirty:
        # As in PyTorch this counts as another change, so that views read since the change update again.
        item.storage.changed()
    places = {id(item): place for place, item in enumerate(outputs)}
    kept = tuple(None if item is None else Saved(item, places.get(id(item), -1)) for item in saved)
    node = FunctionNode(function, name, kept, edges, metas, differentiable, materializes)
    node.outputs = tuple(None if item is None else Meta(item.shape, item.array.dtype, item.device) for item in outputs)
    node.command = CURRENT.get().command.number
    hooks_of(node).formula = callback
    _mark_views(made, dirty, differentiable)
    for place, result in enumerate(outputs):
        if result is None:
            continue
        if _among(result, dirty):
            rewrite(result, node, place)
        elif differentiable[place]:
            result.node, result.index, result.requires_grad = node, place, True
    return node


def _check_dirty(item: Tensor, outputs: Sequence[Tensor | None]) -> None:
    """Check that a function may change this input in place. Raises EngineError: LEAF_IN_PLACE, RUNTIME."""
    if not _among(item, outputs):
        raise EngineError(
            Reason.RUNTIME,
            "Some elements marked as dirty during the forward method were not returned as output. The inputs that are "
            "modified inplace must all be outputs of the Function.",
        )
    if item.view is not None and len(outputs) > 1:
        raise EngineError(
            Reason.RUNTIME,
            "If your Function modifies inplace an input that is a view of another Tensor, your Function cannot return "
            "more than one Tensor. Make sure the input is not a view (using .clone() for example) or make your "
            "Function only return one Tensor.",
        )
    check_in_place(item)


def _mark_views(outputs: Sequence[Tensor], dirty: Sequence[Tensor], differentiable: Sequence[bool]) -> None:
    """Mark views among a function's outputs, so that later in-place changes of them are refused."""
    origin = ViewOrigin.MULTIPLE if sum(differentiable) > 1 else ViewOrigin.FUNCTION
    for item in outputs:
        if item.view is not None and not _among(item, dirty):
            item.view.origin = origin
            item.view.version, item.view.seen = item.storage.version, item.storage.history


def _among(item: Tensor, others: Sequence[Tensor | None]) -> bool:
    return any(item is other for other in others)
