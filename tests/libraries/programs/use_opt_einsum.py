"""A contraction of several tensors, with gradients."""

import opt_einsum
import torch

a, b, c = (torch.randn(3, 4, requires_grad=True), torch.randn(4, 5), torch.randn(5, 2))
made = opt_einsum.contract("ij,jk,kl->il", a, b, c)
made.sum().backward()
assert torch.allclose(made, a @ b @ c, atol=1e-5)
assert a.grad.shape == (3, 4)
