"""SyncBatchNorm: batch norm by the statistics of all ranks' batches (torch.nn.SyncBatchNorm)."""

from __future__ import annotations

import math
from typing import Any

from gradwire import distributed as dist
from gradwire._base import dtypes
from gradwire._functions.create import tensor
from gradwire._tensor.tensor import Tensor
from gradwire.autograd.function import Function
from gradwire.distributed._group import ProcessGroup, group_of
from gradwire.nn._module import Module
from gradwire.nn._norm import _BatchNorm


class _Sum(Function):
    """The sum over all ranks, whose gradient is the sum of the ranks' gradients."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, group: ProcessGroup) -> Any:
        """Sum a copy."""
        ctx.group = group
        total = value.clone()
        dist.all_reduce(total, group=group)
        return total

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        """Sum the gradients."""
        total = gradients[0].clone()
        dist.all_reduce(total, group=ctx.group)
        return total, None


class SyncBatchNorm(_BatchNorm):
    """Normalizes each of C features over the batches of all ranks: (N, C, …). Like torch.nn.SyncBatchNorm.

    In training its forward and its backward exchange sums between the ranks. With one rank, and in eval, it is a plain
    batch norm. `process_group`: the ranks; by default all of them.
    """

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        process_group: ProcessGroup | None = None,
        device: Any = None,
        dtype: dtypes.dtype | None = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device, dtype, bias=bias)
        self.process_group = process_group

    def forward(self, input: Tensor) -> Tensor:
        """In training by the statistics of all ranks' batches, which then move the running ones."""
        if input.ndim < 2:
            raise ValueError(f"expected at least 2D input (got {input.ndim}D input)")
        uses_batch = self.training or self.running_mean is None
        group = group_of(self.process_group) if uses_batch and dist.is_initialized() else None
        self._allowed_dims = (input.ndim,)
        if group is None or group.size() == 1:
            return super().forward(input)
        count, mean, variance = self._statistics(input, group)
        if self.training and self.running_mean is not None and self.running_var is not None:
            assert self.num_batches_tracked is not None
            self.num_batches_tracked.add_(1)
            momentum = 1.0 / float(self.num_batches_tracked) if self.momentum is None else self.momentum
            unbiased = variance.detach() * (count / (count - 1).clamp(min=1))
            self.running_mean.mul_(1 - momentum).add_(mean.detach().to(self.running_mean.dtype), alpha=momentum)
            self.running_var.mul_(1 - momentum).add_(unbiased.to(self.running_var.dtype), alpha=momentum)
        shape = (1, -1, *(1,) * (input.ndim - 2))
        made = (input - mean.view(shape)) * (variance + self.eps).rsqrt().view(shape)
        if self.weight is not None:
            made = made * self.weight.view(shape)
        if self.bias is not None:
            made = made + self.bias.view(shape)
        normed: Tensor = made.to(input.dtype)
        return normed

    def _statistics(self, input: Tensor, group: ProcessGroup) -> tuple[Tensor, Tensor, Tensor]:
        """Number of values, mean and variance of each feature, over all ranks' batches. They may differ in size."""
        dims = [0, *range(2, input.ndim)]
        values = input.float() if input.dtype.itemsize == 2 else input
        count = tensor(float(math.prod(input.shape) // input.shape[1]), dtype=values.dtype, device=input.device)
        dist.all_reduce(count, group=group)
        mean = _Sum.apply(values.sum(dims), group) / count
        centred = values - mean.view((1, -1, *(1,) * (input.ndim - 2)))
        return count, mean, _Sum.apply((centred * centred).sum(dims), group) / count

    def _expects(self) -> str:
        return f"(N, {self.num_features}, …)"

    @classmethod
    def convert_sync_batchnorm(cls, module: Module, process_group: ProcessGroup | None = None) -> Module:
        """Replace all batch norms of a module by this class, with the same parameters and buffers."""
        made: Module = module
        if isinstance(module, _BatchNorm) and type(module).__name__.startswith("BatchNorm"):
            made = cls(
                module.num_features, module.eps, module.momentum, module.affine, module.track_running_stats,
                process_group,
            )  # fmt: skip
            made.training = module.training
            for registry in ("_parameters", "_buffers"):
                for name, held in getattr(module, registry).items():
                    setattr(made, name, held)
        for name, child in module.named_children():
            setattr(made, name, cls.convert_sync_batchnorm(child, process_group))
        return made
