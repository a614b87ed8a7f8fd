"""Poolings over one to three spatial dimensions: the largest value, the mean or the norm of each window."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gradwire.nn.functional as F
from gradwire._tensor.tensor import Tensor
from gradwire.nn._module import Module

Ints = int | Sequence[int]


class _MaxPool(Module):
    """Base of the MaxPools."""

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

    def _window(self) -> tuple[Any, ...]:
        return (self.kernel_size, self.stride, self.padding, self.dilation, self.ceil_mode, self.return_indices)

    def extra_repr(self) -> str:
        """As PyTorch prints it."""
        return (
            f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}, "
            f"dilation={self.dilation}, ceil_mode={self.ceil_mode}"
        )


class _AvgPool(Module):
    """What AvgPool2d and AvgPool3d share."""

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

    def _window(self) -> tuple[Any, ...]:
        sizes = (self.kernel_size, self.stride, self.padding)
        return (*sizes, self.ceil_mode, self.count_include_pad, self.divisor_override)

    def extra_repr(self) -> str:
        """As PyTorch prints it."""
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class AvgPool1d(Module):
    """The mean of each window of (N, C, L). Like torch.nn.AvgPool1d."""

    def __init__(
        self,
        kernel_size: Ints,
        stride: Ints | None = None,
        padding: Ints = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
    ) -> None:
        super().__init__()
        self.kernel_size = _one(kernel_size)
        self.stride = self.kernel_size if stride is None else _one(stride)
        self.padding = _one(padding)
        self.ceil_mode = ceil_mode
        self.count_include_pad = count_include_pad

    def forward(self, input: Tensor) -> Tensor:
        """See the class."""
        sizes = (self.kernel_size, self.stride, self.padding)
        return F.avg_pool1d(input, *sizes, self.ceil_mode, self.count_include_pad)

    def extra_repr(self) -> str:
        """As PyTorch prints it."""
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


def _one(value: Ints) -> tuple[int, ...]:
    return (value,) if isinstance(value, int) else tuple(value)


class _MaxUnpool(Module):
    """Base of the MaxUnpools."""

    _dims = 0

    def __init__(self, kernel_size: Ints, stride: Ints | None = None, padding: Ints = 0) -> None:
        super().__init__()

        def each(value: Ints) -> tuple[int, ...]:
            return (value,) * self._dims if isinstance(value, int) else tuple(value)

        self.kernel_size = each(kernel_size)
        self.stride = self.kernel_size if stride is None else each(stride)
        self.padding = each(padding)

    def forward(self, input: Tensor, indices: Tensor, output_size: Sequence[int] | None = None) -> Tensor:
        """See the class."""
        function = (F.max_unpool1d, F.max_unpool2d, F.max_unpool3d)[self._dims - 1]
        return function(input, indices, self.kernel_size, self.stride, self.padding, output_size)

    def extra_repr(self) -> str:
        """As PyTorch prints it."""
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class _LPPool(Module):
    """Base of the LPPools."""

    _dims = 0

    def __init__(
        self, norm_type: float, kernel_size: Ints, stride: Ints | None = None, ceil_mode: bool = False
    ) -> None:
        super().__init__()
        self.norm_type = norm_type
        self.kernel_size = kernel_size
        self.stride = stride
        self.ceil_mode = ceil_mode

    def forward(self, input: Tensor) -> Tensor:
        """See the class."""
        function: Any = (F.lp_pool1d, F.lp_pool2d, F.lp_pool3d)[self._dims - 1]
        made: Tensor = function(input, float(self.norm_type), self.kernel_size, self.stride, self.ceil_mode)
        return made

    def extra_repr(self) -> str:
        """As PyTorch prints it."""
        return (
            f"norm_type={self.norm_type}, kernel_size={self.kernel_size}, stride={self.stride}, "
            f"ceil_mode={self.ceil_mode}"
        )


class _AdaptiveMaxPool(Module):
    """Base of the AdaptiveMaxPools."""

    def __init__(self, output_size: Any, return_indices: bool = False) -> None:
        super().__init__()
        self.output_size = output_size
        self.return_indices = return_indices

    def extra_repr(self) -> str:
        """As PyTorch prints it."""
        return f"output_size={self.output_size}"


class _AdaptiveAvgPool(Module):
    """Base of the AdaptiveAvgPools."""

    def __init__(self, output_size: Any) -> None:
        super().__init__()
        self.output_size = output_size

    def extra_repr(self) -> str:
        """As PyTorch prints it."""
        return f"output_size={self.output_size}"


class MaxPool1d(_MaxPool):
    """The largest value of each window, with `return_indices` also its index. Like torch.nn.MaxPool1d."""

    def forward(self, input: Tensor) -> Any:
        """See the class."""
        return F.max_pool1d(input, *self._window())


class MaxPool2d(_MaxPool):
    """The largest value of each window, with `return_indices` also its index. Like torch.nn.MaxPool2d."""

    def forward(self, input: Tensor) -> Any:
        """See the class."""
        return F.max_pool2d(input, *self._window())


class MaxPool3d(_MaxPool):
    """The largest value of each window, with `return_indices` also its index. Like torch.nn.MaxPool3d."""

    def forward(self, input: Tensor) -> Any:
        """See the class."""
        return F.max_pool3d(input, *self._window())


class AvgPool2d(_AvgPool):
    """The mean of each window. Like torch.nn.AvgPool2d."""

    def forward(self, input: Tensor) -> Tensor:
        """See the class."""
        return F.avg_pool2d(input, *self._window())


class AvgPool3d(_AvgPool):
    """The mean of each window. Like torch.nn.AvgPool3d."""

    def forward(self, input: Tensor) -> Tensor:
        """See the class."""
        return F.avg_pool3d(input, *self._window())


class MaxUnpool1d(_MaxUnpool):
    """Puts the values of MaxPool1d back where they were, zeros elsewhere. Like torch.nn.MaxUnpool1d."""

    _dims = 1


class LPPool1d(_LPPool):
    """The p-norm of each window. Like torch.nn.LPPool1d."""

    _dims = 1


class AdaptiveMaxPool1d(_AdaptiveMaxPool):
    """The largest values of as many windows as the result shall have. Like torch.nn.AdaptiveMaxPool1d."""

    def forward(self, input: Tensor) -> Any:
        """See the class."""
        return F.adaptive_max_pool1d(input, self.output_size, self.return_indices)


class AdaptiveAvgPool1d(_AdaptiveAvgPool):
    """The means of as many windows as the result shall have; None keeps a size.

    Like torch.nn.AdaptiveAvgPool1d.
    """

    def forward(self, input: Tensor) -> Tensor:
        """See the class."""
        return F.adaptive_avg_pool1d(input, self.output_size)


class MaxUnpool2d(_MaxUnpool):
    """Puts the values of MaxPool2d back where they were, zeros elsewhere. Like torch.nn.MaxUnpool2d."""

    _dims = 2


class LPPool2d(_LPPool):
    """The p-norm of each window. Like torch.nn.LPPool2d."""

    _dims = 2


class AdaptiveMaxPool2d(_AdaptiveMaxPool):
    """The largest values of as many windows as the result shall have. Like torch.nn.AdaptiveMaxPool2d."""

    def forward(self, input: Tensor) -> Any:
        """See the class."""
        return F.adaptive_max_pool2d(input, self.output_size, self.return_indices)


class AdaptiveAvgPool2d(_AdaptiveAvgPool):
    """The means of as many windows as the result shall have; None keeps a size.

    Like torch.nn.AdaptiveAvgPool2d.
    """

    def forward(self, input: Tensor) -> Tensor:
        """See the class."""
        return F.adaptive_avg_pool2d(input, self.output_size)


class MaxUnpool3d(_MaxUnpool):
    """Puts the values of MaxPool3d back where they were, zeros elsewhere. Like torch.nn.MaxUnpool3d."""

    _dims = 3


class LPPool3d(_LPPool):
    """The p-norm of each window. Like torch.nn.LPPool3d."""

    _dims = 3


class AdaptiveMaxPool3d(_AdaptiveMaxPool):
    """The largest values of as many windows as the result shall have. Like torch.nn.AdaptiveMaxPool3d."""

    def forward(self, input: Tensor) -> Any:
        """See the class."""
        return F.adaptive_max_pool3d(input, self.output_size, self.return_indices)


class AdaptiveAvgPool3d(_AdaptiveAvgPool):
    """The means of as many windows as the result shall have; None keeps a size.

    Like torch.nn.AdaptiveAvgPool3d.
    """

    def forward(self, input: Tensor) -> Tensor:
        """See the class."""
        return F.adaptive_avg_pool3d(input, self.output_size)


class _FractionalMaxPool(Module):
    """What both fractional poolings share. `output_size` or `output_ratio`, between 0 and 1, is given, not both."""

    _dims = 0

    def __init__(
        self,
        kernel_size: Any,
        output_size: Any = None,
        output_ratio: Any = None,
        return_indices: bool = False,
        _random_samples: Tensor | None = None,
    ) -> None:
        super().__init__()

        def each(value: Any) -> Any:
            return value if value is None or isinstance(value, tuple | list) else (value,) * self._dims

        self.kernel_size = each(kernel_size)
        self.return_indices = return_indices
        self.register_buffer("_random_samples", _random_samples)
        self.output_size = each(output_size)
        self.output_ratio = each(output_ratio)
        name = type(self).__name__
        if output_size is None and output_ratio is None:
            raise ValueError(f"{name} requires specifying either an output size, or a pooling ratio")
        if output_size is not None and output_ratio is not None:
            raise ValueError("only one of output_size and output_ratio may be specified")
        if self.output_ratio is not None and not all(0 < ratio < 1 for ratio in self.output_ratio):
            raise ValueError(f"output_ratio must be between 0 and 1 (got {output_ratio})")

    def forward(self, input: Tensor) -> Any:
        """See the class."""
        function = F.fractional_max_pool2d if self._dims == 2 else F.fractional_max_pool3d
        return function(
            input,
            self.kernel_size,
            self.output_size,
            self.output_ratio,
            self.return_indices,
            _random_samples=self._random_samples,
        )


class FractionalMaxPool2d(_FractionalMaxPool):
    """The largest value of windows at random places, with `return_indices` also its index.

    Like torch.nn.FractionalMaxPool2d.
    """

    _dims = 2


class FractionalMaxPool3d(_FractionalMaxPool):
    """The largest value of windows at random places, with `return_indices` also its index.

    Like torch.nn.FractionalMaxPool3d.
    """

    _dims = 3
