"""Rules of networks' layers: convolutions, pooling, normalizations, attention, padding."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from gradwire._base import dtypes
from gradwire._dispatch.calls import aten
from gradwire._dispatch.rules.products import matmul
from gradwire._dispatch.rules.shapes import reshaped

Tensor = Any


def _several(value: Any, count: int) -> list[int]:
    """A number for each spatial dimension."""
    if isinstance(value, (tuple, list)):
        return list(value) * count if len(value) == 1 else list(value)
    return [value] * count


def _spatial(call: Any, input: Tensor, weight: Tensor) -> int:
    """The number of spatial dimensions; 0 if the tensors do not have it: the op itself raises the error."""
    count = int(call.op[-2])
    return count if weight.ndim == count + 2 and input.ndim in (count + 1, count + 2) else 0


def _convolved(call: Any, input: Tensor, weight: Tensor, *rest: Any) -> Any:
    """A convolution of a batch, or of one sample."""
    if input.ndim == weight.ndim:
        return aten("convolution.default", input, weight, *rest, compute=call.compute)
    single = aten("unsqueeze.default", input, 0)
    return aten("squeeze.dim", aten("convolution.default", single, weight, *rest), 0)


def _convolution(
    call: Any,
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Any:
    count = _spatial(call, input, weight)
    if not count:
        return NotImplemented
    if isinstance(padding, str):
        sizes = _several(dilation, count)
        total = [step * (size - 1) for step, size in zip(sizes, weight.shape[2:], strict=True)]
        if padding == "same" and any(each % 2 for each in total):
            return NotImplemented
        padding = [0] * count if padding == "valid" else [each // 2 for each in total]
    options = [_several(each, count) for each in (stride, padding, dilation)]
    return _convolved(call, input, weight, bias, *options, False, [0] * count, groups)


def _transposed(
    call: Any,
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: int = 1,
    dilation: Any = 1,
) -> Any:
    count = _spatial(call, input, weight)
    if not count:
        return NotImplemented
    options = [_several(each, count) for each in (stride, padding, dilation)]
    return _convolved(call, input, weight, bias, *options, True, _several(output_padding, count), groups)


def _max_pool2d(
    call: Any,
    input: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    sizes = _several(kernel_size, 2)
    step = [] if stride is None else _several(stride, 2)
    given = (sizes, step, _pair(padding), _pair(dilation), ceil_mode)
    made = aten("max_pool2d_with_indices.default", input, *_unset(given, ([], [0, 0], [1, 1], False)))
    return tuple(made) if return_indices else made[0]


def _pair(value: Any) -> list[int]:
    return _several(value, 2)


def _unset(given: tuple[Any, ...], defaults: tuple[Any, ...]) -> list[Any]:
    """The arguments, without those at the end that equal their defaults."""
    kept = list(given)
    for default in reversed(defaults):
        if kept[-1] != default:
            break
        kept.pop()
    return kept


def _max_pool1d(
    call: Any,
    input: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    size = _several(kernel_size, 1)[0]
    step = size if stride is None else _several(stride, 1)[0]
    given = ([1, size], [1, step], [0, _several(padding, 1)[0]], [1, _several(dilation, 1)[0]], ceil_mode)
    flat = aten("unsqueeze.default", input, -2)
    made = aten("max_pool2d_with_indices.default", flat, *_unset(given, ([], [0, 0], [1, 1], False)))
    values, places = (aten("squeeze.dim", each, -2) for each in made)
    return (values, places) if return_indices else values


def _avg_pool2d(
    call: Any,
    input: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: Any = None,
) -> Any:
    step = [] if stride is None else _pair(stride)
    given = (_pair(kernel_size), step, _pair(padding), ceil_mode, count_include_pad, divisor_override)
    kept = _unset(given, ([], [0, 0], False, True, None))
    return aten("avg_pool2d.default", input, *kept, compute=call.compute)


def _adaptive_avg_pool(call: Any, input: Tensor, output_size: Any) -> Any:
    count = int(call.op[-2])
    sizes = _several(output_size, count)
    sizes = [input.shape[at - count] if each is None else each for at, each in enumerate(sizes)]
    if count == 1 or input.ndim != count + 2:
        return NotImplemented
    if all(each == 1 for each in sizes):
        return aten("mean.dim", input, [-at - 1 for at in range(count)], True, compute=call.compute)
    return aten(f"_adaptive_avg_pool{count}d.default", input, sizes, compute=call.compute)


def _layer_norm(
    call: Any, input: Tensor, normalized_shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-05
) -> Any:
    return aten("native_layer_norm.default", input, list(normalized_shape), weight, bias, eps)[0]


def _group_norm(
    call: Any, input: Tensor, num_groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-05
) -> Any:
    rest = input.shape[0], input.shape[1], math.prod(input.shape[2:]), num_groups, eps
    return aten("native_group_norm.default", input, weight, bias, *rest)[0]


def _batch_norm(
    call: Any,
    input: Tensor,
    running_mean: Any,
    running_var: Any,
    weight: Any = None,
    bias: Any = None,
    training: bool = False,
    momentum: Any = 0.1,
    eps: float = 1e-05,
) -> Any:
    if momentum is None:
        return NotImplemented
    _reserve(input)
    rest = weight, bias, running_mean, running_var, training, momentum, eps
    return aten("native_batch_norm.default", input, *rest)[0]


def _reserve(input: Tensor) -> None:
    """PyTorch's empty buffer for a fused kernel."""
    aten("empty.memory_format", [0], dtype=dtypes.uint8, layout=input.layout, device=input.device)


