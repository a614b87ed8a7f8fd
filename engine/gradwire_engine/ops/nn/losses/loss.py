"""Elementwise losses; classification.py has the classification losses.

Each loss is one op: an elementwise function and a reduction ("none", "mean" or "sum"). Its gradient formula spreads g
over the reduced elements and multiplies by the elementwise derivative.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np

from gradwire_engine.core import dtypes
from gradwire_engine.core.context import CURRENT
from gradwire_engine.core.device import Array
from gradwire_engine.core.errors import EngineError, Reason
from gradwire_engine.core.schema import Reduction
from gradwire_engine.graph.tensor import Tensor
from gradwire_engine.op.composite import composite
from gradwire_engine.op.op import op
from gradwire_engine.ops.base.basic import cast, expand, neg
from gradwire_engine.ops.base.checks import broadcast_shape
from gradwire_engine.ops.base.fill import where
from gradwire_engine.ops.base.loops import LEAST_OF_CHEAP, Loops, each, fits, run, with_loop
from gradwire_engine.ops.base.precision import is_half
from gradwire_engine.ops.elementwise.binary import xlogy
from gradwire_engine.ops.elementwise.unary import abs as absolute
from gradwire_engine.ops.elementwise.unary import exp, log, sigmoid, sign
from gradwire_engine.ops.reduce.reduce import mean
from gradwire_engine.ops.reduce.reduce import sum as total

_REDUCTIONS = ("none", "mean", "sum")


def reduction_of(size_average: bool | None, reduce: bool | None, reduction: str) -> str:
    """The reduction given by PyTorch's current or deprecated arguments. Raises EngineError: ARGUMENT_VALUE."""
    if size_average is not None or reduce is not None:
        averaged = size_average is None or size_average
        summed = reduce is None or reduce
        return "none" if not summed else "mean" if averaged else "sum"
    if reduction not in _REDUCTIONS:
        raise EngineError(Reason.ARGUMENT_VALUE, f"{reduction} is not a valid value for reduction")
    return reduction


def constant(function: str, **values: Any) -> None:
    """Refuse arguments that require grad but are not differentiable in PyTorch. Raises EngineError: RUNTIME."""
    for name, value in values.items():
        if type(value) is Tensor and value.requires_grad and CURRENT.get().grad_enabled:
            raise EngineError(
                Reason.RUNTIME,
                f"The function '{function}' is not differentiable with respect to argument '{name}'. This input cannot "
                "have requires_grad True.",
            )


def reduced(xp: Any, values: Array, reduction: str) -> Array:
    """Reduce an array of losses. Half types are summed in float32."""
    if reduction == "none":
        return values
    wide = dtypes.float32 if is_half(values.dtype) else values.dtype
    summed = xp.asarray(values.sum(dtype=wide))
    if reduction == "mean":
        summed = summed / values.size if values.size else summed * xp.nan
    return xp.asarray(summed, values.dtype)


def reduce_op(values: Any, reduction: str) -> Any:
    """Reduce a Tensor of losses, with graph nodes."""
    return values if reduction == "none" else mean(values) if reduction == "mean" else total(values)


def spread(g: Any, values: Any, reduction: str) -> Any:
    """Gradient per element of a reduced loss, divided for "mean"; it broadcasts with `values`."""
    return g / _size(values) if reduction == "mean" else g


def _size(values: Any) -> int:
    size = 1
    for length in values.shape:
        size *= length
    return size


def _floating(kernel: str, *operands: Array) -> None:
    for operand in operands:
        if dtypes.category(operand.dtype) < dtypes.FLOAT:
            raise EngineError(
                Reason.NOT_SUPPORTED, f"\"{kernel}\" not implemented for '{dtypes.TITLES[operand.dtype]}'"
            )


def _loss_op(name: str, node: str, **options: Any) -> Callable[[Any], Any]:
    return op(name=name, node=node, promote="same", in_place=False, **options)


@_loss_op("_mse_loss", "MseLossBackward0", cost=4)
def _mse_loss(xp: Any, input: Array, target: Array, reduction: str) -> Array:
    _floating("mse_cpu", input)
    difference = input - target
    if reduction != "none" and difference.dtype.kind == "f" and xp is np and not is_half(difference.dtype):
        flat = difference.reshape(-1)
        summed = np.asarray(flat @ flat)
        return summed if reduction == "sum" else np.asarray(summed / flat.dtype.type(flat.size))
    return reduced(xp, difference * difference, reduction)


_mse_loss.works_in(grows=True, widens=True)


def _share(g: Any, size: int, reduction: str) -> float:
    """The gradient of each loss, of that of their sum or mean."""
    return float(g / g.dtype.type(size)) if reduction == "mean" else float(g)


