"""MAML's inner loop: gradients through the steps of an optimizer."""

import higher
import torch

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(2, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
x, y = torch.randn(16, 2), torch.randn(16, 1)
with higher.innerloop_ctx(model, optimizer, copy_initial_weights=False) as (inner, steps):
    for _ in range(3):
        steps.step(((inner(x) - y) ** 2).mean())
    ((inner(x) - y) ** 2).mean().backward()
assert all(param.grad is not None and param.grad.abs().sum() > 0 for param in model.parameters())
