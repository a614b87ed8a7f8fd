"""Neural ODE: a learned field integrated by fixed and adaptive steps, with gradients by the adjoint too."""

import torch
from torchdiffeq import odeint, odeint_adjoint

torch.manual_seed(0)
times = torch.linspace(0.0, 1.0, 5)
start = torch.tensor([[2.0, 0.0]])
exact = odeint(lambda t, y: -y, start, times, rtol=1e-6, atol=1e-8)
assert torch.allclose(exact[-1], start * torch.exp(torch.tensor(-1.0)), atol=1e-4)


class Field(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.Linear(2, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))

    def forward(self, t, y):
        return self.net(y**3)


field = Field()
optimizer = torch.optim.RMSprop(field.parameters(), lr=1e-2)
losses = []
for solve, method in ((odeint, "rk4"), (odeint_adjoint, "rk4"), (odeint, "dopri5")) * 2:
    optimizer.zero_grad()
    loss = (solve(field, start, times, method=method) - exact).abs().mean()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
assert losses[-1] < losses[0], losses
