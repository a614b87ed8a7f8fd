"""Multi-class and multi-label margin losses, soft margin losses, cosine_embedding_loss and pdist."""

from __future__ import annotations

import math
from typing import Any

from gradwire_engine.core import dtypes
from gradwire_engine.core.device import Array
from gradwire_engine.core.dtypes import Number
from gradwire_engine.core.errors import EngineError, Reason
from gradwire_engine.core.schema import Reduction
from gradwire_engine.op.composite import composite
from gradwire_engine.op.cost import counted, indexing
from gradwire_engine.op.op import op
from gradwire_engine.ops.base.basic import neg
from gradwire_engine.ops.base.checks import broadcast_shape
from gradwire_engine.ops.base.compare import eq
from gradwire_engine.ops.base.fill import where
from gradwire_engine.ops.elementwise.activation import logsigmoid, masked, relu
from gradwire_engine.ops.elementwise.binary import clamp_min
from gradwire_engine.ops.elementwise.unary import exp, log1p, sqrt, square
from gradwire_engine.ops.index.gather import gather, index_select
from gradwire_engine.ops.linalg.distances import row_norm
from gradwire_engine.ops.nn.losses.loss import constant, reduce_op, reduction_of
from gradwire_engine.ops.reduce.reduce import sum as total
from gradwire_engine.ops.shape.shape import reshape, unsqueeze


def _refuse(message: str, reason: Reason = Reason.RUNTIME) -> None:
    raise EngineError(reason, message)


@composite(complex_grad=False)
def soft_margin_loss(
    input: Array,
    target: Array,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: Reduction = "mean",
) -> Any:
    """log(1 + exp(-target * input)), target 1 or -1 (torch.nn.functional.soft_margin_loss).

    input: any shape; target: broadcasts to input. Raises EngineError: SHAPE, ARGUMENT_VALUE, DTYPE for integers.
    """
    wanted = reduction_of(size_average, reduce, reduction)
    constant("soft_margin_loss", target=target)
    shape = broadcast_shape(input.shape, target.shape)
    if shape != tuple(input.shape):
        _refuse(f"output with shape {list(input.shape)} doesn't match the broadcast shape {list(shape)}", Reason.SHAPE)
    if dtypes.category(input.dtype) < dtypes.FLOAT and dtypes.category(target.dtype) < dtypes.FLOAT:
        name = dtypes.TITLES[dtypes.result_type(*(getattr(value, "array", value) for value in (input, target)))]
        _refuse(f"result type Float can't be cast to the desired output type {name}", Reason.DTYPE)
    return reduce_op(log1p(exp(neg(target) * input)), wanted)


def _rows(input: Any) -> Any:
    """Reshape an input of one or no dimension to (n, c)."""
    return reshape(input, (1, -1)) if input.ndim < 2 else input


def _check_matrix(kernel: str, input: Any) -> None:
    if input.ndim > 2 or (input.ndim and not input.shape[-1]):
        _refuse(f"Expected non-empty vector or matrix with optional 0-dim batch size, but got: {list(input.shape)}")
    lacks_halves = getattr(input, "device", "") == "cpu"  # PyTorch has them on a GPU
    if dtypes.category(input.dtype) != dtypes.FLOAT or (lacks_halves and dtypes.is_half(input.dtype)):
        _refuse(f"\"{kernel}\" not implemented for '{dtypes.TITLES[input.dtype]}'", Reason.NOT_SUPPORTED)


@op(name="_is_class", cost=indexing(4))
def _is_class(xp: Any, target: Array, classes: int) -> Array:
    """(n, c) mask of each sample's target class. Raises EngineError: RUNTIME."""
    if target.size and (int(target.min()) < 0 or int(target.max()) >= classes):
        raise EngineError(Reason.RUNTIME, "target out of range")
    return target[:, None] == xp.arange(classes)


@composite
def multi_margin_loss(
    input: Array,
    target: Array,
    p: Number = 1,
    margin: Number = 1.0,
    weight: Array | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: Reduction = "mean",
) -> Any:
    """Mean over classes of max(0, margin - input[target] + input)^p (torch.nn.functional.multi_margin_loss).

    input: (n, c) or (c,); target: int64 (n,) or (); p: 1 or 2; weight: (c,), of the target's class.
    Raises EngineError: ARGUMENT_VALUE, RUNTIME.
    """
    wanted = reduction_of(size_average, reduce, reduction)
    if p not in (1, 2):
        _refuse("only p == 1 and p == 2 supported", Reason.ARGUMENT_VALUE)
    _check_matrix("multi_margin_loss_cpu_kernel", input)
    rows = _rows(input)
    count, classes = rows.shape
    if weight is not None:
        constant("multi_margin_loss", weight=weight)
        if weight.ndim > 1 or math.prod(weight.shape) != classes:
            _refuse(f"inconsistent weight size, expected {classes} but got {list(weight.shape)}")
    if target.ndim > 1 or math.prod(target.shape) != count:
        _refuse(
            "multi_margin_loss: target tensor should be 1-D with size equal to the number of input samples (batch "
            f"size). Expected target size [{count}], but got {list(target.shape)}. Input has shape {list(input.shape)}."
        )
    if target.dtype != dtypes.int64:
        _refuse(f"expected scalar type Long but found {dtypes.TITLES[target.dtype]}", Reason.DTYPE)
    right = reshape(target, (-1, 1))
    is_right = _is_class(reshape(target, (-1,)), classes)
    short = relu((margin - gather(rows, 1, right)) + rows)
    losses = masked(short if p == 1 else short * short, ~is_right)
    if weight is not None:
        losses = losses * unsqueeze(index_select(reshape(weight, (-1,)), 0, reshape(target, (-1,))), 1)
    each = total(losses, 1) / classes
    return reduce_op(each if input.ndim == 2 else reshape(each, ()), wanted)


