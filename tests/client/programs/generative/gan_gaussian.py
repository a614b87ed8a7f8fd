import torch
import torch.nn as nn
import torch.optim as optim

torch.manual_seed(0)
real_sampler = lambda n: torch.randn(n, 1) * 1.25 + 4.0
G = nn.Sequential(nn.Linear(1, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 1))
D = nn.Sequential(nn.Linear(4, 16), nn.Sigmoid(), nn.Linear(16, 16), nn.Sigmoid(), nn.Linear(16, 1), nn.Sigmoid())
criterion = nn.BCELoss()
d_optimizer, g_optimizer = (
    optim.SGD(D.parameters(), lr=1e-2, momentum=0.9),
    optim.SGD(G.parameters(), lr=1e-2, momentum=0.9),
)


def moments(d):
    mean = torch.mean(d)
    std = torch.std(d)
    zscores = (d - mean) / std
    return torch.stack([mean, std, torch.mean(zscores**3), torch.mean(zscores**4) - 3.0]).reshape(1, 4)


for epoch in range(30):
    for _ in range(5):
        D.zero_grad()
        d_real = criterion(D(moments(real_sampler(200))), torch.ones(1, 1))
        d_real.backward()
        d_fake = criterion(D(moments(G(torch.rand(200, 1)).detach())), torch.zeros(1, 1))
        d_fake.backward()
        d_optimizer.step()
    for _ in range(5):
        G.zero_grad()
        fake = G(torch.rand(200, 1))
        g_error = criterion(D(moments(fake)), torch.ones(1, 1))
        g_error.backward()
        g_optimizer.step()
    if epoch % 10 == 9:
        print(
            f"Epoch {epoch}: D ({d_real.item():.3f} real_err, {d_fake.item():.3f} fake_err) G ({g_error.item():.3f} err); "
            f"Fake ({fake.mean().item():.2f}, {fake.std().item():.2f})"
        )
