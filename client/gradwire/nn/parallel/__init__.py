"""Parallel modules (torch.nn.parallel): DataParallel calls its module; DistributedDataParallel has several ranks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gradwire._base.refused import refused
from gradwire.nn._module import Module
from gradwire.nn.parallel.distributed import DistributedDataParallel

__all__ = [
    "DataParallel",
    "DistributedDataParallel",
    "data_parallel",
    "gather",
    "parallel_apply",
    "replicate",
    "scatter",
]

_WHY = "a session computes on one device at a time; DistributedDataParallel has several sessions"
DistributedDataParallelCPU = refused("nn.parallel.DistributedDataParallelCPU", _WHY)
gather = refused("nn.parallel.gather", _WHY)
parallel_apply = refused("nn.parallel.parallel_apply", _WHY)
replicate = refused("nn.parallel.replicate", _WHY)
scatter = refused("nn.parallel.scatter", _WHY)


class DataParallel(Module):
    """Calls its module on the whole batch: the server is one device to the client (torch.nn.DataParallel).

    Its parameters have the names that PyTorch gives them, "module.…".
    """

    def __init__(
        self, module: Module, device_ids: Sequence[Any] | None = None, output_device: Any = None, dim: int = 0
    ) -> None:
        super().__init__()
        self.dim = dim
        self.module = module
        self.device_ids: list[Any] = list(device_ids or ())

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        """The module's result."""
        return self.module(*inputs, **kwargs)


def data_parallel(
    module: Module,
    inputs: Any,
    device_ids: Any = None,
    output_device: Any = None,
    dim: int = 0,
    module_kwargs: Any = None,
) -> Any:
    """The module's result for the whole batch."""
    given = inputs if isinstance(inputs, tuple) else (inputs,)
    return module(*given, **(module_kwargs or {}))
