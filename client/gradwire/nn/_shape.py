"""Layers without parameters that lay elements elsewhere: padding, shuffling, scaling, folding; and distances."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gradwire.nn.functional as F
from gradwire._tensor.tensor import Tensor
from gradwire.nn._module import Module

Ints = int | Sequence[int]


class _Pad(Module):
    """Base of the paddings: two sizes per dimension, the last dimension first; one number for all."""

    _dims = 0
    _mode = "constant"
    value: float = 0.0

    def __init__(self, padding: Ints) -> None:
        super().__init__()
        self.padding = (padding,) * (2 * self._dims) if isinstance(padding, int) else tuple(padding)

    def forward(self, input: Tensor) -> Tensor:
        """See the class."""
        if self._mode == "constant":
            return F.pad(input, self.padding, "constant", self.value)
        return F.pad(input, self.padding, self._mode)

    def extra_repr(self) -> str:
        """As PyTorch prints it."""
        return f"{self.padding}"


class _ConstantPad(_Pad):
    def __init__(self, padding: Ints, value: float) -> None:
        super().__init__(padding)
        self.value = value

    def extra_repr(self) -> str:
        """As PyTorch prints it."""
        return f"padding={self.padding}, value={self.value}"


class ConstantPad1d(_ConstantPad):
    """Adds a border of `value`. Like torch.nn.ConstantPad1d."""

    _dims = 1


class ZeroPad1d(_Pad):
    """Adds a border of zeros. Like torch.nn.ZeroPad1d."""

    _dims = 1


class ReflectionPad1d(_Pad):
    """Adds a border that mirrors the input. Like torch.nn.ReflectionPad1d."""

    _dims = 1
    _mode = "reflect"


class ReplicationPad1d(_Pad):
    """Adds a border that repeats the edge. Like torch.nn.ReplicationPad1d."""

    _dims = 1
    _mode = "replicate"


class CircularPad1d(_Pad):
    """Adds a border that wraps around to the other side. Like torch.nn.CircularPad1d."""

    _dims = 1
    _mode = "circular"


class ConstantPad2d(_ConstantPad):
    """Adds a border of `value`. Like torch.nn.ConstantPad2d."""

    _dims = 2


class ZeroPad2d(_Pad):
    """Adds a border of zeros. Like torch.nn.ZeroPad2d."""

    _dims = 2


class ReflectionPad2d(_Pad):
    """Adds a border that mirrors the input. Like torch.nn.ReflectionPad2d."""

    _dims = 2
    _mode = "reflect"


class ReplicationPad2d(_Pad):
    """Adds a border that repeats the edge. Like torch.nn.ReplicationPad2d."""

    _dims = 2
    _mode = "replicate"


class CircularPad2d(_Pad):
    """Adds a border that wraps around to the other side. Like torch.nn.CircularPad2d."""

    _dims = 2
    _mode = "circular"


class ConstantPad3d(_ConstantPad):
    """Adds a border of `value`. Like torch.nn.ConstantPad3d."""

    _dims = 3


class ZeroPad3d(_Pad):
    """Adds a border of zeros. Like torch.nn.ZeroPad3d."""

    _dims = 3


class ReflectionPad3d(_Pad):
    """Adds a border that mirrors the input. Like torch.nn.ReflectionPad3d."""

    _dims = 3
    _mode = "reflect"


class ReplicationPad3d(_Pad):
    """Adds a border that repeats the edge. Like torch.nn.ReplicationPad3d."""

    _dims = 3
    _mode = "replicate"


class CircularPad3d(_Pad):
    """Adds a border that wraps around to the other side. Like torch.nn.CircularPad3d."""

    _dims = 3
    _mode = "circular"


class PixelShuffle(Module):
    """(*, C r², H, W) to (*, C, H r, W r). Like torch.nn.PixelShuffle."""

    def __init__(self, upscale_factor: int) -> None:
        super().__init__()
        self.upscale_factor = upscale_factor

    def forward(self, input: Tensor) -> Tensor:
        """See the class."""
        return F.pixel_shuffle(input, self.upscale_factor)

    def extra_repr(self) -> str:
        """As PyTorch prints it."""
        return f"upscale_factor={self.upscale_factor}"


class PixelUnshuffle(Module):
    """(*, C, H r, W r) to (*, C r², H, W). Like torch.nn.PixelUnshuffle."""

    def __init__(self, downscale_factor: int) -> None:
        super().__init__()
        self.downscale_factor = downscale_factor

    def forward(self, input: Tensor) -> Tensor:
        """See the class."""
        return F.pixel_unshuffle(input, self.downscale_factor)

    def extra_repr(self) -> str:
        """As PyTorch prints it."""
        return f"downscale_factor={self.downscale_factor}"


class ChannelShuffle(Module):
    """Deals the channels of each group out in turn. Like torch.nn.ChannelShuffle."""

    def __init__(self, groups: int) -> None:
        super().__init__()
        self.groups = groups

    def forward(self, input: Tensor) -> Tensor:
        """See the class."""
        return F.channel_shuffle(input, self.groups)

    def extra_repr(self) -> str:
        """As PyTorch prints it."""
        return f"groups={self.groups}"


class Unfold(Module):
    """Sliding blocks as columns. Like torch.nn.Unfold."""

    def __init__(self, kernel_size: Ints, dilation: Ints = 1, padding: Ints = 0, stride: Ints = 1) -> None:
        super().__init__()
        self.kernel_size = kernel_size
        self.dilation = dilation
        self.padding = padding
        self.stride = stride

    def forward(self, input: Tensor) -> Tensor:
        """See the class."""
        return F.unfold(input, self.kernel_size, self.dilation, self.padding, self.stride)

    def extra_repr(self) -> str:
        """As PyTorch prints it."""
        return f"kernel_size={self.kernel_size}, dilation={self.dilation}, padding={self.padding}, stride={self.stride}"


class Fold(Module):
    """Columns laid back as sliding blocks, what overlaps added. Like torch.nn.Fold."""

    def __init__(
        self, output_size: Ints, kernel_size: Ints, dilation: Ints = 1, padding: Ints = 0, stride: Ints = 1
    ) -> None:
        super().__init__()
        self.output_size = output_size
        self.kernel_size = kernel_size
        self.dilation = dilation
        self.padding = padding
        self.stride = stride

    def forward(self, input: Tensor) -> Tensor:
        """See the class."""
        return F.fold(input, self.output_size, self.kernel_size, self.dilation, self.padding, self.stride)

    def extra_repr(self) -> str:
        """As PyTorch prints it."""
        return (
            f"output_size={self.output_size}, kernel_size={self.kernel_size}, dilation={self.dilation}, "
            f"padding={self.padding}, stride={self.stride}"
        )


class CosineSimilarity(Module):
    """The cosine of the angle between vectors along `dim`. Like torch.nn.CosineSimilarity."""

    def __init__(self, dim: int = 1, eps: float = 1e-8) -> None:
        super().__init__()
        self.dim = dim
        self.eps = eps

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        """See the class."""
        return F.cosine_similarity(x1, x2, self.dim, self.eps)


class PairwiseDistance(Module):
    """The p-norm of the difference along the last dimension. Like torch.nn.PairwiseDistance."""

    def __init__(self, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False) -> None:
        super().__init__()
        self.norm = p
        self.eps = eps
        self.keepdim = keepdim

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        """See the class."""
        return F.pairwise_distance(x1, x2, self.norm, self.eps, self.keepdim)


class Upsample(Module):
    """The last dimensions at another size, or scaled. Like torch.nn.Upsample."""

    def __init__(
        self,
        size: Ints | None = None,
        scale_factor: float | Sequence[float] | None = None,
        mode: str = "nearest",
        align_corners: bool | None = None,
        recompute_scale_factor: bool | None = None,
    ) -> None:
        super().__init__()
        self.name = type(self).__name__
        self.size = size
        self.scale_factor: Any = None
        if isinstance(scale_factor, (int, float)):
            self.scale_factor = float(scale_factor)
        elif scale_factor is not None:
            self.scale_factor = tuple(float(factor) for factor in scale_factor)
        self.mode = mode
        self.align_corners = align_corners
        self.recompute_scale_factor = recompute_scale_factor

    def forward(self, input: Tensor) -> Tensor:
        """See the class."""
        options = (self.size, self.scale_factor, self.mode, self.align_corners, self.recompute_scale_factor)
        return F.interpolate(input, *options)

    def extra_repr(self) -> str:
        """As PyTorch prints it."""
        what = f"size={self.size}" if self.scale_factor is None else f"scale_factor={self.scale_factor}"
        return f"{what}, mode={self.mode!r}"


class UpsamplingNearest2d(Upsample):
    """Upsample by the nearest. Like torch.nn.UpsamplingNearest2d."""

    def __init__(self, size: Ints | None = None, scale_factor: float | Sequence[float] | None = None) -> None:
        super().__init__(size, scale_factor, "nearest")


class UpsamplingBilinear2d(Upsample):
    """Upsample bilinearly, with aligned corners. Like torch.nn.UpsamplingBilinear2d."""

    def __init__(self, size: Ints | None = None, scale_factor: float | Sequence[float] | None = None) -> None:
        super().__init__(size, scale_factor, "bilinear", align_corners=True)
