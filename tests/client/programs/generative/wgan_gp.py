import torch
from torch import autograd, nn

torch.manual_seed(0)
G = nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2))
D = nn.Sequential(nn.Linear(2, 64), nn.LeakyReLU(0.2), nn.Linear(64, 64), nn.LeakyReLU(0.2), nn.Linear(64, 1))
opt_d, opt_g = torch.optim.Adam(D.parameters(), 1e-3, (0.5, 0.9)), torch.optim.Adam(G.parameters(), 1e-3, (0.5, 0.9))


def real_batch(n=64):
    angle = torch.rand(n) * 2 * torch.pi
    return torch.stack([angle.cos(), angle.sin()], 1) + 0.05 * torch.randn(n, 2)


def gradient_penalty(real, fake):
    alpha = torch.rand(real.size(0), 1).expand(real.size())
    between = (alpha * real + (1 - alpha) * fake).requires_grad_(True)
    out = D(between)
    gradients = autograd.grad(
        outputs=out, inputs=between, grad_outputs=torch.ones(out.size()), create_graph=True, retain_graph=True
    )[0]
    return ((gradients.norm(2, dim=1) - 1) ** 2).mean() * 10


for iteration in range(20):
    for _ in range(3):
        real = real_batch()
        fake = G(torch.randn(64, 4)).detach()
        D.zero_grad()
        gp = gradient_penalty(real, fake)
        d_loss = D(fake).mean() - D(real).mean() + gp
        d_loss.backward()
        opt_d.step()
    G.zero_grad()
    g_loss = -D(G(torch.randn(64, 4))).mean()
    g_loss.backward()
    opt_g.step()
    if iteration % 5 == 4:
        print(iteration, f"critic {d_loss.item():.3f} penalty {gp.item():.3f} generator {g_loss.item():.3f}")
