"""Convolutions, and their transposes, over one to three spatial dimensions: (N, C, L), (N, C, H, W), or without N."""

from __future__ import annotations

from collections.abc import Sequence

import gradwire.nn.functional as F
import gradwire.nn.init as init
from gradwire._base import dtypes
from gradwire._functions.create import empty
from gradwire._tensor.tensor import Tensor
from gradwire.nn._module import Module
from gradwire.nn._parameter import Parameter

Ints = int | Sequence[int]
Device = dtypes.device | str | int | None


def _each(value: Ints, dims: int) -> tuple[int, ...]:
    """One number per spatial dimension."""
    return (value,) * dims if isinstance(value, int) else tuple(value)


def _expected_by(channels: int, rank: int) -> str:
    sizes = ", ".join("DHW"[3 - rank :] if rank > 1 else "L")
    return f"(N, {channels}, {sizes}) or ({channels}, {sizes})"


class _ConvNd(Module):
    """What all convolutions share: arguments, weights and their first values."""

    _dims = 0
    _transposed = False
    output_padding: tuple[int, ...]
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
        dtype: dtypes.dtype | None = None,
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
        self.transposed = self._transposed
        self.output_padding = (0,) * self._dims
        channels = (in_channels, out_channels // groups) if self._transposed else (out_channels, in_channels // groups)
        shape = (*channels, *self.kernel_size)
        self.weight = Parameter(empty(*shape, device=device, dtype=dtype))
        self.register_parameter("bias", Parameter(empty(out_channels, device=device, dtype=dtype)) if bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new values: both uniform within 1 / sqrt(in_channels / groups * kernel size) of zero."""
        init.kaiming_uniform_(self.weight, a=5**0.5)
        if self.bias is not None:
            bound = init.fan_in_bound(self.weight)
            init.uniform_(self.bias, -bound, bound)

    def _expects(self) -> str:
        return _expected_by(self.in_channels, len(self.kernel_size))

    def extra_repr(self) -> str:
        """As PyTorch prints it: what differs from the defaults, after channels, kernel and stride."""
        text = f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, stride={self.stride}"
        if self.padding != (0,) * len(self.padding):
            text += f", padding={self.padding}"
        if self.dilation != (1,) * self._dims:
            text += f", dilation={self.dilation}"
        if any(self.output_padding):
            text += f", output_padding={self.output_padding}"
        if self.groups != 1:
            text += f", groups={self.groups}"
        if self.bias is None:
            text += ", bias=False"
        return text + ("" if self.padding_mode == "zeros" else f", padding_mode={self.padding_mode}")

    def _padded(self, input: Tensor) -> tuple[Tensor, str | Ints]:
        """The input with a nonzero border, and the padding that remains to be done."""
        if self.padding_mode == "zeros":
            return input, self.padding
        if self.padding == "same":
            totals = [step * (size - 1) for step, size in zip(self.dilation, self.kernel_size, strict=True)]
            sides = [(total // 2, total - total // 2) for total in totals]
        else:
            sides = [(0, 0) if isinstance(size, str) else (size, size) for size in self.padding]
        border = [side for pair in reversed(sides) for side in pair]
        return F.pad(input, border, self.padding_mode), 0


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
        if padding == "same" and any(step != 1 for step in ((stride,) if isinstance(stride, int) else stride)):
            raise ValueError("padding='same' is not supported for strided convolutions")
    if padding_mode not in ("zeros", "reflect", "replicate", "circular"):
        raise ValueError(
            "padding_mode must be one of 'zeros', 'reflect', 'replicate' and 'circular', but got "
            f"padding_mode={padding_mode!r}"
        )


class Conv1d(_ConvNd):
    """Cross-correlation over one dimension, (N, C_in, L) to (N, C_out, L_out). Like torch.nn.Conv1d."""

    _dims = 1

    def forward(self, input: Tensor) -> Tensor:
        """See the class."""
        input, padding = self._padded(input)
        return F.conv1d(input, self.weight, self.bias, self.stride, padding, self.dilation, self.groups)


class Conv2d(_ConvNd):
    """Cross-correlation over two dimensions, (N, C_in, H, W) to (N, C_out, H_out, W_out).

    Like torch.nn.Conv2d.
    """

    _dims = 2

    def forward(self, input: Tensor) -> Tensor:
        """See the class."""
        input, padding = self._padded(input)
        return F.conv2d(input, self.weight, self.bias, self.stride, padding, self.dilation, self.groups)


class Conv3d(_ConvNd):
    """Cross-correlation over three dimensions, (N, C_in, D, H, W) to (N, C_out, D_out, H_out, W_out).

    Like torch.nn.Conv3d.
    """

    _dims = 3

    def forward(self, input: Tensor) -> Tensor:
        """See the class."""
        input, padding = self._padded(input)
        return F.conv3d(input, self.weight, self.bias, self.stride, padding, self.dilation, self.groups)


class _ConvTransposeNd(_ConvNd):
    """Base of the transposed convolutions."""

    _transposed = True

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Ints,
        stride: Ints = 1,
        padding: Ints = 0,
        output_padding: Ints = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: Ints = 1,
        padding_mode: str = "zeros",
        device: Device = None,
        dtype: dtypes.dtype | None = None,
    ) -> None:
        if padding_mode != "zeros":
            raise ValueError(f'Only "zeros" padding mode is supported for {type(self).__name__}')
        options = (stride, padding, dilation, groups, bias, padding_mode, device, dtype)
        super().__init__(in_channels, out_channels, kernel_size, *options)
        self.output_padding = _each(output_padding, self._dims)
        self._sides = _each(padding, self._dims)

    def forward(self, input: Tensor, output_size: Sequence[int] | None = None) -> Tensor:
        """See the class; `output_size` picks one of the sizes that are possible with a stride, else ValueError."""
        extra = self.output_padding if output_size is None else self._extra(input, output_size)
        function = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)[self._dims - 1]
        return function(input, self.weight, self.bias, self.stride, self._sides, extra, self.groups, self.dilation)

    def _extra(self, input: Tensor, output_size: Sequence[int]) -> tuple[int, ...]:
        spatial = tuple(output_size)[-self._dims :]
        if len(output_size) not in (self._dims, self._dims + 1, self._dims + 2):
            raise ValueError(
                f"{type(self).__name__}: for {input.ndim}D input, output_size must have {self._dims} or {input.ndim} "
                f"elements (got {len(output_size)})"
            )
        least = [
            (size - 1) * step - 2 * side + spread * (kernel - 1) + 1
            for size, step, side, spread, kernel in zip(
                input.shape[-self._dims :], self.stride, self._sides, self.dilation, self.kernel_size, strict=True
            )
        ]
        most = [size + step - 1 for size, step in zip(least, self.stride, strict=True)]
        for wanted, low, high in zip(spatial, least, most, strict=True):
            if not low <= wanted <= high:
                raise ValueError(
                    f"requested an output size of {list(output_size)}, but valid sizes range from {least} to {most} "
                    f"(for an input of {list(input.shape[2:])})"
                )
        return tuple(wanted - low for wanted, low in zip(spatial, least, strict=True))


class ConvTranspose1d(_ConvTransposeNd):
    """The gradient of Conv1d as a layer, (N, C_in, L) to (N, C_out, L_out). Like torch.nn.ConvTranspose1d."""

    _dims = 1


class ConvTranspose2d(_ConvTransposeNd):
    """The gradient of Conv2d as a layer. Like torch.nn.ConvTranspose2d."""

    _dims = 2


class ConvTranspose3d(_ConvTransposeNd):
    """The gradient of Conv3d as a layer. Like torch.nn.ConvTranspose3d."""

    _dims = 3
