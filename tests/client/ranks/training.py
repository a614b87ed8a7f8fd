"""A rank that trains with DistributedDataParallel in several ways. Prints a line about the weights of each, as JSON.

The arguments are ways with their number of steps, such as accumulate:5; those of `losses.py` are losses/modules:3.
One process runs all: to start it takes longer.
"""

import contextlib
import hashlib
import json
import sys
from functools import partial
from typing import Any

import losses
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

BATCH = 16
dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
source = torch.Generator().manual_seed(1)
data = torch.randn(BATCH * 2, 6, generator=source, dtype=torch.float64)
labels = torch.arange(BATCH * 2) % 3
part = slice(rank * (BATCH // size), (rank + 1) * (BATCH // size))
FIRST, SECOND = ((data[rows][part], labels[rows][part]) for rows in (slice(BATCH), slice(BATCH, None)))


class Branches(nn.Module):
    """Of its two branches, a rank uses one; a third is never used."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.one, self.two = nn.Linear(6, 8), nn.Linear(8, 3), nn.Linear(8, 3)
        self.never = nn.Linear(2, 2)

    def forward(self, x: torch.Tensor, use_two: bool) -> torch.Tensor:
        hidden = self.first(x).tanh()
        return self.two(hidden) if use_two else self.one(hidden)


def model_of(way: str) -> nn.Module:
    torch.manual_seed(7 + (rank if way == "begin" else 0))
    if way == "unused":
        return Branches().double()
    norm = [nn.BatchNorm1d(8)] if way in ("sync", "buffers") else []
    model: nn.Module = nn.Sequential(nn.Linear(6, 8), *norm, nn.Tanh(), nn.Linear(8, 3))
    if way == "sync":
        model = nn.SyncBatchNorm.convert_sync_batchnorm(model)
    return model.double()


def whole_step(way: str, wrapped: nn.Module, compiles: bool) -> partial[Any]:
    """A step of training; its loss, and with "mixed" something that no plan can hold, on rank 0 only."""
    optimizer = torch.optim.Adam(wrapped.parameters(), lr=0.01)

    def backward(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        made = wrapped(x, rank % 2 == 1) if way == "unused" else wrapped(x)
        loss = nn.functional.cross_entropy(made, y)
        loss.backward()
        return loss

    def step(x: torch.Tensor, y: torch.Tensor) -> Any:
        optimizer.zero_grad(set_to_none=way != "kept")
        if way == "accumulate":
            with wrapped.no_sync():
                backward(*SECOND)
        loss = backward(x, y)
        if way == "mixed":
            nn.utils.clip_grad_norm_(wrapped.parameters(), 0.1)
        optimizer.step()
        return (loss, torch.quantile(x, 0.5)) if way == "mixed" and rank == 0 else loss

    return partial(torch.compile(step) if compiles else step, *FIRST)


def check_sampler() -> None:
    dataset = TensorDataset(data, labels)
    sampler = DistributedSampler(dataset, shuffle=False)
    rows = [row.tolist() for x, _ in DataLoader(dataset, batch_size=4, sampler=sampler) for row in x]
    assert rows == data[rank::size].tolist()


def train(name: str, steps: int) -> dict[str, Any]:
    way = name.removeprefix("compiled/")
    wrapped = DistributedDataParallel(model_of(way), find_unused_parameters=way == "unused", bucket_cap_mb=0.0002)
    compiles = name.startswith("compiled/")
    step = whole_step(way, wrapped, compiles)
    values = []
    for _ in range(steps):
        made = step()
        values.append((made[0] if isinstance(made, tuple) else made).item())
    if compiles and way != "sync":  # whose custom function is a graph break
        assert step.func.given_up is None and not step.func.reasons, step.func.reasons
        planned = "as a plan" in step.func.describe()[1]
        assert planned is not (way == "mixed" and rank == 0), step.func.describe()
    if way == "sampler":
        check_sampler()
    state = wrapped.state_dict()
    with contextlib.suppress(AttributeError):
        assert all(name.startswith("module.") for name in state)
    return {
        "weights": [value for each in state.values() for value in each.double().flatten().tolist()],
        "digest": hashlib.sha256(b"".join(each.double().numpy().tobytes() for each in state.values())).hexdigest(),
        "losses": values[-1:],
        "unset": [name for name, each in wrapped.named_parameters() if each.grad is None],
    }


ways = {}
for each in sys.argv[1:]:
    name, _, steps = each.partition(":")
    own, _, of_losses = name.partition("losses/")
    ways[name] = losses.train(of_losses, int(steps)) if of_losses else train(own, int(steps))
dist.barrier()
dist.destroy_process_group()
print(json.dumps({"rank": rank, "ways": ways}), flush=True)
