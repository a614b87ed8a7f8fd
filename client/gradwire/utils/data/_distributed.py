"""DistributedSampler: the samples of one of several processes (torch.utils.data.distributed)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from gradwire._functions.create import randperm
from gradwire._functions.random import Generator
from gradwire._tensor.tensor import Tensor
from gradwire.distributed import get_rank, get_world_size
from gradwire.utils.data.sampler import Sampler

__all__ = ["DistributedSampler"]


class DistributedSampler(Sampler[int]):
    """Every `num_replicas`-th sample, from `rank` on, after shuffling by `seed` and epoch.

    Without `num_replicas` and `rank`, those of the default process group.
    """

    def __init__(
        self,
        dataset: Any,
        num_replicas: int | None = None,
        rank: int | None = None,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
    ) -> None:
        num_replicas = get_world_size() if num_replicas is None else num_replicas
        rank = get_rank() if rank is None else rank
        if rank >= num_replicas or rank < 0:
            raise ValueError(f"Invalid rank {rank}, rank should be in the interval [0, {num_replicas - 1}]")
        self.dataset, self.num_replicas, self.rank = dataset, num_replicas, rank
        self.shuffle, self.seed, self.drop_last, self.epoch = shuffle, seed, drop_last, 0
        count = len(dataset)
        if drop_last and count % num_replicas:
            self.num_samples = math.ceil((count - num_replicas) / num_replicas)
        else:
            self.num_samples = math.ceil(count / num_replicas)
        self.total_size = self.num_samples * num_replicas

    def __iter__(self) -> Iterator[int]:
        order = self._order()
        if self.drop_last:
            order = order[: self.total_size]
        else:
            order = (order * math.ceil(self.total_size / max(len(order), 1)))[: self.total_size]
        return iter(order[self.rank : self.total_size : self.num_replicas])

    def _order(self) -> list[int]:
        if not self.shuffle:
            return list(range(len(self.dataset)))
        generator = Generator().manual_seed(self.seed + self.epoch)
        with generator.used():
            drawn: Tensor = randperm(len(self.dataset))
        order: list[int] = drawn.tolist()
        return order

    def __len__(self) -> int:
        return self.num_samples

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch, so that each epoch has another order."""
        self.epoch = epoch
