"""Training by Lion, without foreach and with it."""

import torch
from lion_pytorch import Lion

torch.manual_seed(0)
for foreach in (False, True):
    model = torch.nn.Linear(4, 1)
    optimizer = Lion(model.parameters(), lr=1e-2, weight_decay=1e-2, use_triton=False, decoupled_weight_decay=foreach)
    x = torch.randn(64, 4)
    y = x @ torch.tensor([[1.0], [-2.0], [0.5], [3.0]])
    losses = []
    for _ in range(60):
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    assert losses[-1].item() < 0.7 * losses[0].item(), (losses[0], losses[-1])
