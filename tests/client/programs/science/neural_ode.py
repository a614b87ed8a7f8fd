import torch
import torch.nn as nn

torch.manual_seed(0)
true_A = torch.tensor([[-0.1, 2.0], [-2.0, -0.1]])
t = torch.linspace(0.0, 5.0, 60)


def rk4(func, y0, t):
    ys = [y0]
    for i in range(len(t) - 1):
        h, y = t[i + 1] - t[i], ys[-1]
        k1 = func(t[i], y)
        k2 = func(t[i] + h / 2, y + h * k1 / 2)
        k3 = func(t[i] + h / 2, y + h * k2 / 2)
        k4 = func(t[i + 1], y + h * k3)
        ys.append(y + h * (k1 + 2 * k2 + 2 * k3 + k4) / 6)
    return torch.stack(ys)


true_y = rk4(lambda t, y: (y**3) @ true_A, torch.tensor([[2.0, 0.0]]), t)


class ODEFunc(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(2, 50), nn.Tanh(), nn.Linear(50, 2))
        for m in self.net.modules():
            if isinstance(m, nn.Linear):
                nn.init.normal_(m.weight, mean=0, std=0.1)
                nn.init.constant_(m.bias, val=0)

    def forward(self, t, y):
        return self.net(y**3)


func = ODEFunc()
optimizer = torch.optim.RMSprop(func.parameters(), lr=1e-3)
for itr in range(1, 9):
    s = torch.randint(0, 50, (12,))
    batch_y0, batch_t = true_y[s], t[:8]
    batch_y = torch.stack([true_y[s + i] for i in range(8)])
    optimizer.zero_grad()
    loss = torch.mean(torch.abs(rk4(func, batch_y0, batch_t) - batch_y))
    loss.backward()
    optimizer.step()
    if itr % 4 == 0:
        print(f"Iter {itr:04d} | Total Loss {loss.item():.4f}")
