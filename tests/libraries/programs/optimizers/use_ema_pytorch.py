"""Exponential moving averages of a model's parameters."""

import torch
from ema_pytorch import EMA

torch.manual_seed(0)
net = torch.nn.Linear(3, 2)
ema = EMA(net, beta=0.9, update_after_step=1, update_every=1)
for _ in range(6):
    with torch.no_grad():
        for param in net.parameters():
            param.add_(torch.randn_like(param))
    ema.update()
assert not torch.equal(ema.ema_model.weight, net.weight)
