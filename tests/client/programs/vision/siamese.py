import random

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

random.seed(0)
torch.manual_seed(0)


class PairMatcher(Dataset):
    """Pairs of images, of one class or of two."""

    def __init__(self, n=160):
        self.prototypes = torch.rand(4, 1, 20, 20)
        self.n = n
        self.grouped = [p + 0.1 * torch.randn(20, 1, 20, 20) for p in self.prototypes]

    def __len__(self):
        return self.n

    def __getitem__(self, index):
        first = random.randint(0, 3)
        one = self.grouped[first][random.randint(0, 19)]
        if index % 2 == 0:
            other = self.grouped[first][random.randint(0, 19)]
            target = torch.tensor(1, dtype=torch.float)
        else:
            second = random.choice([c for c in range(4) if c != first])
            other = self.grouped[second][random.randint(0, 19)]
            target = torch.tensor(0, dtype=torch.float)
        return one, other, target


class SiameseNetwork(nn.Module):
    def __init__(self):
        super().__init__()
        self.cnn = nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1),
            nn.BatchNorm2d(8),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(8, 16, 3, padding=1),
            nn.BatchNorm2d(16),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(4),
        )
        self.fc = nn.Sequential(nn.Linear(2 * 256, 64), nn.ReLU(inplace=True), nn.Linear(64, 1))
        self.sigmoid = nn.Sigmoid()
        self.cnn.apply(self.init_weights)

    def init_weights(self, m):
        if isinstance(m, nn.Conv2d):
            torch.nn.init.xavier_uniform_(m.weight)
            m.bias.data.fill_(0.01)

    def forward_once(self, x):
        out = self.cnn(x)
        return out.view(out.size()[0], -1)

    def forward(self, a, b):
        return self.sigmoid(self.fc(torch.cat((self.forward_once(a), self.forward_once(b)), 1)))


model = SiameseNetwork()
criterion = nn.BCELoss()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
loader = DataLoader(PairMatcher(), batch_size=16, shuffle=True)
for epoch in range(2):
    total, correct = 0.0, 0
    for one, other, targets in loader:
        optimizer.zero_grad()
        outputs = model(one, other).squeeze()
        loss = criterion(outputs, targets)
        loss.backward()
        optimizer.step()
        total += loss.item()
        correct += torch.where(outputs > 0.5, 1, 0).eq(targets).sum().item()
    print(f"epoch {epoch}: loss {total / len(loader):.4f}, {correct} of {len(loader.dataset)} right")
margin = F.pairwise_distance(model.forward_once(one), model.forward_once(other))
print("mean distance", round(margin.mean().item(), 3))
