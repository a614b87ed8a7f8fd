"""Quantized tensors: whole numbers with a scale and a zero point, on which a few functions compute.

The class is not a subclass of Tensor. It stands for `(whole - zero_point) * scale`. Functions without an entry in the
table refuse it by name: `dequantize()` gives them an ordinary tensor.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gradwire._base import dtypes
from gradwire._base.absent import GradwireAbsentError
from gradwire._base.dtypes import ABSENT, Size
from gradwire._base.errors import refuse
from gradwire._base.modes import no_grad
from gradwire._base.refused import refusal
from gradwire._tensor import ops
from gradwire._tensor.tensor import Tensor
from gradwire._tensor.values import show

__all__ = [
    "dequantize",
    "per_channel_affine",
    "per_tensor_affine",
    "qscheme",
    "quantize_per_channel",
    "quantize_per_tensor",
    "quantize_per_tensor_dynamic",
    "quantized_batch_norm",
    "quantized_max_pool1d",
    "quantized_max_pool2d",
]

qint8, quint8, qint32 = ABSENT["qint8"], ABSENT["quint8"], ABSENT["qint32"]
# The dtype of the whole numbers, with their range.
_WHOLE: dict[dtypes.dtype, tuple[dtypes.dtype, int, int]] = {
    qint8: (dtypes.int8, -128, 127),
    quint8: (dtypes.uint8, 0, 255),
    qint32: (dtypes.int32, -(1 << 31), (1 << 31) - 1),
}
_LEAST_SCALE = float(np.float32(6.1e-5))  # of PyTorch's choice of a scale
_REASON = "quantized tensors have no such op here; call dequantize() first"


class qscheme:
    """How scales belong to elements (torch.qscheme): one for all, or one for each index of an axis."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __repr__(self) -> str:
        return f"torch.{self._name}"


per_tensor_affine, per_channel_affine = qscheme("per_tensor_affine"), qscheme("per_channel_affine")


class QuantizedTensor:
    """A tensor of quint8, qint8 or qint32 (torch.quantize_per_tensor, torch.quantize_per_channel)."""

    is_quantized = True
    is_sparse = is_nested = is_mkldnn = is_meta = requires_grad = False
    is_leaf = True
    grad = grad_fn = None
    # Lets operators of arrays and tensors defer to this class.
    __array_priority__ = 2000

    def __init__(
        self, whole: Tensor, dtype: dtypes.dtype, scale: Any, zero_point: Any, axis: int | None = None
    ) -> None:
        """`whole`: the whole numbers. `scale` and `zero_point`: numbers, or with `axis` tensors (channels,)."""
        self._whole, self.dtype, self._scale, self._zero_point, self._axis = whole, dtype, scale, zero_point, axis

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None) -> Any:
        """Raise NotImplementedError: the functions that take such tensors are in this module."""
        raise refusal(f"{func.__name__} of a quantized tensor", _REASON)

    def __getattr__(self, name: str) -> Any:
        if hasattr(Tensor, name) and not name.startswith("__"):
            error = GradwireAbsentError(f"gradwire does not support torch.{name} of a quantized tensor: {_REASON}")
            error.reason, error.code = "NOT_SUPPORTED", 12
            raise error
        raise AttributeError(f"'QuantizedTensor' object has no attribute '{name}'", name=name)

    # Facts.

    @property
    def shape(self) -> Size:
        """Sizes of all dimensions."""
        return self._whole.shape

    def size(self, dim: int | None = None) -> Any:
        """Sizes of all dimensions, or of one."""
        return self._whole.size() if dim is None else self._whole.size(dim)

    def dim(self) -> int:
        """Number of dimensions."""
        return self._whole.ndim

    ndim = property(dim)

    def numel(self) -> int:
        """Number of elements."""
        return self._whole.numel()

    def __len__(self) -> int:
        return len(self._whole)

    @property
    def device(self) -> dtypes.device:
        """Device of the whole numbers."""
        return self._whole.device

    def qscheme(self) -> qscheme:
        """`per_tensor_affine` or `per_channel_affine`."""
        return per_tensor_affine if self._axis is None else per_channel_affine

    def q_scale(self) -> float:
        """The scale. Raises RuntimeError for a tensor with one for each channel."""
        self._check_scheme(None)
        return float(self._scale)

    def q_zero_point(self) -> int:
        """The whole number that stands for 0. Raises RuntimeError for a tensor with one for each channel."""
        self._check_scheme(None)
        return int(self._zero_point)

    def q_per_channel_scales(self) -> Tensor:
        """(channels,), float64. Raises RuntimeError for a tensor with one scale."""
        self._check_scheme("scales")
        scales: Tensor = self._scale
        return scales

    def q_per_channel_zero_points(self) -> Tensor:
        """(channels,), int64. Raises RuntimeError for a tensor with one zero point."""
        self._check_scheme("zero_points")
        zero_points: Tensor = self._zero_point
        return zero_points

    def q_per_channel_axis(self) -> int:
        """The axis of the channels. Raises RuntimeError for a tensor with one scale."""
        self._check_scheme("axis")
        assert self._axis is not None
        return self._axis

    def _check_scheme(self, part: str | None) -> None:
        if (self._axis is None) == (part is not None):
            kind = "PerTensorAffineQuantizer" if part is None else "PerChannelAffineQuantizer"
            raise refuse(f"Expected quantizer->qscheme() to be that of a {kind}, but got {self.qscheme()}")

    # Forms.

    def int_repr(self) -> Tensor:
        """The whole numbers: uint8, int8 or int32."""
        return self._whole.clone()

    def dequantize(self) -> Tensor:
        """float32: `(whole - zero_point) * scale`; with scales of channels, of float64, it is rounded."""
        with no_grad():
            scale, zero_point = self._spread(self._scale), self._spread(self._zero_point)
            steps = self._whole.to(dtypes.int64) - zero_point
            factor = steps.to(dtypes.float32 if self._axis is None else dtypes.float64)
            made: Tensor = (factor * scale).to(dtypes.float32)
        return made

    def _spread(self, part: Any) -> Any:
        """Numbers of the channels with the dimensions of the whole numbers."""
        if self._axis is None:
            return part
        return part.view([-1 if place == self._axis else 1 for place in range(self.ndim)])

    def like(self, whole: Tensor) -> QuantizedTensor:
        """Other whole numbers with this scale and zero point."""
        return QuantizedTensor(whole, self.dtype, self._scale, self._zero_point, self._axis)

    def clone(self, **unused: Any) -> QuantizedTensor:
        """A copy."""
        return self.like(self._whole.clone())

    def detach(self) -> QuantizedTensor:
        """The tensor itself: it has no history."""
        return self

    def cpu(self) -> QuantizedTensor:
        """The tensor in the server's memory."""
        return self if not self._whole.is_cuda else self.like(self._whole.cpu())

    def __repr__(self) -> str:
        facts = [f"size={tuple(self.shape)}", f"dtype={self.dtype!r}", f"quantization_scheme={self.qscheme()!r}"]
        facts += [f"scale={self._scale}", f"zero_point={self._zero_point}"]
        if self._axis is not None:
            facts.append(f"axis={self._axis}")
        return show(self.dequantize(), facts=facts)


