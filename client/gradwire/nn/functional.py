"""The functions that layers are made of: PyTorch's names, parameters and defaults.

Most are the ops themselves. Those here add what is no op: `inplace`, a dimension left to be guessed, older arguments.
"""

from __future__ import annotations

import difflib
import warnings
from collections.abc import Sequence
from typing import Any

from gradwire import _dtypes, _ops
from gradwire._ops import (
    adaptive_avg_pool2d,
    avg_pool2d,
    gelu,
    glu,
    hardshrink,
    linear,
    logsigmoid,
    one_hot,
    pad,
    prelu,
    softplus,
    softshrink,
    softsign,
    tanhshrink,
)
from gradwire._tensor import Tensor
from gradwire.nn._functional_loss import (
    binary_cross_entropy,
    binary_cross_entropy_with_logits,
    cross_entropy,
    huber_loss,
    kl_div,
    l1_loss,
    mse_loss,
    nll_loss,
    smooth_l1_loss,
)

__all__ = [
    "adaptive_avg_pool2d",
    "avg_pool2d",
    "batch_norm",
    "binary_cross_entropy",
    "binary_cross_entropy_with_logits",
    "celu",
    "conv1d",
    "conv2d",
    "cross_entropy",
    "dropout",
    "elu",
    "embedding",
    "gelu",
    "glu",
    "hardshrink",
    "hardsigmoid",
    "hardswish",
    "hardtanh",
    "huber_loss",
    "kl_div",
    "l1_loss",
    "layer_norm",
    "leaky_relu",
    "linear",
    "log_softmax",
    "logsigmoid",
    "max_pool2d",
    "mish",
    "mse_loss",
    "nll_loss",
    "normalize",
    "one_hot",
    "pad",
    "prelu",
    "relu",
    "relu6",
    "relu_",
    "selu",
    "sigmoid",
    "silu",
    "smooth_l1_loss",
    "softmax",
    "softmin",
    "softplus",
    "softshrink",
    "softsign",
    "tanh",
    "tanhshrink",
    "threshold",
]

Ints = int | Sequence[int]


def relu(input: Tensor, inplace: bool = False) -> Tensor:
    """max(0, input); answers to torch.nn.functional.relu."""
    return input.relu_() if inplace else _ops.relu(input)


def relu_(input: Tensor) -> Tensor:
    """In-place form of `relu`."""
    return input.relu_()


def leaky_relu(input: Tensor, negative_slope: float = 0.01, inplace: bool = False) -> Tensor:
    """The input where positive, elsewhere negative_slope times it; torch.nn.functional.leaky_relu."""
    return input.leaky_relu_(negative_slope) if inplace else _ops.leaky_relu(input, negative_slope)


def elu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """The input where positive, elsewhere alpha * (exp(input) - 1); torch.nn.functional.elu."""
    return input.elu_(alpha) if inplace else _ops.elu(input, alpha)


def celu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """The input where positive, elsewhere alpha * (exp(input / alpha) - 1); torch.nn.functional.celu."""
    return input.celu_(alpha) if inplace else _ops.celu(input, alpha)


def selu(input: Tensor, inplace: bool = False) -> Tensor:
    """elu, scaled so that layers normalize themselves; torch.nn.functional.selu."""
    return input.selu_() if inplace else _ops.selu(input)


def silu(input: Tensor, inplace: bool = False) -> Tensor:
    """input * sigmoid(input); torch.nn.functional.silu."""
    return input.silu_() if inplace else _ops.silu(input)


def mish(input: Tensor, inplace: bool = False) -> Tensor:
    """input * tanh(softplus(input)); torch.nn.functional.mish."""
    return input.mish_() if inplace else _ops.mish(input)


def relu6(input: Tensor, inplace: bool = False) -> Tensor:
    """The input clamped to [0, 6]; torch.nn.functional.relu6."""
    return input.relu6_() if inplace else _ops.relu6(input)


