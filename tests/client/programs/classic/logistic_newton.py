import torch

torch.manual_seed(0)
X = torch.cat([torch.ones(120, 1), torch.randn(120, 3)], 1).double()
true = torch.tensor([0.5, 1.0, -2.0, 0.0], dtype=torch.float64)
y = torch.bernoulli(torch.sigmoid(X @ true))
w = torch.zeros(4, dtype=torch.float64)
for i in range(10):
    p = torch.sigmoid(X @ w)
    gradient = X.T @ (y - p)
    hessian = X.T @ (X * (p * (1 - p)).unsqueeze(1))
    step = torch.linalg.solve(hessian, gradient)
    w = w + step
    print(
        i,
        f"{step.norm().item():.2e}"[:3],
        f"{torch.nn.functional.binary_cross_entropy(torch.sigmoid(X @ w), y).item():.6f}",
    )
    if step.norm() < 1e-8:
        break
errors = torch.linalg.inv(hessian).diagonal().sqrt()
for name, value, error in zip("abcd", w, errors):
    print(name, f"{value.item():.4f} +- {error.item():.4f}")
