"""Training with several losses, several wrapped modules or unused parameters, by a rank that `training.py` starts."""

from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Heads(nn.Module):
    """A body and two heads. A third head is used if asked for."""

    def __init__(self, third: bool) -> None:
        super().__init__()
        self.body, self.one, self.two = nn.Linear(4, 5), nn.Linear(5, 3), nn.Linear(5, 3)
        self.never = nn.Linear(5, 3) if third else None

    def forward(self, x: torch.Tensor) -> dict[str, Any]:
        hidden = self.body(x).tanh()
        return {"one": self.one(hidden.detach()), "two": [self.two(hidden)]}


def wrapped_modules(way: str) -> list[nn.Module]:
    if way == "modules":  # of one shape, so gradients that are exchanged between them raise nothing
        return [DistributedDataParallel(nn.Linear(4, 4).double()) for _ in range(9)]
    options = {"unused": {"find_unused_parameters": True}, "static": {"static_graph": True}}.get(way, {})
    return [DistributedDataParallel(Heads(way in ("unused", "static")).double(), **options)]


def train(way: str, steps: int) -> dict[str, Any]:
    torch.manual_seed(5)
    wrapped = wrapped_modules(way)
    optimizer = torch.optim.SGD([one for each in wrapped for one in each.parameters()], lr=0.1, momentum=0.9)
    source = torch.Generator().manual_seed(3 + dist.get_rank())
    for _ in range(steps):
        optimizer.zero_grad()
        x = torch.randn(6, 4, generator=source, dtype=torch.float64)
        if way == "modules":
            for each in wrapped:
                x = each(x).tanh()
            x.square().sum().backward()
        else:
            made = wrapped[0](x)
            one, two = made["one"].square().sum(), made["two"][0].sin().sum()
            if way == "losses":
                one.backward()
                two.backward()
            else:
                (one + two).backward()
        optimizer.step()
    names = [(name, one) for each in wrapped for name, one in each.named_parameters()]
    return {
        "weights": [value for _, one in names for value in one.detach().flatten().tolist()],
        "gradients": [value for _, one in names if one.grad is not None for value in one.grad.flatten().tolist()],
        "unset": [name for name, one in names if one.grad is None],
    }
