"""A normalizing flow fitted to samples."""

import normflows as nf
import torch

torch.manual_seed(0)
base = nf.distributions.base.DiagGaussian(2)
flows = []
for _ in range(3):
    flows.append(nf.flows.AffineCouplingBlock(nf.nets.MLP([1, 16, 2], init_zeros=True)))
    flows.append(nf.flows.Permute(2, mode="swap"))
model = nf.NormalizingFlow(base, flows)
optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
x = torch.randn(64, 2) * 0.5 + torch.tensor([2.0, -1.0])
losses = []
for _ in range(8):
    optimizer.zero_grad()
    loss = model.forward_kld(x)
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
samples, log_prob = model.sample(5)
assert losses[-1] < losses[0] and samples.shape == (5, 2) and torch.isfinite(log_prob).all()
