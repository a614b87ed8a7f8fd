import torch
import torch.nn as nn
from torch import distributions

torch.manual_seed(0)


class RealNVP(nn.Module):
    def __init__(self, nets, nett, mask, prior):
        super().__init__()
        self.prior = prior
        self.mask = nn.Parameter(mask, requires_grad=False)
        self.t = torch.nn.ModuleList([nett() for _ in range(len(mask))])
        self.s = torch.nn.ModuleList([nets() for _ in range(len(mask))])

    def g(self, z):
        x = z
        for i in range(len(self.t)):
            x_ = x * self.mask[i]
            s, t = self.s[i](x_) * (1 - self.mask[i]), self.t[i](x_) * (1 - self.mask[i])
            x = x_ + (1 - self.mask[i]) * (x * torch.exp(s) + t)
        return x

    def f(self, x):
        log_det_J, z = x.new_zeros(x.shape[0]), x
        for i in reversed(range(len(self.t))):
            z_ = self.mask[i] * z
            s, t = self.s[i](z_) * (1 - self.mask[i]), self.t[i](z_) * (1 - self.mask[i])
            z = (1 - self.mask[i]) * (z - t) * torch.exp(-s) + z_
            log_det_J -= s.sum(dim=1)
        return z, log_det_J

    def log_prob(self, x):
        z, logp = self.f(x)
        return self.prior.log_prob(z) + logp


nets = lambda: nn.Sequential(nn.Linear(2, 32), nn.LeakyReLU(), nn.Linear(32, 2), nn.Tanh())
nett = lambda: nn.Sequential(nn.Linear(2, 32), nn.LeakyReLU(), nn.Linear(32, 2))
masks = torch.tensor([[0.0, 1.0], [1.0, 0.0]] * 3)
flow = RealNVP(nets, nett, masks, distributions.MultivariateNormal(torch.zeros(2), torch.eye(2)))
optimizer = torch.optim.Adam([p for p in flow.parameters() if p.requires_grad], lr=2e-3)
for t in range(25):
    x = torch.randn(100, 2)
    x[:, 1] = x[:, 0] ** 2 + 0.3 * x[:, 1]
    loss = -flow.log_prob(x).mean()
    optimizer.zero_grad()
    loss.backward(retain_graph=True)
    optimizer.step()
    if t % 8 == 0:
        print(f"iter {t}: loss = {loss:.3f}")
z, _ = flow.f(x)
print("round trip", torch.allclose(flow.g(z), x, atol=1e-4))
