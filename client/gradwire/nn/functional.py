"""The functions that layers are made of: PyTorch's names, parameters and defaults.

Most are the ops themselves. The functions here add more than an op: `inplace`, a dimension left to be guessed, older
arguments.
"""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from gradwire._base import dtypes
from gradwire._base.absent import absent
from gradwire._functions.create import tensor
from gradwire._tensor import ops
from gradwire._tensor.call import _call
from gradwire._tensor.ops import (
    adaptive_avg_pool1d,
    avg_pool1d,
    avg_pool2d,
    avg_pool3d,
    batch_norm,
    bilinear,
    channel_shuffle,
    conv_transpose1d,
    conv_transpose2d,
    conv_transpose3d,
    cosine_embedding_loss,
    cosine_similarity,
    fold,
    gaussian_nll_loss,
    gelu,
    glu,
    grid_sample,
    group_norm,
    hardshrink,
    hinge_embedding_loss,
    instance_norm,
    layer_norm,
    linear,
    local_response_norm,
    logsigmoid,
    lp_pool1d,
    lp_pool2d,
    lp_pool3d,
    margin_ranking_loss,
    max_unpool1d,
    max_unpool2d,
    max_unpool3d,
    multi_margin_loss,
    multilabel_margin_loss,
    multilabel_soft_margin_loss,
    one_hot,
    pad,
    pairwise_distance,
    pdist,
    pixel_shuffle,
    pixel_unshuffle,
    poisson_nll_loss,
    prelu,
    rms_norm,
    soft_margin_loss,
    softplus,
    softshrink,
    softsign,
    tanhshrink,
    triplet_margin_loss,
)
from gradwire._tensor.ops import channel_shuffle as native_channel_shuffle
from gradwire._tensor.ops import nn_functional_unfold as unfold
from gradwire._tensor.tensor import Tensor
from gradwire.nn._functional.antialias import interpolate_antialias
from gradwire.nn._functional.attention_checks import check_attention
from gradwire.nn._functional.fractional import fractional_max_pool
from gradwire.nn._functional.grid import affine_grid
from gradwire.nn._functional.loss import (
    binary_cross_entropy,
    binary_cross_entropy_with_logits,
    cross_entropy,
    huber_loss,
    kl_div,
    l1_loss,
    linear_cross_entropy,
    mse_loss,
    nll_loss,
    smooth_l1_loss,
)
from gradwire.nn._functional.sparse_tables import embedding, embedding_bag

__all__ = [
    "adaptive_avg_pool1d",
    "adaptive_avg_pool2d",
    "adaptive_avg_pool3d",
    "adaptive_max_pool1d",
    "adaptive_max_pool1d_with_indices",
    "adaptive_max_pool2d",
    "adaptive_max_pool2d_with_indices",
    "adaptive_max_pool3d",
    "adaptive_max_pool3d_with_indices",
    "affine_grid",
    "alpha_dropout",
    "avg_pool1d",
    "avg_pool2d",
    "avg_pool3d",
    "batch_norm",
    "bilinear",
    "binary_cross_entropy",
    "binary_cross_entropy_with_logits",
    "celu",
    "celu_",
    "channel_shuffle",
    "conv1d",
    "conv2d",
    "conv3d",
    "conv_transpose1d",
    "conv_transpose2d",
    "conv_transpose3d",
    "cosine_embedding_loss",
    "cosine_similarity",
    "cross_entropy",
    "linear_cross_entropy",
    "ctc_loss",
    "dropout",
    "dropout1d",
    "dropout2d",
    "dropout3d",
    "elu",
    "elu_",
    "embedding",
    "embedding_bag",
    "feature_alpha_dropout",
    "fold",
    "fractional_max_pool2d",
    "fractional_max_pool2d_with_indices",
    "fractional_max_pool3d",
    "fractional_max_pool3d_with_indices",
    "gaussian_nll_loss",
    "gelu",
    "glu",
    "grid_sample",
    "group_norm",
    "gumbel_softmax",
    "hardshrink",
    "hardsigmoid",
    "hardswish",
    "hardtanh",
    "hardtanh_",
    "hinge_embedding_loss",
    "huber_loss",
    "instance_norm",
    "interpolate",
    "kl_div",
    "l1_loss",
    "layer_norm",
    "leaky_relu",
    "leaky_relu_",
    "linear",
    "local_response_norm",
    "log_softmax",
    "logsigmoid",
    "lp_pool1d",
    "lp_pool2d",
    "lp_pool3d",
    "margin_ranking_loss",
    "max_pool1d",
    "max_pool1d_with_indices",
    "max_pool2d",
    "max_pool2d_with_indices",
    "max_pool3d",
    "max_pool3d_with_indices",
    "max_unpool1d",
    "max_unpool2d",
    "max_unpool3d",
    "mish",
    "mse_loss",
    "multi_head_attention_forward",
    "multi_margin_loss",
    "multilabel_margin_loss",
    "multilabel_soft_margin_loss",
    "native_channel_shuffle",
    "nll_loss",
    "normalize",
    "one_hot",
    "pad",
    "pairwise_distance",
    "pdist",
    "pixel_shuffle",
    "pixel_unshuffle",
    "poisson_nll_loss",
    "prelu",
    "relu",
    "relu6",
    "relu_",
    "rms_norm",
    "rrelu",
    "rrelu_",
    "scaled_dot_product_attention",
    "selu",
    "selu_",
    "sigmoid",
    "silu",
    "smooth_l1_loss",
    "soft_margin_loss",
    "softmax",
    "softmin",
    "softplus",
    "softshrink",
    "softsign",
    "tanh",
    "tanhshrink",
    "threshold",
    "threshold_",
    "triplet_margin_loss",
    "triplet_margin_with_distance_loss",
    "unfold",
    "upsample",
    "upsample_bilinear",
    "upsample_nearest",
]

