"""Classification losses: nll_loss, and cross_entropy, which applies log_softmax first.

The class dimension is dimension 1, or 0 for a single sample. The gradient of nll_loss is nonzero only at the targets,
so forward and backward use flat positions: sample * (classes * rest) + target * rest + place in the rest.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from gradwire_engine.core import dtypes
from gradwire_engine.core.device import Array
from gradwire_engine.core.errors import EngineError, Reason
from gradwire_engine.core.index_bounds import are_within, learn
from gradwire_engine.core.schema import Reduction
from gradwire_engine.op.composite import composite
from gradwire_engine.op.cost import indexing, of_shape
from gradwire_engine.op.op import op
from gradwire_engine.ops.base.basic import neg
from gradwire_engine.ops.base.loops import ON_GPU, Loops, with_loop
from gradwire_engine.ops.base.precision import is_half
from gradwire_engine.ops.linalg.matrix import fold
from gradwire_engine.ops.nn.losses.loss import constant, reduction_of
from gradwire_engine.ops.nn.losses.on_gpu import nll_loss as nll_loss_on_gpu
from gradwire_engine.ops.nn.losses.on_gpu import nll_loss_grad as nll_loss_grad_on_gpu
from gradwire_engine.ops.nn.softmax import log_softmax
from gradwire_engine.ops.reduce.reduce import sum as total

Ints = tuple[int, ...]


def _check(input: Array, target: Array, weight: Array | None) -> None:
    """Check nll_loss's arguments as PyTorch does. Raises EngineError: ARGUMENT_VALUE, RUNTIME, DTYPE."""
    if input.ndim < 1:
        raise EngineError(Reason.ARGUMENT_VALUE, f"Expected 1 or more dimensions (got {input.ndim})")
    if input.ndim > 1 and (not target.ndim or input.shape[0] != target.shape[0]):
        given = target.shape[0] if target.ndim else 0
        raise EngineError(
            Reason.ARGUMENT_VALUE,
            f"Expected input batch_size ({input.shape[0]}) to match target batch_size ({given}).",
        )
    if input.ndim <= 2 and target.ndim > 1:
        raise EngineError(Reason.RUNTIME, "0D or 1D target tensor expected, multi-target not supported")
    expected = (*input.shape[:1], *input.shape[2:]) if input.ndim > 1 else target.shape
    if target.shape != expected:
        raise EngineError(Reason.RUNTIME, f"Expected target size {list(expected)}, got {list(target.shape)}")
    if target.dtype not in (dtypes.int64, dtypes.uint8):
        name = dtypes.TITLES[target.dtype]
        raise EngineError(Reason.RUNTIME, f"expected target dtype to be Long or Byte, but got {name}")
    _check_weight(input, weight)


def _check_weight(input: Array, weight: Array | None) -> None:
    if weight is None:
        return
    classes = input.shape[1 if input.ndim > 1 else 0]
    if weight.shape != (classes,):
        raise EngineError(
            Reason.RUNTIME,
            f"weight tensor should be defined either for all {classes} classes or no classes but got weight tensor of "
            f"shape: {list(weight.shape)}",
        )
    if weight.dtype != input.dtype:
        a, b = dtypes.TITLES[input.dtype], dtypes.TITLES[weight.dtype]
        raise EngineError(Reason.DTYPE, f"expected scalar type {a} but found {b}")


class _Targets:
    """Flat positions of the targets in the input, and the mask of targets that are not ignored."""

    def __init__(self, xp: Any, shape: Ints, target: Array, ignore_index: int) -> None:
        classes = shape[1] if len(shape) > 1 else shape[0]
        flat = target.reshape(-1)
        self.kept = None
        if 0 <= ignore_index < classes or not _all_within(xp, flat, classes):
            kept = flat != ignore_index
            if not bool(kept.all()):
                self.kept = kept
                flat = xp.where(kept, flat, 0)
            _check_bounds(xp, flat, classes)
        self.classes = flat
        self.positions = self._flat(xp, shape, classes)

    def _flat(self, xp: Any, shape: Ints, classes: int) -> Array:
        if len(shape) <= 2:
            return xp.arange(0, self.classes.size * classes, classes) + self.classes if classes else self.classes
        rest = math.prod(shape[2:])
        if not rest:
            return xp.zeros(0, np.int64)
        places = xp.arange(0, shape[0] * classes * rest, classes * rest)[:, None] + xp.arange(rest)
        return places.reshape(-1) + self.classes.astype(np.int64) * rest

    def weights(self, xp: Any, weight: Array | None, dtype: Any) -> Any:
        """Weight per target; None if all are 1."""
        if weight is None:
            return None if self.kept is None else self.kept.astype(dtype)
        taken = weight[self.classes]
        return taken if self.kept is None else taken * self.kept