def quantize_per_tensor(input: Any, scale: Any, zero_point: Any, dtype: dtypes.dtype) -> Any:
    """Quantize float32 by one scale (torch.quantize_per_tensor); for a list of tensors by a tensor of scales.

    Whole numbers are rounded to even, with the zero point, and kept in the range of `dtype`: quint8, qint8 or qint32.
    Raises RuntimeError.
    """
    if isinstance(input, list | tuple):
        pairs = zip(scale.tolist(), zero_point.tolist(), strict=True)
        return tuple(quantize_per_tensor(each, *pair, dtype) for each, pair in zip(input, pairs, strict=True))
    scale = scale.item() if isinstance(scale, Tensor) else float(scale)
    zero_point = int(zero_point.item() if isinstance(zero_point, Tensor) else zero_point)
    low, high = _range(input, dtype)
    if not low <= zero_point <= high:
        raise refuse(f"quantize_per_tensor zero_point {zero_point} is out of range.")
    with np.errstate(divide="ignore", over="ignore"):  # PyTorch takes any scale
        inverse = float(np.float32(1) / np.float32(scale))
    return QuantizedTensor(_whole(input, inverse, zero_point, dtype), dtype, scale, zero_point)


def quantize_per_tensor_dynamic(input: Tensor, dtype: dtypes.dtype, reduce_range: bool) -> QuantizedTensor:
    """Quantize float32 by the scale that its least and largest element need (torch.quantize_per_tensor_dynamic).

    reduce_range: leave one bit unused. Waits for the two elements. Raises RuntimeError for another dtype.
    """
    low, high = _range(input, dtype)
    if dtype is qint32:
        raise refuse("dtype qint32 not supported in quantize_per_tensor_dynamic")
    least, most = (0.0, 0.0) if not input.numel() else (min(input.min().item(), 0.0), max(input.max().item(), 0.0))
    if reduce_range:
        low, high = math.trunc(low / 2), math.trunc(high / 2)
    scale, zero_point = _chosen(least, most, low, high)
    made: QuantizedTensor = quantize_per_tensor(input, scale, zero_point, dtype)
    return made


def _chosen(least: float, most: float, low: int, high: int) -> tuple[float, int]:
    """The scale and zero point by which [least, most], which has 0, fits into [low, high]."""
    scale = (most - least) / (high - low)
    if np.float32(scale) == 0 or math.isinf(1 / scale):
        scale = 0.1
    if scale < _LEAST_SCALE:
        factor = _LEAST_SCALE / scale
        scale = _LEAST_SCALE
        if least == 0:
            most = scale * (high - low)
        elif most == 0:
            least = -scale * (high - low)
        else:
            least, most = least * factor, most * factor
    by_least, by_most = low - least / scale, high - most / scale
    exact = by_least if abs(low) - abs(least / scale) < abs(high) - abs(most / scale) else by_most
    return scale, low if exact < low else high if exact > high else round(exact)