def hardtanh(input: Tensor, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> Tensor:
    """The input clamped to [min_val, max_val]; torch.nn.functional.hardtanh."""
    return input.hardtanh_(min_val, max_val) if inplace else _ops.hardtanh(input, min_val, max_val)


def hardsigmoid(input: Tensor, inplace: bool = False) -> Tensor:
    """relu6(input + 3) / 6; torch.nn.functional.hardsigmoid."""
    return input.hardsigmoid_() if inplace else _ops.hardsigmoid(input)


def hardswish(input: Tensor, inplace: bool = False) -> Tensor:
    """input * hardsigmoid(input); torch.nn.functional.hardswish."""
    return input.hardswish_() if inplace else _ops.hardswish(input)


def threshold(input: Tensor, threshold: float, value: float, inplace: bool = False) -> Tensor:
    """The input where above the threshold, elsewhere the value; torch.nn.functional.threshold."""
    return input.threshold_(threshold, value) if inplace else _ops.threshold(input, threshold, value)


def sigmoid(input: Tensor) -> Tensor:
    """1 / (1 + exp(-input)); torch.nn.functional.sigmoid."""
    return _ops.sigmoid(input)


def tanh(input: Tensor) -> Tensor:
    """tanh(input); torch.nn.functional.tanh."""
    return _ops.tanh(input)


def implied_dim(name: str, input: Tensor, stacklevel: int) -> int:
    """The dimension that softmax and its kin take where none is given, with PyTorch's warning."""
    warnings.warn(
        f"Implicit dimension choice for {name} has been deprecated. Change the call to include dim=X as an argument.",
        stacklevel=stacklevel,
    )
    return 0 if input.ndim in (0, 1, 3) else 1


def softmax(input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: _dtypes.dtype | None = None) -> Tensor:
    """exp(input) divided by its sum along `dim`; torch.nn.functional.softmax."""
    return _ops.softmax(input, implied_dim("softmax", input, _stacklevel) if dim is None else dim, dtype=dtype)


def log_softmax(
    input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: _dtypes.dtype | None = None
) -> Tensor:
    """The logarithm of softmax along `dim`; torch.nn.functional.log_softmax."""
    return _ops.log_softmax(input, implied_dim("log_softmax", input, _stacklevel) if dim is None else dim, dtype=dtype)


def softmin(input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: _dtypes.dtype | None = None) -> Tensor:
    """softmax of the negated input; torch.nn.functional.softmin."""
    return _ops.softmin(input, implied_dim("softmin", input, _stacklevel) if dim is None else dim, dtype=dtype)


def dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """In training, zeroes with probability `p` and scales the rest by 1 / (1 - p); torch.nn.functional.dropout.

    Raises ValueError for a `p` outside [0, 1].
    """
    if not 0.0 <= p <= 1.0:
        raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")
    if inplace:
        return input.copy_(_ops.dropout(input, p, training))
    return _ops.dropout(input, p, training)


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
        input = _ops.pad(input, uneven)
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
    return _ops.conv1d(input, weight, bias, stride, padding, dilation, groups)


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
    return _ops.conv2d(input, weight, bias, stride, padding, dilation, groups)


def max_pool2d(
    input: Tensor,
    kernel_size: Ints,
    stride: Ints | None = None,
    padding: Ints = 0,
    dilation: Ints = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """The largest value of each window; torch.nn.functional.max_pool2d, but for `return_indices`."""
    if return_indices:
        raise NotImplementedError("max_pool2d: return_indices is not supported yet")
    return _ops.max_pool2d(input, kernel_size, stride, padding, dilation, ceil_mode)


def layer_norm(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """Normalizes over the last dimensions, whose sizes are `normalized_shape`; torch.nn.functional.layer_norm."""
    return _ops.layer_norm(input, normalized_shape, weight, bias, eps)


def normalize(input: Tensor, p: float = 2.0, dim: int = 1, eps: float = 1e-12) -> Tensor:
    """The input divided by its p-norm along `dim`, at least eps; torch.nn.functional.normalize."""
    norm = input.abs().pow(p).sum(dim, keepdim=True).pow(1 / p) if p != 1 else input.abs().sum(dim, keepdim=True)
    return input / norm.clamp(min=eps)


def embedding(
    input: Tensor,
    weight: Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Tensor:
    """The rows of `weight` that whole numbers of any shape name; torch.nn.functional.embedding.

    The row at `padding_idx` gets no gradient. Raises NotImplementedError for `max_norm`, `scale_grad_by_freq` and
    `sparse`.
    """
    if max_norm is not None or scale_grad_by_freq or sparse:
        raise NotImplementedError("embedding: max_norm, scale_grad_by_freq and sparse are not supported yet")
    return _ops.embedding(input, weight, padding_idx)


def __getattr__(name: str) -> Any:
    known = [known for known, value in globals().items() if callable(value) and not known.startswith("_")]
    close = difflib.get_close_matches(name, known, n=3)
    hint = f" Did you mean: {', '.join(close)}?" if close else ""
    raise AttributeError(f"module 'gradwire.nn.functional' has no attribute '{name}'.{hint}", name=name)
