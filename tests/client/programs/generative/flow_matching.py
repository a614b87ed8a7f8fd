import torch
from torch import Tensor, nn

torch.manual_seed(0)


class Flow(nn.Module):
    def __init__(self, dim=2, h=64):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(dim + 1, h), nn.ELU(), nn.Linear(h, h), nn.ELU(), nn.Linear(h, dim))

    def forward(self, t: Tensor, x_t: Tensor) -> Tensor:
        return self.net(torch.cat((t, x_t), -1))

    def step(self, x_t: Tensor, t_start: Tensor, t_end: Tensor) -> Tensor:
        t_start = t_start.view(1, 1).expand(x_t.shape[0], 1)
        middle = t_start + (t_end - t_start) / 2
        return x_t + (t_end - t_start) * self(middle, x_t + self(t_start, x_t) * (t_end - t_start) / 2)


flow = Flow()
optimizer = torch.optim.Adam(flow.parameters(), 1e-2)
loss_fn = nn.MSELoss()
for step in range(60):
    angle = torch.rand(128) * 2 * torch.pi
    x_1 = torch.stack([angle.cos(), angle.sin()], 1)
    x_0 = torch.randn_like(x_1)
    t = torch.rand(len(x_1), 1)
    x_t = (1 - t) * x_0 + t * x_1
    optimizer.zero_grad()
    loss = loss_fn(flow(t=t, x_t=x_t), x_1 - x_0)
    loss.backward()
    optimizer.step()
    if step % 20 == 19:
        print(step, f"{loss.item():.4f}")
x = torch.randn(100, 2)
time_steps = torch.linspace(0, 1.0, 9)
with torch.no_grad():
    for i in range(8):
        x = flow.step(x, time_steps[i], time_steps[i + 1])
print(f"radius {x.norm(dim=1).mean():.2f} +- {x.norm(dim=1).std():.2f}")
