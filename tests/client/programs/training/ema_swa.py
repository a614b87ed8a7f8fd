import copy

import torch
from torch import nn
from torch.optim.swa_utils import SWALR, AveragedModel, update_bn

torch.manual_seed(0)
X = torch.randn(160, 8)
y = X[:, :1] * X[:, 1:2] + 0.1 * torch.randn(160, 1)
loader = [(X[i : i + 40], y[i : i + 40]) for i in range(0, 160, 40)]
model = nn.Sequential(nn.Linear(8, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 1))
ema = copy.deepcopy(model).requires_grad_(False)
swa_model = AveragedModel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=10)
swa_scheduler = SWALR(optimizer, anneal_strategy="linear", anneal_epochs=3, swa_lr=0.02)
for epoch in range(12):
    for inputs, target in loader:
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(inputs), target)
        loss.backward()
        optimizer.step()
        for p, q in zip(ema.parameters(), model.parameters()):
            p.mul_(0.9).add_(q, alpha=0.1)
    if epoch > 6:
        swa_model.update_parameters(model)
        swa_scheduler.step()
    else:
        scheduler.step()
    if epoch % 4 == 3:
        print(epoch, f"{loss.item():.4f}", f"lr {optimizer.param_groups[0]['lr']:.5f}")
update_bn(loader, swa_model)
for name, each in (("last", model), ("swa", swa_model), ("ema", ema)):
    each.eval()
    print(name, f"{nn.functional.mse_loss(each(X), y).item():.4f}")