def _mse_loop(loops: Loops, g: Any, input: Any, target: Any, reduction: str) -> Any:
    if reduction == "none" or type(g) is not np.ndarray or g.dtype != input.dtype:
        return None
    return each(loops, "mse_backward", input, target, numbers=(2 * _share(g, input.size, reduction),))


@with_loop(_mse_loop, least=LEAST_OF_CHEAP)
def _mse_grad(g: Any, input: Any, target: Any, reduction: str) -> Any:
    difference = input - target
    return difference * (spread(g, difference, reduction) * 2)


_mse_loss.by_loops("mse_backward")
_mse_loss.grad(
    input=_mse_grad,
    target=lambda g, input, target, reduction: neg(_mse_grad(g, input, target, reduction)),
).tangent("loss")


@composite
def mse_loss(
    input: Array,
    target: Array,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: Reduction = "mean",
    weight: Array | None = None,
) -> Any:
    """Squared difference (torch.nn.functional.mse_loss).

    input, target: shapes broadcast. weight: per element; "mean" then divides by its sum.
    Raises EngineError: SHAPE, ARGUMENT_VALUE, NOT_SUPPORTED for integers.
    """
    wanted = reduction_of(size_average, reduce, reduction)
    input, target = _expand_scalars(input, target)
    if weight is None:
        return _mse_loss(input, target, wanted)
    return _weighted(_mse_loss(input, target, "none"), weight, wanted)


mse_loss.unsupported("c", "mse_cpu")


def _expand_scalars(input: Any, target: Any) -> tuple[Any, Any]:
    """Expand a 0-dim operand to the other's shape, so that its dtype takes full part in promotion, as in PyTorch."""
    if input.dtype == target.dtype or (input.ndim and target.ndim):
        return input, target
    shape = broadcast_shape(input.shape, target.shape)
    return expand(input, shape), expand(target, shape)


def _weighted(values: Any, weight: Any, reduction: str) -> Any:
    if weight.shape != values.shape:
        raise EngineError(Reason.ARGUMENT_VALUE, "Weights and input must have the same size.")
    values = values * weight
    return total(values) / total(weight) if reduction == "mean" else reduce_op(values, reduction)


@composite
def l1_loss(
    input: Array,
    target: Array,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: Reduction = "mean",
    weight: Array | None = None,
) -> Any:
    """Absolute difference (torch.nn.functional.l1_loss).

    input, target: shapes broadcast. weight: per element. Raises EngineError: SHAPE, ARGUMENT_VALUE.
    """
    wanted = reduction_of(size_average, reduce, reduction)
    input, target = _expand_scalars(input, target)
    values = absolute(input - target)
    return reduce_op(values, wanted) if weight is None else _weighted(values, weight, wanted)


@_loss_op("_smooth_l1_loss", "SmoothL1LossBackward0", cost=8)
def _smooth_l1_loss(xp: Any, input: Array, target: Array, reduction: str, beta: float) -> Array:
    _floating("smooth_l1_cpu", input)
    size = xp.abs(input - target)
    return reduced(xp, xp.where(size < beta, 0.5 / beta * size * size if beta else size, size - 0.5 * beta), reduction)


_smooth_l1_loss.works_in(forward=3.4, backward=3.3, grows=True)


def _smooth_l1_grad(g: Any, input: Any, target: Any, reduction: str, beta: float) -> Any:
    difference = input - target
    slope = where(~(absolute(difference) >= beta), difference / beta, sign(difference)) if beta else sign(difference)
    return slope * spread(g, difference, reduction)


_smooth_l1_loss.grad(
    input=_smooth_l1_grad,
    target=lambda g, input, target, reduction, beta: neg(_smooth_l1_grad(g, input, target, reduction, beta)),
).tangent("loss")


@composite
def smooth_l1_loss(
    input: Array,
    target: Array,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: Reduction = "mean",
    beta: float = 1.0,
) -> Any:
    """Quadratic below beta, linear above (torch.nn.functional.smooth_l1_loss).

    Raises EngineError: RUNTIME for a negative beta, SHAPE, ARGUMENT_VALUE.
    """
    if not beta >= 0:  # refuses nan, too
        raise EngineError(Reason.RUNTIME, "smooth_l1_loss does not support negative values for beta.")
    wanted = reduction_of(size_average, reduce, reduction)
    input, target = _expand_scalars(input, target)
    return _smooth_l1_loss(input, target, wanted, beta) if beta else l1_loss(input, target, reduction=wanted)


smooth_l1_loss.unsupported("c", "smooth_l1_cpu")


@_loss_op("_huber_loss", "HuberLossBackward0", cost=8)
def _huber_loss(xp: Any, input: Array, target: Array, reduction: str, delta: float) -> Array:
    _floating("huber_cpu", input)
    size = xp.abs(input - target)
    return reduced(xp, xp.where(size < delta, 0.5 * size * size, delta * (size - 0.5 * delta)), reduction)


