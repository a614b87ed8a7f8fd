import warnings

import torch

warnings.simplefilter("ignore")
a = torch.tensor([3.0], requires_grad=True)
b = a**3
(first,) = torch.autograd.grad(b, a, create_graph=True)
(second,) = torch.autograd.grad(first, a, create_graph=True)
(third,) = torch.autograd.grad(second, a)
print(first.item(), second.item(), third.item())
print(first.requires_grad, first.is_leaf, third.requires_grad)
x = torch.tensor([3.0], requires_grad=True)
y = x * x
y.retain_grad()
y.backward(create_graph=True)
print(x.grad.requires_grad, x.grad.is_leaf, y.grad, y.grad.requires_grad)
gradient = x.grad
x.grad = None
gradient.backward()
print(x.grad)


def u(points):
    return torch.sin(points) * torch.exp(-points)


points = torch.linspace(0, 1, 5, dtype=torch.float64).reshape(-1, 1).requires_grad_()
value = u(points)
du = torch.autograd.grad(value, points, torch.ones_like(value), create_graph=True)[0]
ddu = torch.autograd.grad(du, points, torch.ones_like(du), create_graph=True)[0]
residual = ((ddu + 2 * du + 2 * value) ** 2).mean()
print(du)
print(ddu)
print(residual.item() < 1e-20)
p, q = torch.tensor(1.0, requires_grad=True), torch.tensor(2.0, requires_grad=True)
print(torch.autograd.grad(p * 2, [p, q], allow_unused=True))
print(torch.autograd.grad(p * 2, [p, q], materialize_grads=True))
try:
    torch.autograd.grad(p * 2, [p, q])
except RuntimeError as error:
    print("appears to not have been used in the graph" in str(error))
