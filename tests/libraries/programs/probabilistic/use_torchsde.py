"""A stochastic differential equation solved with fixed steps, and its gradients."""

import torch
import torchsde


class Drift(torch.nn.Module):
    noise_type, sde_type = "diagonal", "ito"

    def __init__(self):
        super().__init__()
        self.rate = torch.nn.Parameter(torch.tensor(0.5))

    def f(self, t, y):
        return -self.rate * y

    def g(self, t, y):
        return 0.1 * torch.ones_like(y)


torch.manual_seed(0)
sde = Drift()
out = torchsde.sdeint(sde, torch.ones(4, 2), torch.linspace(0, 1, 5), dt=0.1, method="euler")
out[-1].sum().backward()
assert sde.rate.grad < 0