Ints = int | Sequence[int]


def relu(input: Tensor, inplace: bool = False) -> Tensor:
    """max(0, input); like torch.nn.functional.relu."""
    return input.relu_() if inplace else ops.relu(input)


def relu_(input: Tensor) -> Tensor:
    """In-place form of `relu`."""
    return input.relu_()


def leaky_relu(input: Tensor, negative_slope: float = 0.01, inplace: bool = False) -> Tensor:
    """The input where positive, elsewhere negative_slope times it; torch.nn.functional.leaky_relu."""
    return _call("leaky_relu_", (input, negative_slope)) if inplace else ops.leaky_relu(input, negative_slope)


def elu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """The input where positive, elsewhere alpha * (exp(input) - 1); torch.nn.functional.elu."""
    return _call("elu_", (input, alpha)) if inplace else ops.elu(input, alpha)


def celu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """The input where positive, elsewhere alpha * (exp(input / alpha) - 1); torch.nn.functional.celu."""
    return _call("celu_", (input, alpha)) if inplace else ops.celu(input, alpha)


def selu(input: Tensor, inplace: bool = False) -> Tensor:
    """elu, scaled so that layers normalize themselves; torch.nn.functional.selu."""
    return _call("selu_", (input,)) if inplace else ops.selu(input)


def silu(input: Tensor, inplace: bool = False) -> Tensor:
    """input * sigmoid(input); torch.nn.functional.silu."""
    return _call("silu_", (input,)) if inplace else ops.silu(input)


def mish(input: Tensor, inplace: bool = False) -> Tensor:
    """input * tanh(softplus(input)); torch.nn.functional.mish."""
    return _call("mish_", (input,)) if inplace else ops.mish(input)


def relu6(input: Tensor, inplace: bool = False) -> Tensor:
    """The input clamped to [0, 6]; torch.nn.functional.relu6."""
    return _call("relu6_", (input,)) if inplace else ops.relu6(input)


