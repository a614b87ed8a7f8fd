import numpy as np
import torch

torch.manual_seed(0)
x = torch.tensor([[1, 2, 3], [4, 5, 6]])
print(x, x.shape, x.dtype, x.device)
print(torch.ones_like(x), torch.zeros(2, 3, dtype=torch.float64), torch.arange(0, 1, 0.25))
print(x[0], x[:, 1], x[..., -1], x[x > 2], x[[1, 0]], x[:, None].shape)
print(torch.cat([x, x], dim=1), torch.stack([x, x]).shape, x.t() @ x, x * x, (x.float() / 2).round())
a = np.ones(3)
print(torch.from_numpy(a) + 1, torch.ones(2).numpy(), x.tolist(), x.sum().item())
print(x.view(3, 2), x.reshape(-1), x.permute(1, 0).contiguous(), x.float().mean(dim=0), x.max(dim=1))
print(torch.rand(2, 2), torch.randn(3), torch.randperm(5), torch.randint(0, 9, (4,)))
y = torch.linspace(-1, 1, 5, requires_grad=True)
z = (y**2).sum()
z.backward()
print(z, y.grad, y.detach(), z.requires_grad, (y * 2).grad_fn is not None)
print(torch.where(x > 3, x, 0), x.clamp(2, 5), x.cumsum(1), torch.diag(torch.tensor([1, 2])), x.unique())
print(
    torch.tensor([1.5, float("inf"), float("nan")]),
    torch.tensor(3.14159),
    torch.tensor([1e10, 1e-5]),
    torch.tensor([True]),
)
print(torch.einsum("ij,kj->ik", x, x), torch.bmm(torch.ones(2, 1, 3), torch.ones(2, 3, 1)).flatten())
try:
    x @ x
except RuntimeError as error:
    print(error)
