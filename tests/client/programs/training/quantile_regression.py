import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset, random_split

np.random.seed(0)
torch.manual_seed(0)


class Noisy(Dataset):
    def __init__(self, n=200):
        self.x = np.random.uniform(0, 3, (n, 1)).astype(np.float32)
        self.y = (np.sin(2 * self.x) + np.random.randn(n, 1) * 0.2 * self.x).astype(np.float32)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return torch.tensor(self.x[i]), torch.tensor(self.y[i])


quantiles = [0.1, 0.5, 0.9]


class QuantileLoss(nn.Module):
    def forward(self, preds, target):
        losses = []
        for i, q in enumerate(quantiles):
            errors = target - preds[:, i : i + 1]
            losses.append(torch.max((q - 1) * errors, q * errors))
        return torch.mean(torch.sum(torch.cat(losses, dim=1), dim=1))


train_set, valid_set = random_split(Noisy(), [160, 40], generator=torch.Generator().manual_seed(1))
model = nn.Sequential(nn.Linear(1, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 3))
optimizer, criterion = torch.optim.AdamW(model.parameters(), lr=1e-2), QuantileLoss()
plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=1, factor=0.5)
best, stale = float("inf"), 0
for epoch in range(6):
    model.train()
    for x, y in DataLoader(train_set, batch_size=32, shuffle=True):
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        valid = sum(criterion(model(x), y).item() for x, y in DataLoader(valid_set, batch_size=20)) / 2
    plateau.step(valid)
    stale = 0 if valid < best else stale + 1
    best = min(best, valid)
    print(f"epoch {epoch} valid {valid:.4f} lr {optimizer.param_groups[0]['lr']}")
    if stale > 3:
        break
x, y = (torch.stack(each) for each in zip(*valid_set))
print("coverage", ((y >= model(x)[:, :1]) & (y <= model(x)[:, 2:])).float().mean())