def _all_within(xp: Any, flat: Array, classes: int) -> bool:
    """Whether all targets are valid classes; viewed as unsigned integers, negative targets are too large."""
    if not flat.size or are_within(flat, 0, classes):
        return True
    unsigned = flat.view(np.uint64) if flat.dtype == dtypes.int64 else flat
    found = bool(unsigned.max() < classes)
    if found:
        learn(flat, 0, classes - 1)
    return found


def _check_bounds(xp: Any, flat: Array, classes: int) -> None:
    wrong = (flat < 0) | (flat >= classes)
    if bool(wrong.any()):
        worst = int(flat[wrong][0])
        raise EngineError(Reason.INDEX_OUT_OF_RANGE, f"Target {worst} is out of bounds.", target=worst, classes=classes)


def _node(input: Any, target: Any, weight: Any, reduction: str, ignore_index: int) -> str:
    """Node name. PyTorch has kernels for (n, c) and (n, c, h, w), and reshapes other inputs to the latter."""
    if input.ndim <= 2:
        return "NllLossBackward0"
    return "ViewBackward0" if reduction == "none" and input.ndim != 4 else "NllLoss2DBackward0"


def _on_gpu(
    loops: Loops, xp: Any, input: Any, target: Any, weight: Any, reduction: str, ignore_index: int
) -> Array | None:
    _check(input, target, weight)
    return nll_loss_on_gpu(input, target, weight, reduction, ignore_index)


@op(name="_nll_loss", node=_node, cost=indexing(30))
@with_loop(_on_gpu, least=ON_GPU)
def _nll_loss(xp: Any, input: Array, target: Array, weight: Array | None, reduction: str, ignore_index: int) -> Array:
    _check(input, target, weight)
    targets = _Targets(xp, input.shape, target, ignore_index)
    picked = input.reshape(-1)[targets.positions]
    if is_half(input.dtype):
        picked = picked.astype(dtypes.float32)
    weights = targets.weights(xp, weight, picked.dtype)
    if weights is not None:
        # The value at an ignored target may be infinite, and inf * 0 would be nan.
        picked = xp.where(targets.kept, picked, 0) * weights if targets.kept is not None else picked * weights
    if reduction == "none":
        return xp.negative(picked).reshape(target.shape).astype(input.dtype, copy=False)
    summed = -picked.sum(dtype=picked.dtype)
    if reduction == "mean":
        summed = summed / xp.asarray(picked.size if weights is None else weights.sum(), picked.dtype)
    return xp.asarray(summed, input.dtype)


_MOST_KEPT = 1 << 14  # positions of `_begins`, which are beside the account


def _is_direct(shape: Ints, dtype: Any, target: Array, weight: Array | None, reduction: str, ignore_index: int) -> bool:
    """Whether no target is ignored or weighted, and no other choice of the op matters."""
    if len(shape) != 2 or 0 in shape or target.shape != shape[:1] or target.dtype != dtypes.int64:
        return False
    if weight is not None or reduction == "none" or 0 <= ignore_index < shape[1] or shape[0] > _MOST_KEPT:
        return False
    return dtype in (dtypes.float32, dtypes.float64)


@lru_cache(maxsize=32)
def _begins(rows: int, classes: int) -> Array:
    """Where each sample's classes begin; repeated calls, of which a process may have thousands, hold none."""
    made = np.arange(0, rows * classes, classes)
    made.flags.writeable = False
    return made