_huber_loss.works_in(forward=3.4, backward=2.3, grows=True, widens=True)


def _huber_grad(g: Any, input: Any, target: Any, reduction: str, delta: float) -> Any:
    difference = input - target
    slope = where(~(absolute(difference) >= delta), difference, sign(difference) * delta)
    return slope * spread(g, difference, reduction)


_huber_loss.grad(
    input=_huber_grad,
    target=lambda g, input, target, reduction, delta: neg(_huber_grad(g, input, target, reduction, delta)),
).tangent("loss")


@composite
def huber_loss(
    input: Array, target: Array, reduction: Reduction = "mean", delta: float = 1.0, weight: Array | None = None
) -> Any:
    """Quadratic below delta, linear above (torch.nn.functional.huber_loss).

    Raises EngineError: RUNTIME for a delta that is not positive, SHAPE, ARGUMENT_VALUE.
    """
    if not delta > 0:  # refuses nan, too
        raise EngineError(Reason.RUNTIME, "huber_loss does not support non-positive values for delta.")
    wanted = reduction_of(None, None, reduction)
    if target.dtype != input.dtype:
        target = cast(target, input.dtype)
    if weight is None:
        return _huber_loss(input, target, wanted, delta)
    if weight.shape != input.shape:
        raise EngineError(Reason.ARGUMENT_VALUE, "Weights and input must have the same size.")
    return reduce_op(_huber_loss(input, target, "none", delta) * weight, wanted)


huber_loss.unsupported("c", "huber_cpu")


@op(name="_binary_cross_entropy", node="BinaryCrossEntropyBackward0", cost=12)
def _binary_cross_entropy(xp: Any, input: Array, target: Array, weight: Array | None, reduction: str) -> Array:
    _floating("binary_cross_entropy", input)
    if target.dtype != input.dtype:
        names = dtypes.TITLES
        raise EngineError(Reason.DTYPE, f"Found dtype {names[target.dtype]} but expected {names[input.dtype]}")
    for name, values in (("input", input), ("target", target)):
        if not bool(((values >= 0) & (values <= 1)).all()):  # refuses nan too
            raise EngineError(Reason.RUNTIME, f"all elements of {name} should be between 0 and 1")
    certain, against = xp.maximum(xp.log(input), -100), xp.maximum(xp.log1p(-input), -100)
    values = (target - 1) * against - target * certain
    return reduced(xp, values if weight is None else values * weight, reduction)


_binary_cross_entropy.works_in(forward=1.1, backward=2.3)


def _bce_grad(g: Any, input: Any, target: Any, weight: Any, reduction: str) -> Any:
    spacious = (1 - input) * input
    slope = (input - target) / where(spacious < 1e-12, 1e-12, spacious)
    slope = slope if weight is None else slope * weight
    return slope * spread(g, input, reduction)


def _bce_target_grad(g: Any, input: Any, weight: Any, reduction: str) -> Any:
    slope = log(1 - input) - log(input)  # unlike the loss not clamped to -100, as in PyTorch
    slope = slope if weight is None else slope * weight
    return slope * spread(g, input, reduction)


_binary_cross_entropy.grad(input=_bce_grad, target=_bce_target_grad).tangent("loss")


@composite
def binary_cross_entropy(
    input: Array,
    target: Array,
    weight: Array | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: Reduction = "mean",
) -> Any:
    """Binary cross entropy of probabilities; logarithms are at least -100 (torch.nn.functional.binary_cross_entropy).

    input, target: the same shape, in [0, 1]. weight: broadcasts. Raises EngineError: ARGUMENT_VALUE, RUNTIME, DTYPE.
    """
    wanted = reduction_of(size_average, reduce, reduction)
    if input.shape != target.shape:
        raise EngineError(
            Reason.ARGUMENT_VALUE,
            f"Using a target size (torch.Size({list(target.shape)})) that is different to the input size "
            f"(torch.Size({list(input.shape)})) is deprecated. Please ensure they have the same size.",
        )
    constant("binary_cross_entropy", weight=weight)
    return _binary_cross_entropy(input, target, weight, wanted)


binary_cross_entropy.unsupported("c", "binary_cross_entropy")


_PART = 4096  # elements that one row of a loop adds up


