"""The losses of nn.functional: PyTorch's parameters, with the older words for `reduction`, in front of the ops."""

from __future__ import annotations

import warnings
from typing import Any

from gradwire._base.errors import refuse
from gradwire._tensor import ops
from gradwire._tensor.tensor import Tensor


def resolve_reduction(size_average: bool | None, reduce: bool | None, reduction: str) -> str:
    """The reduction that PyTorch's older arguments stand for, with its warning; else the given one."""
    if size_average is None and reduce is None:
        return reduction
    if reduce is False:
        meant = "none"
    else:
        meant = "sum" if size_average is False else "mean"
    warnings.warn(
        f"size_average and reduce args will be deprecated, please use reduction='{meant}' instead.", stacklevel=3
    )
    return meant


def _warn_of_broadcast(name: str, input: Tensor, target: Tensor) -> None:
    if input.shape != target.shape:
        warnings.warn(
            f"Using a target size ({target.shape}) that is different to the input size ({input.shape}) in {name}. This "
            "will likely lead to incorrect results due to broadcasting. Please ensure they have the same size.",
            stacklevel=3,
        )


def mse_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    weight: Tensor | None = None,
) -> Tensor:
    """(input - target)² of tensors of one shape; like torch.nn.functional.mse_loss."""
    reduction = resolve_reduction(size_average, reduce, reduction)
    _warn_of_broadcast("mse_loss", input, target)
    return ops.mse_loss(input, target, reduction=reduction, weight=weight)


def l1_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    weight: Tensor | None = None,
) -> Tensor:
    """|input - target| of tensors of one shape; like torch.nn.functional.l1_loss."""
    reduction = resolve_reduction(size_average, reduce, reduction)
    _warn_of_broadcast("l1_loss", input, target)
    return ops.l1_loss(input, target, reduction=reduction, weight=weight)


def smooth_l1_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    beta: float = 1.0,
) -> Tensor:
    """Squared within `beta` of the target, linear beyond; like torch.nn.functional.smooth_l1_loss."""
    reduction = resolve_reduction(size_average, reduce, reduction)
    _warn_of_broadcast("smooth_l1_loss", input, target)
    return ops.smooth_l1_loss(input, target, reduction=reduction, beta=beta)


def huber_loss(
    input: Tensor, target: Tensor, reduction: str = "mean", delta: float = 1.0, weight: Tensor | None = None
) -> Tensor:
    """Squared within `delta` of the target, linear beyond; like torch.nn.functional.huber_loss."""
    _warn_of_broadcast("huber_loss", input, target)
    return ops.huber_loss(input, target, reduction=reduction, delta=delta, weight=weight)


def kl_div(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    log_target: bool = False,
) -> Tensor:
    """The divergence of log-probabilities `input` from `target`; like torch.nn.functional.kl_div.

    `reduction` also takes "batchmean", the sum divided by the size of the first dimension: the divergence itself.
    """
    reduction = resolve_reduction(size_average, reduce, reduction)
    if reduction == "mean":
        warnings.warn(
            "reduction: 'mean' divides the total loss by both the batch size and the support size. 'batchmean' divides "
            "only by the batch size, and aligns with the KL div math definition. 'mean' will be changed to behave the "
            "same as 'batchmean' in the next major release.",
            stacklevel=2,
        )
    return ops.kl_div(input, target, reduction=reduction, log_target=log_target)


def nll_loss(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    ignore_index: int = -100,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """Minus the log-probability of the target class: (N, C, *), classes (N, *); torch.nn.functional.nll_loss."""
    reduction = resolve_reduction(size_average, reduce, reduction)
    return ops.nll_loss(input, target, weight, ignore_index=ignore_index, reduction=reduction)


def cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    ignore_index: int = -100,
    reduce: bool | None = None,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """nll_loss of log_softmax: scores (N, C, *), and classes (N, *) or probabilities (N, C, *).

    Like torch.nn.functional.cross_entropy.
    """
    reduction = resolve_reduction(size_average, reduce, reduction)
    return ops.cross_entropy(
        input, target, weight, ignore_index=ignore_index, reduction=reduction, label_smoothing=label_smoothing
    )


def linear_cross_entropy(
    input: Tensor,
    linear_weight: Tensor,
    target: Tensor,
    *,
    linear_bias: Tensor | None = None,
    weight: Tensor | None = None,
    reduction: str = "mean",
    ignore_index: int | None = None,
    label_smoothing: float = 0.0,
    options: Any = None,
) -> Tensor:
    """cross_entropy of linear(input, linear_weight, linear_bias) (torch.nn.functional.linear_cross_entropy).

    input: (n, d) or (d,); linear_weight: (c, d), or (c, *k, d) for a loss per place of k; target: as for cross_entropy.
    `options`, PyTorch's way to save memory, is accepted: the result is the same. Raises RuntimeError for other sizes.
    """
    if input.ndim not in (1, 2):
        raise refuse(f"expected input with dimensionality 1 or 2, got {input.ndim}")
    if linear_weight.ndim < 2:
        raise refuse(f"expected linear_weight with dimensionality at least 2, got {linear_weight.ndim}")
    places, width = tuple(linear_weight.shape[:-1]), linear_weight.shape[-1]
    if input.shape[-1] != width:
        raise refuse(
            "expected equal input and linear_weight last dimensions (in_features), got "
            f"{input.shape[-1]} and {width}, respectively"
        )
    if linear_bias is not None and tuple(linear_bias.shape) != places:
        raise refuse(f"expected linear_bias shape {places}, got {tuple(linear_bias.shape)}")
    if len(places) > 1 and input.ndim == 1:
        raise refuse(
            f"K-dimensional loss defined by linear_weight shape {tuple(linear_weight.shape)} requires batched input, "
            f"(N, {width}), got unbatched input with shape {tuple(input.shape)}"
        )
    bias = None if linear_bias is None else linear_bias.reshape(-1)
    logits = ops.linear(input, linear_weight.reshape(-1, width), bias).reshape(*input.shape[:-1], *places)
    if ignore_index is not None and target.shape == logits.shape:
        raise refuse("ignore_index cannot be specified when target contains probabilities")
    return cross_entropy(
        logits,
        target,
        weight,
        ignore_index=-100 if ignore_index is None else ignore_index,
        reduction=reduction,
        label_smoothing=label_smoothing,
    )


def binary_cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """The cross entropy of probabilities and targets in [0, 1]; torch.nn.functional.binary_cross_entropy.

    Raises ValueError where the shapes differ.
    """
    reduction = resolve_reduction(size_average, reduce, reduction)
    return ops.binary_cross_entropy(input, target, weight, reduction=reduction)


def binary_cross_entropy_with_logits(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    pos_weight: Tensor | None = None,
) -> Tensor:
    """binary_cross_entropy of sigmoid(input), stably; torch.nn.functional.binary_cross_entropy_with_logits.

    Raises ValueError where the shapes differ.
    """
    reduction = resolve_reduction(size_average, reduce, reduction)
    return ops.binary_cross_entropy_with_logits(input, target, weight, reduction=reduction, pos_weight=pos_weight)
