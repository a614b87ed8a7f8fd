import torch

torch.manual_seed(0)
x, y = torch.randn(40, 2), torch.randn(50, 2) + 2
a, b = torch.full((40,), 1 / 40), torch.full((50,), 1 / 50)


def sinkhorn(cost, eps=0.5, iterations=60):
    f, g = torch.zeros_like(a), torch.zeros_like(b)
    for i in range(iterations):
        before = f
        f = eps * (a.log() - torch.logsumexp((g[None] - cost) / eps, 1))
        g = eps * (b.log() - torch.logsumexp((f[:, None] - cost) / eps, 0))
        if (f - before).abs().sum() < 1e-4:
            break
    plan = torch.exp((f[:, None] + g[None] - cost) / eps)
    return plan, (plan * cost).sum(), i


points = x.clone().requires_grad_(True)
optimizer = torch.optim.SGD([points], lr=5.0)
for step in range(6):
    plan, distance, used = sinkhorn(torch.cdist(points, y).pow(2))
    optimizer.zero_grad()
    distance.backward()
    optimizer.step()
    print(step, f"{distance.item():.3f}", used > 5, f"{plan.sum().item():.3f}")
print(points.mean(0), points.grad.norm() < 1)
