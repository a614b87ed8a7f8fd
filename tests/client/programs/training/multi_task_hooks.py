import torch
import torch.nn as nn

torch.manual_seed(0)


class MultiTask(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(6, 24), nn.SELU(), nn.AlphaDropout(0.05), nn.Linear(24, 24), nn.SELU())
        self.heads = nn.ModuleDict({"price": nn.Linear(24, 1), "kind": nn.Linear(24, 3)})
        self.log_vars = nn.ParameterDict({name: nn.Parameter(torch.zeros(())) for name in self.heads})

    def forward(self, x):
        h = self.trunk(x)
        return {name: head(h) for name, head in self.heads.items()}


model, seen, grads = MultiTask(), {}, []
for name, module in model.named_modules():
    if isinstance(module, nn.Linear):
        module.register_forward_hook(lambda m, i, o, name=name: seen.setdefault(name, []).append(o.detach().std()))
model.trunk[0].weight.register_hook(lambda g: grads.append(g.norm()) or g.clamp(-0.1, 0.1))
handle = model.trunk.register_full_backward_hook(lambda m, gi, go: grads.append(go[0].abs().mean()))
X = torch.randn(80, 6)
price, kind = X[:, :1] ** 2, X[:, 1:4].argmax(1)
optimizer = torch.optim.Adam(
    [
        {"params": model.trunk.parameters(), "lr": 3e-3},
        {"params": model.heads.parameters()},
        {"params": model.log_vars.parameters(), "lr": 0.05},
    ],
    lr=1e-2,
)
for epoch in range(6):
    out = model(X)
    losses = {
        "price": nn.functional.mse_loss(out["price"], price),
        "kind": nn.functional.cross_entropy(out["kind"], kind),
    }
    loss = sum(torch.exp(-model.log_vars[k]) * losses[k] + model.log_vars[k] for k in losses)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if epoch == 2:
        handle.remove()
    print(epoch, {k: f"{v.item():.4f}" for k, v in losses.items()}, f"{model.log_vars['kind'].item():.3f}")
print({k: f"{torch.stack(v).mean().item():.3f}" for k, v in seen.items()}, len(grads), f"{grads[0]:.4f}")
