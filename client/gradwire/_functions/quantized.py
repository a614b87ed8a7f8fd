"""Rounding as quantization would, for training: numbers that 8 bits could hold, in floating point."""

from __future__ import annotations

from typing import Any

import numpy as np

from gradwire._base import dtypes
from gradwire._base.errors import refuse
from gradwire._base.modes import no_grad
from gradwire._tensor import ops
from gradwire._tensor.tensor import Tensor

__all__ = ["fake_quantize_per_channel_affine", "fake_quantize_per_tensor_affine"]


def fake_quantize_per_tensor_affine(
    input: Tensor, scale: Any, zero_point: Any, quant_min: int, quant_max: int
) -> Tensor:
    """Round to multiples of `scale` that the quantized range holds (torch.fake_quantize_per_tensor_affine).

    The gradient is that of the identity within the range, and 0 outside. A number that is nan becomes the least.
    """
    _check(quant_min, quant_max)
    if not isinstance(zero_point, Tensor) and not quant_min <= zero_point <= quant_max:
        raise refuse("`zero_point` must be between `quant_min` and `quant_max`.")
    return _rounded(input, scale, zero_point, quant_min, quant_max, dtypes.float32)


def fake_quantize_per_channel_affine(
    input: Tensor, scale: Tensor, zero_point: Tensor, axis: int, quant_min: int, quant_max: int
) -> Tensor:
    """As `fake_quantize_per_tensor_affine`, with a scale and a zero point for each index of `axis`.

    Waits for the zero points.
    """
    _check(quant_min, quant_max)
    if scale.dtype is not dtypes.float32:
        raise refuse(f"Scale must be Float, found {scale.dtype}")
    if zero_point.dtype not in (dtypes.int32, dtypes.float32, dtypes.float16):
        raise refuse(f"Zero-point must be Int32, Float or Half, found {zero_point.dtype}")
    if scale.ndim != 1 or tuple(scale.shape) != tuple(zero_point.shape):
        raise refuse("scale and zero-point need to have the same dimensions")
    if not -input.ndim <= axis < input.ndim:
        bounds = [-input.ndim, input.ndim - 1]
        raise IndexError(f"Dimension out of range (expected to be in range of {bounds}, but got {axis})")
    if input.shape[axis] != scale.shape[0]:
        raise refuse("dimensions of scale and zero-point are not consistent with input tensor")
    if zero_point.numel() and bool(((zero_point < quant_min) | (zero_point > quant_max)).any()):
        raise refuse("`zero_point` must be between `quant_min` and `quant_max`.")
    sizes = [1] * input.ndim
    sizes[axis] = scale.shape[0]
    return _rounded(input, scale.view(sizes), zero_point.view(sizes), quant_min, quant_max, input.dtype)


def _check(quant_min: int, quant_max: int) -> None:
    if quant_min > quant_max:
        raise refuse("`quant_min` should be less than or equal to `quant_max`.")


def _rounded(input: Tensor, scale: Any, zero_point: Any, quant_min: int, quant_max: int, multiplied_in: Any) -> Tensor:
    """The levels of the input times the scale, multiplied in this dtype. PyTorch divides in float32."""
    with no_grad():
        inverse = 1 / scale if isinstance(scale, Tensor) else float(np.float32(1) / np.float32(scale))
        level = (input.detach() * inverse).round() + zero_point
        inside = (level >= quant_min) & (level <= quant_max)
        steps = level.clamp(quant_min, quant_max).nan_to_num(quant_min) - zero_point
        made = (steps.to(multiplied_in) * scale).to(input.dtype)
    # The value of the second term is 0; its gradient is that of the input within the range.
    found: Tensor = made + ops.where(inside, input - input.detach(), 0)
    return found
