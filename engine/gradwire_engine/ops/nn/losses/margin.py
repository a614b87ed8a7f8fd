"""Margin losses, composed of other ops; pairwise_distance."""

from __future__ import annotations

from typing import Any

from gradwire_engine.core import dtypes
from gradwire_engine.core.device import Array
from gradwire_engine.core.dtypes import cast_number
from gradwire_engine.core.errors import EngineError, Reason
from gradwire_engine.core.schema import Reduction
from gradwire_engine.op.composite import composite
from gradwire_engine.ops.base.basic import neg
from gradwire_engine.ops.base.compare import ne
from gradwire_engine.ops.base.fill import where
from gradwire_engine.ops.elementwise.binary import clamp_min, minimum
from gradwire_engine.ops.nn.losses.loss import reduce_op, reduction_of
from gradwire_engine.ops.reduce.reduce import vector_norm


@composite
def hinge_embedding_loss(
    input: Array,
    target: Array,
    margin: float = 1.0,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: Reduction = "mean",
) -> Any:
    """input where target is 1, max(0, margin - input) where it is -1 (torch.nn.functional.hinge_embedding_loss).

    Raises EngineError: ARGUMENT_VALUE for another reduction.
    """
    wanted = reduction_of(size_average, reduce, reduction)
    if dtypes.category(input.dtype) == dtypes.INT:
        margin = cast_number(margin, input.dtype)
    hinge = where(ne(target, 1), clamp_min(margin - input, 0), 0)
    return reduce_op(hinge + where(ne(target, -1), input, 0), wanted)


@composite
def margin_ranking_loss(
    input1: Array,
    input2: Array,
    target: Array,
    margin: float = 0.0,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: Reduction = "mean",
) -> Any:
    """max(0, margin - target * (input1 - input2)), target 1 or -1 (torch.nn.functional.margin_ranking_loss).

    Raises EngineError: RUNTIME for different numbers of dimensions, ARGUMENT_VALUE for another reduction.
    """
    wanted = reduction_of(size_average, reduce, reduction)
    if not input1.ndim == input2.ndim == target.ndim:
        raise EngineError(
            Reason.RUNTIME,
            "margin_ranking_loss : All input tensors should have same dimension but got sizes: input1: "
            f"{list(input1.shape)}, input2: {list(input2.shape)}, target: {list(target.shape)}",
        )
    return reduce_op(clamp_min(neg(target) * (input1 - input2) + margin, 0), wanted)


@composite
def pairwise_distance(x1: Array, x2: Array, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False) -> Any:
    """p-norm of x1 - x2 + eps over the last dimension (torch.nn.functional.pairwise_distance)."""
    return vector_norm(x1 - x2 + eps, p, -1, keepdim)


@composite
def triplet_margin_loss(
    anchor: Array,
    positive: Array,
    negative: Array,
    margin: float = 1.0,
    p: float = 2.0,
    eps: float = 1e-6,
    swap: bool = False,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: Reduction = "mean",
) -> Any:
    """max(0, margin + d(anchor, positive) - d(anchor, negative)) (torch.nn.functional.triplet_margin_loss).

    The distance d is `pairwise_distance`. swap: use d(positive, negative) if it is smaller than d(anchor, negative).
    Raises EngineError: ARGUMENT_VALUE for a margin that is not positive, RUNTIME for different numbers of dimensions.
    """
    wanted = reduction_of(size_average, reduce, reduction)
    if margin <= 0:
        raise EngineError(Reason.ARGUMENT_VALUE, f"margin must be greater than 0, got {margin}")
    if not anchor.ndim == positive.ndim == negative.ndim:
        raise EngineError(
            Reason.RUNTIME,
            "The anchor, positive, and negative tensors are expected to have the same number of dimensions, but got: "
            f"anchor {anchor.ndim}D, positive {positive.ndim}D, and negative {negative.ndim}D inputs",
        )
    near, far = pairwise_distance(anchor, positive, p, eps), pairwise_distance(anchor, negative, p, eps)
    if swap:
        far = minimum(far, pairwise_distance(positive, negative, p, eps))
    return reduce_op(clamp_min(margin + near - far, 0), wanted)
