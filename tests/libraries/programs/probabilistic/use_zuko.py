"""A neural spline flow fitted to samples, and sampled."""

import torch
import zuko

torch.manual_seed(0)
flow = zuko.flows.NSF(2, 1, transforms=2, hidden_features=(16, 16))
optimizer = torch.optim.Adam(flow.parameters(), lr=0.01)
context = torch.rand(32, 1)
x = torch.cat([context, context**2], -1) + 0.1 * torch.randn(32, 2)
losses = []
for _ in range(5):
    optimizer.zero_grad()
    loss = -flow(context).log_prob(x).mean()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
assert losses[-1] < losses[0]
