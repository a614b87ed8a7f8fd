"""ATen's inner functions that libraries and exported graphs call: gradients as functions, masked indices, hashes."""

from __future__ import annotations

import builtins
import math
from collections.abc import Sequence
from typing import Any

from gradwire._base import dtypes
from gradwire._base.errors import refuse
from gradwire._functions.counts import dims_of
from gradwire._functions.create import zeros
from gradwire._tensor import ops
from gradwire._tensor.tensor import Tensor
from gradwire.nn import functional
from gradwire.nn._functional.antialias import interpolate_antialias
from gradwire.nn._functional.conv_gradients import convolution_backward
from gradwire.nn._functional.native import native_batch_norm

__all__ = [
    "_batch_norm_with_update",
    "_chunk_cat",
    "_log_softmax_backward_data",
    "_new_zeros_with_same_feature_meta",
    "_native_batch_norm_legit",
    "_safe_softmax",
    "_softmax_backward_data",
    "_unsafe_masked_index",
    "_unsafe_masked_index_put_accumulate",
    "_upsample_bilinear2d_aa",
    "convolution_backward",
    "hash_tensor",
    "max_pool2d_with_indices_backward",
    "native_dropout_backward",
    "slice",
]


_ALL = builtins.slice(None)


def slice(input: Tensor, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1) -> Tensor:
    """A view of every `step`-th element from `start` to `end` of a dimension (ATen's slice)."""
    every = range(input.shape[dim])[start:end:step]
    before = (_ALL,) * (dim % input.ndim)
    view: Tensor = input[before + (builtins.slice(every.start, every.stop, step),)]  # noqa: RUF005 - for Python 3.10
    return view


def _safe_softmax(input: Tensor, dim: int, dtype: Any = None) -> Tensor:
    """Softmax that gives zeros, with zero gradients, where all elements along `dim` are -inf."""
    if dtype is not None:
        input = input.to(dtype)
    hidden = (input == -math.inf).all(dim, keepdim=True)
    return ops.softmax(input.masked_fill(hidden, 0), dim).masked_fill(hidden, 0)


def _softmax_backward_data(grad_output: Tensor, output: Tensor, dim: int, input_dtype: Any) -> Tensor:
    """Gradient of softmax along `dim`, of its output, in the gradient's dtype. Half types are computed in float32.

    `input_dtype` float16 gives float16 for a gradient of float32. Raises RuntimeError for an output of another dtype.
    """
    grad, output, made_dtype = _widened(grad_output, output, input_dtype)
    made: Tensor = ((grad - (grad * output).sum(dim, keepdim=True)) * output).to(made_dtype)
    return made


def _log_softmax_backward_data(grad_output: Tensor, output: Tensor, dim: int, input_dtype: Any) -> Tensor:
    """Gradient of log_softmax along `dim`, of its output; dtypes and errors as of `_softmax_backward_data`."""
    grad, output, made_dtype = _widened(grad_output, output, input_dtype)
    made: Tensor = (grad - output.exp() * grad.sum(dim, keepdim=True)).to(made_dtype)
    return made


def _new_zeros_with_same_feature_meta(self: Tensor, other: Tensor, *, self_num_batch_dims: int = 0) -> Tensor:
    """Zeros laid out as `other` is in its memory, for each sample of the first `self_num_batch_dims` of `self`."""
    batch = tuple(self.shape[:self_num_batch_dims])
    held = other.storage().size()
    memory = zeros(held * math.prod(batch), dtype=other.dtype, device=other.device)
    strides = [held * math.prod(batch[place + 1 :]) for place in range(len(batch))]
    made: Tensor = memory.as_strided((*batch, *other.shape), (*strides, *other.stride()), other.storage_offset())
    return made


