"""Optimizers of papers, each for a few steps."""

import torch
from pytorch_optimizer import load_optimizer

for name in ("adabelief", "adan", "lamb", "lion", "madgrad", "ranger21", "sophiah", "adamp", "novograd", "prodigy"):
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
    kind = load_optimizer(name)
    optimizer = kind(net.parameters(), **({"num_iterations": 5} if name == "ranger21" else {"lr": 1e-2}))
    x, y = torch.randn(16, 4), torch.randn(16, 1)
    losses = []
    for _ in range(4):
        optimizer.zero_grad()
        loss = ((net(x) - y) ** 2).mean()
        loss.backward(create_graph=name == "sophiah")
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] * 1.05, name
