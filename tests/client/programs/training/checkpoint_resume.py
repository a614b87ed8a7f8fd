import os
import tempfile

import torch
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([nn.Sequential(nn.Linear(16, 16), nn.Tanh()) for _ in range(3)])
        self.head = nn.Linear(16, 2)
        self.register_buffer("calls", torch.zeros((), dtype=torch.long))

    def forward(self, x):
        self.calls += 1
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False)
        return self.head(x)


X, y = torch.randn(64, 16), torch.randint(0, 2, (64,))


def train(model, optimizer, scheduler, epochs):
    for _ in range(epochs):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(X), y)
        loss.backward()
        optimizer.step()
        scheduler.step()
    return loss.item()


def build():
    model = Net()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    return model, optimizer, torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)


model, optimizer, scheduler = build()
print(f"after 5: {train(model, optimizer, scheduler, 5):.6f}")
path = os.path.join(tempfile.mkdtemp(), "checkpoint.pt")
torch.save(
    {"epoch": 5, "model": model.state_dict(), "optimizer": optimizer.state_dict(), "scheduler": scheduler.state_dict()},
    path,
)
straight = train(model, optimizer, scheduler, 5)
again, optimizer2, scheduler2 = build()
saved = torch.load(path)
print(again.load_state_dict(saved["model"]), saved["epoch"])
optimizer2.load_state_dict(saved["optimizer"])
scheduler2.load_state_dict(saved["scheduler"])
print(f"after 10: {straight:.6f} {train(again, optimizer2, scheduler2, 5):.6f}", int(again.calls))