def _widened(grad: Tensor, output: Tensor, input_dtype: Any) -> tuple[Tensor, Tensor, Any]:
    """A gradient and an output in the dtype to compute in, and the result's dtype."""
    if output.dtype is not grad.dtype:
        raise refuse(f"expected scalar type {grad.dtype.title} but found {output.dtype.title}")
    narrow = grad.dtype is dtypes.float32 and dtypes.as_dtype(input_dtype) is dtypes.float16
    wide = _wide(grad.dtype)
    return grad.to(wide), output.to(wide), dtypes.float16 if narrow else grad.dtype


def _wide(dtype: Any) -> Any:
    """The dtype to compute in, for values of a dtype: float32 for half types."""
    return dtypes.float32 if dtype in (dtypes.float16, dtypes.bfloat16) else dtype


def native_dropout_backward(grad_output: Tensor, mask: Tensor, scale: float) -> Tensor:
    """Gradient of dropout: that of the kept elements times `scale`."""
    made: Tensor = grad_output * mask * float(scale)
    return made


def max_pool2d_with_indices_backward(
    grad_output: Tensor,
    input: Tensor,
    kernel_size: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    ceil_mode: bool,
    indices: Tensor,
) -> Tensor:
    """Gradient of max_pool2d for its input, (n, c, h, w) or (c, h, w); `indices` are its maxima in each plane."""
    # Derived from the input, whose gradient is zero, as PyTorch's.
    zeros = input.masked_fill(ops.ones_like(input, dtype=dtypes.bool_), 0).to(grad_output.dtype).flatten(-2)
    made: Tensor = zeros.scatter_add(-1, indices.flatten(-2), grad_output.flatten(-2)).reshape(input.shape)
    return made


def _native_batch_norm_legit(
    input: Tensor, weight: Tensor | None, bias: Tensor | None, *given: Any
) -> tuple[Tensor, Tensor, Tensor]:
    """native_batch_norm; of the running statistics both or none are given."""
    running = given[:2] if len(given) == 5 else (None, None)
    return native_batch_norm(input, weight, bias, *running, *given[-3:])


