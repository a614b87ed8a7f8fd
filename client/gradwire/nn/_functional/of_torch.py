"""Layer functions of torch itself: those of nn.functional in the argument order of PyTorch's C++ functions.

A reduction is a number: 0 for none, PyTorch's default here, 1 for the mean, 2 for the sum.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gradwire._base.errors import refuse
from gradwire._base.modes import no_grad
from gradwire._tensor import ops
from gradwire._tensor.tensor import Tensor
from gradwire.nn import functional

__all__ = [
    "adaptive_max_pool1d",
    "affine_grid_generator",
    "batch_norm",
    "binary_cross_entropy_with_logits",
    "constant_pad_nd",
    "convolution",
    "cosine_embedding_loss",
    "ctc_loss",
    "embedding",
    "embedding_bag",
    "grid_sampler",
    "hinge_embedding_loss",
    "instance_norm",
    "kl_div",
    "margin_ranking_loss",
    "max_pool1d_with_indices",
    "native_layer_norm",
    "poisson_nll_loss",
    "triplet_margin_loss",
]

_REDUCTIONS = ("none", "mean", "sum")
_BAG_MODES = ("sum", "mean", "max")
_MODES = ("bilinear", "nearest", "bicubic")
_PADDINGS = ("zeros", "border", "reflection")


def _reduction(number: int) -> str:
    if number not in range(3):
        raise refuse(f"{number} is not a valid value for reduction")
    return _REDUCTIONS[number]


def constant_pad_nd(input: Tensor, pad: Sequence[int], value: Any = 0) -> Tensor:
    """The input with a border of one value; `pad` as for nn.functional.pad (torch.constant_pad_nd)."""
    if isinstance(value, complex):
        if not input.is_complex():
            raise refuse("value cannot be converted to type float without overflow")
        real, imag = (constant_pad_nd(*each) for each in ((input.real, pad, value.real), (input.imag, pad, value.imag)))
        return ops.complex(real, imag)
    return ops.pad(input, pad, "constant", int(value) if isinstance(value, bool) else value)


def embedding(
    weight: Tensor, indices: Tensor, padding_idx: int = -1, scale_grad_by_freq: bool = False, sparse: bool = False
) -> Tensor:
    """Rows of `weight` (n, d) at the indices (*): (*, d). A negative `padding_idx` is none (torch.embedding)."""
    padding = padding_idx if padding_idx >= 0 else None
    return functional.embedding(indices, weight, padding, scale_grad_by_freq=scale_grad_by_freq, sparse=sparse)


def embedding_bag(
    weight: Tensor,
    indices: Tensor,
    offsets: Tensor,
    scale_grad_by_freq: bool = False,
    mode: int = 0,
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The sum (mode 0), mean (1) or maximum (2) of bags of rows (torch.embedding_bag).

    weight: (rows, d); indices: (n,); offsets: (bags,). Gives (bags, d), the bag of each index, the sizes of bags, and
    the indices of the maxima. As PyTorch's, a sum has no sizes, and a sum without padding_idx no bags of indices.
    """
    if mode not in range(3):
        raise refuse(f"embedding_bag: {mode} is not a mode: 0 is the sum, 1 the mean, 2 the maximum")
    made = functional.embedding_bag(
        indices, weight, offsets, None, 2.0, scale_grad_by_freq, _BAG_MODES[mode], sparse, per_sample_weights,
        include_last_offset, padding_idx,
    )  # fmt: skip
    starts = offsets[:-1] if include_last_offset else offsets
    none = ops.zeros_like(starts)
    if mode == 0 and padding_idx is None:
        return made, indices.new_empty((0,)), none, none
    places = ops.cumsum(ops.ones_like(indices), 0) - 1
    bags = (ops.searchsorted(starts.contiguous(), places, right=True) - 1).to(indices.dtype)
    if mode == 0:
        return made, bags, none, none
    kept = ops.ones_like(indices) if padding_idx is None else (indices != padding_idx % weight.shape[0])
    sizes = none.index_add(0, bags, kept.to(none.dtype))
    return made, bags, sizes, sizes if mode == 1 else _maxima(made, weight, indices, bags, kept)


def _maxima(made: Tensor, weight: Tensor, indices: Tensor, bags: Tensor, kept: Tensor) -> Tensor:
    """The index of the first of the largest elements of each bag and column; 0 for a bag without rows."""
    with no_grad():
        largest = (weight[indices] == made[bags]) & kept.bool().unsqueeze(1)
        count = indices.shape[0]
        places = (ops.cumsum(ops.ones_like(indices), 0) - 1).unsqueeze(1).expand(largest.shape)
        found = indices.new_full(tuple(made.shape), count)
        first = found.scatter_reduce(
            0, bags.unsqueeze(1).expand(largest.shape), places.masked_fill(~largest, count), "amin"
        )
        padded: Tensor = ops.cat((indices, indices.new_zeros((1,))))[first]
        return padded


def batch_norm(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool = False,
) -> Tensor:
    """nn.functional.batch_norm with the parameters first (torch.batch_norm)."""
    return ops.batch_norm(input, running_mean, running_var, weight, bias, training, momentum, eps)


def instance_norm(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    use_input_stats: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool = False,
) -> Tensor:
    """nn.functional.instance_norm with the parameters first (torch.instance_norm)."""
    return ops.instance_norm(input, running_mean, running_var, weight, bias, use_input_stats, momentum, eps)


