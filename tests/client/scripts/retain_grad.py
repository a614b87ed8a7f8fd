import warnings

import torch

warnings.simplefilter("always")
a = torch.tensor([2.0], requires_grad=True)
b = a * 3
c = b * b
print(b.retains_grad)
b.retain_grad()
b.retain_grad()
print(b.retains_grad)
c.backward()
print(a.grad, b.grad, b.grad.requires_grad, b.grad.is_leaf)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    print(c.grad)
print(
    len(caught),
    caught[0].category.__name__,
    "retain_grad()" in str(caught[0].message),
    "leaf" in str(caught[0].message),
)
a.retain_grad()
print(a.retains_grad)
try:
    torch.ones(1).retain_grad()
except RuntimeError as error:
    print(
        type(error).__mro__[-4:-1][0].__name__, "can't retain_grad on Tensor that has requires_grad=False" in str(error)
    )
x = torch.arange(4.0, requires_grad=True)
y = x * 1
y.retain_grad()
y.mul_(3)
y.sum().backward()
print(x.grad, y.grad)
