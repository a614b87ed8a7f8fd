import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
T = 50
betas = torch.linspace(1e-4, 0.1, T)
alphas = 1 - betas
alphas_cumprod = torch.cumprod(alphas, 0)


class Denoiser(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.time = nn.Embedding(T, width)
        self.inp, self.mid, self.out = nn.Linear(2, width), nn.Linear(width, width), nn.Linear(width, 2)

    def forward(self, x, t):
        h = F.silu(self.inp(x) + self.time(t))
        return self.out(F.silu(self.mid(h)) + h)


def moons(n):
    angle = torch.rand(n) * torch.pi
    side = torch.randint(0, 2, (n,)).float()
    x = torch.stack([angle.cos() + side, angle.sin() * (1 - 2 * side) + 0.5 * side], 1)
    return x + 0.05 * torch.randn_like(x)


model = Denoiser()
ema = {k: v.clone() for k, v in model.state_dict().items()}
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
for step in range(60):
    x0 = moons(128)
    t = torch.randint(0, T, (128,))
    noise = torch.randn_like(x0)
    a = alphas_cumprod[t].unsqueeze(1)
    loss = F.mse_loss(model(a.sqrt() * x0 + (1 - a).sqrt() * noise, t), noise)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    for k, v in model.state_dict().items():
        ema[k].mul_(0.95).add_(v, alpha=0.05)
    if step % 20 == 19:
        print(step, f"{loss.item():.4f}")
model.load_state_dict(ema)


@torch.no_grad()
def sample(n):
    x = torch.randn(n, 2)
    for i in reversed(range(T)):
        t = torch.full((n,), i, dtype=torch.long)
        mean = (x - betas[i] / (1 - alphas_cumprod[i]).sqrt() * model(x, t)) / alphas[i].sqrt()
        x = mean + betas[i].sqrt() * torch.randn_like(x) if i > 0 else mean
    return x


points = sample(100)
print([round(v, 2) for v in points.mean(0).tolist() + points.std(0).tolist()])