def hardtanh(input: Tensor, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> Tensor:
    """The input clamped to [min_val, max_val]; torch.nn.functional.hardtanh."""
    return _call("hardtanh_", (input, min_val, max_val)) if inplace else ops.hardtanh(input, min_val, max_val)


def hardsigmoid(input: Tensor, inplace: bool = False) -> Tensor:
    """relu6(input + 3) / 6; torch.nn.functional.hardsigmoid."""
    return _call("hardsigmoid_", (input,)) if inplace else ops.hardsigmoid(input)


def hardswish(input: Tensor, inplace: bool = False) -> Tensor:
    """input * hardsigmoid(input); torch.nn.functional.hardswish."""
    return _call("hardswish_", (input,)) if inplace else ops.hardswish(input)


def threshold(input: Tensor, threshold: float, value: float, inplace: bool = False) -> Tensor:
    """The input where above the threshold, elsewhere the value; torch.nn.functional.threshold."""
    return threshold_(input, threshold, value) if inplace else ops.threshold(input, threshold, value)


def sigmoid(input: Tensor) -> Tensor:
    """1 / (1 + exp(-input)); torch.nn.functional.sigmoid."""
    return ops.sigmoid(input)


def tanh(input: Tensor) -> Tensor:
    """tanh(input); torch.nn.functional.tanh."""
    return ops.tanh(input)


def implied_dim(name: str, input: Tensor, stacklevel: int) -> int:
    """The default dimension of softmax and similar functions, with PyTorch's warning."""
    warnings.warn(
        f"Implicit dimension choice for {name} has been deprecated. Change the call to include dim=X as an argument.",
        stacklevel=stacklevel,
    )
    return 0 if input.ndim in (0, 1, 3) else 1


def softmax(input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: dtypes.dtype | None = None) -> Tensor:
    """exp(input) divided by its sum along `dim`; torch.nn.functional.softmax."""
    return ops.softmax(input, implied_dim("softmax", input, _stacklevel) if dim is None else dim, dtype=dtype)


def log_softmax(
    input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: dtypes.dtype | None = None
) -> Tensor:
    """The logarithm of softmax along `dim`; torch.nn.functional.log_softmax."""
    return ops.log_softmax(input, implied_dim("log_softmax", input, _stacklevel) if dim is None else dim, dtype=dtype)


def softmin(input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: dtypes.dtype | None = None) -> Tensor:
    """softmax of the negated input; torch.nn.functional.softmin."""
    return ops.softmin(input, implied_dim("softmin", input, _stacklevel) if dim is None else dim, dtype=dtype)


def dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """In training, zeroes with probability `p` and scales the rest by 1 / (1 - p); torch.nn.functional.dropout.

    Raises ValueError for a `p` outside [0, 1].
    """
    if not 0.0 <= p <= 1.0:
        raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")
    if p == 0 or not training:
        return input
    return _call("dropout_", (input, p)) if inplace else ops.dropout(input, p)


def _written(input: Tensor, made: Tensor, inplace: bool) -> Tensor:
    """The result, in place if requested."""
    return input.copy_(made) if inplace and made is not input else made


def dropout1d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """In training, zeroes whole channels of (n, c, l) or (c, l); torch.nn.functional.dropout1d."""
    return _written(input, ops.dropout1d(input, p, training), inplace)


def dropout2d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """In training, zeroes whole channels of (n, c, h, w); torch.nn.functional.dropout2d."""
    return _written(input, ops.dropout2d(input, p, training), inplace)


def dropout3d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """In training, zeroes whole channels of (n, c, d, h, w); torch.nn.functional.dropout3d."""
    return _written(input, ops.dropout3d(input, p, training), inplace)


def alpha_dropout(input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False) -> Tensor:
    """Dropout that keeps mean and variance of selu's results; torch.nn.functional.alpha_dropout."""
    return _written(input, ops.alpha_dropout(input, p, training), inplace)


def feature_alpha_dropout(input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False) -> Tensor:
    """alpha_dropout of whole channels; torch.nn.functional.feature_alpha_dropout."""
    return _written(input, ops.feature_alpha_dropout(input, p, training), inplace)


def rrelu(
    input: Tensor, lower: float = 1.0 / 8, upper: float = 1.0 / 3, training: bool = False, inplace: bool = False
) -> Tensor:
    """leaky_relu with a random slope, its mean outside training; torch.nn.functional.rrelu."""
    return _call("rrelu_", (input, lower, upper, training)) if inplace else ops.rrelu(input, lower, upper, training)


def rrelu_(input: Tensor, lower: float = 1.0 / 8, upper: float = 1.0 / 3, training: bool = False) -> Tensor:
    """In-place form of `rrelu`."""
    return rrelu(input, lower, upper, training, inplace=True)


def leaky_relu_(input: Tensor, negative_slope: float = 0.01) -> Tensor:
    """In-place form of `leaky_relu`."""
    return leaky_relu(input, negative_slope, inplace=True)


def elu_(input: Tensor, alpha: float = 1.0) -> Tensor:
    """In-place form of `elu`."""
    return elu(input, alpha, inplace=True)


def celu_(input: Tensor, alpha: float = 1.0) -> Tensor:
    """In-place form of `celu`."""
    return celu(input, alpha, inplace=True)


def selu_(input: Tensor) -> Tensor:
    """In-place form of `selu`."""
    return selu(input, inplace=True)


def hardtanh_(input: Tensor, min_val: float = -1.0, max_val: float = 1.0) -> Tensor:
    """In-place form of `hardtanh`."""
    return hardtanh(input, min_val, max_val, inplace=True)


def threshold_(input: Tensor, threshold: float, value: float) -> Tensor:
    """In-place form of `threshold`."""
    made: Tensor = _call("threshold_", (input, threshold, value))
    return made


def gumbel_softmax(logits: Tensor, tau: float = 1.0, hard: bool = False, eps: float = 1e-10, dim: int = -1) -> Tensor:
    """A random choice along `dim`, by softmax of logits with Gumbel noise; torch.nn.functional.gumbel_softmax.

    hard: one-hot, with the gradient of the soft choice.
    """
    noise = -_call("zeros_like", (logits.detach(),)).contiguous().exponential_().log()  # drawn row by row
    soft = ops.softmax((logits + noise) / tau, dim)
    if not hard:
        return soft
    best = soft.detach().argmax(dim, keepdim=True)
    chosen = _call("zeros_like", (logits.detach(),)).contiguous().scatter(dim, best, 1.0)
    made: Tensor = chosen - soft.detach() + soft
    return made


def _spatially_padded(
    input: Tensor, weight: Tensor, stride: Ints, padding: str | Ints, dilation: Ints, dims: int
) -> tuple[Tensor, Ints]:
    """The padding as numbers: "valid" is none, "same" keeps the size; an uneven rest is padded to the input itself."""
    if not isinstance(padding, str):
        return input, padding
    if padding == "valid":
        return input, 0
    if padding != "same":
        raise RuntimeError(f"Invalid padding string: '{padding}'")
    if any(step != 1 for step in ((stride,) if isinstance(stride, int) else stride)):
        raise RuntimeError("padding='same' is not supported for strided convolutions")
    spread = (dilation,) * dims if isinstance(dilation, int) else tuple(dilation)
    totals = [step * (size - 1) for step, size in zip(spread, weight.shape[2:], strict=True)]
    if any(total % 2 for total in totals):
        # PyTorch puts the odd one at the end.
        uneven = [side for total in reversed(totals) for side in (0, total % 2)]
        input = ops.pad(input, uneven)
    return input, [total // 2 for total in totals]


def conv1d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Ints = 1,
    padding: str | Ints = 0,
    dilation: Ints = 1,
    groups: int = 1,
) -> Tensor:
    """Cross-correlation over one dimension; `padding` may be "same" or "valid"; torch.nn.functional.conv1d."""
    input, padding = _spatially_padded(input, weight, stride, padding, dilation, 1)
    return ops.conv1d(input, weight, bias, stride, padding, dilation, groups)


def conv2d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Ints = 1,
    padding: str | Ints = 0,
    dilation: Ints = 1,
    groups: int = 1,
) -> Tensor:
    """Cross-correlation over two dimensions; `padding` may be "same" or "valid"; torch.nn.functional.conv2d."""
    input, padding = _spatially_padded(input, weight, stride, padding, dilation, 2)
    return ops.conv2d(input, weight, bias, stride, padding, dilation, groups)


