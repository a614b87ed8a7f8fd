import torch
import torch.nn as nn
import torch.nn.utils.parametrize as parametrize
from torch.nn.utils import prune
from torch.nn.utils.parametrizations import orthogonal, spectral_norm, weight_norm

torch.manual_seed(0)


class Symmetric(nn.Module):
    def forward(self, X):
        return X.triu() + X.triu(1).transpose(-1, -2)


X = torch.randn(64, 12)
y = X.sum(1, keepdim=True).tanh()
layers = {
    "plain": nn.Linear(12, 12),
    "weight_norm": weight_norm(nn.Linear(12, 12)),
    "spectral": spectral_norm(nn.Linear(12, 12)),
    "orthogonal": orthogonal(nn.Linear(12, 12)),
    "symmetric": nn.Linear(12, 12),
}
parametrize.register_parametrization(layers["symmetric"], "weight", Symmetric())
for name, layer in layers.items():
    model = nn.Sequential(layer, nn.Tanh(), nn.Linear(12, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for step in range(10):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(X), y)
        loss.backward()
        optimizer.step()
    W = layer.weight.detach()
    print(
        f"{name:12s} loss {loss.item():.4f} norm {torch.linalg.matrix_norm(W, 2).item():.3f} asymmetry {(W - W.T).abs().max().item():.2f}"
    )
model = nn.Sequential(nn.Linear(12, 12), nn.ReLU(), nn.Linear(12, 1))
prune.l1_unstructured(model[0], "weight", amount=0.5)
prune.random_unstructured(model[2], "bias", amount=1)
print(
    f"sparsity {(model[0].weight == 0).float().mean().item():.2f}",
    sorted(dict(model[0].named_buffers())),
    model[2].bias,
)
prune.remove(model[0], "weight")
print([name for name, _ in model[0].named_parameters()])