def _direct_loss(
    input: Array, target: Array, weight: Array | None, reduction: str, ignore_index: int
) -> Callable[..., Array] | None:
    """nll_loss of classes, if all of them exist."""
    if not _is_direct(input.shape, input.dtype, target, weight, reduction, ignore_index):
        return None
    (rows, classes), count = input.shape, np.asarray(input.shape[0], input.dtype)

    def run(xp: Any, input: Array, target: Array, *rest: Any) -> Array:
        if target.view(np.uint64).max() >= classes:
            return _nll_loss.forward(np, input, target, *rest)
        picked = input.reshape(-1)[_begins(rows, classes) + target]
        summed = -picked.sum(dtype=picked.dtype)
        return np.asarray(summed / count if reduction == "mean" else summed, input.dtype)

    return run


_nll_loss.directly(_direct_loss)


def _grad_on_gpu(
    loops: Loops, xp: Any, grad: Any, target: Any, weight: Any, reduction: str, ignore_index: int, shape: Ints
) -> Array | None:
    return nll_loss_grad_on_gpu(grad, target, weight, reduction, ignore_index, shape)


@op(name="_nll_loss_backward", cost=of_shape(10, 5))
@with_loop(_grad_on_gpu, least=ON_GPU)
def _nll_loss_backward(
    xp: Any, grad: Array, target: Array, weight: Array | None, reduction: str, ignore_index: int, shape: Ints
) -> Array:
    """Gradient: g's shares at the targets, zeros elsewhere."""
    targets = _Targets(xp, shape, target, ignore_index)
    weights = targets.weights(xp, weight, grad.dtype)
    share = xp.negative(grad.reshape(-1) if reduction == "none" else grad)
    if weights is not None:
        share = share * (weights / weights.sum() if reduction == "mean" else weights)
    elif reduction == "mean":
        share = share / grad.dtype.type(targets.positions.size)
    if targets.kept is not None:  # also if all are ignored and the mean divides by 0
        share = xp.where(targets.kept, share, grad.dtype.type(0))
    result = xp.zeros(math.prod(shape), grad.dtype)
    result[targets.positions] = share
    return result.reshape(shape)


def _direct_loss_backward(
    grad: Array, target: Array, weight: Array | None, reduction: str, ignore_index: int, shape: Ints
) -> Callable[..., Array] | None:
    """The gradient of `_direct_loss`."""
    if grad.ndim or not _is_direct(tuple(shape), grad.dtype, target, weight, reduction, ignore_index):
        return None
    rows, classes, elements, count = *shape, math.prod(shape), grad.dtype.type(shape[0])

    def run(xp: Any, grad: Array, target: Array, *rest: Any) -> Array:
        if target.view(np.uint64).max() >= classes:
            return _nll_loss_backward.forward(np, grad, target, *rest)
        share = np.negative(grad)
        result = np.zeros(elements, grad.dtype)
        result[_begins(rows, classes) + target] = share / count if reduction == "mean" else share
        return result.reshape(shape)

    return run


_nll_loss_backward.directly(_direct_loss_backward)


@op(name="_nll_loss_linear", cost=indexing(30))
def _nll_loss_linear(
    xp: Any, input: Array, target: Array, weight: Array | None, reduction: str, ignore_index: int
) -> Array:
    """nll_loss as the derivative of its backward; the loss is linear in its input."""
    return _nll_loss.function(xp, input, target, weight, reduction, ignore_index)


for _linear in (_nll_loss, _nll_loss_linear):
    _linear.grad(
        input=lambda g, target, weight, reduction, ignore_index, input_meta: _nll_loss_backward(
            g, target, weight, reduction, ignore_index, input_meta.shape
        )
    ).tangent("linear")
_nll_loss_backward.grad(
    grad=lambda g, target, weight, reduction, ignore_index: _nll_loss_linear(g, target, weight, reduction, ignore_index)
).tangent("linear")


@composite
def nll_loss(
    input: Array,
    target: Array,
    weight: Array | None = None,
    size_average: bool | None = None,
    ignore_index: int = -100,
    reduce: bool | None = None,
    reduction: Reduction = "mean",
) -> Any:
    """Negative log-likelihood of the target class (torch.nn.functional.nll_loss).

    input: (n, c, ...) or (c,); target: (n, ...) or (), int64; weight: (c,). "mean" divides by the weights' sum.
    Raises EngineError: INDEX_OUT_OF_RANGE for a target that is no class, ARGUMENT_VALUE, RUNTIME, DTYPE.
    """
    constant("nll_loss_forward", weight=weight)
    return _nll_loss(input, target, weight, reduction_of(size_average, reduce, reduction), ignore_index)


