"""Sparse alternatives to softmax, with gradients."""

import torch
from entmax import entmax15, entmax_bisect, sparsemax, sparsemax_loss

x = torch.tensor([[1.0, 0.2, -1.0], [0.3, 0.1, 0.2]], requires_grad=True)
total = 0
for function in (entmax15, sparsemax, lambda x, dim: entmax_bisect(x, alpha=1.3, dim=dim)):
    out = function(x, dim=-1)
    assert torch.allclose(out.sum(-1), torch.ones(2))
    total = total + (out * torch.arange(3.0)).sum()
(total + sparsemax_loss(x, torch.tensor([0, 1])).sum()).backward()
assert torch.isfinite(x.grad).all()
