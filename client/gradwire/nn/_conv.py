"""Convolutions and poolings over one or two spatial dimensions: (N, C, L), (N, C, H, W), or without N."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gradwire import _dtypes
from gradwire._create import empty
from gradwire._tensor import Tensor
from gradwire.nn import functional as F
from gradwire.nn import init
from gradwire.nn._module import Module
from gradwire.nn._parameter import Parameter

Ints = int | Sequence[int]
Device = _dtypes.device | str | int | None


def _each(value: Ints, dims: int) -> tuple[int, ...]:
    """One number per spatial dimension."""
    return (value,) * dims if isinstance(value, int) else tuple(value)


class _ConvNd(Module):
    """What Conv1d and Conv2d share: arguments, weights and their first values."""

    _dims = 0
    bias: Parameter | None

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Ints,
        stride: Ints = 1,
        padding: str | Ints = 0,
        dilation: Ints = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        device: Device = None,
        dtype: _dtypes.dtype | None = None,
    ) -> None:
        super().__init__()
        _check_arguments(in_channels, out_channels, groups, stride, padding, padding_mode)
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.kernel_size = _each(kernel_size, self._dims)
        self.stride = _each(stride, self._dims)
        self.padding = padding if isinstance(padding, str) else _each(padding, self._dims)
        self.dilation = _each(dilation, self._dims)
        self.groups = groups
        self.padding_mode = padding_mode
        shape = (out_channels, in_channels // groups, *self.kernel_size)
        self.weight = Parameter(empty(*shape, device=device, dtype=dtype))
        self.register_parameter("bias", Parameter(empty(out_channels, device=device, dtype=dtype)) if bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new values: both uniform within 1 / sqrt(in_channels / groups * kernel size) of zero."""
        init.kaiming_uniform_(self.weight, a=5**0.5)
        if self.bias is not None:
            bound = init.fan_in_bound(self.weight)
            init.uniform_(self.bias, -bound, bound)

    def extra_repr(self) -> str:
        """As PyTorch prints it: what differs from the defaults, after channels, kernel and stride."""
        text = f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, stride={self.stride}"
        if self.padding != (0,) * len(self.padding):
            text += f", padding={self.padding}"
        if self.dilation != (1,) * self._dims:
            text += f", dilation={self.dilation}"
        if self.groups != 1:
            text += f", groups={self.groups}"
        return text + ("" if self.bias is not None else ", bias=False")


def _check_arguments(
    in_channels: int, out_channels: int, groups: int, stride: Ints, padding: str | Ints, padding_mode: str
) -> None:
    if groups <= 0:
        raise ValueError("groups must be a positive integer")
    if in_channels % groups != 0:
        raise ValueError("in_channels must be divisible by groups")
    if out_channels % groups != 0:
        raise ValueError("out_channels must be divisible by groups")
    if isinstance(padding, str):
        if padding not in ("same", "valid"):
            raise ValueError(f"Invalid padding string {padding!r}, should be one of 'same', 'valid'")
        if padding == "same" and stride not in (1, (1,), (1, 1), [1], [1, 1]):
            raise ValueError("padding='same' is not supported for strided convolutions")
    if padding_mode not in ("zeros", "reflect", "replicate", "circular"):
        raise ValueError(
            f"padding_mode must be zeros, reflect, replicate or circular, but got padding_mode={padding_mode!r}"
        )
    if padding_mode != "zeros":
        raise NotImplementedError(f"padding_mode={padding_mode!r} is not supported yet: only 'zeros' is")


class Conv1d(_ConvNd):
    """Cross-correlation over one dimension, (N, C_in, L) to (N, C_out, L_out). Answers to torch.nn.Conv1d."""

    _dims = 1

    def forward(self, input: Tensor) -> Tensor:
        """See the class."""
        return F.conv1d(input, self.weight, self.bias, self.stride, self.padding, self.dilation, self.groups)


class Conv2d(_ConvNd):
    """Cross-correlation over two dimensions, (N, C_in, H, W) to (N, C_out, H_out, W_out).

    Answers to torch.nn.Conv2d.
    """

    _dims = 2

    def forward(self, input: Tensor) -> Tensor:
        """See the class."""
        return F.conv2d(input, self.weight, self.bias, self.stride, self.padding, self.dilation, self.groups)


class MaxPool2d(Module):
    """The largest value of each window, with `return_indices` also its place. Answers to torch.nn.MaxPool2d."""

    def __init__(
        self,
        kernel_size: Ints,
        stride: Ints | None = None,
        padding: Ints = 0,
        dilation: Ints = 1,
        return_indices: bool = False,
        ceil_mode: bool = False,
    ) -> None:
        super().__init__()
        self.kernel_size = kernel_size
        self.stride = kernel_size if stride is None else stride
        self.padding = padding
        self.dilation = dilation
        self.return_indices = return_indices
        self.ceil_mode = ceil_mode

    def forward(self, input: Tensor) -> Any:
        """See the class."""
        window = (self.kernel_size, self.stride, self.padding, self.dilation, self.ceil_mode)
        return F.max_pool2d(input, *window, return_indices=self.return_indices)

    def extra_repr(self) -> str:
        """As PyTorch prints it."""
        return (
            f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}, "
            f"dilation={self.dilation}, ceil_mode={self.ceil_mode}"
        )


class AvgPool2d(Module):
    """The mean of each window. Answers to torch.nn.AvgPool2d."""

    def __init__(
        self,
        kernel_size: Ints,
        stride: Ints | None = None,
        padding: Ints = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> None:
        super().__init__()
        self.kernel_size = kernel_size
        self.stride = kernel_size if stride is None else stride
        self.padding = padding
        self.ceil_mode = ceil_mode
        self.count_include_pad = count_include_pad
        self.divisor_override = divisor_override

    def forward(self, input: Tensor) -> Tensor:
        """See the class."""
        return F.avg_pool2d(
            input,
            self.kernel_size,
            self.stride,
            self.padding,
            self.ceil_mode,
            self.count_include_pad,
            self.divisor_override,
        )

    def extra_repr(self) -> str:
        """As PyTorch prints it."""
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class AdaptiveAvgPool2d(Module):
    """The means of as many windows as the result shall have; None keeps a size.

    Answers to torch.nn.AdaptiveAvgPool2d.
    """

    def __init__(self, output_size: Any) -> None:
        super().__init__()
        self.output_size = output_size

    def forward(self, input: Tensor) -> Tensor:
        """See the class."""
        return F.adaptive_avg_pool2d(input, self.output_size)

    def extra_repr(self) -> str:
        """As PyTorch prints it."""
        return f"output_size={self.output_size}"
