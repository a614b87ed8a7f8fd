import torch

torch.manual_seed(0)
X = torch.randn(100, 2)
y = torch.sign(X @ torch.tensor([1.0, -0.5]) + 0.3)
w, b, mistakes = torch.zeros(2), torch.zeros(1), 0
for epoch in range(3):
    for x, t in zip(X, y):
        if t * (x @ w + b) <= 0:
            w += t * x
            b += t
            mistakes += 1
    print(epoch, mistakes, f"{(torch.sign(X @ w + b) == y).float().mean().item():.2f}")

weight = torch.zeros(2, 1, requires_grad=True)
bias = torch.zeros(1, requires_grad=True)
optimizer = torch.optim.SGD([weight, bias], lr=0.1)
for epoch in range(6):
    perm = torch.randperm(100)
    total = 0.0
    for i in range(0, 100, 10):
        x, t = X[perm[i : i + 10]], y[perm[i : i + 10]]
        optimizer.zero_grad()
        loss = torch.clamp(1 - t * (x @ weight + bias).squeeze(), min=0).mean() + 0.01 * (weight.t() @ weight).squeeze()
        loss.backward()
        optimizer.step()
        total += loss.item()
    print(f"Epoch: {epoch + 1:4d}\tLoss: {total / 10:.4f}")
print(weight.detach().flatten() / weight.norm())