@op(
    name="_label_sets",
    outputs=("targets", "listed", "others"),
    cost=counted(lambda target: 6.0 * target.size * target.shape[-1], cheap_size=1 << 16),
)
def _label_sets(xp: Any, target: Array) -> Any:
    """For rows of classes that end at the first -1: the classes, the mask of listed places, and of unlisted classes."""
    classes = target.shape[1]
    if target.size and (int(target.min()) < -1 or int(target.max()) >= classes):
        raise EngineError(Reason.RUNTIME, "argument #2 'target' is out of range")
    listed = xp.cumsum(target < 0, axis=1) == 0
    targets = xp.where(listed, target, 0)
    present = ((targets[:, :, None] == xp.arange(classes)) & listed[:, :, None]).any(1)
    return targets, listed, ~present


_label_sets.works_in(forward=5)


@composite
def multilabel_margin_loss(
    input: Array,
    target: Array,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: Reduction = "mean",
) -> Any:
    """Sum of max(0, 1 - (listed - other)) over all pairs / c (torch.nn.functional.multilabel_margin_loss).

    input: (n, c) or (c,); target: int64 of that shape, classes up to the first -1.
    Raises EngineError: RUNTIME, ARGUMENT_VALUE.
    """
    wanted = reduction_of(size_average, reduce, reduction)
    _check_matrix("multilabel_margin_loss_forward_out_frame", input)
    if tuple(target.shape) != tuple(input.shape):
        _refuse(f"inconsistent target size: {list(target.shape)} for input of size: {list(input.shape)}")
    if target.dtype != dtypes.int64:
        _refuse(f"expected scalar type Long but found {dtypes.TITLES[target.dtype]}", Reason.DTYPE)
    rows = _rows(input)
    targets, listed, others = _label_sets(_rows(target))
    short = relu((1 - unsqueeze(gather(rows, 1, targets), 2)) + unsqueeze(rows, 1))
    counted = unsqueeze(listed, 2) & unsqueeze(others, 1)
    each = total(masked(short, counted), (1, 2)) / rows.shape[1]
    return reduce_op(each if input.ndim == 2 else reshape(each, ()), wanted)


@composite
def multilabel_soft_margin_loss(
    input: Array,
    target: Array,
    weight: Array | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: Reduction = "mean",
) -> Any:
    """Mean over classes of the logistic loss of each class (torch.nn.functional.multilabel_soft_margin_loss).

    input, target: (..., c), shapes that broadcast; weight: broadcasts. Raises EngineError: ARGUMENT_VALUE, SHAPE.
    """
    wanted = reduction_of(size_average, reduce, reduction)
    losses = neg(target * logsigmoid(input) + (1 - target) * logsigmoid(neg(input)))
    if weight is not None:
        losses = losses * weight
    if not input.ndim:
        _refuse("Dimension specified as -1 but tensor has no dimensions", Reason.INDEX_OUT_OF_RANGE)
    return reduce_op(total(losses, input.ndim - 1) / input.shape[-1], wanted)


_TINY = 1e-12


@composite
def cosine_embedding_loss(
    input1: Array,
    input2: Array,
    target: Array,
    margin: float = 0.0,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: Reduction = "mean",
) -> Any:
    """1 - cos where target is 1, max(0, cos - margin) where it is -1 (torch.nn.functional.cosine_embedding_loss).

    input1, input2: (n, d) with target (n,), or (d,) with (). Raises EngineError: RUNTIME, ARGUMENT_VALUE.
    """
    wanted = reduction_of(size_average, reduce, reduction)
    if target.ndim > 1:
        _refuse("0D or 1D target tensor expected, multi-target not supported")
    if input1.ndim != target.ndim + 1 or input2.ndim != target.ndim + 1:
        _refuse(
            f"{target.ndim}D target tensor expects {target.ndim + 1}D input tensors, but found inputs with sizes "
            f"{list(input1.shape)} and {list(input2.shape)}."
        )
    dim = target.ndim
    product = total(input1 * input2, dim)
    cosine = product / sqrt((total(square(input1), dim) + _TINY) * (total(square(input2), dim) + _TINY))
    losses = where(eq(target, 1), 1 - cosine, 0) + where(eq(target, -1), clamp_min(cosine - margin, 0), 0)
    return reduce_op(losses, wanted)


@op(
    name="_pairs",
    outputs=("first", "second"),
    cost=counted(lambda input: 25.0 * input.shape[0] ** 2, cheap_size=1 << 10),
)
def _pairs(xp: Any, input: Array) -> Any:
    """Row indices of all pairs of rows, the first below the second."""
    first, second = xp.triu_indices(input.shape[0], 1)
    return first.astype(dtypes.int64, copy=False), second.astype(dtypes.int64, copy=False)


@composite
def pdist(input: Array, p: float = 2.0) -> Any:
    """p-norm distances of all pairs of rows: (0, 1), (0, 2), ... (torch.nn.functional.pdist).

    input: (n, d); result: (n * (n - 1) / 2,). Raises EngineError: RUNTIME.
    """
    if input.ndim != 2:
        _refuse(f"pdist only supports 2D tensors, got: {input.ndim}D")
    if dtypes.category(input.dtype) != dtypes.FLOAT:
        _refuse("pdist only supports floating-point dtypes")
    if p < 0:
        _refuse("pdist only supports non-negative p values")
    first, second = _pairs(input)
    return row_norm(index_select(input, 0, first) - index_select(input, 0, second), float(p))
