import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
X, w = torch.randn(256, 20), torch.randn(20, 3)
y = (X @ w + 0.1 * torch.randn(256, 3)).argmax(1)
loader = DataLoader(TensorDataset(X, y), batch_size=8, shuffle=True)
model = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, 3))
optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9, weight_decay=1e-4)
scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.3, total_steps=3 * 8)
accumulation_steps = 4
for epoch in range(3):
    running = 0.0
    optimizer.zero_grad()
    for i, (inputs, labels) in enumerate(loader):
        loss = nn.functional.cross_entropy(model(inputs), labels) / accumulation_steps
        loss.backward()
        running += loss.item() * accumulation_steps
        if (i + 1) % accumulation_steps == 0:
            norm = nn.utils.clip_grad_norm_(model.parameters(), 2.0)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
    print(f"epoch {epoch} loss {running / len(loader):.4f} lr {scheduler.get_last_lr()[0]:.4f} norm {norm:.3f}")
model.eval()
with torch.no_grad():
    print("accuracy", f"{(model(X).argmax(1) == y).float().mean().item():.3f}")