def quantize_per_channel(
    input: Tensor, scales: Tensor, zero_points: Tensor, axis: int, dtype: dtypes.dtype
) -> QuantizedTensor:
    """Quantize float32 with a scale and a zero point for each index of `axis` (torch.quantize_per_channel).

    scales, zero_points: (input.shape[axis],). Raises RuntimeError.
    """
    low, high = _range(input, dtype)
    if not 0 <= axis < input.ndim:
        raise refuse("Channel axis out of range in per channel affine quantization.")
    if scales.ndim != 1 or zero_points.ndim != 1 or scales.numel() != zero_points.numel():
        raise refuse("number of elements in scales and zero_points must match")
    if input.shape[axis] != scales.numel():
        raise refuse("length of scales must equal to channel")
    if zero_points.numel() and bool(((zero_points < low) | (zero_points > high)).any()):
        raise refuse(f"quantize_per_channel: a zero_point is outside of [{low}, {high}]")
    sizes = [-1 if place == axis else 1 for place in range(input.ndim)]
    inverse = 1 / scales.detach().to(dtypes.float32)
    zero_points = zero_points.detach().to(dtypes.int64)
    whole = _whole(input, inverse.view(sizes), zero_points.view(sizes), dtype)
    return QuantizedTensor(whole, dtype, scales.detach().to(dtypes.float64), zero_points, axis)


def _range(input: Tensor, dtype: dtypes.dtype) -> tuple[int, int]:
    """The range of a quantized dtype. Raises RuntimeError for another dtype, and for an input that is not float32."""
    if dtype not in _WHOLE:
        raise refuse(f"a tensor is quantized to quint8, qint8 or qint32, not to {dtype}")
    if input.dtype is not dtypes.float32:
        raise refuse(f"Quantize only works on Float Tensor, got {input.dtype.title}")
    return _WHOLE[dtype][1:]


def _whole(input: Tensor, inverse: Any, zero_point: Any, dtype: dtypes.dtype) -> Tensor:
    """The whole numbers of float32. float64 holds those of 32 bits."""
    whole, low, high = _WHOLE[dtype]
    with no_grad():
        steps = (input.detach() * inverse + zero_point).round().to(dtypes.float64)
        made: Tensor = steps.clamp(low, high).nan_to_num(low).to(whole)
    return made


def dequantize(input: Any) -> Any:
    """float32 tensors of quantized ones (torch.dequantize): of one, or of a list a tuple."""
    if isinstance(input, list | tuple):
        return tuple(map(dequantize, input))
    return input.dequantize() if isinstance(input, QuantizedTensor) else input.to(dtypes.float32)


def quantized_max_pool1d(
    input: QuantizedTensor,
    kernel_size: Any,
    stride: Any = (),
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
) -> QuantizedTensor:
    """Largest elements of windows of one dimension (torch.quantized_max_pool1d)."""
    return _pooled(ops.max_pool1d, input, kernel_size, stride, padding, dilation, ceil_mode)


def quantized_max_pool2d(
    input: QuantizedTensor,
    kernel_size: Any,
    stride: Any = (),
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
) -> QuantizedTensor:
    """Largest elements of windows of two dimensions (torch.quantized_max_pool2d)."""
    return _pooled(ops.max_pool2d, input, kernel_size, stride, padding, dilation, ceil_mode)


def _pooled(pool: Callable[..., Tensor], input: QuantizedTensor, size: Any, stride: Any, *rest: Any) -> QuantizedTensor:
    """Pool the whole numbers: they are in the order of the elements, and float64 holds them."""
    stepped = None if stride == () or stride == [] else stride
    made = pool(input._whole.to(dtypes.float64), size, stepped, *rest)
    return input.like(made.to(input._whole.dtype))


def quantized_batch_norm(
    input: QuantizedTensor,
    weight: Tensor | None,
    bias: Tensor | None,
    mean: Tensor,
    var: Tensor,
    eps: float,
    output_scale: float,
    output_zero_point: int,
) -> QuantizedTensor:
    """Batch normalization by given statistics (torch.quantized_batch_norm).

    input: (n, c, h, w), with one scale. weight, bias, mean, var: (c,), float32. Raises RuntimeError.
    """
    if input.ndim != 4:
        raise refuse(f"Expecting the input tensor of rank 4, got {input.ndim}")
    if weight is None or bias is None:
        raise refuse(f"{'Weight' if weight is None else 'Bias'} must be provided")
    low, high = _WHOLE[input.dtype][1:]
    with no_grad():
        factor = weight / (var + eps).sqrt()
        shift = bias - mean * factor
        by_channel = [1, -1, 1, 1]
        steps = (input._whole.to(dtypes.int64) - input.q_zero_point()).to(dtypes.float32)
        steps = steps * (factor * (input.q_scale() / output_scale)).view(by_channel) + (shift / output_scale).view(
            by_channel
        )
        whole = (steps.round() + output_zero_point).clamp(low, high).to(input._whole.dtype)
    return QuantizedTensor(whole, input.dtype, float(output_scale), int(output_zero_point))
