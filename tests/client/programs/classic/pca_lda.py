import torch

torch.manual_seed(0)
X = torch.randn(150, 5, dtype=torch.float64) @ torch.randn(5, 8, dtype=torch.float64) + 0.1 * torch.randn(
    150, 8, dtype=torch.float64
)
labels = (X[:, 0] > 0).long() + (X[:, 1] > 0).long()
centred = X - X.mean(dim=0, keepdim=True)
U, S, Vh = torch.linalg.svd(centred, full_matrices=False)
explained = S.pow(2) / S.pow(2).sum()
print("explained", explained)
projected = centred @ Vh[:2].T
print("projection variance", projected.var(dim=0))
values, vectors = torch.linalg.eigh(torch.cov(centred.T))
print(torch.allclose(values.flip(0), S.pow(2) / 149))
whitened = centred @ vectors / values.clamp_min(1e-12).sqrt()
print("whitened", torch.allclose(torch.cov(whitened.T), torch.eye(8, dtype=torch.float64), atol=1e-6))
means = torch.stack([X[labels == c].mean(0) for c in range(3)])
within = sum((X[labels == c] - means[c]).T @ (X[labels == c] - means[c]) for c in range(3))
between = sum((labels == c).sum() * torch.outer(means[c] - X.mean(0), means[c] - X.mean(0)) for c in range(3))
ratio = torch.linalg.eigvals(torch.linalg.solve(within, between)).real.sort(descending=True).values
print("LDA", ratio[:2])
