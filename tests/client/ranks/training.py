"""A rank that trains with DistributedDataParallel, in one of several ways. Prints a line about its weights, as JSON."""

import contextlib
import hashlib
import json
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

WAY, STEPS, BATCH = sys.argv[1], int(sys.argv[2]), 16
dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(7 + (rank if WAY == "begin" else 0))


class Branches(nn.Module):
    """Of its two branches, a rank uses one; a third is never used."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.one, self.two = nn.Linear(6, 8), nn.Linear(8, 3), nn.Linear(8, 3)
        self.never = nn.Linear(2, 2)

    def forward(self, x: torch.Tensor, use_two: bool) -> torch.Tensor:
        hidden = self.first(x).tanh()
        return self.two(hidden) if use_two else self.one(hidden)


norm = [nn.BatchNorm1d(8)] if WAY in ("sync", "buffers") else []
model: nn.Module = Branches() if WAY == "unused" else nn.Sequential(nn.Linear(6, 8), *norm, nn.Tanh(), nn.Linear(8, 3))
if WAY == "sync":
    model = nn.SyncBatchNorm.convert_sync_batchnorm(model)
model = model.double()
wrapped = DistributedDataParallel(model, find_unused_parameters=WAY == "unused", bucket_cap_mb=0.0002)
optimizer = torch.optim.Adam(wrapped.parameters(), lr=0.01)
source = torch.Generator().manual_seed(1)
data = torch.randn(BATCH * 2, 6, generator=source, dtype=torch.float64)
labels = torch.arange(BATCH * 2) % 3


def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    made = wrapped(x, rank % 2 == 1) if WAY == "unused" else wrapped(x)
    loss = nn.functional.cross_entropy(made, y)
    loss.backward()
    return loss.detach()


def compiled(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(wrapped(x), y)
    loss.backward()
    optimizer.step()
    return loss


if WAY == "compiled":
    compiled = torch.compile(compiled)
part = BATCH // size
mine, own = data[:BATCH][rank * part : (rank + 1) * part], labels[:BATCH][rank * part : (rank + 1) * part]
second, other = data[BATCH:][rank * part : (rank + 1) * part], labels[BATCH:][rank * part : (rank + 1) * part]
losses = []
for _ in range(STEPS):
    if WAY == "compiled":
        losses.append(compiled(mine, own).item())
        continue
    optimizer.zero_grad()
    if WAY == "accumulate":
        with wrapped.no_sync():
            step(second, other)
    losses.append(step(mine, own).item())
    optimizer.step()
if WAY == "sampler":
    dataset = TensorDataset(data, labels)
    sampler = DistributedSampler(dataset, shuffle=False)
    rows = [row.tolist() for x, _ in DataLoader(dataset, batch_size=4, sampler=sampler) for row in x]
    assert rows == data[rank::size].tolist()
with contextlib.suppress(AttributeError):
    assert all(name.startswith("module.") for name in wrapped.state_dict())
flat = [value for each in wrapped.state_dict().values() for value in each.double().flatten().tolist()]
digest = hashlib.sha256(b"".join(each.double().numpy().tobytes() for each in wrapped.state_dict().values())).hexdigest()
unset = [name for name, each in wrapped.named_parameters() if each.grad is None]
dist.barrier()
dist.destroy_process_group()
print(json.dumps({"rank": rank, "weights": flat, "digest": digest, "losses": losses[-1:], "unset": unset}), flush=True)