nll_loss.unsupported("bic", "nll_loss_out_frame", of=("input",))


@composite
def cross_entropy(
    input: Array,
    target: Array,
    weight: Array | None = None,
    size_average: bool | None = None,
    ignore_index: int = -100,
    reduce: bool | None = None,
    reduction: Reduction = "mean",
    label_smoothing: float = 0.0,
) -> Any:
    """Cross entropy of softmax(input) with class or probability targets (torch.nn.functional.cross_entropy).

    input: (n, c, ...) or (c,); target: int64 classes (n, ...) or (), or probabilities of input's shape; weight: (c,).
    Raises EngineError: INDEX_OUT_OF_RANGE for a target that is no class, ARGUMENT_VALUE, RUNTIME, DTYPE.
    """
    wanted = reduction_of(size_average, reduce, reduction)
    if not 0 <= label_smoothing <= 1:
        raise EngineError(Reason.RUNTIME, f"label_smoothing must be between 0.0 and 1.0. Got: {label_smoothing}")
    if input.ndim < 1:
        raise EngineError(Reason.ARGUMENT_VALUE, f"Expected 1 or more dimensions (got {input.ndim})")
    logs = log_softmax(input, 1 if input.ndim > 1 else 0)
    if target.shape == input.shape and dtypes.category(target.dtype) >= dtypes.FLOAT:
        return _with_probabilities(logs, target, weight, wanted, ignore_index, label_smoothing)
    constant("nll_loss_forward", weight=weight)
    loss = _nll_loss(logs, target, weight, wanted, ignore_index)
    if not label_smoothing:
        return loss
    classes = logs.shape[1 if logs.ndim > 1 else 0]
    smooth = _smoothing(logs, target, weight, wanted, ignore_index)
    return loss * (1 - label_smoothing) + smooth * (label_smoothing / classes)


@op(name="_uniform_targets", cost=4)
def _uniform_targets(
    xp: Any, logs: Array, target: Array, weight: Array | None, reduction: str, ignore_index: int
) -> Array:
    """Each class's factor in the smoothed part: its weight, 0 at ignored targets, over the mean's divisor."""
    targets = _Targets(xp, logs.shape, target, ignore_index)
    classes = (1, -1, *[1] * (logs.ndim - 2)) if logs.ndim > 1 else (-1,)
    spread = xp.ones(logs.shape, logs.dtype) if weight is None else xp.broadcast_to(weight.reshape(classes), logs.shape)
    if targets.kept is not None:
        spread = spread * xp.expand_dims(targets.kept.reshape(target.shape), min(1, logs.ndim - 1))
    if reduction != "mean":
        return spread
    weights = targets.weights(xp, weight, logs.dtype)
    total_weight = logs.dtype.type(targets.classes.size) if weights is None else weights.sum(dtype=logs.dtype)
    return xp.where(spread == 0, spread, spread / total_weight)  # 0 also if all targets are ignored


def _smoothing(logs: Any, target: Any, weight: Any, reduction: str, ignore_index: int) -> Any:
    """Sum of the negative log-probabilities of all classes."""
    values = neg(logs * _uniform_targets(logs, target, weight, reduction, ignore_index))
    return total(values, 1 if logs.ndim > 1 else 0) if reduction == "none" else total(values)


def _with_probabilities(
    logs: Any, target: Any, weight: Any, reduction: str, ignore_index: int, label_smoothing: float
) -> Any:
    if ignore_index >= 0:
        raise EngineError(Reason.RUNTIME, "ignore_index is not supported for floating point target")
    _check_weight(logs, weight)
    dim = 1 if logs.ndim > 1 else 0
    classes = logs.shape[dim]
    if label_smoothing:
        target = target * (1 - label_smoothing) + label_smoothing / classes
    values = logs * target
    if weight is not None:
        values = values * fold(weight, (1, -1, *[1] * (logs.ndim - 2)) if logs.ndim > 1 else (-1,))
    if reduction == "none":
        return neg(total(values, dim))
    summed = neg(total(values))
    return summed / (math.prod(logs.shape) // classes) if reduction == "mean" else summed
