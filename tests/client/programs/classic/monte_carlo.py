import math

import torch

torch.manual_seed(0)
for n in (100, 10_000, 200_000):
    inside = (torch.rand(n, 2).pow(2).sum(1) <= 1).float().mean()
    print(n, f"pi is about {4 * inside.item():.4f}")

s0, strike, rate, sigma, years = 100.0, 105.0, 0.02, 0.25, 1.0
spot = torch.tensor(s0, requires_grad=True)
vol = torch.tensor(sigma, requires_grad=True)
z = torch.randn(50_000)
terminal = spot * torch.exp((rate - vol**2 / 2) * years + vol * math.sqrt(years) * z)
price = math.exp(-rate * years) * torch.relu(terminal - strike).mean()
delta, vega = torch.autograd.grad(price, (spot, vol))
print(f"Monte Carlo {price.item():.3f} delta {delta.item():.4f} vega {vega.item():.3f}")
normal = torch.distributions.Normal(0.0, 1.0)
d1 = (torch.log(spot / strike) + (rate + vol**2 / 2) * years) / (vol * math.sqrt(years))
exact = spot * normal.cdf(d1) - strike * math.exp(-rate * years) * normal.cdf(d1 - vol * math.sqrt(years))
exact.backward()
print(f"Black-Scholes {exact.item():.3f} delta {spot.grad.item():.4f} vega {vol.grad.item():.3f}")

paths = torch.full((2000,), s0)
highest = paths.clone()
for day in range(60):
    paths = paths * torch.exp((rate - sigma**2 / 2) / 252 + sigma * math.sqrt(1 / 252) * torch.randn(2000))
    highest = torch.maximum(highest, paths)
print(
    f"lookback {(highest - paths).mean().item():.3f} quantiles", torch.quantile(paths, torch.tensor([0.05, 0.5, 0.95]))
)
