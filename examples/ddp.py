"""Train on several ranks: each has a part of every batch, and all have the same weights.

    gradwire run --nproc 2 examples/ddp.py [--epochs 5]

This is a PyTorch program, as torchrun runs it. The ranks' tensors are on one server, which averages
their gradients. Alone, by `python examples/ddp.py`, the program is one rank.
"""

import argparse
import hashlib
import os

import gradwire as torch
import gradwire.distributed as dist
import gradwire.nn as nn
from gradwire.nn.parallel import DistributedDataParallel
from gradwire.utils.data import DataLoader, TensorDataset
from gradwire.utils.data.distributed import DistributedSampler

BATCH = 64  # of all ranks together


def make_data(points: int = 1024) -> TensorDataset:
    """Make points of two interlocked spirals, and the spiral of each."""
    generator = torch.Generator().manual_seed(0)
    turns = torch.rand(points, generator=generator) * 3 + 0.3
    spirals = torch.arange(points) % 2
    angles = turns * 2 + spirals * torch.pi
    noise = torch.randn(points, 2, generator=generator) * 0.05
    return TensorDataset(torch.stack([angles.cos(), angles.sin()], 1) * turns[:, None] / 3 + noise, spirals)


def train(epochs: int) -> tuple[float, str]:
    """Train. Returns the accuracy on all points, and a digest of the weights."""
    dataset = make_data()
    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, batch_size=BATCH // dist.get_world_size(), sampler=sampler)
    torch.manual_seed(0)
    model = DistributedDataParallel(
        nn.Sequential(nn.Linear(2, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 2))
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        for points, spirals in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(points), spirals).backward()
            optimizer.step()
    with torch.no_grad():
        points, spirals = dataset.tensors
        accuracy = (model(points).argmax(1) == spirals).float().mean().item()
    weights = b"".join(parameter.detach().numpy().tobytes() for parameter in model.parameters())
    return accuracy, hashlib.sha256(weights).hexdigest()[:12]


def main() -> None:
    """Train and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=20)
    epochs = parser.parse_args().epochs
    os.environ.setdefault("RANK", "0")
    os.environ.setdefault("WORLD_SIZE", "1")
    dist.init_process_group()
    accuracy, digest = train(epochs)
    dist.barrier()
    print(f"rank {dist.get_rank()} of {dist.get_world_size()}: accuracy {accuracy:.3f}, weights {digest}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
