"""Which tensors are leaves, who gets a gradient, and what leaves the graph: the rules in forty lines.

    python examples/leaves.py

Replace the import line by `import torch` and it prints the same.
"""

import gradwire as torch

# A tensor that you make is a leaf. If it requires grad, backward fills its .grad.
w = torch.tensor([1.0, 2.0], requires_grad=True)
x = torch.tensor([3.0, 4.0])
print(f"{w.is_leaf=} {w.requires_grad=} {x.is_leaf=} {x.requires_grad=}")

# The result of an op on it is none. It has a grad_fn instead, and keeps no gradient unless told to.
product = w * x
product.retain_grad()
loss = product.sum()
print(f"{product.is_leaf=} {type(product.grad_fn).__name__=}")
loss.backward()
print(f"{w.grad=}\n{product.grad=}\n{x.grad=}")

# Gradients add up until they are dropped.
(w * x).sum().backward()
print(f"{w.grad=}")
w.grad = None

# A moved or cast tensor is the result of an op: its gradient lands on the original, in the original's dtype.
wide = w.double()
(wide * 2).sum().backward()
print(f"{wide.is_leaf=} {w.grad=}")

# detach() and no_grad() leave the graph; a step of gradient descent changes the leaf in place.
print(f"{(w * 2).detach().requires_grad=}")
with torch.no_grad():
    w -= 0.5 * w.grad
print(f"{w=}")

# Gradients of gradients: create_graph makes the gradient itself differentiable.
a = torch.tensor(3.0, requires_grad=True)
(first,) = torch.autograd.grad(a**3, a, create_graph=True)
(second,) = torch.autograd.grad(first, a, create_graph=True)
(third,) = torch.autograd.grad(second, a)
print(first.item(), second.item(), third.item())

# What PyTorch refuses is refused, at the same line.
try:
    w += 1
except RuntimeError as error:
    print("refused:", str(error).split(".")[0])
