import torch
import torch.nn.functional as F

torch.manual_seed(0)
u = torch.zeros(1, 1, 32, 32)
u[..., 12:20, 12:20] = 100.0
kernel = torch.tensor([[0.0, 1.0, 0.0], [1.0, -4.0, 1.0], [0.0, 1.0, 0.0]]).view(1, 1, 3, 3)
for step in range(200):
    u = u + 0.2 * F.conv2d(F.pad(u, (1, 1, 1, 1), mode="replicate"), kernel)
    if step % 50 == 49:
        print(step, f"max {u.max():.3f} total {u.sum():.1f}")

# Recover a conductivity by gradient descent through the simulation.
true_k = 0.15
start = torch.rand(1, 1, 16, 16)


def simulate(k, steps=15):
    u = start
    for _ in range(steps):
        u = u + k * F.conv2d(F.pad(u, (1, 1, 1, 1), mode="replicate"), kernel)
    return u


observed = simulate(true_k)
k = torch.tensor(0.05, requires_grad=True)
optimizer = torch.optim.Adam([k], lr=0.02)
for step in range(20):
    optimizer.zero_grad()
    loss = F.mse_loss(simulate(k), observed)
    loss.backward()
    optimizer.step()
print(f"k = {k.item():.4f}, loss {loss.item():.2e}"[:10])
