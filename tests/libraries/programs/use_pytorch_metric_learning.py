"""Losses, miners, distances and testers of embeddings."""

import torch
from pytorch_metric_learning import distances, losses, miners, reducers
from pytorch_metric_learning.utils.accuracy_calculator import AccuracyCalculator

torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
x, labels = torch.randn(24, 6), torch.arange(24) % 3
x += torch.nn.functional.one_hot(labels, 6).float()
optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
miner = miners.MultiSimilarityMiner()
objective = losses.TripletMarginLoss(distance=distances.CosineSimilarity(), reducer=reducers.ThresholdReducer(low=0))
found = []
for _ in range(8):
    optimizer.zero_grad()
    out = net(x)
    loss = objective(out, labels, miner(out, labels))
    loss.backward()
    optimizer.step()
    found.append(loss.item())
assert found[-1] < found[0], found
for other in (
    losses.ContrastiveLoss(),
    losses.NTXentLoss(),
    losses.SupConLoss(),
    losses.ArcFaceLoss(3, 4),
    losses.MultiSimilarityLoss(),
):
    value = other(net(x), labels)
    value.backward()
    assert torch.isfinite(value)
