"""Norms: batch and instance norm, which may keep running statistics; layer, group, RMS and local response norm."""

from __future__ import annotations

from collections.abc import Sequence

import gradwire.nn.functional as F
import gradwire.nn.init as init
from gradwire._base import dtypes
from gradwire._functions.create import empty, ones, tensor, zeros
from gradwire._tensor.tensor import Tensor
from gradwire.nn._module import Module
from gradwire.nn._parameter import Parameter

Device = dtypes.device | str | int | None


class _BatchNorm(Module):
    """Base of the batch norms; they differ in the inputs they take."""

    _allowed_dims: tuple[int, ...] = ()
    weight: Parameter | None
    bias: Parameter | None
    running_mean: Tensor | None
    running_var: Tensor | None
    num_batches_tracked: Tensor | None

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        device: Device = None,
        dtype: dtypes.dtype | None = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.num_features = num_features
        self.eps = eps
        self.momentum = momentum
        self.affine = affine
        self.track_running_stats = track_running_stats
        self.register_parameter(
            "weight", Parameter(empty(num_features, device=device, dtype=dtype)) if affine else None
        )
        has_bias = affine and bias
        self.register_parameter(
            "bias", Parameter(empty(num_features, device=device, dtype=dtype)) if has_bias else None
        )
        tracks = track_running_stats
        self.register_buffer("running_mean", zeros(num_features, device=device, dtype=dtype) if tracks else None)
        self.register_buffer("running_var", ones(num_features, device=device, dtype=dtype) if tracks else None)
        self.register_buffer("num_batches_tracked", tensor(0, dtype=dtypes.int64, device=device) if tracks else None)
        self.reset_parameters()

    def reset_running_stats(self) -> None:
        """Reset the running statistics: mean 0, variance 1, no batches."""
        if self.running_mean is not None and self.running_var is not None and self.num_batches_tracked is not None:
            self.running_mean.zero_()
            self.running_var.fill_(1)
            self.num_batches_tracked.zero_()

    def reset_parameters(self) -> None:
        """Reset running statistics and parameters: weight 1, bias 0."""
        self.reset_running_stats()
        if self.weight is not None:
            init.ones_(self.weight)
        if self.bias is not None:
            init.zeros_(self.bias)

    def forward(self, input: Tensor) -> Tensor:
        """In training by the batch's statistics, which then move the running ones; else by the running ones."""
        if input.ndim not in self._allowed_dims:
            expected = " or ".join(f"{dims}D" for dims in self._allowed_dims)
            raise ValueError(f"expected {expected} input (got {input.ndim}D input)")
        momentum = 0.0 if self.momentum is None else self.momentum
        if self.training and self.track_running_stats and self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
            if self.momentum is None:  # the plain mean of all batches
                momentum = 1.0 / float(self.num_batches_tracked)
        uses_running = not self.training or self.track_running_stats
        return F.batch_norm(
            input,
            self.running_mean if uses_running else None,
            self.running_var if uses_running else None,
            self.weight,
            self.bias,
            self.training or (self.running_mean is None and self.running_var is None),
            momentum,
            self.eps,
        )

    def _expects(self) -> str:
        return f"(N, {self.num_features}, …)"

    def extra_repr(self) -> str:
        """As PyTorch prints it."""
        return (
            f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, affine={self.affine}, "
            f"bias={self.bias is not None}, track_running_stats={self.track_running_stats}"
        )


class BatchNorm1d(_BatchNorm):
    """Normalizes each of C features over the batch: (N, C) or (N, C, L). Like torch.nn.BatchNorm1d."""

    _allowed_dims = (2, 3)


class BatchNorm2d(_BatchNorm):
    """Normalizes each of C channels over batch and image: (N, C, H, W). Like torch.nn.BatchNorm2d."""

    _allowed_dims = (4,)


class BatchNorm3d(_BatchNorm):
    """Normalizes each of C channels over batch and volume: (N, C, D, H, W). Like torch.nn.BatchNorm3d."""

    _allowed_dims = (5,)


class _InstanceNorm(_BatchNorm):
    """Base of the instance norms: by default neither weights nor running statistics; the batch may be missing."""

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float = 0.1,
        affine: bool = False,
        track_running_stats: bool = False,
        device: Device = None,
        dtype: dtypes.dtype | None = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device, dtype, bias=bias)

    def forward(self, input: Tensor) -> Tensor:
        """By the statistics of each channel of each instance, or in evaluation by running ones if there are."""
        single, batched = self._allowed_dims
        if input.ndim not in self._allowed_dims:
            raise ValueError(f"expected {single}D or {batched}D input (got {input.ndim}D input)")
        channels = input.shape[input.ndim - single]
        if channels != self.num_features and self.affine:
            raise ValueError(
                f"expected input's size at dim={input.ndim - single} to match num_features ({self.num_features}), "
                f"but got: {channels}."
            )
        alone = input.ndim == single
        made = F.instance_norm(
            input.unsqueeze(0) if alone else input,
            self.running_mean,
            self.running_var,
            self.weight,
            self.bias,
            self.training or not self.track_running_stats,
            0.0 if self.momentum is None else self.momentum,
            self.eps,
        )
        result: Tensor = made.squeeze(0) if alone else made
        return result