def _batch_norm_with_update(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor,
    running_var: Tensor,
    momentum: float,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """native_batch_norm in training, and an empty tensor of bytes for PyTorch's kernels."""
    made = native_batch_norm(input, weight, bias, running_mean, running_var, True, momentum, eps)
    return (*made, input.new_empty((0,), dtype=dtypes.uint8))


def _chunk_cat(tensors: Sequence[Tensor], dim: int, num_chunks: int) -> Tensor:
    """Divide each tensor along `dim` into chunks, with zeros at the end; join the chunks of a number, flattened.

    Gives (*sizes before dim, num_chunks, elements). Raises RuntimeError for no or empty tensors, for fewer than 1
    chunk, and for tensors of several dtypes or sizes before dim; IndexError for another dimension.
    """
    if num_chunks < 1:
        raise refuse("_chunk_cat expects positive num_chunks")
    if not tensors:
        raise refuse("_chunk_cat expects a non-empty input tensor list")
    dim = dims_of(dim, tensors[0].ndim)[0]
    before = tensors[0].shape[:dim]
    for each in tensors:
        if not each.numel():
            raise refuse("_chunk_cat expects non-empty tensor")
        if each.dtype is not tensors[0].dtype:
            raise refuse("_chunk_cat expects all input tensors with the same dtype")
        if each.ndim <= dim or each.shape[:dim] != before:
            raise refuse("_chunk_cat expects same sizes of 0,...,dim-1 dimensions for all tensors")
    parts = []
    for each in tensors:
        missing = -each.shape[dim] % num_chunks
        padded = functional.pad(each, (0, 0) * (each.ndim - dim - 1) + (0, missing)) if missing else each
        parts.append(padded.reshape(*each.shape[:dim], num_chunks, -1))
    return ops.cat(parts, dim + 1)


def _inside(input: Tensor, indices: Sequence[Tensor | None]) -> tuple[Any, ...]:
    """Indices within the sizes: those of masked elements may be outside."""
    pairs = zip(indices, input.shape, strict=False)
    return tuple([_ALL if index is None else index.clamp(-size, size - 1) for index, size in pairs])


def _unsafe_masked_index(input: Tensor, mask: Tensor, indices: Sequence[Tensor | None], fill: Any) -> Tensor:
    """input[indices] where the mask is True, else `fill`. Indices of masked elements may lie outside.

    Indices into a dimension of size 0 give `fill` everywhere.
    """
    sizes = [
        size or 1 if at < len(indices) and indices[at] is not None else size for at, size in enumerate(input.shape)
    ]
    if sizes != list(input.shape):  # indices into a dimension of size 0 are refused
        input, mask = input.new_zeros(sizes), ops.zeros_like(mask)
    return input[_inside(input, indices)].masked_fill(~mask, fill)


def _unsafe_masked_index_put_accumulate(
    input: Tensor, mask: Tensor, indices: Sequence[Tensor | None], values: Tensor
) -> Tensor:
    """A copy of the input with the values added at the indices, where the mask is True."""
    if not input.numel():
        return input.clone()
    return input.index_put(_inside(input, indices), values.masked_fill(~mask, 0), accumulate=True)


def _upsample_bilinear2d_aa(
    input: Tensor,
    output_size: Any = None,
    align_corners: bool = False,
    scale_factors: Any = None,
    *,
    scales_h: float | None = None,
    scales_w: float | None = None,
) -> Tensor:
    """interpolate of images (n, c, h, w) with antialias, to `output_size` or by `scale_factors`.

    scales_h, scales_w: factors for the positions beside `output_size`.
    """
    return interpolate_antialias(
        input, output_size, scale_factors, "bilinear", align_corners, None, (scales_h, scales_w)
    )


def hash_tensor(input: Tensor, dim: Any = (), *, keepdim: bool = False, mode: int = 0) -> Tensor:
    """Exclusive or of the elements' bits, in 64 bits each, over dimensions, or all; dtype uint64 (torch.hash_tensor).

    mode: 0, the only one; else RuntimeError. Raises NotImplementedError for complex numbers, IndexError for dimensions
    that do not exist or have size 0, RuntimeError for repeated ones.
    """
    if mode:
        raise refuse(f"Unknown hash_tensor mode: {mode}")
    if input.is_complex():
        raise NotImplementedError(f"\"xor_sum_cpu\" not implemented for '{input.dtype.title}'")
    wide = input.to(dtypes.float64 if input.is_floating_point() else dtypes.int64)
    given = () if dim is None else (dim,) if isinstance(dim, int) else dim
    if not isinstance(given, (tuple, list)) or not all(isinstance(each, int) for each in given):
        raise TypeError(f"hash_tensor(): argument 'dim' (position 2) must be tuple of ints, not {type(dim).__name__}")
    reduced = sorted(dims_of(given or None, input.ndim))[: input.ndim]
    for each in reduced:
        if given and not input.shape[each]:
            raise IndexError(f"hash_tensor: Expected reduction dim {each} to have non-zero size.")
    kept = [each for each in range(input.ndim) if each not in reduced]
    bits = wide.contiguous().view(dtypes.int64)
    bits = (bits.permute(*kept, *reduced) if kept and reduced else bits).reshape(
        *[input.shape[each] for each in kept], math.prod([input.shape[each] for each in reduced])
    )
    while bits.shape[-1] > 1:
        half = bits.shape[-1] // 2
        rest = bits[..., 2 * half :]
        bits = ops.cat((bits[..., :half] ^ bits[..., half : 2 * half], rest), -1)
    found = bits.sum(-1)  # of at most one element: 0 of none
    sizes = [1 if each in reduced else size for each, size in enumerate(input.shape)]
    made: Tensor = (found.reshape(sizes) if keepdim else found).view(dtypes.uint64)
    return made