def native_layer_norm(
    input: Tensor, normalized_shape: Sequence[int], weight: Tensor | None, bias: Tensor | None, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """layer_norm; and without gradient, means and reciprocal standard deviations (torch.native_layer_norm)."""
    dims = tuple(range(-len(normalized_shape), 0))
    mean = input.mean(dims, keepdim=True)
    scale = (input.var(dims, correction=0, keepdim=True) + eps).rsqrt()
    return ops.layer_norm(input, normalized_shape, weight, bias, eps), mean.detach(), scale.detach()


def convolution(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> Tensor:
    """Convolution, or transposed one, of the weight's dimensions beyond two, 1 to 3 (torch.convolution)."""
    dims = weight.ndim - 2
    if dims not in (1, 2, 3):
        raise refuse(f"convolution: expected a weight of 3 to 5 dimensions, but got {weight.ndim}")

    def each(values: Sequence[int]) -> list[int]:
        return list(values) * dims if len(values) == 1 else list(values)

    if transposed:
        turned = (ops.conv_transpose1d, ops.conv_transpose2d, ops.conv_transpose3d)[dims - 1]
        sizes = (each(stride), each(padding), each(output_padding))
        return turned(input, weight, bias, *sizes, groups, each(dilation))
    plain = (ops.conv1d, ops.conv2d, ops.conv3d)[dims - 1]
    return plain(input, weight, bias, each(stride), each(padding), each(dilation), groups)


def grid_sampler(
    input: Tensor, grid: Tensor, interpolation_mode: int, padding_mode: int, align_corners: bool
) -> Tensor:
    """grid_sample with numbers for its modes: bilinear, nearest, bicubic; zeros, border, reflection."""
    return ops.grid_sample(input, grid, _MODES[interpolation_mode], _PADDINGS[padding_mode], align_corners)


def affine_grid_generator(theta: Tensor, size: Sequence[int], align_corners: bool) -> Tensor:
    """nn.functional.affine_grid (torch.affine_grid_generator)."""
    return functional.affine_grid(theta, list(size), align_corners)


def max_pool1d_with_indices(
    input: Tensor,
    kernel_size: Any,
    stride: Any = (),
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
) -> Any:
    """nn.functional.max_pool1d and the indices (torch.max_pool1d_with_indices)."""
    made = ops.max_pool1d(input, kernel_size, stride or None, padding, dilation, ceil_mode, True)
    return tuple(made)


def adaptive_max_pool1d(input: Tensor, output_size: Any) -> Any:
    """nn.functional.adaptive_max_pool1d and the indices (torch.adaptive_max_pool1d)."""
    return tuple(ops.adaptive_max_pool1d(input, output_size, True))


def binary_cross_entropy_with_logits(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    pos_weight: Tensor | None = None,
    reduction: int = 0,
) -> Tensor:
    """nn.functional's loss of that name (torch.binary_cross_entropy_with_logits)."""
    return ops.binary_cross_entropy_with_logits(
        input, target, weight, reduction=_reduction(reduction), pos_weight=pos_weight
    )


def kl_div(input: Tensor, target: Tensor, reduction: int = 0, *, log_target: bool = False) -> Tensor:
    """nn.functional.kl_div (torch.kl_div)."""
    return ops.kl_div(input, target, reduction=_reduction(reduction), log_target=log_target)


def hinge_embedding_loss(input: Tensor, target: Tensor, margin: float = 1.0, reduction: int = 0) -> Tensor:
    """nn.functional.hinge_embedding_loss (torch.hinge_embedding_loss)."""
    return ops.hinge_embedding_loss(input, target, margin, reduction=_reduction(reduction))


def cosine_embedding_loss(
    input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0.0, reduction: int = 0
) -> Tensor:
    """nn.functional.cosine_embedding_loss (torch.cosine_embedding_loss)."""
    return ops.cosine_embedding_loss(input1, input2, target, margin, reduction=_reduction(reduction))


def margin_ranking_loss(
    input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0.0, reduction: int = 0
) -> Tensor:
    """nn.functional.margin_ranking_loss (torch.margin_ranking_loss)."""
    return ops.margin_ranking_loss(input1, input2, target, margin, reduction=_reduction(reduction))


def poisson_nll_loss(input: Tensor, target: Tensor, log_input: bool, full: bool, eps: float, reduction: int) -> Tensor:
    """nn.functional.poisson_nll_loss (torch.poisson_nll_loss)."""
    return ops.poisson_nll_loss(input, target, log_input, full, eps=eps, reduction=_reduction(reduction))


def triplet_margin_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    margin: float = 1.0,
    p: float = 2.0,
    eps: float = 1e-6,
    swap: bool = False,
    reduction: int = 0,
) -> Tensor:
    """nn.functional.triplet_margin_loss (torch.triplet_margin_loss)."""
    return ops.triplet_margin_loss(anchor, positive, negative, margin, p, eps, swap, reduction=_reduction(reduction))


def ctc_loss(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Any,
    target_lengths: Any,
    blank: int = 0,
    reduction: int = 0,
    zero_infinity: bool = False,
) -> Tensor:
    """nn.functional.ctc_loss (torch.ctc_loss)."""
    return functional.ctc_loss(
        log_probs, targets, input_lengths, target_lengths, blank, _reduction(reduction), zero_infinity
    )
