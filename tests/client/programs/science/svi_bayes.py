import torch
import torch.distributions as dist

torch.manual_seed(0)
true_w = torch.tensor([1.5, -2.0, 0.5])
X = torch.randn(100, 3)
y = X @ true_w + 0.3 * torch.randn(100)
loc = torch.zeros(3, requires_grad=True)
log_scale = torch.full((3,), -1.0, requires_grad=True)
log_noise = torch.zeros(1, requires_grad=True)
optimizer = torch.optim.Adam([loc, log_scale, log_noise], lr=0.05)
prior = dist.Independent(dist.Normal(torch.zeros(3), 5 * torch.ones(3)), 1)
for step in range(80):
    q = dist.Independent(dist.Normal(loc, log_scale.exp()), 1)
    w = q.rsample((8,))
    likelihood = dist.Normal(w @ X.T, log_noise.exp()).log_prob(y).sum(-1).mean()
    elbo = likelihood - dist.kl_divergence(q, prior)
    optimizer.zero_grad()
    (-elbo).backward()
    optimizer.step()
    if step % 20 == 19:
        print(f"[{step}] ELBO {elbo.item():.2f} noise {log_noise.exp().item():.3f}")
print([round(v, 2) for v in loc.tolist()])

# Metropolis-Hastings of the same posterior.
state, accepted, kept = torch.zeros(3), 0, []
logp = lambda w: dist.Normal(X @ w, 0.3).log_prob(y).sum() + prior.log_prob(w)
current = logp(state)
for i in range(200):
    proposal = state + 0.05 * torch.randn(3)
    new = logp(proposal)
    if torch.rand(()).log() < new - current:
        state, current, accepted = proposal, new, accepted + 1
    kept.append(state)
print(accepted, [round(v, 1) for v in torch.stack(kept[100:]).mean(0).tolist()])
