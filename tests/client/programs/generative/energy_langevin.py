import torch
from torch import nn

torch.manual_seed(0)
energy = nn.Sequential(nn.Linear(2, 64), nn.SiLU(), nn.Linear(64, 64), nn.SiLU(), nn.Linear(64, 1))
optimizer = torch.optim.Adam(energy.parameters(), lr=1e-3, betas=(0.0, 0.999))
buffer = torch.rand(256, 2) * 4 - 2


def langevin(x, steps=15, size=0.05):
    for p in energy.parameters():
        p.requires_grad_(False)
    x = x.clone().requires_grad_(True)
    for _ in range(steps):
        (grad,) = torch.autograd.grad(energy(x).sum(), x)
        with torch.no_grad():
            x -= size * grad.clamp(-1, 1)
            x += 0.05 * torch.randn_like(x)
    for p in energy.parameters():
        p.requires_grad_(True)
    return x.detach()


for step in range(12):
    angle = torch.rand(64) * 6.2831853
    real = torch.stack([angle.cos(), angle.sin()], 1)
    chosen = torch.randperm(256)[:64]
    fake = langevin(buffer[chosen])
    buffer[chosen] = fake
    e_real, e_fake = energy(real).mean(), energy(fake).mean()
    loss = e_real - e_fake + 0.1 * (e_real**2 + e_fake**2)
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_value_(energy.parameters(), 0.1)
    optimizer.step()
    if step % 4 == 3:
        print(step, f"{e_real.item():.4f} {e_fake.item():.4f} radius {fake.norm(dim=1).mean().item():.3f}")
