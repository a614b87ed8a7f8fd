import math

import torch

torch.manual_seed(0)
x = torch.linspace(0, 1, 40, dtype=torch.float64).unsqueeze(1)
y = torch.sin(2 * math.pi * x).squeeze() + 0.1 * torch.randn(40, dtype=torch.float64)
raw = torch.zeros(3, dtype=torch.float64, requires_grad=True)


def kernel(a, b, scale, length):
    return scale * torch.exp(-0.5 * torch.cdist(a, b).pow(2) / length**2)


def parameters():
    return torch.nn.functional.softplus(raw).unbind()


optimizer = torch.optim.Adam([raw], lr=0.1)
for i in range(40):
    scale, length, noise = parameters()
    K = kernel(x, x, scale, length) + (noise**2 + 1e-6) * torch.eye(40, dtype=torch.float64)
    L = torch.linalg.cholesky(K)
    alpha = torch.cholesky_solve(y.unsqueeze(1), L)
    loss = 0.5 * y @ alpha.squeeze() + L.diagonal().log().sum() + 20 * math.log(2 * math.pi)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if i % 10 == 9:
        print(f"Iter {i + 1}/40 - Loss: {loss.item():.4f} lengthscale: {length.item():.4f} noise: {noise.item():.4f}")
with torch.no_grad():
    xs = torch.tensor([[0.05], [0.25], [0.5], [1.2]], dtype=torch.float64)
    ks = kernel(x, xs, scale, length)
    v = torch.linalg.solve_triangular(L, ks, upper=False)
    print("mean", (ks.T @ alpha).squeeze(), "sd", (scale - v.pow(2).sum(0)).sqrt())