def _instance_norm(
    call: Any,
    input: Tensor,
    running_mean: Any = None,
    running_var: Any = None,
    weight: Any = None,
    bias: Any = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-05,
) -> Any:
    if running_mean is not None or running_var is not None or not use_input_stats or input.ndim < 3:
        return NotImplemented
    count, channels = input.shape[:2]
    weight, bias = (None if each is None else aten("repeat.default", each, [count]) for each in (weight, bias))
    flat = reshaped(input, [1, count * channels, *input.shape[2:]])
    _reserve(input)
    made = aten("native_batch_norm.default", flat, weight, bias, None, None, True, momentum, eps)[0]
    return aten("view.default", made, list(input.shape))


def _rms_norm(call: Any, input: Tensor, normalized_shape: Any, weight: Any = None, eps: Any = None) -> Any:
    fits = tuple(input.shape[input.ndim - len(normalized_shape) :]) == tuple(normalized_shape)
    if input.dtype.itemsize < 4 or input.is_complex() or not fits or len(normalized_shape) > input.ndim:
        return NotImplemented
    least = dtypes.finfo(input.dtype).eps if eps is None else eps
    dims = [input.ndim - at - 1 for at in range(len(normalized_shape))][::-1]
    square = aten("pow.Tensor_Scalar", input, 2)
    mean = aten("mean.dim", square, dims, True)
    factor = aten("rsqrt.default", aten("add_.Scalar", mean, least))
    made = aten("mul.Tensor", input, factor)
    return made if weight is None else aten("mul.Tensor", made, weight)


def _normalize(call: Any, input: Tensor, p: Any = 2.0, dim: Any = 1, eps: float = 1e-12) -> Any:
    dims = [dim] if isinstance(dim, int) else list(dim)
    size = call.shown("linalg_vector_norm.default", (input, float(p), dims, True), {}, own=False)
    least = aten("clamp_min.default", size, eps)
    return aten("div.Tensor", input, aten("expand.default", least, list(input.shape)))


def _attention(
    call: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: Any = None,
    enable_gqa: bool = False,
) -> Any:
    same = query.shape[-1] == value.shape[-1] and query.ndim == 4 and not enable_gqa and not dropout_p
    if not same or query.device.type != "cpu":
        return _attention_of_products(call, query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)
    name = "_scaled_dot_product_flash_attention_for_cpu.default"
    return aten(name, query, key, value, dropout_p, is_causal, attn_mask=attn_mask, scale=scale)[0]


def _attention_of_products(
    call: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Any,
    dropout_p: float,
    is_causal: bool,
    scale: Any,
    enable_gqa: bool,
) -> Any:
    """Attention as a softmax of products: scales on both sides, as PyTorch's, so that no product overflows."""
    if enable_gqa or dropout_p or query.ndim < 3:
        return NotImplemented
    root = math.sqrt(query.shape[-1] ** -0.5 if scale is None else scale)
    if attn_mask is not None and not attn_mask.is_floating_point():
        return NotImplemented
    if is_causal:
        return NotImplemented
    scores = matmul(aten("mul.Scalar", query, root), aten("mul.Scalar", aten("transpose.int", key, -2, -1), root))
    if attn_mask is not None:
        scores = aten("add_.Tensor", scores, attn_mask)
    weights = aten("_softmax.default", scores, -1, False)
    return matmul(weights, value)


def _softmax(call: Any, input: Tensor, dim: Any = None, dtype: Any = None) -> Any:
    if dim is None:
        return NotImplemented
    if dtype is not None and dtype is not input.dtype:
        input = aten("_to_copy.default", input, dtype=dtype)
    return aten(f"_{call.op}.default", input, dim, False)


def _pad(call: Any, input: Tensor, pad: Any, mode: str = "constant", value: Any = None) -> Any:
    if mode == "constant":
        filled = 0.0 if value is None else value
        return call.shown("constant_pad_nd.default", (input, list(pad), filled), {})
    name = {"reflect": "reflection", "replicate": "replication"}.get(mode)
    if name is None or len(pad) not in (2, 4):
        return NotImplemented
    return aten(f"{name}_pad{len(pad) // 2}d.default", input, list(pad), compute=call.compute)


def _interpolate(
    call: Any,
    input: Tensor,
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: Any = None,
    recompute_scale_factor: Any = None,
    antialias: bool = False,
) -> Any:
    count = input.ndim - 2
    names = {"nearest": "nearest", "linear": "linear", "bilinear": "bilinear", "bicubic": "bicubic"}
    if mode not in names or antialias or recompute_scale_factor or (mode == "nearest" and count > 2):
        return NotImplemented
    corners = () if mode == "nearest" else (bool(align_corners),)
    if size is not None:
        return aten(f"upsample_{mode}{count}d.default", input, _several(size, count), *corners, compute=call.compute)
    factors = [float(each) for each in _several(scale_factor, count)]
    sizes = [int(old * each) for old, each in zip(input.shape[2:], factors, strict=True)]
    return aten(f"upsample_{mode}{count}d.default", input, sizes, *corners, *factors, compute=call.compute)


RULES: dict[str, Callable[..., Any]] = {
    **{f"conv{count}d": _convolution for count in (1, 2, 3)},
    **{f"conv_transpose{count}d": _transposed for count in (1, 2, 3)},
    **{f"adaptive_avg_pool{count}d": _adaptive_avg_pool for count in (1, 2, 3)},
    "avg_pool2d": _avg_pool2d,
    "batch_norm": _batch_norm,
    "group_norm": _group_norm,
    "instance_norm": _instance_norm,
    "interpolate": _interpolate,
    "layer_norm": _layer_norm,
    "log_softmax": _softmax,
    "max_pool1d": _max_pool1d,
    "max_pool2d": _max_pool2d,
    "normalize": _normalize,
    "pad": _pad,
    "rms_norm": _rms_norm,
    "scaled_dot_product_attention": _attention,
    "softmax": _softmax,
}