class InstanceNorm1d(_InstanceNorm):
    """Normalizes each channel of each of (N, C, L). Like torch.nn.InstanceNorm1d."""

    _allowed_dims = (2, 3)


class InstanceNorm2d(_InstanceNorm):
    """Normalizes each channel of each of (N, C, H, W). Like torch.nn.InstanceNorm2d."""

    _allowed_dims = (3, 4)


class InstanceNorm3d(_InstanceNorm):
    """Normalizes each channel of each of (N, C, D, H, W). Like torch.nn.InstanceNorm3d."""

    _allowed_dims = (4, 5)


class LayerNorm(Module):
    """Normalizes over the last dimensions, whose sizes are `normalized_shape`. Like torch.nn.LayerNorm."""

    weight: Parameter | None
    bias: Parameter | None

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
        device: Device = None,
        dtype: dtypes.dtype | None = None,
    ) -> None:
        super().__init__()
        shape = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
        self.normalized_shape = shape
        self.eps = eps
        self.elementwise_affine = elementwise_affine
        has_bias = elementwise_affine and bias
        self.register_parameter(
            "weight", Parameter(empty(*shape, device=device, dtype=dtype)) if elementwise_affine else None
        )
        self.register_parameter("bias", Parameter(empty(*shape, device=device, dtype=dtype)) if has_bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Reset the parameters: weight 1, bias 0."""
        if self.weight is not None:
            init.ones_(self.weight)
        if self.bias is not None:
            init.zeros_(self.bias)

    def forward(self, input: Tensor) -> Tensor:
        """See the class."""
        return F.layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)

    def _expects(self) -> str:
        return f"(*, {', '.join(map(str, self.normalized_shape))})"

    def extra_repr(self) -> str:
        """As PyTorch prints it."""
        return (
            f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}, "
            f"bias={self.bias is not None}"
        )


class GroupNorm(Module):
    """Normalizes groups of channels of each of (N, C, *). Like torch.nn.GroupNorm.

    Raises ValueError unless the channels can be divided into the groups.
    """

    weight: Parameter | None
    bias: Parameter | None

    def __init__(
        self,
        num_groups: int,
        num_channels: int,
        eps: float = 1e-5,
        affine: bool = True,
        device: Device = None,
        dtype: dtypes.dtype | None = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__()
        if num_channels % num_groups != 0:
            raise ValueError(f"num_channels ({num_channels}) must be divisible by num_groups ({num_groups})")
        self.num_groups = num_groups
        self.num_channels = num_channels
        self.eps = eps
        self.affine = affine
        kind = {"device": device, "dtype": dtype}
        self.register_parameter("weight", Parameter(empty(num_channels, **kind)) if affine else None)
        self.register_parameter("bias", Parameter(empty(num_channels, **kind)) if affine and bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Reset the parameters: weight 1, bias 0."""
        if self.weight is not None:
            init.ones_(self.weight)
        if self.bias is not None:
            init.zeros_(self.bias)

    def forward(self, input: Tensor) -> Tensor:
        """See the class."""
        return F.group_norm(input, self.num_groups, self.weight, self.bias, self.eps)

    def _expects(self) -> str:
        return f"(N, {self.num_channels}, …)"

    def extra_repr(self) -> str:
        """As PyTorch prints it."""
        return (
            f"{self.num_groups}, {self.num_channels}, eps={self.eps}, affine={self.affine}, "
            f"bias={self.bias is not None}"
        )


class RMSNorm(Module):
    """Divides by the root of the mean square over the last dimensions. Like torch.nn.RMSNorm."""

    weight: Parameter | None

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float | None = None,
        elementwise_affine: bool = True,
        device: Device = None,
        dtype: dtypes.dtype | None = None,
    ) -> None:
        super().__init__()
        shape = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
        self.normalized_shape = shape
        self.eps = eps
        self.elementwise_affine = elementwise_affine
        held = Parameter(empty(*shape, device=device, dtype=dtype)) if elementwise_affine else None
        self.register_parameter("weight", held)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Reset the parameters: weight 1."""
        if self.weight is not None:
            init.ones_(self.weight)

    def forward(self, input: Tensor) -> Tensor:
        """See the class."""
        return F.rms_norm(input, self.normalized_shape, self.weight, self.eps)

    def _expects(self) -> str:
        return f"(*, {', '.join(map(str, self.normalized_shape))})"

    def extra_repr(self) -> str:
        """As PyTorch prints it."""
        return f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}"


class LocalResponseNorm(Module):
    """Divides by the power of neighbouring channels. Like torch.nn.LocalResponseNorm."""

    def __init__(self, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> None:
        super().__init__()
        self.size = size
        self.alpha = alpha
        self.beta = beta
        self.k = k

    def forward(self, input: Tensor) -> Tensor:
        """See the class."""
        return F.local_response_norm(input, self.size, self.alpha, self.beta, self.k)

    def extra_repr(self) -> str:
        """As PyTorch prints it."""
        return f"{self.size}, alpha={self.alpha}, beta={self.beta}, k={self.k}"
