"""Training by several of its optimizers."""

import torch
import torch_optimizer

torch.manual_seed(0)
x = torch.randn(32, 4)
y = x.sum(1, keepdim=True)
for name in ("AdaBound", "AdaMod", "DiffGrad", "Lamb", "NovoGrad", "QHAdam", "RAdam", "Yogi", "SWATS", "PID"):
    model = torch.nn.Linear(4, 1)
    optimizer = getattr(torch_optimizer, name)(model.parameters(), lr=1e-2)
    losses = []
    for _ in range(20):
        optimizer.zero_grad()
        loss = ((model(x) - y) ** 2).mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0], (name, losses)