def _logits_loop(
    loops: Loops, xp: Any, input: Any, target: Any, weight: Any, pos_weight: Any, reduction: str
) -> Array | None:
    """The sum or mean by a loop that adds up parts; the parts are added by NumPy or CuPy."""
    if reduction == "none" or weight is not None or pos_weight is not None or not fits(input, target):
        return None
    loop = loops.find("bce_with_logits", input.dtype.char)
    if loop is None:
        return None
    rows, rest = divmod(input.size, _PART)
    sums = np.empty_like(input, shape=rows + (rest > 0))
    run(loop, rows, _PART, input, target, sums)
    if rest:
        ends = [array.reshape(-1)[rows * _PART :] for array in (input, target)]
        run(loop, 1, rest, *ends, sums[rows:])
    summed = sums.sum(dtype=np.float64)
    return xp.asarray(summed / input.size if reduction == "mean" else summed, input.dtype)


@op(name="_bce_with_logits", node="BinaryCrossEntropyWithLogitsBackward0", promote="same", in_place=False, cost=12)
@with_loop(_logits_loop)
def _bce_with_logits(
    xp: Any, input: Array, target: Array, weight: Array | None, pos_weight: Array | None, reduction: str
) -> Array:
    _floating("binary_cross_entropy_with_logits", input)
    # log(1 + exp(-input)) without overflow.
    softened = xp.log1p(xp.exp(-xp.abs(input))) + xp.maximum(-input, 0)
    if pos_weight is not None:
        softened *= 1 + (pos_weight - 1) * target
    values = (1 - target) * input + softened
    return reduced(xp, values if weight is None else values * weight, reduction)


_bce_with_logits.works_in(forward=2.2, grows=True)


def _logits_grad_loop(
    loops: Loops, g: Any, input: Any, target: Any, weight: Any, pos_weight: Any, reduction: str
) -> Any:
    if reduction == "none" or weight is not None or pos_weight is not None:
        return None
    if type(g) is not np.ndarray or g.dtype != input.dtype:
        return None
    return each(loops, "bce_with_logits_backward", input, target, numbers=(_share(g, input.size, reduction),))


@with_loop(_logits_grad_loop)
def _logits_grad(g: Any, input: Any, target: Any, weight: Any, pos_weight: Any, reduction: str) -> Any:
    if pos_weight is None:
        slope = sigmoid(input) - target
    else:
        positive = pos_weight * target
        slope = (positive + 1 - target) * sigmoid(input) - positive
    slope = slope if weight is None else slope * weight
    return slope * spread(g, input, reduction)


def _logits_target_grad(g: Any, input: Any, weight: Any, pos_weight: Any, reduction: str) -> Any:
    slope = neg(input)
    if pos_weight is not None:
        slope = log(sigmoid(neg(input))) - pos_weight * log(sigmoid(input))
    slope = slope if weight is None else slope * weight
    return slope * spread(g, input, reduction)


_bce_with_logits.by_loops("bce_with_logits", "bce_with_logits_backward", "sigmoid")
_bce_with_logits.grad(input=_logits_grad, target=_logits_target_grad).tangent("loss")


@composite
def binary_cross_entropy_with_logits(
    input: Array,
    target: Array,
    weight: Array | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: Reduction = "mean",
    pos_weight: Array | None = None,
) -> Any:
    """Binary cross entropy of sigmoid(input) (torch.nn.functional.binary_cross_entropy_with_logits).

    input, target: the same shape. weight, pos_weight: broadcast. Raises EngineError: ARGUMENT_VALUE.
    """
    wanted = reduction_of(size_average, reduce, reduction)
    if input.shape != target.shape:
        raise EngineError(
            Reason.ARGUMENT_VALUE,
            f"Target size (torch.Size({list(target.shape)})) must be the same as input size "
            f"(torch.Size({list(input.shape)}))",
        )
    constant("binary_cross_entropy_with_logits", weight=weight, pos_weight=pos_weight)
    return _bce_with_logits(input, target, weight, pos_weight, wanted)


binary_cross_entropy_with_logits.unsupported("c", "log_sigmoid_cpu")


@composite
def kl_div(
    input: Array,
    target: Array,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: Literal["none", "batchmean", "sum", "mean"] = "mean",
    log_target: bool = False,
) -> Any:
    """Kullback-Leibler divergence of `target` (probabilities) and `input` (logarithms) (torch.nn.functional.kl_div).

    reduction: also "batchmean", the sum divided by the size of dimension 0. Raises EngineError: SHAPE, ARGUMENT_VALUE.
    """
    batchmean = reduction == "batchmean" and size_average is None and reduce is None
    wanted = "sum" if batchmean else reduction_of(size_average, reduce, reduction)
    values = exp(target) * (target - input) if log_target else xlogy(target, target) - target * input
    made = reduce_op(values, wanted)
    return made / input.shape[0] if batchmean and input.ndim else made


kl_div.unsupported("i", message="kl_div: Integral inputs not supported.")
kl_div.unsupported("c", message="kl_div: Complex inputs not supported.")
