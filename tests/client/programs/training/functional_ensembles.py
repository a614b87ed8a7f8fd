import copy

import torch
from torch import nn
from torch.func import functional_call, grad, jacrev, stack_module_state, vmap

torch.manual_seed(0)
models = [nn.Sequential(nn.Linear(5, 16), nn.Tanh(), nn.Linear(16, 1)) for _ in range(4)]
params, buffers = stack_module_state(models)
base = copy.deepcopy(models[0]).to("meta") if False else models[0]
X, y = torch.randn(32, 5), torch.randn(32, 1)
call = lambda p, b, x: functional_call(base, (p, b), (x,))
predictions = vmap(call, in_dims=(0, 0, None))(params, buffers, X)
print(tuple(predictions.shape), torch.allclose(predictions[2], models[2](X), atol=1e-6))


def loss_of(p, x, t):
    return ((functional_call(base, p, (x.unsqueeze(0),)) - t) ** 2).mean()


p = {k: v.detach() for k, v in base.named_parameters()}
per_sample = vmap(grad(loss_of), in_dims=(None, 0, 0))(p, X, y)
print({k: tuple(v.shape) for k, v in per_sample.items()})
norms = torch.stack([g.flatten(1).norm(dim=1) for g in per_sample.values()]).norm(dim=0)
clip = (1.0 / norms).clamp(max=1)
noisy = {k: torch.einsum("n,n...->...", clip, g) / 32 for k, g in per_sample.items()}
print(f"clipped norm {torch.stack([v.norm() for v in noisy.values()]).norm():.4f}")
features = jacrev(lambda p: functional_call(base, p, (X[:6],)).squeeze())(p)
kernel = sum(f.flatten(1) @ f.flatten(1).T for f in features.values())
print("NTK", [round(v, 3) for v in torch.linalg.eigvalsh(kernel).tolist()[-3:]])