def conv3d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Ints = 1,
    padding: str | Ints = 0,
    dilation: Ints = 1,
    groups: int = 1,
) -> Tensor:
    """Cross-correlation over three dimensions; `padding` may be "same" or "valid"; torch.nn.functional.conv3d."""
    input, padding = _spatially_padded(input, weight, stride, padding, dilation, 3)
    return ops.conv3d(input, weight, bias, stride, padding, dilation, groups)


def _max_pool(op: str, input: Tensor, window: tuple[Any, ...], return_indices: bool) -> Any:
    return _call(op, (input, *window, return_indices), (), "tuple" if return_indices else None)


def max_pool1d(
    input: Tensor,
    kernel_size: Ints,
    stride: Ints | None = None,
    padding: Ints = 0,
    dilation: Ints = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """The largest value of each window, with `return_indices` also its index; torch.nn.functional.max_pool1d."""
    window = (kernel_size, stride, padding, dilation, ceil_mode)
    return _max_pool("max_pool1d", input, window, return_indices)


def max_pool2d(
    input: Tensor,
    kernel_size: Ints,
    stride: Ints | None = None,
    padding: Ints = 0,
    dilation: Ints = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """The largest value of each window, with `return_indices` also its index; torch.nn.functional.max_pool2d."""
    window = (kernel_size, stride, padding, dilation, ceil_mode)
    return _max_pool("max_pool2d", input, window, return_indices)


def max_pool3d(
    input: Tensor,
    kernel_size: Ints,
    stride: Ints | None = None,
    padding: Ints = 0,
    dilation: Ints = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """The largest value of each window, with `return_indices` also its index; torch.nn.functional.max_pool3d."""
    window = (kernel_size, stride, padding, dilation, ceil_mode)
    return _max_pool("max_pool3d", input, window, return_indices)


def adaptive_max_pool2d(input: Tensor, output_size: Any, return_indices: bool = False) -> Any:
    """The largest value of as many windows as the output has elements; torch.nn.functional.adaptive_max_pool2d."""
    return _max_pool("adaptive_max_pool2d", input, (_sized(input, output_size),), return_indices)


def _sized(input: Tensor, output_size: Any) -> Any:
    """The output's sizes, the input's own where None is given."""
    if not isinstance(output_size, (tuple, list)):
        return output_size
    if len(output_size) >= input.ndim:
        raise ValueError(f"Input dimension should be at least {len(output_size) + 1}")
    if None not in output_size:
        return output_size
    own = input.shape[-len(output_size) :]
    return [size if wanted is None else wanted for wanted, size in zip(output_size, own, strict=True)]


def adaptive_avg_pool2d(input: Tensor, output_size: Any) -> Tensor:
    """Means over as many windows as the output has elements; torch.nn.functional.adaptive_avg_pool2d."""
    return ops.adaptive_avg_pool2d(input, _sized(input, output_size))


def adaptive_avg_pool3d(input: Tensor, output_size: Any) -> Tensor:
    """Means over as many windows as the output has elements; torch.nn.functional.adaptive_avg_pool3d."""
    return ops.adaptive_avg_pool3d(input, _sized(input, output_size))


def adaptive_max_pool1d(input: Tensor, output_size: Any, return_indices: bool = False) -> Any:
    """The largest value of as many windows as the output has elements; torch.nn.functional.adaptive_max_pool1d."""
    return _max_pool("adaptive_max_pool1d", input, (output_size,), return_indices)


def adaptive_max_pool3d(input: Tensor, output_size: Any, return_indices: bool = False) -> Any:
    """The largest value of as many windows as the output has elements; torch.nn.functional.adaptive_max_pool3d."""
    return _max_pool("adaptive_max_pool3d", input, (_sized(input, output_size),), return_indices)


def max_pool1d_with_indices(input: Tensor, kernel_size: Ints, *window: Any, **named: Any) -> Any:
    """max_pool1d and the indices (torch.nn.functional.max_pool1d_with_indices)."""
    return max_pool1d(input, kernel_size, *window[:4], **{**named, "return_indices": True})


def max_pool2d_with_indices(input: Tensor, kernel_size: Ints, *window: Any, **named: Any) -> Any:
    """max_pool2d and the indices (torch.nn.functional.max_pool2d_with_indices)."""
    return max_pool2d(input, kernel_size, *window[:4], **{**named, "return_indices": True})


def max_pool3d_with_indices(input: Tensor, kernel_size: Ints, *window: Any, **named: Any) -> Any:
    """max_pool3d and the indices (torch.nn.functional.max_pool3d_with_indices)."""
    return max_pool3d(input, kernel_size, *window[:4], **{**named, "return_indices": True})


def adaptive_max_pool1d_with_indices(input: Tensor, output_size: Any, return_indices: bool = False) -> Any:
    """adaptive_max_pool1d and the indices (torch.nn.functional.adaptive_max_pool1d_with_indices)."""
    return adaptive_max_pool1d(input, output_size, True)


def adaptive_max_pool2d_with_indices(input: Tensor, output_size: Any, return_indices: bool = False) -> Any:
    """adaptive_max_pool2d and the indices (torch.nn.functional.adaptive_max_pool2d_with_indices)."""
    return adaptive_max_pool2d(input, output_size, True)


def adaptive_max_pool3d_with_indices(input: Tensor, output_size: Any, return_indices: bool = False) -> Any:
    """adaptive_max_pool3d and the indices (torch.nn.functional.adaptive_max_pool3d_with_indices)."""
    return adaptive_max_pool3d(input, output_size, True)


def fractional_max_pool2d_with_indices(
    input: Tensor,
    kernel_size: Any,
    output_size: Any = None,
    output_ratio: Any = None,
    return_indices: bool = False,
    _random_samples: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Maxima of windows at random places, and their indices (torch.nn.functional.fractional_max_pool2d_with_indices).

    input: (N, C, H, W) or (C, H, W). Raises ValueError without output sizes and ratio, RuntimeError for a window that
    does not fit.
    """
    return fractional_max_pool(2, input, kernel_size, output_size, output_ratio, _random_samples)


def fractional_max_pool3d_with_indices(
    input: Tensor,
    kernel_size: Any,
    output_size: Any = None,
    output_ratio: Any = None,
    return_indices: bool = False,
    _random_samples: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Maxima of windows at random places, and their indices (torch.nn.functional.fractional_max_pool3d_with_indices).

    input: (N, C, D, H, W) or (C, D, H, W). Raises as fractional_max_pool2d_with_indices does.
    """
    return fractional_max_pool(3, input, kernel_size, output_size, output_ratio, _random_samples)


def fractional_max_pool2d(
    input: Tensor,
    kernel_size: Any,
    output_size: Any = None,
    output_ratio: Any = None,
    return_indices: bool = False,
    _random_samples: Tensor | None = None,
) -> Any:
    """Maxima of windows at random places (torch.nn.functional.fractional_max_pool2d)."""
    made = fractional_max_pool(2, input, kernel_size, output_size, output_ratio, _random_samples)
    return made if return_indices else made[0]


def fractional_max_pool3d(
    input: Tensor,
    kernel_size: Any,
    output_size: Any = None,
    output_ratio: Any = None,
    return_indices: bool = False,
    _random_samples: Tensor | None = None,
) -> Any:
    """Maxima of windows at random places (torch.nn.functional.fractional_max_pool3d)."""
    made = fractional_max_pool(3, input, kernel_size, output_size, output_ratio, _random_samples)
    return made if return_indices else made[0]


def upsample_nearest(input: Tensor, size: Any = None, scale_factor: Any = None) -> Tensor:
    """`interpolate` by the nearest elements (torch.nn.functional.upsample_nearest)."""
    return interpolate(input, size, scale_factor, mode="nearest")


def upsample_bilinear(input: Tensor, size: Any = None, scale_factor: Any = None) -> Tensor:
    """`interpolate` by bilinear weights between aligned corners (torch.nn.functional.upsample_bilinear)."""
    return interpolate(input, size, scale_factor, mode="bilinear", align_corners=True)


def triplet_margin_with_distance_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    *,
    distance_function: Callable[[Tensor, Tensor], Tensor] | None = None,
    margin: float = 1.0,
    swap: bool = False,
    reduction: str = "mean",
) -> Tensor:
    """triplet_margin_loss with any distance; torch.nn.functional.triplet_margin_with_distance_loss.

    Raises ValueError for another reduction or a margin that is not positive, RuntimeError for shapes of unequal rank.
    """
    if reduction not in ("none", "mean", "sum"):
        raise ValueError(f"{reduction} is not a valid value for reduction")
    if margin <= 0:
        raise ValueError(f"margin must be greater than 0, got {margin}")
    if not anchor.ndim == positive.ndim == negative.ndim:
        raise RuntimeError(
            "The anchor, positive, and negative tensors are expected to have the same number of dimensions, but got: "
            f"anchor {anchor.ndim}D, positive {positive.ndim}D, and negative {negative.ndim}D inputs"
        )
    distance = distance_function or pairwise_distance
    near, far = distance(anchor, positive), distance(anchor, negative)
    if swap:
        far = ops.minimum(far, distance(positive, negative))
    losses: Tensor = (near - far + margin).clamp_min(0)
    return losses if reduction == "none" else losses.mean() if reduction == "mean" else losses.sum()


def multi_head_attention_forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim_to_check: int,
    num_heads: int,
    in_proj_weight: Tensor | None,
    in_proj_bias: Tensor | None,
    bias_k: Tensor | None,
    bias_v: Tensor | None,
    add_zero_attn: bool,
    dropout_p: float,
    out_proj_weight: Tensor,
    out_proj_bias: Tensor | None,
    training: bool = True,
    key_padding_mask: Tensor | None = None,
    need_weights: bool = True,
    attn_mask: Tensor | None = None,
    use_separate_proj_weight: bool = False,
    q_proj_weight: Tensor | None = None,
    k_proj_weight: Tensor | None = None,
    v_proj_weight: Tensor | None = None,
    static_k: Tensor | None = None,
    static_v: Tensor | None = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """Attention in several heads; torch.nn.functional.multi_head_attention_forward.

    Returns the output and the weights, or None if they are not needed.
    """
    args = (
        query, key, value, embed_dim_to_check, num_heads, in_proj_weight, in_proj_bias, bias_k, bias_v, add_zero_attn,
        dropout_p, out_proj_weight, out_proj_bias, training, key_padding_mask, need_weights, attn_mask,
        use_separate_proj_weight, q_proj_weight, k_proj_weight, v_proj_weight, static_k, static_v, average_attn_weights,
        is_causal,
    )  # fmt: skip
    check_attention(query, key, value, key_padding_mask, attn_mask, num_heads)
    if bias_k is not None and bias_v is not None and (static_k is not None or static_v is not None):
        raise AssertionError(f"bias cannot be added to static {'key' if static_k is not None else 'value'}.")
    made: Any = _call("multi_head_attention_forward", args, (), "tuple")
    return made[0], made[1] if need_weights else None


def upsample(
    input: Tensor,
    size: Ints | None = None,
    scale_factor: float | Sequence[float] | None = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
) -> Tensor:
    """The older name of `interpolate`."""
    return interpolate(input, size, scale_factor, mode, align_corners)


def interpolate(
    input: Tensor,
    size: Ints | None = None,
    scale_factor: float | Sequence[float] | None = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Tensor:
    """The last dimensions at another size, or scaled, together or each; torch.nn.functional.interpolate."""
    if isinstance(scale_factor, int | float):
        scale_factor = [float(scale_factor)] * (input.ndim - 2)
    if antialias:
        return interpolate_antialias(input, size, scale_factor, mode, align_corners, recompute_scale_factor)
    return ops.interpolate(input, size, scale_factor, mode, align_corners, recompute_scale_factor, antialias)


def ctc_loss(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Tensor | Sequence[int],
    target_lengths: Tensor | Sequence[int],
    blank: int = 0,
    reduction: str = "mean",
    zero_infinity: bool = False,
) -> Tensor:
    """-log of the probability that log_probs spell the targets; torch.nn.functional.ctc_loss.

    The lengths may be tensors or sequences of ints.
    """
    lengths, sizes = (
        given if isinstance(given, Tensor) else tensor(list(given)) for given in (input_lengths, target_lengths)
    )
    return ops.ctc_loss(log_probs, targets, lengths, sizes, blank, reduction, zero_infinity)


def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """softmax(query @ key.T * scale + mask) @ value; torch.nn.functional.scaled_dot_product_attention.

    query: (..., l, e); key: (..., s, e); value: (..., s, v). attn_mask: (..., l, s), added to the scores; or bool, True
    to attend. With `enable_gqa` each head of key and value, in dimension -3, serves several heads of the query. Raises
    RuntimeError if their number does not divide the query's.
    """
    if enable_gqa:
        heads = int(query.shape[-3])
        if heads % int(key.shape[-3]) or heads % int(value.shape[-3]):
            raise RuntimeError("the number of heads in key and value must divide the number of heads in query")
        key = ops.repeat_interleave(key, heads // int(key.shape[-3]), -3)
        value = ops.repeat_interleave(value, heads // int(value.shape[-3]), -3)
    return ops.scaled_dot_product_attention(query, key, value, attn_mask, dropout_p, is_causal, scale=scale)


def normalize(input: Tensor, p: float = 2.0, dim: int = 1, eps: float = 1e-12) -> Tensor:
    """The input divided by its p-norm along `dim`, at least eps; torch.nn.functional.normalize."""
    norm = ops.norm(input, p, dim, keepdim=True)
    made: Tensor = input / norm.clamp_min(eps)
    return made


def __getattr__(name: str) -> Any:
    if name == "grad":  # PyTorch's module of functions has the one of their gradients
        return importlib.import_module("gradwire.nn.grad")
    raise absent("gradwire.nn.functional", name, lambda: __all__)
