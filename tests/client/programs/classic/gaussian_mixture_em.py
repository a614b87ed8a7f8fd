import math

import torch

torch.manual_seed(0)
data = torch.cat([torch.randn(80, 2) + torch.tensor([3.0, 0.0]), torch.randn(60, 2) * 0.5 - 2])
weights, means, covs = torch.ones(2) / 2, data[[0, -1]].clone(), torch.eye(2).repeat(2, 1, 1)
for step in range(25):
    logp = torch.stack(
        [torch.distributions.MultivariateNormal(means[k], covs[k]).log_prob(data) + weights[k].log() for k in range(2)],
        1,
    )
    total = torch.logsumexp(logp, 1)
    r = (logp - total.unsqueeze(1)).exp()
    n = r.sum(0)
    weights, means = n / len(data), (r.T @ data) / n.unsqueeze(1)
    for k in range(2):
        d = data - means[k]
        covs[k] = (r[:, k, None] * d).T @ d / n[k] + 1e-4 * torch.eye(2)
    if step % 8 == 0:
        print(step, f"{total.mean().item():.4f}")
print(weights, means, covs.det(), math.isfinite(total.sum()))
