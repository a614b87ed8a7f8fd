import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 1))
optimizer = torch.optim.Adam(net.parameters(), lr=2e-3)
nu = 0.01 / torch.pi
x0 = torch.rand(64, 1) * 2 - 1
initial = torch.cat([torch.zeros_like(x0), x0], 1)
u0 = -torch.sin(torch.pi * x0)


def residual(points):
    points.requires_grad_(True)
    u = net(points)
    du = torch.autograd.grad(u, points, torch.ones_like(u), create_graph=True)[0]
    u_t, u_x = du[:, :1], du[:, 1:]
    u_xx = torch.autograd.grad(u_x, points, torch.ones_like(u_x), create_graph=True)[0][:, 1:]
    return u_t + u * u_x - nu * u_xx


for epoch in range(40):
    inside = torch.rand(256, 2) * torch.tensor([1.0, 2.0]) - torch.tensor([0.0, 1.0])
    loss_f = residual(inside).pow(2).mean()
    loss_u = (net(initial) - u0).pow(2).mean()
    loss = loss_f + loss_u
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if epoch % 10 == 9:
        print(f"Epoch {epoch}: residual {loss_f.item():.5f} data {loss_u.item():.5f}")
