import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
data = torch.randn(8, 32).repeat_interleave(12, 0) + 0.3 * torch.randn(96, 32)
labels = torch.arange(8).repeat_interleave(12)
encoder = nn.Sequential(nn.Linear(32, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 16))
optimizer = torch.optim.Adam(encoder.parameters(), lr=3e-3, weight_decay=1e-5)


def info_nce_loss(features, batch, temperature=0.2):
    target = torch.cat([torch.arange(batch) for _ in range(2)], dim=0)
    target = (target.unsqueeze(0) == target.unsqueeze(1)).float()
    features = F.normalize(features, dim=1)
    similarity = torch.matmul(features, features.T)
    mask = torch.eye(target.shape[0], dtype=torch.bool)
    target = target[~mask].view(target.shape[0], -1)
    similarity = similarity[~mask].view(similarity.shape[0], -1)
    positives = similarity[target.bool()].view(target.shape[0], -1)
    negatives = similarity[~target.bool()].view(similarity.shape[0], -1)
    logits = torch.cat([positives, negatives], dim=1) / temperature
    return logits, torch.zeros(logits.shape[0], dtype=torch.long)


for epoch in range(5):
    order = torch.randperm(96)
    for idx in order.split(24):
        x = data[idx]
        views = torch.cat([x + 0.2 * torch.randn_like(x), x * (torch.rand_like(x) > 0.1)])
        logits, target = info_nce_loss(encoder(views), len(idx))
        loss = F.cross_entropy(logits, target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    top1 = (logits.argmax(1) == target).float().mean()
    print(f"epoch {epoch} loss {loss.item():.4f} top1 {top1.item():.3f}")
encoder.eval()
with torch.no_grad():
    z = F.normalize(encoder(data), dim=1)
    nearest = (z @ z.T).fill_diagonal_(-1).argmax(1)
    print("same class", f"{(labels[nearest] == labels).float().mean().item():.3f}")
